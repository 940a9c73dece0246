"""S3's dialect of `object_client`: signatures, redirects and error codes. A client sends only GET and HEAD,
to the bucket's server or to hosts of the same store (`same_store`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from penstock.config.settings import Reach
from penstock.core.errors import ConfigError, FailedError, ObjectError, PenstockError
from penstock.sources.http_endpoint import Endpoint, endpoint, split
from penstock.sources.http_values import HeaderNames, first_values, quoted, quoted_value, stated_in_metadata
from penstock.sources.object_answers import Meaning, refusal
from penstock.sources.object_client import Described, ObjectClient
from penstock.sources.s3_credentials import EMPTY_SHA256, S3Credentials, Signer
from penstock.sources.stated_checksums import s3_checksums

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.core.model import Entry, SourceChecksum
    from penstock.sources.object_client import Request


AWS = (".amazonaws.com", ".amazonaws.com.cn")  # suffixes of the names of Amazon's own servers
# error codes for a bucket in another region than that of the signature
OTHER_REGION = frozenset({"AuthorizationHeaderMalformed", "IllegalLocationConstraintException"})
_WRONG_KEYS = Meaning(FailedError, "the store refuses the credentials")
# {error code of S3: meaning}, whatever the status; codes about regions are in `OTHER_REGION`
CODES = {
    **dict.fromkeys(("SignatureDoesNotMatch", "InvalidSecurity"), _WRONG_KEYS),
    "NoSuchBucket": Meaning(FailedError, "there is no such bucket"),
    "InvalidObjectState": Meaning(ObjectError, "the object is archived", "restore it first"),
}
# storage classes whose objects must be restored before they can be read
ARCHIVES = frozenset({"GLACIER", "DEEP_ARCHIVE"})
_REGION = re.compile(r"[a-z0-9-]{1,32}")


@dataclass(frozen=True)
class Bucket:
    """One bucket and prefix, and how to reach them. Contains no secrets."""

    name: str
    prefix: str  # "", or a prefix that ends in a slash; a `str` by os.fsdecode
    endpoint: str  # the store's URL; "" for AWS
    region: str
    path_style: bool  # whether the bucket's name is in the path, not in the host's name
    options: Mapping[str, object]  # the source's `storage_options`
    reach: Reach = field(default_factory=Reach)
    single: str = ""  # see `ObjectClient`

    @property
    def url(self) -> str:
        return f"s3://{self.name}/{self.prefix}"


def address(bucket: Bucket, region: str) -> tuple[Endpoint, str]:
    """Return a bucket's server in a region, and the part of a path there that precedes the key. Raises
    ConfigError for an endpoint with a user or password."""
    if not bucket.endpoint:
        suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
        base = f"https://s3.{region}.{suffix}"
    else:
        base = bucket.endpoint
    components = split(base)
    if components.username or components.password:
        raise ConfigError("a secret in a URL", where="endpoint_url", hint="use a profile or credentials_file")
    root = components.path.rstrip("/")
    if bucket.path_style:
        return endpoint(base, bucket.reach), f"{root}/{quoted(bucket.name)}/"
    virtual = components._replace(netloc=f"{bucket.name}.{components.netloc}").geturl()
    return endpoint(virtual, bucket.reach), f"{root}/"


class S3Client(ObjectClient):
    """Signs requests. Follows a redirect to a bucket's region or host, and sends all later requests there."""

    NAMES = HeaderNames(
        values=(b"x-amz-checksum-",),
        fixed=(
            b"x-amz-checksum-type",
            b"x-amz-mp-parts-count",
            b"x-amz-server-side-encryption",
            b"x-amz-server-side-encryption-",
        ),
    )

    def __init__(self, bucket: Bucket, credentials: S3Credentials) -> None:
        super().__init__(bucket.url, bucket.prefix, bucket.single)
        self.bucket = bucket
        self.region = bucket.region
        self._credentials = credentials
        self._stamp = self._own = self._canonical = self._authorization = ""
        self._last = ("", "", "", "")  # the last request: method, path, query, lines
        self._signer = self._sign_with(credentials)
        # whether listings request which archived objects are restored for a time
        self.asks_for_restores = False
        self._payer = "requester" if bucket.options.get("requester_pays") else ""
        self._prefix = quoted(bucket.prefix)
        self.go_to(*address(bucket, self.region))

    def _sign_with(self, credentials: S3Credentials) -> Signer | None:
        return Signer(credentials.keys, self.region) if credentials.keys else None

    def go_to(self, server: Endpoint, root: str) -> None:
        super().go_to(server, root)
        self._host = server.authority
        self._origin = server.origin
        self._own = ""
        self._lines = f" HTTP/1.1\r\nHost: {self._host}\r\nAccept-Encoding: identity\r\n{server.proxy_lines}"

    def renew(self, credentials: object) -> None:
        if credentials is not self._credentials:
            assert isinstance(credentials, S3Credentials)
            self._credentials = credentials
            self._signer = self._sign_with(credentials)
            self._own = ""

    def get(self, entry: Entry) -> Request:
        token = entry.token
        lines = f'If-Match: "{token}"\r\n' if token and not token.startswith("W/") else ""
        query = f"versionId={quoted_value(entry.version)}" if entry.version else ""
        key = entry.key
        path = self._prefix[:-1] if key == self.single != "" else self._prefix + quoted(key)
        return path, query, lines

    def ask_for_restores(self) -> None:
        self.asks_for_restores, self._own = True, ""

    def described(self, headers: Mapping[bytes, bytes]) -> Described:
        """Parse the answer to a HEAD. Only HEAD states the archive tiers of S3 Intelligent-Tiering."""
        stored = headers.get(b"x-amz-storage-class", b"").decode("latin-1")
        tier = headers.get(b"x-amz-archive-status", b"").decode("latin-1")
        readable = b'ongoing-request="false"' in headers.get(b"x-amz-restore", b"")
        archived = "" if readable else tier or (stored if stored in ARCHIVES else "")
        return Described(archived=archived, time=stated_in_metadata(headers.get(b"x-amz-meta-mtime", b"")))

    def checksums(self, headers: Mapping[bytes, bytes], *, whole: bool) -> Sequence[SourceChecksum]:
        return s3_checksums(headers, whole=whole)

    def head(self, method: str, path: str, query: str, lines: str) -> bytes:
        """Make a request's head. `lines` are further headers, which need no signature."""
        self._last = (method, path, query, lines)
        path = self.root + path
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
        """Compute the parts of a head that are equal in all requests of the second `stamp`."""
        signer = self._signer
        signed = [("host", self._host), ("x-amz-checksum-mode", "ENABLED")]
        if signer is not None:
            signed += [("x-amz-content-sha256", EMPTY_SHA256), ("x-amz-date", stamp)]
        if self.asks_for_restores:
            signed.append(("x-amz-optional-object-attributes", "RestoreStatus"))
        if self._payer:
            signed.append(("x-amz-request-payer", self._payer))
        if signer is not None:
            if signer.keys.session:
                signed.append(("x-amz-security-token", signer.keys.session))
            self._canonical, authorization = signer.prepare(signed)
            self._authorization = f"Authorization: {authorization}"
        self._own = self._lines + "".join([f"{name}: {value}\r\n" for name, value in signed[1:]])
        self._stamp = stamp

    def moved(self, path: str) -> str | None:
        """Follow a redirect to the bucket's region, or to a host of the same store. Raises FailedError for
        any other redirect."""
        connection = self.connection
        status = connection.status
        if status not in (301, 302, 307, 308, 400, 403):
            return None
        region = connection.headers.get(b"x-amz-bucket-region", b"").decode("latin-1")
        if not region and status == 400:  # some stores name the region only in the error
            code, _, region = _understood(self.body_of_error())
            region = region if code in OTHER_REGION else ""
        if region != self.region and _REGION.fullmatch(region):
            connection.abandon()
            self.region = region
            self._signer = self._sign_with(self._credentials)
            self.go_to(*address(self.bucket, region))
            return path
        if status in (400, 403):
            return None
        location = connection.headers.get(b"location", b"").decode("latin-1")
        connection.abandon()
        old = connection.endpoint
        try:
            target = urlsplit(urljoin(old.url, location))
            host, port = (target.hostname or "").lower(), target.port
        except ValueError:
            target, host, port = urlsplit(""), "", None
        port = port or (443 if target.scheme == "https" else 80)
        # A signed request contains the session's token, so it is not sent to another server (port) of the
        # same machine.
        same_service = port == old.port or (old.port, port) == (80, 443)
        allowed = target.scheme == "https" or (target.scheme == "http" and not old.tls)
        if not location or not allowed or not same_service or not same_store(old.host, host):
            raise FailedError(
                "the store redirects to somewhere else, which is not followed",
                where=self.url,
                why=f"status {status}, to {f'{host}:{port}' if host else 'no host'}",
                hint="check endpoint_url and the bucket's name",
            )
        if (host, port, target.scheme == "https") == (old.host, old.port, old.tls):
            return path  # the same server again; `REDIRECTS` limits the tries
        server = endpoint(f"{target.scheme}://{target.netloc.rpartition('@')[2]}", self.bucket.reach)
        virtual = host.startswith(self.bucket.name.lower() + ".")
        self.go_to(server, "/" if virtual else f"/{quoted(self.bucket.name)}/")
        return path

    def failure(self, key: str = "") -> PenstockError:
        """Return the error of an unwanted answer. The answer to a refused HEAD states no reason (expired
        keys: 400 without a body), so a GET of one byte queries the reason."""
        method, path, query, lines = self._last
        if method != "HEAD" or self.connection.status not in (400, 401, 403):
            return super().failure(key)
        stated = self.refusal(self.connection.status, self.connection.headers, b"", key)
        self.connection.finish()
        self.request("GET", path, query, f"Range: bytes=0-0\r\n{lines}")
        if self.connection.status >= 400:
            return super().failure(key)
        self.connection.abandon()
        return stated

    def refusal(self, status: int, headers: Mapping[bytes, bytes], body: bytes, key: str) -> PenstockError:
        code, message, region = _understood(body)
        region, codes = region or headers.get(b"x-amz-bucket-region", b"").decode("latin-1"), CODES
        if code in OTHER_REGION:
            valid = _REGION.fullmatch(region) is not None
            hint = f"set `region: {region}` in storage_options" if valid else "set `region`"
            codes = {code: Meaning(FailedError, "the bucket is in another region", hint)}
        where = self.where(key)
        return refusal(status, headers, where, code=code, message=message, codes=codes, listing=not key)


def _understood(body: bytes) -> tuple[str, str, str]:
    """Parse an error's XML into code, message and region, each "" if missing."""
    values = first_values(body)
    return values.get("Code", ""), values.get("Message", ""), values.get("Region", "")


def same_store(old: str, new: str) -> bool:
    """Return whether a redirect stays in the store: at its host, a subdomain of that, or within AWS."""
    old, new = old.lower(), new.lower()
    if new == old or new.endswith("." + old):
        return True
    return any(old.endswith(suffix) and new.endswith(suffix) for suffix in AWS)
