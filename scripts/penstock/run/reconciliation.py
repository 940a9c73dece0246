"""The closing walk checks that the listing, verify's records and the tree agree, in one pass over the three
in the same order. It also compares the tree's permissions with the configured ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from operator import lt
from os import fsencode
from stat import S_IFREG, S_ISREG
from typing import TYPE_CHECKING

from penstock.core.errors import IMPOSSIBLE, NAMED_FILES, FailedError, IntegrityError
from penstock.core.grades import SIZE_ONLY, storage_rank
from penstock.core.human import in_quotes
from penstock.core.layout import TEMPORARY
from penstock.core.model import Digest, Record, SourceChecksum
from penstock.core.model import listed as digests_of
from penstock.core.row_codec import joined
from penstock.engine.checksums import combine, compose, judge_giant, listed, tree_digest
from penstock.fs.path_walk import Cursor
from penstock.tables.json_files import KeptFolders
from penstock.tables.manifest import Files
from penstock.tables.row_streams import RowCursor
from penstock.tables.run_tables import entries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from penstock.core.model import Entry
    from penstock.core.run_documents import PlanInfo
    from penstock.fs.path_walk import WalkedPath
    from penstock.fs.tree import Looked
    from penstock.tables.manifest import SeenRow
    from penstock.target.modes import FilePermissions

    Joined = tuple[Files, tuple[int, ...]]
    """Files, and the shards that contain the files' rows."""


# Compare a staging's tree with verify's records and with the configured permissions.
#
# A single lstat of each file serves both comparisons. It is made here, after the last writer has ended. Until
# then, a file's lstat is made only by the process that writes it.


@dataclass
class Deviations:
    """The closing walk's deviations; at most `NAMED_FILES` of each kind have names."""

    extra: list[str] = field(default_factory=list)
    # temporary files left by an attempt of the copy step that penstock did not know of; they are removed
    leftover: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    # files whose size, kind or times differ from verify's records
    touched: list[str] = field(default_factory=list)
    # files and folders with another mode, group or ACL than configured
    permissions: list[str] = field(default_factory=list)
    contradicted: list[str] = field(default_factory=list)  # giants that contradict the source's checksum
    # {path of a contradicted giant, which is to be copied again: shards of its parts}
    wrong: dict[str, tuple[int, ...]] = field(default_factory=dict)
    # Files with less evidence than this file system allows, since a page stayed cached.
    weak: list[str] = field(default_factory=list)
    # carried-over files that were not read within `verify.linked`
    overdue: list[str] = field(default_factory=list)
    shards: set[int] = field(default_factory=set)  # shards of all deviations except extra and leftover
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, kind: str, text: str, shards: Iterable[int] = ()) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        named: list[str] = getattr(self, kind)
        if len(named) < NAMED_FILES:
            named.append(text)
        self.shards.update(shards)

    def __bool__(self) -> bool:
        return bool(self.counts)

    def lines(self) -> list[str]:
        out = []
        for kind, count in sorted(self.counts.items()):
            named: list[str] = getattr(self, kind)
            out += [f"{kind}: {text}" for text in named]
            if count > len(named):
                out.append(f"{kind}: and {count - len(named)} more")
        return out


class Standing:
    """The tree's entries, in order, while they are compared."""

    def __init__(
        self, data: Path, deviations: Deviations, final: FilePermissions | None, folders: Iterable[str] = ()
    ) -> None:
        """`final` is None if permissions are not compared. `folders` are expected empty folders."""
        self._tree, self._deviations, self._folders = Cursor(data), deviations, KeptFolders(folders)
        self._final = final

    def compare(self, files: Files, shards: tuple[int, ...]) -> None:
        paths = files["path"]
        for index, item, own in self._tree.against(paths, partial(self._as_expected, files)):
            if own:
                self._compared(item, files.record(index), shards)
            elif item is not None and not item.holds(paths[index]):
                self._extra(item)

    def _as_expected(self, files: Files, looked: Looked, start: int) -> bool:
        paths = files["path"][start : start + len(looked.mode)]
        return _as_seen(files, looked, start) and (
            self._final is None or self._final.held(paths, looked.mode, looked.gid)
        )

    def _compared(self, item: WalkedPath | None, record: Record, shards: tuple[int, ...]) -> None:
        if item is None:
            self._deviations.add("missing", in_quotes(record.path), shards)
            return
        if why := _touched(item, record):
            self._deviations.add("touched", f"{in_quotes(record.path)}: {why}", shards)
        if self._final is None or item.kind != "file":
            return
        if not self._final.held([item.path], [S_IFREG | item.mode], [item.gid]):
            why = f"it has mode {item.mode:04o} and group {item.gid}, or another ACL"
            self._deviations.add("permissions", f"{in_quotes(record.path)}: {why}", shards)

    def end(self) -> None:
        """End the comparison. Remaining entries are extra; remaining expected empty folders are missing."""
        for beside in self._tree.rest():
            self._extra(beside)
        for folder in self._folders.missing():
            self._deviations.add("missing", f"{in_quotes(folder)} (an empty folder)")

    def _extra(self, beside: WalkedPath) -> None:
        if beside.kind == "dir" and self._folders.meet(beside.path):
            return
        temporary = beside.kind == "file" and TEMPORARY.fullmatch(beside.path.rpartition("/")[2])
        self._deviations.add(
            "leftover" if temporary else "extra", f"{in_quotes(beside.path)} ({beside.kind})"
        )


def _as_seen(files: Files, looked: Looked, start: int) -> bool:
    stop = start + len(looked.mode)
    return (
        looked.size == files["size"][start:stop]
        and looked.mtime_ns == files["mtime_ns"][start:stop]
        and looked.ctime_ns == files["ctime_ns"][start:stop]
        and all(map(S_ISREG, set(looked.mode)))
    )


def _touched(item: WalkedPath, record: Record) -> str:
    if item.kind != "file":
        return f"it is a {item.kind} now"
    if item.size != record.size:
        return f"it has {item.size} bytes, not {record.size}"
    if (item.mtime_ns, item.ctime_ns) != (record.mtime_ns, record.ctime_ns):
        return "it was changed or touched after verify"
    return ""


# The closing walk checks that the listing, verify's records and the tree agree, in one pass over the three in
# the same order.
#
# Memory contains only deviations. The parts of a giant (an object copied in parts) become one record here.
# Whole files are compared by columns, and row by row only if columns differ.


def _taken_for_granted(_: Entry, __: SourceChecksum) -> bool:
    return True


def close(
    plan: PlanInfo,
    listing: Iterator[pa.RecordBatch],
    rows: Iterator[tuple[int, Files | list[SeenRow]]],
    data: Path,
    ask: Callable[[Entry], Sequence[SourceChecksum]],
    deviations: Deviations,
    as_assumed: Callable[[Entry, SourceChecksum], bool] = _taken_for_granted,
    folders: Iterable[str] = (),
    permissions: FilePermissions | None = None,
) -> Iterator[Joined]:
    """Yield the records of all files, in order, each compared with its listed entry and with the tree.

    Raises FailedError if the records are not those of the listing. Adds deviations on the target to
    `deviations`: the records are valid only if no deviation was added by the end. `ask` returns the source's
    checksums of a giant. `as_assumed`, called only if a composite checksum disagrees, returns whether the
    giant was uploaded in parts of the assumed size. `folders` are expected empty folders. `permissions` is
    None if they are not compared.
    """
    planned, standing = _Listed(listing), Standing(data, deviations, permissions, folders)
    before, files, size = "", 0, 0
    for some, shards in _joined(plan, rows, planned, partial(_judged, ask, as_assumed), deviations):
        before = _in_order(before, some["path"])
        files += len(some)
        size += sum(some["size"])
        standing.compare(some, shards)
        yield some, shards
    planned.end()
    standing.end()
    if (files, size) != (plan.files, plan.bytes):
        raise FailedError(
            "the records are not those of the plan",
            why=f"{files} files of {size} bytes; planned: {plan.files} of {plan.bytes}",
            hint=IMPOSSIBLE,
        )


def _in_order(before: str, paths: Sequence[str]) -> str:
    """Return the last path. Raises FailedError if the paths are not in ascending order of their bytes."""
    row = [before, *paths]
    if not all(map(str.isascii, row)):
        raw = list(map(fsencode, row))
        ascend = list(map(lt, raw, raw[1:]))
    else:
        ascend = list(map(lt, row, row[1:]))
    if not all(ascend):
        raise FailedError(
            "the records are not in order", where=in_quotes(paths[ascend.index(False)]), hint=IMPOSSIBLE
        )
    return row[-1]


class _Listed:
    """The listing as a stream, which `compare` and `entry` consume."""

    SAME = ("path", "key", "size", "token")

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._cursor = RowCursor(batches)

    def compare(self, files: Files) -> None:
        """Raise FailedError unless these files are the next entries of the listing."""
        start = 0
        while start < len(files):
            rows = self._next(len(files) - start, files["path"][start])
            count = rows.num_rows
            if not all(rows[name].equals(files.stored(name).slice(start, count)) for name in self.SAME):
                raise _unlike(entries(rows), files.records()[start : start + count])
            start += count

    def entry(self, records: Sequence[Record]) -> Entry:
        """Return the next entry. Raises FailedError unless it is the giant with these parts."""
        (entry,) = entries(self._next(1, records[0].path))
        for record in records:
            if (entry.path, *_stated(entry)) != (record.path, *_stated(record)):
                raise _unlike([entry], [record])
        return entry

    def _next(self, most: int, path: str) -> pa.RecordBatch:
        """Return up to `most` rows. `path` is that of the record compared with the first row."""
        if self._cursor.rows is None:
            why = "the listing has no further entry"
            raise FailedError("listing and records differ", where=in_quotes(path), why=why, hint=IMPOSSIBLE)
        return self._cursor.take(most)

    def end(self) -> None:
        if self._cursor.rows is not None:
            (entry,) = entries(self._cursor.take(1))
            raise FailedError("a listed object has no record", where=in_quotes(entry.path), hint=IMPOSSIBLE)


def _stated(item: Entry | Record) -> tuple[str, int, str]:
    return item.key, item.size, item.token


def _unlike(planned: Sequence[Entry], records: Sequence[Record]) -> FailedError:
    for entry, record in zip(planned, records, strict=True):
        if entry.path != record.path:
            why = f"the listing has {in_quotes(entry.path)}"
            return FailedError(
                "listing and records differ", where=in_quotes(record.path), why=why, hint=IMPOSSIBLE
            )
        if _stated(entry) != _stated(record):
            return FailedError(
                "a record differs from its entry in the listing",
                where=in_quotes(record.path),
                hint=IMPOSSIBLE,
            )
    return FailedError("listing and records differ", where=in_quotes(records[0].path), hint=IMPOSSIBLE)


def _joined(
    plan: PlanInfo,
    rows: Iterator[tuple[int, Files | list[SeenRow]]],
    planned: _Listed,
    judge: Callable[[Entry, Sequence[SourceChecksum]], tuple[str, str]],
    deviations: Deviations,
) -> Iterator[Joined]:
    parts: list[tuple[int, SeenRow]] = []
    for shard, some in rows:
        if isinstance(some, Files):
            _complete(parts)
            planned.compare(some)
            yield some, (shard,)
            continue
        for row in some:
            if parts and row.record.path != parts[0][1].record.path:
                _complete(parts)
            if row.part != len(parts) or row.offset != sum(p.length for _, p in parts):
                raise FailedError(
                    "a giant's parts are not in order", where=in_quotes(row.record.path), hint=IMPOSSIBLE
                )
            parts.append((shard, row))
            if row.offset + row.length == row.record.size:
                entry = planned.entry([part.record for _, part in parts])
                shards = tuple(sorted({shard for shard, _ in parts}))
                yield Files.of([_giant(plan, entry, parts, judge, deviations, shards)]), shards
                parts = []
    _complete(parts)


def _complete(parts: Sequence[tuple[int, SeenRow]]) -> None:
    if parts:
        raise FailedError(
            "a giant's parts are not complete", where=in_quotes(parts[0][1].record.path), hint=IMPOSSIBLE
        )


def _giant(
    plan: PlanInfo,
    entry: Entry,
    parts: Sequence[tuple[int, SeenRow]],
    judge: Callable[[Entry, Sequence[SourceChecksum]], tuple[str, str]],
    deviations: Deviations,
    shards: tuple[int, ...],
) -> Record:
    """Return one record for a giant, with the weakest storage grade of its parts, and a digest over the
    parts' digests. Compares the parts' combined sums with the source's checksums of the object."""
    rows = [row for _, row in parts]
    records = [row.record for row in rows]
    digests = b"".join(bytes.fromhex(Digest.parse(r.digest).value) for r in records)
    tree = tree_digest(plan.part_bytes, digests)
    whole = _whole_digests(entry, records[-1].digests, tree, deviations, shards)
    grade, proof = SIZE_ONLY, ""
    checksums = _known(rows, whole)
    try:
        if checksums:
            grade, proof = judge(entry, checksums)
    except IntegrityError as error:
        deviations.add("contradicted", str(error), shards)
        deviations.wrong[entry.path] = shards
    weakest = min(records, key=lambda r: storage_rank(r.storage_grade))
    # The giant's parts are read back only when all are copied and its mode is set. Different times mean that
    # the giant was touched.
    times = {(r.mtime_ns, r.ctime_ns) for r in records}
    if len(times) > 1:
        deviations.add(
            "touched", f"{in_quotes(entry.path)}: its parts were verified at different states", shards
        )
    return Record(
        **{
            **joined(records, Record._fields),
            "digest": str(tree),
            "parts": digests,
            "digests": whole,
            "source_grade": grade,
            "source_proof": proof,
            "storage_grade": weakest.storage_grade,
            "method": weakest.method,
        }
    )


def _judged(
    ask: Callable[[Entry], Sequence[SourceChecksum]],
    as_assumed: Callable[[Entry, SourceChecksum], bool],
    entry: Entry,
    checksums: Sequence[SourceChecksum],
) -> tuple[str, str]:
    """Return (source grade, proof) of a giant. Raises IntegrityError if the giant contradicts its source."""
    try:
        return judge_giant(entry.key, checksums, (*ask(entry), *listed(entry)), entry.token)
    except IntegrityError:
        if checksums[0].kind != "composite" or as_assumed(entry, checksums[0]):
            raise
    return SIZE_ONLY, ""


def _known(rows: Sequence[SeenRow], whole: str) -> list[SourceChecksum]:
    """Return checksums of all bytes of a giant, to compare with its source's. They combine the parts' sums
    from the copy, or are the digests of one reading from front to end."""
    proofs = [(row.record.source_proof, row.offset, row.length) for row in rows]
    together = combine((proof, length) for proof, _, length in proofs) or compose(proofs)
    if together is not None:
        return [together]
    return [SourceChecksum(digest.algorithm, "full", digest.value) for digest in digests_of(whole)]


def _whole_digests(
    entry: Entry, listed: str, tree: Digest, deviations: Deviations, shards: tuple[int, ...]
) -> str:
    """Return the digests of one reading of the whole giant. Adds a deviation if they contradict the readings
    of its parts."""
    read = digests_of(listed)
    digests = [digest for digest in read if not digest.part_bytes]
    if digests and tree not in read:
        deviations.add(
            "touched", f"{in_quotes(entry.path)}: read as a whole it is not what its parts are", shards
        )
    return " ".join(map(str, digests))
