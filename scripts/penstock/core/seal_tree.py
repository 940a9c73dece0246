"""The seal's SHA-256 tree over the canonical records, and proofs that a record is in it. A record is a row of
the manifest; the seal holds the tree's root.

The tree is that of RFC 9162, section 2.1: a leaf is SHA-256(0x00 + record), a node SHA-256(0x01 + left +
right), and the left side has the largest power of two. So some twenty hashes, without the manifest, prove
that a published file belongs to a sealed release.
"""

from __future__ import annotations

from hashlib import sha256
from os import fsencode
from typing import TYPE_CHECKING

from penstock.core.columns import ALWAYS, CARRYING, sealed_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.core.model import Record
    from penstock.core.row_codec import ByName

# Fields of a record's canonical bytes, in order. Times and attempts on the target are left out: they are
# facts of a file system, not of the data.
SEALED_FIELDS = sealed_fields(ALWAYS)
# The same of a release with carried-over files: also which they are, and when each was read back.
CARRYING_FIELDS = sealed_fields(CARRYING)


def canonical(record: Record, fields: Sequence[str] = SEALED_FIELDS) -> bytes:
    """Return the record's fields as netstrings (`<length>:<bytes>,`), which are unique to it. This function
    defines what `leaves` hashes. `fields`: the seal's, perhaps of another version."""
    return _netstrings([getattr(record, name) for name in fields])


def _netstrings(values: Iterable[str | int | bytes]) -> bytes:
    out = b""
    for value in values:
        raw = value if isinstance(value, bytes) else fsencode(str(value))
        out += b"%d:%b," % (len(raw), raw)
    return out


def leaves(columns: ByName, names: Sequence[str] = SEALED_FIELDS) -> list[bytes]:
    """Return `leaf(canonical(record, names))` of each record; much faster where most fields are equal in all
    records and the text is ASCII."""
    fields = [columns[name] for name in names]
    if not fields[0]:
        return []
    return [
        sha256(text.encode()).digest() if text.isascii() and not parts else leaf(_netstrings(values))
        for text, parts, values in zip(
            _texts(fields), columns["parts"], zip(*fields, strict=True), strict=True
        )
    ]


def _texts(fields: Sequence[Sequence[str | int | bytes]]) -> Iterable[str]:
    """Return what a leaf hashes of each record, valid for ASCII text without binary fields."""
    template = "\0"
    changing: list[Iterable[object]] = []
    for values in fields:
        texts = [""] * len(values) if isinstance(values[0], bytes) else list(map(str, values))
        first = texts[0]
        if texts.count(first) == len(texts):
            template += f"{len(first)}:{first},".replace("%", "%%")
        else:
            template += "%d:%s,"
            changing += [map(len, texts), texts]
    if not changing:
        return [template % ()] * len(fields[0])
    return map(template.__mod__, zip(*changing, strict=True))


def leaf(record: bytes) -> bytes:
    """Return the 32-byte hash of a record's canonical bytes."""
    return sha256(b"\x00" + record).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01" + left + right).digest()


class Tree:
    """Computes the root of a growing list, in memory of the logarithm of its length."""

    def __init__(self) -> None:
        self._full: list[tuple[int, bytes]] = []
        self.count = 0

    def extend(self, hashes: Sequence[bytes]) -> None:
        """Append leaves (`leaf`, `leaves`)."""
        at = 0
        while at < len(hashes):
            # The largest whole subtree that begins here.
            size = 1 << (len(hashes) - at).bit_length() - 1
            if self.count:
                size = min(size, self.count & -self.count)
            row = hashes[at : at + size]
            while len(row) > 1:
                row = list(map(_node, row[::2], row[1::2]))
            at, self.count = at + size, self.count + size
            hashed = row[0]
            while self._full and self._full[-1][0] == size:
                size, hashed = size * 2, _node(self._full.pop()[1], hashed)
            self._full.append((size, hashed))

    def root(self) -> str:
        """Return `sha256:<hex>`; of no records the hash of nothing."""
        if not self._full:
            return f"sha256:{sha256(b'').hexdigest()}"
        hashed = self._full[-1][1]
        for _, left in reversed(self._full[:-1]):
            hashed = _node(left, hashed)
        return f"sha256:{hashed.hex()}"


def proof(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """Return the hashes beside the path from leaf `index` to the root, lowest first. Memory: all leaves."""
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
    """Return whether `record` is number `index` of the `count` records under `root` (RFC 9162, 2.1.3.2)."""
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
