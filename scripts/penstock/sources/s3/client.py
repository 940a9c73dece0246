"""Signed requests to one bucket: addressing, redirects within the store, errors told apart."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from penstock.errors import (
    ConfigError,
    ExpiredCredentialsError,
    FailedError,
    ObjectError,
    PenstockError,
    SourceChangedError,
    TransientError,
)
from penstock.sources.backoff import asked_for, retry_after
from penstock.sources.http.connection import Connection
from penstock.sources.http.endpoint import Endpoint, endpoint, split
from penstock.sources.s3.page import plain
from penstock.sources.s3.sigv4 import EMPTY_SHA256, Signer, quote_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.sources.s3.credentials import S3Credentials

AWS = (".amazonaws.com", ".amazonaws.com.cn")
REDIRECTS = 4
ERROR_LIMIT = 1 << 16
EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"})
WRONG_KEYS = frozenset({"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "InvalidSecurity"})
PATIENCE = frozenset({"SlowDown", "RequestTimeout", "InternalError", "ServiceUnavailable", "Throttling"})
OTHER_REGION = frozenset({"AuthorizationHeaderMalformed", "IllegalLocationConstraintException"})
_REGION = re.compile(r"[a-z0-9-]{1,32}")
_TAG = re.compile(rb"<(Code|Message|Region)>([^<]*)</")


@dataclass(frozen=True)
class Bucket:
    """One bucket and prefix, and how it is reached. Without secrets."""

    name: str
    prefix: str
    """"" or ending in a slash; `str` by os.fsdecode."""
    endpoint: str
    """"" for AWS."""
    region: str
    path_style: bool
    options: Mapping[str, object]
    timeout: float = 60.0

    @property
    def url(self) -> str:
        return f"s3://{self.name}/{self.prefix}"


def address(bucket: Bucket, region: str) -> tuple[Endpoint, str]:
    """The server of a bucket in a region, and what goes before a key's path there."""
    if not bucket.endpoint:
        suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
        base = f"https://s3.{region}.{suffix}"
    else:
        base = bucket.endpoint
    parts = split(base)
    if parts.username or parts.password:
        raise ConfigError("a secret in a URL", where="endpoint_url", hint="use a profile or credentials_file")
    root = parts.path.rstrip("/")
    if bucket.path_style:
        return endpoint(
            base, bucket.options, timeout=bucket.timeout
        ), f"{root}/{quote_path(bucket.name.encode())}/"
    virtual = parts._replace(netloc=f"{bucket.name}.{parts.netloc}").geturl()
    return endpoint(virtual, bucket.options, timeout=bucket.timeout), f"{root}/"


class S3Client:
    """For one thread: one kept connection. Follows a bucket to its region or host, and stays."""

    def __init__(self, bucket: Bucket, credentials: S3Credentials) -> None:
        self.bucket = bucket
        self.region = bucket.region
        self._credentials = credentials
        self._stamp = self._own = self._canonical = self._authorization = ""
        self._signer = self._sign_with(credentials)
        self._told: bytes | None = None
        self._sent = b""
        self._payer = "requester" if bucket.options.get("requester_pays") else ""
        self._go_to(*address(bucket, self.region))

    def _sign_with(self, credentials: S3Credentials) -> Signer | None:
        return Signer(credentials.keys, self.region) if credentials.keys else None

    def _go_to(self, server: Endpoint, root: str) -> None:
        self.connection = Connection(server)
        self.root = root
        self._host = server.authority
        self._origin = server.origin
        self._own = ""
        self._lines = f" HTTP/1.1\r\nHost: {self._host}\r\nAccept-Encoding: identity\r\n{server.proxy_lines}"

    def renew(self, credentials: S3Credentials) -> None:
        """Sign with other keys from the next request on."""
        if credentials is not self._credentials:
            self._credentials = credentials
            self._signer = self._sign_with(credentials)
            self._own = ""

    def close(self) -> None:
        self._sent = b""
        self.connection.close()

    def _head(self, method: str, path: str, query: str, lines: str) -> bytes:
        """The request's head. `lines` are further headers that need no signature."""
        signer = self._signer
        stamp = signer.stamp() if signer is not None else ""
        if stamp != self._stamp or not self._own:
            self._prepare(stamp)
        if signer is not None:
            signature = signer.sign(f"{method}\n{path}\n{query}\n{self._canonical}")
            lines = f"{lines}{self._authorization}{signature}\r\n"
        target = f"{path}?{query}" if query else path
        return f"{method} {self._origin}{target}{self._own}{lines}\r\n".encode("latin-1")

    def _prepare(self, stamp: str) -> None:
        """What all requests of one second have in common."""
        signer = self._signer
        signed = [("host", self._host), ("x-amz-checksum-mode", "ENABLED")]
        if signer is not None:
            signed += [("x-amz-content-sha256", EMPTY_SHA256), ("x-amz-date", stamp)]
        if self._payer:
            signed.append(("x-amz-request-payer", self._payer))
        if signer is not None:
            if signer.keys.session:
                signed.append(("x-amz-security-token", signer.keys.session))
            self._canonical, authorization = signer.prepare(signed)
            self._authorization = f"Authorization: {authorization}"
        self._own = self._lines + "".join([f"{name}: {value}\r\n" for name, value in signed[1:]])
        self._stamp = stamp

    def send(self, method: str, path: str, query: str = "", lines: str = "") -> None:
        """Ask ahead of time; the next `request` must be for the same, or `close` come before it."""
        self._sent = self._head(method, self.root + path, query, lines)
        self.connection.send(self._sent)

    def request(
        self, method: str, path: str, query: str = "", lines: str = "", room: memoryview | None = None
    ) -> Connection:
        """Ask for `path` (quoted, below the bucket); the connection holds the answer's head, and in `room`
        perhaps its body too.

        Any status but a redirect within the store is handed to the caller.
        """
        for _ in range(REDIRECTS):
            connection, self._told = self.connection, None
            anew = partial(self._head, method, self.root + path, query, lines)
            head, self._sent = self._sent or anew(), b""
            status = connection.request(head, bodyless=method == "HEAD", room=room, anew=anew)
            if status in (200, 206) or not self._moved(connection):
                return connection
        connection.abandon()
        raise FailedError("the store redirects in a circle", where=self.bucket.url)

    def _moved(self, connection: Connection) -> bool:
        """Follow the bucket to its region, or a redirect to a host of the same store."""
        status = connection.status
        if status not in (301, 302, 307, 308, 400, 403):
            return False
        region = connection.headers.get(b"x-amz-bucket-region", b"").decode("latin-1")
        if not region and status == 400:  # some stores name the region in the error alone
            code, _, region = _understood(self._tell(connection))
            region = region if code in OTHER_REGION else ""
        if region != self.region and _REGION.fullmatch(region):
            connection.abandon()
            self.region = region
            self._signer = self._sign_with(self._credentials)
            self._go_to(*address(self.bucket, region))
            return True
        if status in (400, 403):
            return False
        location = connection.headers.get(b"location", b"").decode("latin-1")
        connection.abandon()
        old = connection.endpoint
        try:
            target = urlsplit(urljoin(old.url, location))
            host, port = (target.hostname or "").lower(), target.port
        except ValueError:
            target, host, port = urlsplit(""), "", None
        port = port or (443 if target.scheme == "https" else 80)
        # A signed request carries the session's token: it goes to no other server of the same machine.
        there = port == old.port or (old.port, port) == (80, 443)
        allowed = target.scheme == "https" or (target.scheme == "http" and not old.tls)
        if not location or not allowed or not there or not same_store(old.host, host):
            raise FailedError(
                "the store redirects to somewhere else, which is not followed",
                where=self.bucket.url,
                why=f"status {status}, to {f'{host}:{port}' if host else 'no host'}",
                hint="check endpoint_url and the bucket's name",
            )
        if (host, port, target.scheme == "https") == (old.host, old.port, old.tls):
            return True  # the same again; the number of tries is limited
        server = endpoint(
            f"{target.scheme}://{target.netloc.rpartition('@')[2]}",
            self.bucket.options,
            timeout=self.bucket.timeout,
        )
        virtual = host.startswith(self.bucket.name.lower() + ".")
        self._go_to(server, "/" if virtual else f"/{quote_path(self.bucket.name.encode())}/")
        return True

    def failure(self, connection: Connection, key: str = "") -> PenstockError:
        """The error that an answer other than the wanted one means. Reads the answer's body."""
        code, message, region = _understood(self._tell(connection))
        where = f"s3://{self.bucket.name}/{key}" if key else self.bucket.url
        region = region or connection.headers.get(b"x-amz-bucket-region", b"").decode("latin-1")
        return failure(connection.status, code, message, connection.headers, where, region)

    def _tell(self, connection: Connection) -> bytes:
        """The body of an answer that is an error, read once."""
        if self._told is None:
            try:
                self._told = connection.read_all(ERROR_LIMIT)
            except TransientError:
                self._told = b""
        return self._told


def _understood(body: bytes) -> tuple[str, str, str]:
    """Code, message and region of an error's XML, each "" when it is not there."""
    found: dict[bytes, str] = {}
    for tag, value in _TAG.findall(body):
        found.setdefault(tag, plain(value.decode("utf-8", "replace")))
    return found.get(b"Code", ""), found.get(b"Message", ""), found.get(b"Region", "")


def same_store(old: str, new: str) -> bool:
    """Whether a redirect stays in the store: the same host, one below it, or both AWS's own."""
    old, new = old.lower(), new.lower()
    if new == old or new.endswith("." + old):
        return True
    return any(old.endswith(suffix) and new.endswith(suffix) for suffix in AWS)


def failure(
    status: int, code: str, message: str, headers: Mapping[bytes, bytes], where: str, region: str = ""
) -> PenstockError:
    """One table of what statuses and codes of S3 mean.

    | status, code | error |
    |---|---|
    | 412; 404 NoSuchKey, NoSuchVersion or bare; 416 | SourceChangedError |
    | 404 NoSuchBucket | FailedError |
    | ExpiredToken and its like | ExpiredCredentialsError |
    | wrong keys; a skewed clock; signed for another region | FailedError |
    | 429, 503, SlowDown and its like, Retry-After | OverloadedError |
    | 408, other 5xx, RequestTimeout and its like | TransientError |
    | 403 InvalidObjectState (archived) and all else | ObjectError |
    """
    why = " ".join(filter(None, (f"status {status}", code, message[:300])))
    if code in EXPIRED:
        return ExpiredCredentialsError("the credentials ran out", where=where, why=why)
    if code == "RequestTimeTooSkewed":
        return FailedError("this machine's clock is wrong", where=where, why=why, hint="set it (NTP)")
    if code in WRONG_KEYS:
        return FailedError("the store refuses the credentials", where=where, why=why)
    if code in OTHER_REGION:
        hint = f"set `region: {region}` in storage_options" if _REGION.fullmatch(region) else "set `region`"
        return FailedError("the bucket is in another region", where=where, why=why, hint=hint)
    if code == "NoSuchBucket":
        return FailedError("there is no such bucket", where=where, why=why)
    if status in (408, 429) or status >= 500 or code in PATIENCE:
        return asked_for("the store asks for patience", where, why, status, code, retry_after(headers))
    if status == 412:
        return SourceChangedError("the object changed since it was listed", where=where, why=why)
    if status in (404, 410):
        return SourceChangedError("the object is gone since it was listed", where=where, why=why)
    if status == 416:
        return SourceChangedError("the object is shorter than it was listed", where=where, why=why)
    if code == "InvalidObjectState":
        return ObjectError("the object is archived", where=where, why=why, hint="restore it first")
    return ObjectError("the store refuses the object", where=where, why=why)
