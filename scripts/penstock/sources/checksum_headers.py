"""Reads an object's checksums from an answer's headers.

A *full* checksum is computed from the object's bytes, a *composite* checksum from the checksums of its parts
(S3's multipart uploads). `x-amz-checksum-type` distinguishes them better than the value's form, since
GetObjectAttributes omits the suffix `-N`; but some stores omit the type. Stores write base64 of big-endian
bytes, and penstock lower-case hex. Undecodable values are left out.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING

from penstock.core.model import SourceChecksum
from penstock.sources.http.values import decimal

if TYPE_CHECKING:
    from collections.abc import Mapping

# The algorithms, strong and cheap ones first, since the engine takes the first algorithm that it can compute.
S3_HEADERS = {
    b"x-amz-checksum-crc64nvme": ("crc64nvme", 8),
    b"x-amz-checksum-crc32c": ("crc32c", 4),
    b"x-amz-checksum-crc32": ("crc32", 4),
    b"x-amz-checksum-xxhash128": ("xxh3_128", 16),
    b"x-amz-checksum-xxhash64": ("xxh64", 8),
    b"x-amz-checksum-sha256": ("sha256", 32),
    b"x-amz-checksum-sha1": ("sha1", 20),
    b"x-amz-checksum-sha512": ("sha512", 64),
    b"x-amz-checksum-md5": ("md5", 16),
}
_S3_ORDER = tuple(S3_HEADERS)
_S3_NAMES = frozenset(S3_HEADERS)
# algorithms for which the checksums of consecutive ranges can be combined to the checksum of the whole
COMBINE = frozenset({"crc64nvme", "crc32c", "crc32"})
_MD5 = re.compile(r"[0-9a-fA-F]{32}")
_MULTIPART = re.compile(r"([0-9a-fA-F]{32})-([1-9][0-9]{0,4})")
_DIGEST_NAMES = {
    "sha-256": ("sha256", 32),
    "sha-512": ("sha512", 64),
    "sha": ("sha1", 20),
    "md5": ("md5", 16),
    "crc32c": ("crc32c", 4),
}


def decode(value: str, size: int) -> str | None:
    """Decode base64 of exactly `size` bytes into hex; None for any other text."""
    try:
        raw = base64.b64decode(value.encode("latin-1"), validate=True)
    except (ValueError, binascii.Error):
        return None
    return raw.hex() if len(raw) == size else None


def s3_checksums(headers: Mapping[bytes, bytes], *, whole: bool, part_bytes: int = 0) -> list[SourceChecksum]:
    """Return the checksums in S3's answer to a GET or HEAD. Full ones come first, and within a kind the
    cheapest.

    If `whole`, the answer is of the whole object. `part_bytes` is the size of the object's parts, 0 if
    unknown.

    | type header | value ends in -N | the answer | becomes |
    |---|---|---|---|
    | FULL_OBJECT | - | whole | full |
    | FULL_OBJECT | - | a range | full, if checksums of ranges combine |
    | COMPOSITE | - | any | composite |
    | none | yes | any | composite |
    | none | no | whole, etag without -N | full |
    | none | no | any other | nothing |
    """
    kind = headers.get(b"x-amz-checksum-type", b"").upper()
    etag = headers.get(b"etag", b"").strip(b'"').decode("latin-1")
    multipart = _MULTIPART.fullmatch(etag)
    full: list[SourceChecksum] = []
    composite: list[SourceChecksum] = []
    names = _S3_NAMES.intersection(headers)
    for name in names if len(names) < 2 else sorted(names, key=_S3_ORDER.index):
        algorithm, size = S3_HEADERS[name]
        text, _, suffix = headers[name].decode("latin-1").partition("-")
        value = decode(text, size)
        if value is None:
            continue
        if kind == b"COMPOSITE" or (not kind and suffix):
            parts = decimal(suffix) or decimal(headers.get(b"x-amz-mp-parts-count", b"").decode("latin-1"))
            parts = parts or (int(multipart[2]) if multipart else 0)
            if parts:
                composite.append(SourceChecksum(algorithm, "composite", value, parts, part_bytes))
        elif kind == b"FULL_OBJECT":
            if whole or algorithm in COMBINE:
                full.append(SourceChecksum(algorithm, "full", value))
        elif whole and not kind and not multipart:
            full.append(SourceChecksum(algorithm, "full", value))
    if _etag_is_md5(headers):
        if multipart:
            composite.append(
                SourceChecksum("md5", "composite", multipart[1].lower(), int(multipart[2]), part_bytes)
            )
        elif whole and _MD5.fullmatch(etag):
            full.append(SourceChecksum("md5", "full", etag.lower()))
    return full + composite


def _etag_is_md5(headers: Mapping[bytes, bytes]) -> bool:
    """Return whether the etag is an MD5: only of objects without encryption or with SSE-S3 (AWS,
    "Object")."""
    encrypted = headers.get(b"x-amz-server-side-encryption", b"AES256")
    return encrypted == b"AES256" and b"x-amz-server-side-encryption-customer-algorithm" not in headers


def google_checksums(text: str) -> list[SourceChecksum]:
    """Parse the header x-goog-hash; keep its order. Its checksums are of the whole object, whatever the
    answer's range."""
    checksums: list[SourceChecksum] = []
    for item in text.split(","):
        label, _, stated = item.strip().partition("=")
        value = decode(stated, {"crc32c": 4, "md5": 16}.get(label, 0))
        if value:
            checksums.append(SourceChecksum(label, "full", value))
    return checksums


def web_checksums(headers: Mapping[bytes, bytes], *, whole: bool) -> list[SourceChecksum]:
    """Return a web server's checksums: Repr-Digest and Digest (of all bytes), Content-Digest and Content-MD5
    (of a whole answer), and Google's x-goog-hash."""
    checksums: dict[str, SourceChecksum] = {}

    def state(algorithm: str, value: str | None) -> None:
        if value is not None and (whole or algorithm in COMBINE):
            checksums.setdefault(algorithm, SourceChecksum(algorithm, "full", value))

    for name in (b"repr-digest", b"digest", *((b"content-digest",) if whole else ())):
        for item in headers.get(name, b"").decode("latin-1").split(","):
            label, _, text = item.strip().partition("=")
            digest = _DIGEST_NAMES.get(label.strip().lower())
            if digest:
                state(digest[0], decode(text.strip().strip(":"), digest[1]))
    for checksum in google_checksums(headers.get(b"x-goog-hash", b"").decode("latin-1")):
        state(checksum.algorithm, checksum.value)
    if whole and b"content-md5" in headers:
        state("md5", decode(headers[b"content-md5"].decode("latin-1"), 16))
    order = ("crc32c", "sha256", "sha1", "sha512", "md5")
    return sorted(checksums.values(), key=lambda checksum: order.index(checksum.algorithm))
