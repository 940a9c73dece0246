"""Which error of penstock a refusal of Azure becomes. The refusal is an HTTP answer, or an exception of
azure-identity, which fetches tokens. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.errors import (
    ExpiredCredentialsError,
    FailedError,
    ObjectError,
    PenstockError,
    TransientError,
)
from penstock.sources.azure.account import HINT
from penstock.sources.objects.refusals import REFUSED, Meaning, refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

WAITS = frozenset({"ServerBusy", "OperationTimedOut", "InternalError"})
"""Codes after which a retry may help, whatever the status."""
_WRONG_KEYS = Meaning(FailedError, "the store refuses the credentials", HINT)
_NO_CONTAINER = Meaning(FailedError, "there is no such container")
_ARCHIVED = Meaning(ObjectError, "the object is archived", "rehydrate it first")
CODES = {
    **dict.fromkeys(
        (
            "NoAuthenticationInformation",
            "AuthorizationFailure",
            "PublicAccessNotPermitted",
            "AccountIsDisabled",
        ),
        _WRONG_KEYS,
    ),
    # A key that was made anew, a login that was withdrawn.
    **dict.fromkeys(("AuthenticationFailed", "InvalidAuthenticationInfo"), REFUSED),
    **dict.fromkeys(("ContainerNotFound", "ContainerBeingDeleted", "ResourceNotFound"), _NO_CONTAINER),
    **dict.fromkeys(("BlobArchived", "BlobBeingRehydrated"), _ARCHIVED),
}
"""What Azure's codes mean beyond the status that they come with."""


def refused(
    status: int,
    code: str,
    message: str,
    headers: Mapping[bytes, bytes],
    where: str,
    *,
    listing: bool = False,
) -> PenstockError:
    """`refusals.refusal` with Azure's codes. A signature before or after its period is
    ExpiredCredentialsError. `message` holds no secret."""
    if status == 403 and "time frame" in message:
        why = f"status {status} {code}"
        return ExpiredCredentialsError("the signature is not valid at this time", where=where, why=why)
    return refusal(
        status, headers, where, code=code, message=message, codes=CODES, waits=WAITS, listing=listing
    )


def failure(error: BaseException, cleaned: Callable[[str], str], where: str) -> PenstockError:
    """As `refused`, for an exception of azure-identity; `cleaned` takes secrets out of a text. For an
    exception without an answer: TransientError for the network, FailedError where there is no token or a
    certificate is not trusted."""
    message = cleaned(str(getattr(error, "message", "") or error)).strip()
    status = getattr(error, "status_code", None)
    if not status:
        return _without_answer(error, message.partition("\n")[0][:300], where)
    code = getattr(error, "error_code", None)
    stated = getattr(getattr(error, "response", None), "headers", None) or {}
    headers = {b"retry-after": str(stated.get("Retry-After", "")).encode("latin-1", "replace")}
    message = message if "time frame" in message else message.partition("\n")[0]
    return refused(status, str(getattr(code, "value", code) or ""), message, headers, where)


def _without_answer(error: BaseException, message: str, where: str) -> PenstockError:
    from azure.core.exceptions import ClientAuthenticationError

    if isinstance(error, ClientAuthenticationError):
        return FailedError("there are no credentials for the source", where=where, why=message, hint=HINT)
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
