"""The columns of a file's row, each declared once: what it holds, in which files it stands since which
format, whether the seal (the proof of a release) covers it, how a file without it is read. Pure.

Derived from this table: the Arrow schemas, encodings and defaults of all Parquet files (`tables.tables`),
the lines of a journal (`core.row_codec`) and its packed rows (`engine.records.copied_rows`), what verify
hands on from the journal to its records (`engine.reread_shard`), a giant's record from those of its parts
(`run.release.reconciliation`), and the fields of the seal (`core.seal_tree`).

`core.model` writes the rows out as named tuples, since a type checker wants their fields as text. Their order
there is the order of the columns in a file; `tests/core/test_columns.py` holds the two together.

To add a column: a line here, a field in each row of `core.model` that has it, and the code that fills it. A
column that is added needs a default, which says what files without it meant. The number of a file's format
is the highest of its columns: raise it where earlier versions would misread the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.core.model import Reuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

LISTING, SHARD, JOURNAL, RECORDS, MANIFEST = "listing", "shard", "journal", "records", "manifest"
AUDIT_SHARD, SURVEY = "audit shard", "survey"
"""The files of rows. `amended.parquet` and `stated.parquet` are listings."""


class ColumnType(NamedTuple):
    """What the values of a column are, and their Arrow types, by Arrow's names."""

    stored: str
    manifest: str
    """In the manifest, which other tools read, too."""
    text: bool = False
    """Text is stored as `os.fsencode` makes it: bytes that are not UTF-8 are surrogate escapes in memory."""
    row: Any = None
    """Of a column whose values are rows in themselves, or None: their named tuple. Its fields are columns, as
    the manifest has them, and the first of them is never None."""


NAME = ColumnType("binary", "binary", text=True)
"""Text out of the source, which may be no UTF-8."""
WORD = ColumnType("binary", "string", text=True)
"""Text that penstock made."""
BYTES = ColumnType("binary", "binary")
NUMBER = ColumnType("int64", "int64")
SMALL = ColumnType("int64", "int32")
FILE_NUMBER = ColumnType("uint64", "uint64")
"""An inode number, of 64 bits without a sign: on BeeGFS it is a hash. Files that were written when it was
int64 are read as well (`tables.tables.read_batches`)."""
REUSE = ColumnType("struct", "struct", row=Reuse)


def first(values: Sequence[Any]) -> Any:
    """Of a column that is the same in all parts of a giant."""
    return values[0]


def last(values: Sequence[Any]) -> Any:
    """Of a column whose value in the last part counts."""
    return values[-1]


def each(values: Sequence[str]) -> str:
    """Every value once, sorted, separated by blanks."""
    return " ".join(sorted(set(values)))


ALWAYS, CARRYING = 1, 2
"""In which seals a record's leaf covers a column; CARRYING: of releases with files that were carried over."""

REQUIRED = object()
"""In place of a default: a file without the column is damaged."""


class Column(NamedTuple):
    """One column: its values, its files, and how they are stored, sealed and joined."""

    name: str
    kind: ColumnType
    stands: Mapping[str, int]
    """Each file that has it, with the format of that file which had it first."""
    default: object = REQUIRED
    """How a row is read whose file does not have the column, or is made that says nothing of it."""
    sealed: int = 0
    """ALWAYS, CARRYING, or 0: it is no fact of the data."""
    rises: bool = False
    """Ascends or nearly does: stored as differences from row to row."""
    repeats: bool = False
    """Few different values: stored by a dictionary, and by one number for all that rows have in common."""
    identity: bool = True
    """Of a listing: whether its digest covers the column, and so the run's id. False for what changes while
    the bytes do not, and for every column that is added: the same listing stays the same run."""
    joined: Callable[[Sequence[Any]], Any] = first
    """A giant's value from those of its parts, where they are not judged together."""


def _first(*files: str) -> dict[str, int]:
    return dict.fromkeys(files, 1)


_PLANNED = _first(LISTING, SHARD, RECORDS, MANIFEST)
_READ = _first(AUDIT_SHARD)
_SEEN = _first(RECORDS, MANIFEST)
_SURVEYED = _first(SURVEY)

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
"""In the order in which a seal's leaf holds those that it covers."""

BY_NAME = {column.name: column for column in COLUMNS}


def of_file(file: str, names: Iterable[str]) -> tuple[Column, ...]:
    """The columns that a file has, in the order of `names`, the fields of its row."""
    return tuple(BY_NAME[name] for name in names if name in BY_NAME and file in BY_NAME[name].stands)


def file_format(file: str) -> int:
    """The newest format of a file: that of its newest column; 0 of no such file."""
    return max(column.stands.get(file, 0) for column in COLUMNS)


def sealed_fields(most: int) -> tuple[str, ...]:
    """What a leaf of a seal covers, in this order: up to ALWAYS or CARRYING."""
    return tuple(column.name for column in COLUMNS if 0 < column.sealed <= most)


def joined(parts: Sequence[Any], names: Iterable[str]) -> dict[str, Any]:
    """These columns of a giant, from the rows of its parts, in order."""
    return {name: BY_NAME[name].joined([getattr(part, name) for part in parts]) for name in names}
