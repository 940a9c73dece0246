"""Signs requests without a body by AWS Signature Version 4 ("Create a signed AWS API request"). Tests compare
the signatures with AWS's test vectors and with those of botocore (`tests/oracles`)."""

from __future__ import annotations

import hashlib
import hmac
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()  # the digest of the body that a request without a body states
_sha256 = hashlib.sha256


@dataclass(frozen=True)
class Keys:
    """An access key. `repr` shows its id (`access`), but neither the secret nor the session token."""

    access: str
    secret: str = field(repr=False)
    session: str = field(default="", repr=False)
    # when temporary keys expire, in seconds since the epoch; None if never, or unknown
    expires: float | None = None


def _padded(key: bytes, with_: int) -> hashlib._Hash:
    """Return SHA-256's state after the padded key (RFC 2104: 0x36 for the inner hash, 0x5c for the outer)."""
    return _sha256(bytes(byte ^ with_ for byte in key.ljust(64, b"\0")))


class Signer:
    """Signs for one access key, region and service, in one thread. Keeps the day's signing key."""

    def __init__(self, keys: Keys, region: str, service: str = "s3") -> None:
        self.keys, self.region, self.service = keys, region, service
        self._second = -1
        self._stamp = self._scope = ""
        self._inner = self._outer = _sha256()

    def stamp(self, now: float | None = None) -> str:
        """Return the time of signing in the form of `x-amz-date`."""
        second = int(time.time() if now is None else now)
        if second != self._second:
            stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(second))
            if stamp[:8] != self._stamp[:8]:
                key = ("AWS4" + self.keys.secret).encode()
                for text in (stamp[:8], self.region, self.service, "aws4_request"):
                    key = hmac.digest(key, text.encode(), "sha256")
                self._inner, self._outer = _padded(key, 0x36), _padded(key, 0x5C)
                self._scope = f"{stamp[:8]}/{self.region}/{self.service}/aws4_request"
            self._stamp, self._second = stamp, second
        return self._stamp

    def prepare(self, headers: Sequence[tuple[str, str]], payload: str = EMPTY_SHA256) -> tuple[str, str]:
        """Return the parts that are equal in all requests with these headers and this stamp. They are the
        canonical request after its query, and the Authorization header without its signature."""
        lines = "".join([f"{name}:{value}\n" for name, value in headers])
        names = ";".join([name for name, _ in headers])
        start = (
            f"AWS4-HMAC-SHA256 Credential={self.keys.access}/{self._scope}, SignedHeaders={names}, Signature="
        )
        return f"{lines}\n{names}\n{payload}", start

    def sign(self, canonical: str) -> str:
        """Sign a canonical request. HMAC continues copies of two kept states, since new states would cost
        more than all the hashing."""
        digest = _sha256(canonical.encode()).hexdigest()
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(f"AWS4-HMAC-SHA256\n{self._stamp}\n{self._scope}\n{digest}".encode())
        outer.update(inner.digest())
        return outer.hexdigest()
