"""The seal's SHA-256 tree over the canonical records, and proofs that a record is in it.

The tree is that of RFC 9162, section 2.1: a leaf is SHA-256(0x00 + record), a node
SHA-256(0x01 + left + right), the left side the largest power of two. So one published file can
be proven to belong to a sealed release by some twenty hashes, without the manifest.
"""

from __future__ import annotations

from hashlib import sha256
from os import fsencode
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.core.model import Record

SEALED_FIELDS = (
    "path", "size", "digest", "modified_ns", "key", "token", "version", "source", "source_grade",
    "source_proof", "storage_grade", "method", "written_host", "verified_host", "parts", "digests",
)  # fmt: skip
"""What a record's canonical bytes hold, in this order. Times and attempts on the target are left
out: they are facts of one file system, not of the data."""


def canonical(record: Record) -> bytes:
    """The record's fields as netstrings (`<length>:<bytes>,`): no two records share them."""
    if record.parts:
        return _netstrings(record)
    (
        path, size, digest, modified, key, token, version, source, grade, proof, stored, method, written,
        verified, _, _, _, _, digests,
    ) = record  # fmt: skip
    bytes_, time, number = str(size), str(modified), str(source)
    # At once, where a character is a byte: publish does this for every file.
    text = (
        f"{len(path)}:{path},{len(bytes_)}:{bytes_},{len(digest)}:{digest},{len(time)}:{time},"
        f"{len(key)}:{key},{len(token)}:{token},{len(version)}:{version},{len(number)}:{number},"
        f"{len(grade)}:{grade},{len(proof)}:{proof},{len(stored)}:{stored},{len(method)}:{method},"
        f"{len(written)}:{written},{len(verified)}:{verified},0:,{len(digests)}:{digests},"
    )
    return text.encode() if text.isascii() else _netstrings(record)


def _netstrings(record: Record) -> bytes:
    out = b""
    for value in (
        fsencode(record.path), b"%d" % record.size, record.digest.encode(), b"%d" % record.modified_ns,
        fsencode(record.key), fsencode(record.token), fsencode(record.version), b"%d" % record.source,
        record.source_grade.encode(), record.source_proof.encode(), record.storage_grade.encode(),
        record.method.encode(), record.written_host.encode(), record.verified_host.encode(),
        record.parts, record.digests.encode(),
    ):  # fmt: skip
        out += b"%d:%b," % (len(value), value)
    return out


def leaf(record: bytes) -> bytes:
    return sha256(b"\x00" + record).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01" + left + right).digest()


class Tree:
    """The root of a growing list, in memory of the logarithm of its length."""

    def __init__(self) -> None:
        self._full: list[tuple[int, bytes]] = []
        self.count = 0

    def add(self, record: bytes) -> None:
        size, hashed = 1, leaf(record)
        while self._full and self._full[-1][0] == size:
            size, hashed = size * 2, _node(self._full.pop()[1], hashed)
        self._full.append((size, hashed))
        self.count += 1

    def root(self) -> str:
        """`sha256:<hex>`; of no records the hash of nothing."""
        if not self._full:
            return f"sha256:{sha256(b'').hexdigest()}"
        hashed = self._full[-1][1]
        for _, left in reversed(self._full[:-1]):
            hashed = _node(left, hashed)
        return f"sha256:{hashed.hex()}"


def proof(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """The hashes beside the way from leaf `index` to the root, lowest first."""
    way: list[bytes] = []
    row = list(leaves)
    while len(row) > 1:
        beside = index ^ 1
        if beside < len(row):
            way.append(row[beside])
        pairs = [_node(row[i], row[i + 1]) for i in range(0, len(row) - 1, 2)]
        # An odd last hash goes up as it is: the same tree as the largest-power-of-two split.
        row = pairs + row[len(row) & ~1 :]
        index >>= 1
    return way


def included(record: bytes, index: int, count: int, way: Sequence[bytes], root: str) -> bool:
    """Whether `record` is number `index` of the `count` records under `root` (RFC 9162, 2.1.3.2)."""
    if not 0 <= index < count:
        return False
    place, last, hashed = index, count - 1, leaf(record)
    for beside in way:
        if last == 0:
            return False
        if place & 1 or place == last:
            hashed = _node(beside, hashed)
            while place and not place & 1:
                place, last = place >> 1, last >> 1
        else:
            hashed = _node(hashed, beside)
        place, last = place >> 1, last >> 1
    return last == 0 and root == f"sha256:{hashed.hex()}"
