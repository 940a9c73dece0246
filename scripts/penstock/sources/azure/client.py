"""One client of an Azure account, made by adlfs; its coroutines run on fsspec's own thread.

The client is shared by the readers of a source in one process, and closed with the last of them.
Every request is tried once here: trying again is the caller's.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.errors import (
    ExpiredCredentialsError,
    FailedError,
    ObjectError,
    PenstockError,
    SourceChangedError,
    TransientError,
)
from penstock.sources.azure.account import HINT, AzureCredentials
from penstock.sources.backoff import asked_for, retry_after
from penstock.sources.http.endpoint import ca_bundle, split, tls_context
from penstock.sources.library_logs import keep_off_the_terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from concurrent.futures import Future

    from penstock.sources.azure.account import Place

T = TypeVar("T")

WRONG_KEYS = frozenset(
    {
        "AuthenticationFailed",
        "InvalidAuthenticationInfo",
        "NoAuthenticationInformation",
        "AuthorizationFailure",
        "PublicAccessNotPermitted",
        "AccountIsDisabled",
    }
)
NO_CONTAINER = frozenset({"ContainerNotFound", "ContainerBeingDeleted", "ResourceNotFound"})
ARCHIVED = frozenset({"BlobArchived", "BlobBeingRehydrated"})
PATIENCE = frozenset({"ServerBusy", "OperationTimedOut", "InternalError"})


class Link:
    """One client. `users` is kept by `Links`."""

    def __init__(
        self, where: Place, credentials: AzureCredentials, options: Mapping[str, object], timeout: float
    ) -> None:
        from adlfs import AzureBlobFileSystem

        keep_off_the_terminal("adlfs", "azure", "fsspec", "msal")
        # A connection string keeps adlfs from taking anything else from the environment.
        how: dict[str, Any] = {"connection_string": credentials.connection}
        if not credentials.connection:
            host = split(credentials.endpoint).netloc
            account = host.partition(".")[0]
            how = {"account_name": account, "account_host": host, **credentials.principal}
        try:
            self._fs = AzureBlobFileSystem(skip_instance_cache=True, **how)
        except ValueError as error:
            why = credentials.cleaned(str(error))
            raise FailedError("the account cannot be used", where=credentials.endpoint, why=why) from None
        self.credentials, self.users = credentials, 0
        self.container = self._fs.service_client.get_container_client(where.container)
        self.options: dict[str, Any] = {
            "retry_total": 0,
            "permit_redirects": False,
            "connection_timeout": min(timeout, 20.0),
            "read_timeout": timeout,
        }
        if credentials.endpoint.startswith("https:") and (bundle := ca_bundle(options)):
            # As `connection_verify` it would be read again, and a connection made, for each request.
            self.options["ssl"] = tls_context(bundle)
        if options.get("proxy"):
            self.options["proxies"] = {"http": str(options["proxy"]), "https": str(options["proxy"])}

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start it on fsspec's thread."""
        return asyncio.run_coroutine_threadsafe(work, self._fs.loop)

    def wait(self, future: Future[T], where: str) -> T:
        """What it gave; its failure as an error of ours that names `where`."""
        from azure.core.exceptions import AzureError

        try:
            return future.result()
        except (AzureError, OSError, ValueError, TimeoutError) as error:
            raise failure(error, self.credentials.cleaned, where) from None

    def run(self, work: Coroutine[Any, Any, T], where: str) -> T:
        return self.wait(self.submit(work), where)

    async def _close(self) -> None:
        await self._fs.service_client.close()
        credential = self._fs.credential
        if hasattr(credential, "close"):
            await credential.close()

    def close(self) -> None:
        self.submit(self._close()).result()


class Links:
    """The one link that is in use with the present secrets; older ones end with their readers."""

    def __init__(self, make: Callable[[AzureCredentials], Link]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._now: Link | None = None

    def take(self, credentials: AzureCredentials) -> Link:
        with self._lock:
            if self._now is None or self._now.credentials is not credentials:
                self._now = self._make(credentials)
            self._now.users += 1
            return self._now

    def give_back(self, link: Link) -> None:
        with self._lock:
            link.users -= 1
            if link.users:
                return
            if link is self._now:
                self._now = None
        link.close()


def failure(error: BaseException, cleaned: Callable[[str], str], where: str) -> PenstockError:
    """One table of what statuses and codes of Azure mean. `cleaned` leaves secrets out of a text.

    | status, code | error |
    |---|---|
    | 412; 404 BlobNotFound; 416 | SourceChangedError |
    | 404 ContainerNotFound | FailedError |
    | 403 AuthenticationFailed of a signature out of its time | ExpiredCredentialsError |
    | 401; 403 AuthenticationFailed and its like; no token to be had | FailedError |
    | 429, 503, ServerBusy, Retry-After | OverloadedError |
    | 408, other 5xx; the network | TransientError |
    | 409 BlobArchived and all else | ObjectError |
    """
    status = getattr(error, "status_code", None)
    code = getattr(error, "error_code", None)
    code = str(getattr(code, "value", code) or "")
    message = cleaned(str(getattr(error, "message", "") or error)).strip()
    message = message.partition("\n")[0][:300]
    if not status:
        return _without_answer(error, message, where)
    why = " ".join(filter(None, (f"status {status}", code, message)))
    if status == 403 and "time frame" in str(error):
        return ExpiredCredentialsError("the signature is out of its time", where=where, why=why)
    if status == 401 or code in WRONG_KEYS:
        return FailedError(
            "the store refuses the credentials", where=where, why=f"status {status} {code}", hint=HINT
        )
    if status == 404 and code in NO_CONTAINER:
        return FailedError("there is no such container", where=where, why=f"status {status} {code}")
    if status in (408, 429) or status >= 500 or code in PATIENCE:
        headers = getattr(getattr(error, "response", None), "headers", None) or {}
        asked = retry_after(
            {b"retry-after": str(headers.get("Retry-After", "")).encode("latin-1", "replace")}
        )
        return asked_for("the store asks for patience", where, why, status, code, asked)
    if status == 412:
        return SourceChangedError(
            "the object changed since it was listed", where=where, why=f"status 412 {code}"
        )
    if status == 404:
        return SourceChangedError(
            "the object is gone since it was listed", where=where, why=f"status 404 {code}"
        )
    if status == 416:
        return SourceChangedError(
            "the object is shorter than it was listed", where=where, why=f"status 416 {code}"
        )
    if code in ARCHIVED:
        return ObjectError("the object is archived", where=where, why=why, hint="rehydrate it first")
    return ObjectError("the store refuses the object", where=where, why=why)


def _without_answer(error: BaseException, message: str, where: str) -> PenstockError:
    from azure.core.exceptions import ClientAuthenticationError

    if isinstance(error, ClientAuthenticationError):
        return FailedError("there are no credentials for the source", where=where, why=message, hint=HINT)
    if isinstance(error, ValueError):  # what the SDK says of an answer that it cannot take
        return ObjectError("the answer makes no sense", where=where, why=message)
    if "CERTIFICATE_VERIFY_FAILED" in message:
        return FailedError(
            "the server's certificate is not trusted",
            where=where,
            why=message,
            hint="name your site's certificate authorities by `ca_bundle` in storage_options",
        )
    return TransientError(
        "the exchange with the server failed", where=where, why=message or type(error).__name__
    )
