"""AWS Signature Version 4, for requests without a body that matters.

As AWS describes it ("Create a signed AWS API request"); held to AWS's published test vectors.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote_from_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
UNRESERVED = "-._~"


@dataclass(frozen=True)
class Keys:
    """An access key. Shows nothing of itself."""

    access: str
    secret: str = field(repr=False)
    session: str = field(default="", repr=False)
    expires: float | None = None
    """Seconds since the epoch, for temporary ones."""


def quote_path(path: bytes) -> str:
    """A path as S3 signs it: every byte but unreserved ones and slashes quoted, once."""
    return quote_from_bytes(path, safe="/" + UNRESERVED)


def quote_value(value: bytes) -> str:
    return quote_from_bytes(value, safe=UNRESERVED)


def query_string(pairs: Sequence[tuple[str, str]]) -> str:
    """A canonical query: quoted, in order. Values are `str` by os.fsdecode."""
    quoted = [(quote_value(_bytes(k)), quote_value(_bytes(v))) for k, v in pairs]
    return "&".join(f"{k}={v}" for k, v in sorted(quoted))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


class Signer:
    """Signs for one key, region and service; keeps the day's signing key."""

    def __init__(self, keys: Keys, region: str, service: str = "s3") -> None:
        self.keys, self.region, self.service = keys, region, service
        self._second = -1
        self._stamp = self._scope = ""
        self._key = b""

    def stamp(self, now: float | None = None) -> str:
        """The time of signing, as `x-amz-date` wants it."""
        second = int(time.time() if now is None else now)
        if second != self._second:
            stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(second))
            if stamp[:8] != self._stamp[:8]:
                key = ("AWS4" + self.keys.secret).encode()
                for part in (stamp[:8], self.region, self.service, "aws4_request"):
                    key = hmac.digest(key, part.encode(), "sha256")
                self._key = key
                self._scope = f"{stamp[:8]}/{self.region}/{self.service}/aws4_request"
            self._stamp, self._second = stamp, second
        return self._stamp

    def authorization(
        self,
        method: str,
        path: str,
        query: str,
        headers: Sequence[tuple[str, str]],
        payload: str = EMPTY_SHA256,
    ) -> str:
        """The Authorization header, for headers in ascending order of their lower-case names.

        `path` and `query` are quoted as they are sent. `stamp()` comes first, and its value is
        among the headers as `x-amz-date`.
        """
        lines = "".join([f"{name}:{value}\n" for name, value in headers])
        names = ";".join([name for name, _ in headers])
        canonical = f"{method}\n{path}\n{query}\n{lines}\n{names}\n{payload}"
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        text = f"AWS4-HMAC-SHA256\n{self._stamp}\n{self._scope}\n{digest}"
        signature = hmac.digest(self._key, text.encode(), "sha256").hex()
        return (
            f"AWS4-HMAC-SHA256 Credential={self.keys.access}/{self._scope}, "
            f"SignedHeaders={names}, Signature={signature}"
        )
