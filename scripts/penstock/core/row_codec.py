"""The columns of a file's row, each declared once, and the codec for rows. Only this module makes rows, and
takes them apart, by position: all other modules use the names of a row's fields. Pure.
"""

from __future__ import annotations

import json
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar
from zlib import crc32

from penstock.core.model import (
    TOUCHED,
    AuditedRow,
    Copied,
    Entry,
    Expected,
    Part,
    PartLine,
    Pin,
    RereadRow,
    Reuse,
    Surveyed,
    hex_of,
    of_hex,
    proof_of,
    proof_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


# The columns of a file's row: content, the files with the column and their formats, and whether the seal
# covers it.
#
# Derived from this table: schemas, encodings and defaults of all Parquet files (`tables.tables`); journal
# lines (`core.row_codec`) and packed rows (`engine.journal`); what verify copies from the journal
# to its records (`engine.reread_shard`); a giant's record (`run.reconciliation`); the seal's fields
# (`core.seal`). `core.model` repeats the rows for the type checker; `tests/core/test_columns.py` compares.
#
# To add a column, add a line here, a field in each row of `core.model`, and the code that fills the column.
# The line needs a default that states the meaning of files without the column. A file's format is the highest
# of its columns: raise it if earlier versions would misread the file.

# The files of rows. `amended.parquet` and `stated.parquet` are listings.
LISTING, SHARD, JOURNAL, RECORDS, MANIFEST = "listing", "shard", "journal", "records", "manifest"
AUDIT_SHARD, SURVEY = "audit shard", "survey"


class ColumnType(NamedTuple):
    """The values of a column and the names of their Arrow types."""

    stored: str
    manifest: str  # type in the manifest, which other tools read, too
    # whether it is text, stored as `os.fsencode` returns it; in memory, bytes that are not UTF-8 are escaped
    text: bool = False
    # The named tuple of values that are rows themselves, or None. Its fields are columns, with the manifest's
    # types, and its first field is never None.
    row: Any = None


NAME = ColumnType("binary", "binary", text=True)  # text from the source, perhaps not UTF-8
WORD = ColumnType("binary", "string", text=True)  # text that penstock made
BYTES = ColumnType("binary", "binary")
NUMBER = ColumnType("int64", "int64")
SMALL = ColumnType("int64", "int32")
# An inode number is unsigned, since BeeGFS uses a hash. Files with the former int64 can still be read
# (`tables.tables.read_batches`).
FILE_NUMBER = ColumnType("uint64", "uint64")
REUSE = ColumnType("struct", "struct", row=Reuse)


def first(values: Sequence[Any]) -> Any:
    """Join a column whose values are equal in all parts of a giant."""
    return values[0]


def last(values: Sequence[Any]) -> Any:
    """Join a column whose value in the last part counts."""
    return values[-1]


def each(values: Sequence[str]) -> str:
    """Join a column as its different values, sorted and separated by blanks."""
    return " ".join(sorted(set(values)))


# Seals whose leaves cover a column: all, or only those of releases with files that were carried over.
ALWAYS, CARRYING = 1, 2

REQUIRED = object()  # replaces the default of a column without which a file is damaged


class Column(NamedTuple):
    """A column: its values, its files, and how they are stored, sealed and joined."""

    name: str
    kind: ColumnType
    stands: Mapping[str, int]  # the files that have the column, with the first format that has it
    default: object = REQUIRED  # value of rows whose file lacks the column, or that do not set it
    sealed: int = 0  # ALWAYS, CARRYING, or 0 if it is no fact about the data
    rises: bool = False  # the values (nearly) ascend, and are stored as differences from row to row
    repeats: bool = False  # there are few different values, stored with a dictionary
    # Whether a listing's digest, and so the run's id, covers the column. False if it may change while the
    # bytes do not. Also False for every added column, so that an unchanged listing keeps its run.
    identity: bool = True
    # computes a giant's value from the values of its parts, unless these are judged together
    joined: Callable[[Sequence[Any]], Any] = first


def _first(*files: str) -> dict[str, int]:
    return dict.fromkeys(files, 1)


_PLANNED = _first(LISTING, SHARD, RECORDS, MANIFEST)
_READ = _first(AUDIT_SHARD)
_SEEN = _first(RECORDS, MANIFEST)
_SURVEYED = _first(SURVEY)

# The columns, in the order of a seal's leaf.
COLUMNS = (
    Column("row", NUMBER, _first(JOURNAL, RECORDS, SURVEY)),
    Column("path", NAME, _PLANNED | _READ, sealed=ALWAYS, rises=True),
    Column("size", NUMBER, _PLANNED | _READ, sealed=ALWAYS),
    Column("digest", WORD, _first(JOURNAL, RECORDS, MANIFEST, AUDIT_SHARD, SURVEY), sealed=ALWAYS),
    Column("modified_ns", NUMBER, _PLANNED, sealed=ALWAYS, rises=True),
    Column("key", NAME, _PLANNED, sealed=ALWAYS, rises=True),
    Column("token", NAME, _PLANNED, sealed=ALWAYS),
    Column("version", NAME, _PLANNED, sealed=ALWAYS, repeats=True),
    Column("source", SMALL, _PLANNED, sealed=ALWAYS, repeats=True),
    Column("checksum", NAME, _first(LISTING, SHARD), repeats=True),
    Column("archived", NAME, _first(LISTING, SHARD), "", repeats=True, identity=False),
    Column("part", NUMBER, _first(SHARD, RECORDS, AUDIT_SHARD), -1, repeats=True),
    Column("offset", NUMBER, _first(SHARD, RECORDS, AUDIT_SHARD), 0),
    Column("length", NUMBER, _first(SHARD, RECORDS, AUDIT_SHARD)),
    Column("reuse", REUSE, _first(SHARD), None),
    Column("held_as", NAME, _first(SHARD), ""),
    Column("source_grade", WORD, _first(JOURNAL, RECORDS, MANIFEST, SURVEY), sealed=ALWAYS, repeats=True),
    Column("source_proof", WORD, _first(JOURNAL, RECORDS, MANIFEST, SURVEY), sealed=ALWAYS),
    Column("storage_grade", WORD, _SEEN, sealed=ALWAYS, repeats=True),
    Column("method", WORD, _SEEN | _SURVEYED, sealed=ALWAYS, repeats=True),
    Column("written_host", WORD, _first(JOURNAL) | _SEEN, sealed=ALWAYS, repeats=True, joined=each),
    Column("staging", WORD, _first(JOURNAL), repeats=True),
    Column("touched", WORD, _first(JOURNAL), "", repeats=True),
    Column("verified_host", WORD, _SEEN | _SURVEYED, sealed=ALWAYS, repeats=True, joined=each),
    Column("attempt", WORD, _SEEN, repeats=True, joined=last),
    Column("mtime_ns", NUMBER, _SEEN | _SURVEYED, rises=True),
    Column("ctime_ns", NUMBER, _SEEN | _SURVEYED, rises=True),
    Column("parts", BYTES, _SEEN | _SURVEYED, sealed=ALWAYS),
    Column("digests", WORD, _SEEN, sealed=ALWAYS),
    Column("state", WORD, _SURVEYED, repeats=True),
    Column("how", WORD, _SURVEYED, repeats=True),
    Column("why", NAME, _SURVEYED, repeats=True),
    Column("inode", FILE_NUMBER, _SEEN | _SURVEYED, rises=True),
    Column("mode", NUMBER, _SURVEYED, repeats=True),
    Column("uid", NUMBER, _SURVEYED, repeats=True),
    Column("gid", NUMBER, _SURVEYED, repeats=True),
    Column("links", NUMBER, _SURVEYED, repeats=True),
    Column("seen_ns", NUMBER, _SURVEYED, repeats=True),
    Column("read_at", NUMBER, _SEEN, sealed=CARRYING, repeats=True, joined=min),
    Column("carried", SMALL, _SEEN, sealed=CARRYING, repeats=True),
    Column("shared", SMALL, _SEEN, 0, repeats=True),
)

BY_NAME = {column.name: column for column in COLUMNS}


def of_file(file: str, names: Iterable[str]) -> tuple[Column, ...]:
    """Return a file's columns in the order of `names`, which are the fields of its row."""
    return tuple(BY_NAME[name] for name in names if name in BY_NAME and file in BY_NAME[name].stands)


def file_format(file: str) -> int:
    """Return the newest format of a file, or 0 if no such file exists."""
    return max(column.stands.get(file, 0) for column in COLUMNS)


def sealed_fields(most: int) -> tuple[str, ...]:
    """Return the fields that a seal's leaf covers, up to ALWAYS or CARRYING, in order."""
    return tuple(column.name for column in COLUMNS if 0 < column.sealed <= most)


def joined(parts: Sequence[Any], names: Iterable[str]) -> dict[str, Any]:
    """Join these columns of a giant from the rows of its parts, in order."""
    return {name: BY_NAME[name].joined([getattr(part, name) for part in parts]) for name in names}


# The codec.
#
# | form                             | made by                       | read by                   |
# |----------------------------------|-------------------------------|---------------------------|
# | columns of many rows             | `tables.tables.Form.arrays`  | `rows`                    |
# | a frame to a worker or from it   | `to_wire`                     | `from_wire`               |
# | a line of a journal              | `line_of`, `line`             | `copied_of`, `part_of`    |
#
# A process of this same version reads a frame, so a frame has only values. Later versions may read a journal.
# So a column without a position in `copied_line` is stored by name, in an object at the line's end, unless it
# has its default.

Row = TypeVar("Row", bound=tuple[Any, ...])
PART = "part"  # first value in a part's line

_WIRE: tuple[type[Any], ...] = (Entry, Part, Expected, RereadRow, AuditedRow, Surveyed)
# columns with a position in a journal's line
_PLACED = ("row", "digest", "source_grade", "source_proof", "written_host", "staging")
# columns stored by name at the line's end
NAMED = tuple(column.name for column in of_file(JOURNAL, Copied._fields) if column.name not in _PLACED)
_compact = json.JSONEncoder(separators=(",", ":")).encode


class ByName(Protocol):
    """The values of many rows, field by field."""

    def __getitem__(self, name: str, /) -> Sequence[Any]: ...


def rows(kind: type[Row], columns: ByName) -> list[Row]:
    """Return rows as named tuples of this kind from the columns of all its fields. No call for each row."""
    return _made(kind, zip(*(columns[name] for name in _fields(kind)), strict=True))


def filled(kind: type[Row], columns: Mapping[str, Sequence[Any]], count: int) -> list[Row]:
    """As `rows`, for `count` rows. Fields that are missing in `columns` get their defaults."""
    defaults: Mapping[str, Any] = kind._field_defaults  # type: ignore[attr-defined]
    lacking = {name: [value] * count for name, value in defaults.items() if name not in columns}
    return rows(kind, {**lacking, **columns})


def _made(kind: type[Row], values: Iterable[tuple[Any, ...]]) -> list[Row]:
    return list(map(partial(tuple.__new__, kind), values))


def _fields(kind: type[Row]) -> Sequence[str]:
    fields: Sequence[str] = kind._fields  # type: ignore[attr-defined]
    return fields


def by_field(kind: type[Row], some: Sequence[Row]) -> dict[str, Sequence[Any]]:
    """Return the columns of rows: the inverse of `rows`."""
    fields = _fields(kind)
    columns: Iterable[Sequence[Any]] = zip(*some, strict=True) if some else [()] * len(fields)
    return dict(zip(fields, columns, strict=True))


def arranged(kind: type[Row], names: Sequence[str]) -> Callable[[tuple[Any, ...]], Row]:
    """Return a function that makes a row from values in the order of `names`."""
    order = itemgetter(*map(list(names).index, _fields(kind)))
    new = partial(tuple.__new__, kind)
    return lambda values: new(order(values))


def to_wire(some: Sequence[Any]) -> tuple[int, list[tuple[Any, ...]]]:
    """Return rows of the same kind as the kind's number in `_WIRE` and plain values."""
    if not some:
        return 0, []
    kind = type(some[0])
    if kind is Entry:
        return _WIRE.index(kind), list(map(_plain, some))
    if kind is Part:
        return _WIRE.index(kind), [
            (_plain(part.range), part.temporary, part.work, part.part_bytes, tuple(map(tuple, part.lines)))
            for part in some
        ]
    return _WIRE.index(kind), list(map(tuple, some))


def from_wire(kind: int, plain: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Restore the rows from `to_wire`."""
    made = _WIRE[kind]
    if made is Entry:
        return list(map(_restored, _made(Entry, plain)))
    if made is Part:
        return [
            Part(_restored(Entry(*entry)), temporary, work, part_bytes, tuple(_made(PartLine, lines)))
            for entry, temporary, work, part_bytes, lines in plain
        ]
    return _made(made, plain)


_REUSE = Entry._fields.index("reuse")


def _plain(entry: Entry) -> tuple[Any, ...]:
    """Return the entry as plain tuples, since marshal writes no named tuples."""
    if entry.reuse is None:
        return tuple(entry)
    return (*entry[:_REUSE], tuple(entry.reuse), *entry[_REUSE + 1 :])


def _restored(entry: Entry) -> Entry:
    """Restore an entry whose `reuse` is a plain tuple."""
    return entry if entry.reuse is None else entry._replace(reuse=Reuse(*entry.reuse))


_EXPECTED = ("path", "size", "part", "offset", "length", "key", "token")
_of_entry = itemgetter(*map(Entry._fields.index, _EXPECTED))
_expected = arranged(Expected, (*_EXPECTED, "digest", "checksum", "in_parts", "owed"))


def expecting(
    entry: Entry, digest: str, checksum: str = "", *, in_parts: bool = False, owed: str = ""
) -> Expected:
    """Return the row with which verify reads an entry back. All such rows of a shard are made here."""
    return _expected((*_of_entry(entry), digest, checksum, in_parts, owed))


def line(value: Any) -> str:
    """Return a journal's line. A line without its line feed is torn."""
    return text_line(_compact(value))


def text_line(text: str) -> str:
    """As `line`, for a value that is JSON already."""
    return f"{crc32(text.encode()):08x} {text}\n"


def reused_line(row: int, reuse: Reuse, *, touched: bool = False) -> str:
    """Return the `copied_line` of a row that is linked or taken over. Each word is encoded by itself, which
    takes half the time of encoding a list."""
    words: list[Any] = [hex_of(reuse.digest), reuse.source_grade, reuse.source_proof, reuse.written_host]
    if reuse.staging:
        words.append(reuse.staging)
    if touched:
        words.append({"touched": TOUCHED})
    return text_line(f"[{row},{','.join(map(_compact, words))}]")


def fresh_line(row: int, digest: str, grade: str, checksum: str) -> str:
    """Return the `copied_line` of a row that this attempt copied whole. `digest`: 32 hex digits. No word
    needs escapes. Every small object needs this line, and making a `Copied` first would double its cost."""
    return text_line(f'[{row},"{digest}","{grade}","{checksum}"]')


def copied_line(copied: Copied) -> str:
    """Return the line of a row that was copied, linked or taken over. The journal's first line has the
    attempt and its host. A version that is not the planned version has a line of its own (`amend_line`)."""
    digest, proof = hex_of(copied.digest), proof_text(copied.source_proof, copied.owed)
    named = {name: getattr(copied, name) for name in NAMED if getattr(copied, name) != BY_NAME[name].default}
    value: list[Any] = [copied.row, digest, copied.source_grade, proof]
    if copied.linked:
        value += [copied.written_host, copied.staging] if copied.staging else [copied.written_host]
    return line([*value, named] if named else value)


def copied_of(value: list[Any], host: str, attempt: str, pin: Pin | None) -> Copied:
    """Parse the JSON of `copied_line`. The other arguments come from other lines."""
    named = value.pop() if isinstance(value[-1], dict) else {}
    row, digest, grade, proof, *writer = value
    checksum, owed = proof_of(proof)
    by, staging = (*writer, "")[:2] if writer else (host, "")
    return Copied(
        row, of_hex(digest), grade, checksum, by, attempt, pin, bool(writer), staging, owed, **named
    )


def line_of(row: Copied | PartLine) -> str:
    """Return the journal's line of this row or part."""
    return copied_line(row) if isinstance(row, Copied) else part_line(row)


def part_line(part: PartLine) -> str:
    return line([PART, *part])


def part_of(value: Sequence[Any]) -> PartLine:
    """Parse the JSON of `part_line`."""
    return PartLine(*value[1:])


def parts_of(lines: bytes) -> list[PartLine]:
    """Parse the parts in these lines, as a worker sent them. Raises ValueError for a damaged line."""
    return [part_of(json.loads(body_of(raw) or b"")) for raw in lines.splitlines(keepends=True)]


def body_of(raw: bytes) -> bytes | None:
    """Return the JSON of a journal's line, or None if the line is torn or damaged."""
    body = raw[9:-1]
    whole = raw[-1:] == b"\n" and raw[8:9] == b" " and raw[:8] == b"%08x" % crc32(body)
    return body if whole else None


def pin_of(value: Sequence[Any]) -> Pin:
    return Pin(*value)
