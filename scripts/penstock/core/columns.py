"""The columns of a file's row, each declared once: its content, its files and their formats, and whether the
seal covers it.

Derived from this table: schemas, encodings and defaults of all Parquet files (`tables.tables`); journal lines
(`core.row_codec`) and packed rows (`engine.records.copied_rows`); what verify copies from the journal to its
records (`engine.reread_shard`); a giant's record (`run.release.reconciliation`); the seal's fields
(`core.seal_tree`). `core.model` repeats the rows for the type checker; `tests/core/test_columns.py` compares.

To add a column: a line here with a default, which says what files without it meant; a field in each row of
`core.model`; the code that fills it. A file's format is the highest of its columns: raise it if earlier
versions would misread the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.core.model import Reuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

# The files of rows. `amended.parquet` and `stated.parquet` are listings.
LISTING, SHARD, JOURNAL, RECORDS, MANIFEST = "listing", "shard", "journal", "records", "manifest"
AUDIT_SHARD, SURVEY = "audit shard", "survey"


class ColumnType(NamedTuple):
    """The values of a column and their Arrow types, by Arrow's names."""

    stored: str
    manifest: str  # in the manifest, which other tools read, too
    # stored as `os.fsencode` makes it; in memory bytes that are not UTF-8 are surrogate escapes
    text: bool = False
    # the named tuple of values that are rows themselves, or None. Its fields are columns, typed as in the
    # manifest, and its first field is never None.
    row: Any = None


NAME = ColumnType("binary", "binary", text=True)  # text from the source, perhaps not UTF-8
WORD = ColumnType("binary", "string", text=True)  # text that penstock made
BYTES = ColumnType("binary", "binary")
NUMBER = ColumnType("int64", "int64")
SMALL = ColumnType("int64", "int32")
# Unsigned inode number: on BeeGFS a hash. Files with the former int64 are read, too
# (`tables.tables.read_batches`).
FILE_NUMBER = ColumnType("uint64", "uint64")
REUSE = ColumnType("struct", "struct", row=Reuse)


def first(values: Sequence[Any]) -> Any:
    """Join a column that is the same in all parts of a giant."""
    return values[0]


def last(values: Sequence[Any]) -> Any:
    """Join a column whose value in the last part counts."""
    return values[-1]


def each(values: Sequence[str]) -> str:
    """Return every value once, sorted, separated by blanks."""
    return " ".join(sorted(set(values)))


# seals whose leaves cover a column; CARRYING: of releases with files that were carried over
ALWAYS, CARRYING = 1, 2

REQUIRED = object()  # in place of a default: a file without the column is damaged


class Column(NamedTuple):
    """A column: its values, its files, and how they are stored, sealed and joined."""

    name: str
    kind: ColumnType
    stands: Mapping[str, int]  # each file that has it: the first format with the column
    default: object = REQUIRED  # value of rows whose file lacks the column, or that leave it open
    sealed: int = 0  # ALWAYS, CARRYING, or 0: no fact of the data
    rises: bool = False  # ascends or nearly does: stored as differences from row to row
    repeats: bool = False  # few different values: stored by a dictionary
    # Whether a listing's digest, and so the run's id, covers the column. False if it may change while the
    # bytes do not, and for every added column: the same listing stays the same run.
    identity: bool = True
    # a giant's value from its parts', unless these are judged together
    joined: Callable[[Sequence[Any]], Any] = first


def _first(*files: str) -> dict[str, int]:
    return dict.fromkeys(files, 1)


_PLANNED = _first(LISTING, SHARD, RECORDS, MANIFEST)
_READ = _first(AUDIT_SHARD)
_SEEN = _first(RECORDS, MANIFEST)
_SURVEYED = _first(SURVEY)

# In the order of a seal's leaf.
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
    """Return the columns of a file in the order of `names`, the fields of its row."""
    return tuple(BY_NAME[name] for name in names if name in BY_NAME and file in BY_NAME[name].stands)


def file_format(file: str) -> int:
    """Return the newest format of a file; 0: no such file."""
    return max(column.stands.get(file, 0) for column in COLUMNS)


def sealed_fields(most: int) -> tuple[str, ...]:
    """Return the fields that a seal's leaf covers, up to ALWAYS or CARRYING, in order."""
    return tuple(column.name for column in COLUMNS if 0 < column.sealed <= most)


def joined(parts: Sequence[Any], names: Iterable[str]) -> dict[str, Any]:
    """Join these columns of a giant from the rows of its parts, in order."""
    return {name: BY_NAME[name].joined([getattr(part, name) for part in parts]) for name in names}
