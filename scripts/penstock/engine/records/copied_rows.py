"""The copied rows of a shard with digests and proofs, in packed columns in memory.

A shard has some 500,000 rows, and a `Copied` with its strings takes 430 bytes. Here a row takes 16 bytes of
digest, its proof's text and 15 bytes more. Rare rows (another version than planned, a digest of parts, an
object that is gone) stay `Copied` objects.
"""

from __future__ import annotations

from array import array
from collections.abc import Container, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

from penstock.core.model import DIGEST_BYTES, Copied, hex_of, of_hex
from penstock.core.row_codec import BY_NAME, arranged

_ABSENT, _PACKED, _ODD = 0, 1, 2
_CODES = {"int64": "q", "double": "d"}
# Columns of numbers, and the array's type code for each.
_NUMBERS = {
    name: _CODES[column.kind.stored]
    for name in Copied._fields
    if name != "row" and (column := BY_NAME.get(name)) and not column.kind.text
}
_OWN = ("row", "digest", "source_proof", "pin")
# fields that many rows have in common
_ALIKE = tuple(name for name in Copied._fields if name not in (*_OWN, *_NUMBERS))
_alike = attrgetter(*_ALIKE)
_copied = arranged(Copied, (*_OWN, *_ALIKE, *_NUMBERS))


class _Links:
    """See `CopiedRows.links`. A linked row is never kept as an object."""

    def __init__(self, kinds: bytearray, alike: array[int], flags: bytes) -> None:
        self._kinds, self._alike, self._flags = kinds, alike, flags

    def __contains__(self, row: object) -> bool:
        return (
            isinstance(row, int)
            and row < len(self._kinds)
            and self._kinds[row] == _PACKED
            and bool(self._flags[self._alike[row]])
        )


class CopiedRows(Mapping[int, Copied]):
    """Maps a row's number to its `Copied`. Numbers should be dense: a gap takes as much room as a row."""

    def __init__(self) -> None:
        self._kinds = bytearray()
        self._digests = bytearray()
        self._alike = array("I")  # for each row the index in `_combinations`, the distinct `_ALIKE` values
        self._starts, self._lengths = array("Q"), array("H")
        self._proofs = bytearray()
        self._combinations: list[tuple[object, ...]] = []
        self._places: dict[tuple[object, ...], int] = {}
        self._numbers: dict[str, array[Any]] = {name: array(code) for name, code in _NUMBERS.items()}
        self._odd: dict[int, Copied] = {}
        self._count = 0

    def add(self, record: Copied) -> None:
        """Set the row's record, in place of an earlier record."""
        row = record.row
        if row >= len(self._kinds):
            # Grow by half: rows come in any order.
            more = max(row + 1, 3 * len(self._kinds) // 2) - len(self._kinds)
            self._kinds += bytes(more)
            self._digests += bytes(more * DIGEST_BYTES)
            for column in (self._alike, self._starts, self._lengths, *self._numbers.values()):
                column.frombytes(bytes(more * column.itemsize))
        self._count += self._kinds[row] == _ABSENT
        digest, proof = hex_of(record.digest), record.source_proof.encode()
        if len(digest) != 2 * DIGEST_BYTES or record.pin is not None or len(proof) > 0xFFFF:
            self._kinds[row] = _ODD
            self._odd[row] = record
            return
        if self._kinds[row] == _ODD:
            del self._odd[row]
        alike = _alike(record)
        number = self._places.get(alike)
        if number is None:
            number = self._places[alike] = len(self._combinations)
            self._combinations.append(alike)
        self._kinds[row] = _PACKED
        self._digests[row * DIGEST_BYTES : (row + 1) * DIGEST_BYTES] = bytes.fromhex(digest)
        self._alike[row] = number
        self._starts[row], self._lengths[row] = len(self._proofs), len(proof)
        self._proofs += proof
        for name, kept in self._numbers.items():
            kept[row] = getattr(record, name)

    def drop(self, row: int) -> None:
        """Remove the row's record, if any."""
        if row in self:
            self._odd.pop(row, None)
            self._kinds[row] = _ABSENT
            self._count -= 1

    def odd(self) -> Mapping[int, Copied]:
        """Return the rare rows: another version than planned, copied in parts, or an object that is gone."""
        return self._odd

    def columns(self, rows: Sequence[int], names: Sequence[str]) -> dict[str, list[Any]]:
        """Return these fields as lists in the order of `rows`, which must all have records.

        A fraction of the cost of a `Copied` for each row. `names`: of `digest`, `source_proof` and `_ALIKE`.
        """
        if self._odd:
            return {name: [getattr(self[row], name) for row in rows] for name in names}
        columns: dict[str, list[Any]] = {}
        alike = [self._combinations[self._alike[row]] for row in rows]
        for name in names:
            if name == "digest":
                size, digests = DIGEST_BYTES, self._digests
                columns[name] = [of_hex(digests[row * size : (row + 1) * size].hex()) for row in rows]
            elif name == "source_proof":
                text, starts, lengths = self._proofs.decode(), self._starts, self._lengths
                if not text.isascii():
                    columns[name] = [self[row].source_proof for row in rows]
                    continue
                columns[name] = [text[starts[row] : starts[row] + lengths[row]] for row in rows]
            else:
                place = _ALIKE.index(name)
                columns[name] = [combination[place] for combination in alike]
        return columns

    def links(self, *, untouched: bool = False) -> Container[int]:
        """Return the rows linked from the base release; with `untouched`, those whose earlier ctime was
        accounted for."""
        linked, staging, touched = map(_ALIKE.index, ("linked", "staging", "touched"))
        flags = bytes(
            bool(combination[linked])
            and not combination[staging]
            and not (untouched and combination[touched])
            for combination in self._combinations
        )
        return _Links(self._kinds, self._alike, flags) if any(flags) else ()

    def __getitem__(self, row: int) -> Copied:
        kind = self._kinds[row] if 0 <= row < len(self._kinds) else _ABSENT
        if kind == _ABSENT:
            raise KeyError(row)
        if kind == _ODD:
            return self._odd[row]
        digest = of_hex(self._digests[row * DIGEST_BYTES : (row + 1) * DIGEST_BYTES].hex())
        start = self._starts[row]
        proof = self._proofs[start : start + self._lengths[row]].decode()
        numbers = [kept[row] for kept in self._numbers.values()]
        return _copied((row, digest, proof, None, *self._combinations[self._alike[row]], *numbers))

    def __contains__(self, row: object) -> bool:
        return isinstance(row, int) and 0 <= row < len(self._kinds) and self._kinds[row] != _ABSENT

    def __iter__(self) -> Iterator[int]:
        return (row for row, kind in enumerate(self._kinds) if kind != _ABSENT)

    def __len__(self) -> int:
        return self._count
