"""Does the jobs of rows that are copied in parts: reads a part of the listed version, and writes it at its
offset.

Some checksums can be proven by the parts together: CRCs, and a composite whose parts end where the row's
parts end. They are checked before the file is renamed. A checksum that needs all bytes in order (MD5, SHA,
XXH3 of the whole) is recorded as owed. Later, verify reads the whole file, checks that checksum, and computes
the file's plain digest. Until then the row has a digest over its parts' digests.

One stream copies a large file of a folder source in order, with one digest: see `engine.tasks`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from penstock.core.errors import IntegrityError, SourceChangedError
from penstock.core.grades import SIZE_ONLY
from penstock.core.model import Copied, PartLine, Proof, SourceChecksum, as_in_parts, of_hex
from penstock.core.row_codec import part_line
from penstock.engine.checksums import Sums, best, combine, compose, grade_of, judge_giant, listed, tree_digest
from penstock.engine.pump import ResumedBody, as_assumed, part_sizes
from penstock.engine.tasks import BEGIN, BEGUN, DROP, DROPPED, FETCH, IN_ORDER, temporary_name
from penstock.sources.posix.reader import SparseBody

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.core.model import Entry, Part
    from penstock.engine.open_sources import Sources
    from penstock.engine.pump import Pump
    from penstock.sources.port import Reader
    from penstock.target.staging_folder import Pending
    from penstock.target.staging_writer import StagingWriter


class Copying(Protocol):
    """The stream for which a `PartCopier` works. It is a `Copier`, whose module imports this module."""

    sources: Sources
    writer: StagingWriter
    pump: Pump
    policy: str  # the setting `verify.source_checksum`
    require: bool  # whether a checksum of the source must prove each row

    def reader(self, index: int) -> Reader:
        """See `Copier.reader`."""

    def record(self, line: str, size: int) -> None:
        """See `Stream.record`."""

    def asks(self) -> None:
        """See `Stream.asks`."""

    def checksums(self, entry: Entry) -> Sequence[SourceChecksum]:
        """See `Copier.checksums`."""

    def require_proof(self, entry: Entry, sums: Sums) -> None:
        """See `Copier.require_proof`."""

    def uploaded(self, entry: Entry, failed: SourceChecksum | None, error: IntegrityError) -> Sequence[int]:
        """See `Copier.uploaded`."""


class PartCopier:
    """Does the work of a `Part`: begins, finishes or drops a temporary file, or fetches bytes for it."""

    def __init__(self, copier: Copying) -> None:
        self._copier = copier

    def do(self, row: int, part: Part) -> Copied | PartLine | None:
        """Do a part's work, and return its record for the journal: a `Copied` for a finished row, or else a
        `PartLine`.

        Returns None if the row's temporary file is gone. Raises the errors of reader and writer. Raises
        IntegrityError if a part or all parts contradict the source, or do not give a required proof.
        """
        writer = self._copier.writer
        if part.work == FETCH:
            return self._fetch(row, part)
        if part.work == IN_ORDER:
            return self._in_order(row, part)
        if part.work == BEGIN:
            writer.begin_multipart(part.path, part.temporary, part.size)
            return _line(row, part, BEGUN, "", "", "")
        if part.work == DROP:
            writer.drop_multipart(part.path, part.temporary)
            return _line(row, part, DROPPED, "", "", "")
        return self._finish(row, part)

    def _fetch(self, row: int, part: Part) -> PartLine | None:
        copier, writer, entry = self._copier, self._copier.writer, part.range
        reader = copier.reader(entry.source)
        copier.asks()
        url = copier.sources.get(entry.source).url
        body = copier.pump.open(url, reader, entry, entry.offset, entry.length)
        try:
            sums = Sums(entry, body.checksums, lambda: copier.checksums(entry), policy=copier.policy)
            stated = _checkable(sums.stated)
            if copier.require and not stated:
                copier.require_proof(entry, sums)
            pending = writer.begin_range(entry.path, part.temporary, entry.size, entry.offset)
            if pending is None:
                body.abandon()
                return None
            try:
                digest = copier.pump.run(entry, body, pending, sums or None, entry.length)
                body.close()
                _, proof = sums.judge()
            except BaseException:
                writer.discard(pending)
                raise
        except BaseException:
            body.abandon()
            raise
        writer.finish_part(pending)
        return _line(row, part, entry.part, digest, proof, " ".join(map(str, stated)))

    def _in_order(self, row: int, part: Part) -> Copied:
        """Copy a folder source's file from its last mark, or from byte 0 if the temporary file does not match
        the mark.

        If the file changed or contradicts its checksum, the temporary file is removed.
        """
        copier, writer = self._copier, self._copier.writer
        entry = part.range._replace(part=-1, offset=0, length=part.size)
        path, size, name = entry.path, entry.size, part.temporary
        sums, digest = Sums(entry, (), policy=copier.policy), None
        if copier.require:
            copier.require_proof(entry, sums)
        pending = None
        try:
            if part.lines:
                (last,) = part.lines
                pending = writer.begin_range(path, name, size, last.part_bytes, named=True)
                if pending and (digest := copier.pump.read_back(pending, sums, last.digest)) is None:
                    # Start again under another name, so that no attempt resumes at this mark.
                    writer.discard(pending)
                    pending = None
                    self._drop(row, part)
                    part = part._replace(temporary=temporary_name(), lines=())
                    sums, name = Sums(entry, (), policy=copier.policy), part.temporary
            at = pending.position if pending else 0
            copier.asks()
            url, reader = copier.sources.get(entry.source).url, copier.reader(entry.source)
            body = copier.pump.open(url, reader, entry, at, size - at)
            try:
                if pending is None:
                    writer.begin_multipart(path, name, size, holes=isinstance(body, SparseBody))
                    pending = writer.begin_range(path, name, size, 0)
                    assert pending is not None
                marks = _Marks(self._copier, row, part, pending)
                # Several attempts may write to this file at once, which does no harm: each writes only bytes
                # of the listed version.
                assert isinstance(body, ResumedBody | SparseBody)
                whole = copier.pump.run(
                    entry, body, pending, sums or None, size - at, digest, marks.add, body.require_listed
                )
                body.close()
            except BaseException:
                body.abandon()
                raise
            grade, proof = sums.judge()
            writer.finish_part(pending)  # do not set the time: other attempts may have renamed and read it
            marks.end(whole)
            writer.finish_multipart(path, name, size, entry.modified_ns)
        except BaseException as error:
            if pending:
                writer.discard(pending)
            if isinstance(error, (IntegrityError, SourceChangedError)):
                self._drop(row, part)
            raise
        return Copied(row, of_hex(whole), grade, proof)

    def _drop(self, row: int, part: Part) -> None:
        """Remove the temporary file of a file copied in order, and journal the removal."""
        self._copier.writer.drop_multipart(part.path, part.temporary)
        self._copier.record(part_line(_line(row, part, DROPPED, "", "", "")), 0)

    def _finish(self, row: int, part: Part) -> Copied | None:
        lines, entry = part.lines, part.range
        grade, checksum, owed = self._judged(entry, lines)
        if not self._copier.writer.finish_multipart(
            entry.path, part.temporary, entry.size, entry.modified_ns
        ):
            return None
        tree = tree_digest(part.part_bytes, b"".join(bytes.fromhex(line.digest) for line in lines))
        return Copied(row, as_in_parts(tree), grade, checksum, owed=owed)

    def _judged(self, entry: Entry, lines: Sequence[PartLine]) -> tuple[str, str, Proof | None]:
        """As `judged`, but trust a composite only if the object was uploaded in parts of the assumed size.

        It requests the sizes from the source if the composite differs, or verify would have to compute it.
        If a required proof fails, it raises IntegrityError. One stream then copies the row again, in order,
        which may prove it.
        """
        copier = self._copier
        composite = best(_stated(entry, lines), "composite")
        try:
            grade, checksum, owed = judged(entry, lines)
            if composite is None or owed is None or owed.checksum != str(composite):
                if copier.require and grade == SIZE_ONLY and not checksum and owed is None:
                    raise IntegrityError("the object's parts prove nothing together", where=entry.key)
                return grade, checksum, owed
            copier.asks()
            sizes = part_sizes(copier.sources.get(entry.source), entry, composite)
            if as_assumed(sizes, composite):
                return grade, checksum, owed
        except IntegrityError as error:
            copier.uploaded(entry, composite, error)
            if copier.require:
                raise
        if copier.require:
            raise IntegrityError("the object was uploaded in parts of other sizes", where=entry.key)
        full = best(_stated(entry, lines), "full")
        return SIZE_ONLY, "", _owed(full, entry) if full else None


class _Marks:
    """Journals the progress of a file that is copied in order, after every `Part.part_bytes` bytes."""

    def __init__(self, copier: Copying, row: int, part: Part, pending: Pending) -> None:
        self._copier, self._row, self._part, self._pending = copier, row, part, pending
        self._last = pending.position

    def add(self, digest: Any) -> None:
        if self._pending.position - self._last >= self._part.part_bytes:
            self._copier.writer.sync(self._pending)
            self.end(digest.hexdigest())

    def end(self, digest: str) -> None:
        """Record that the bytes written so far are durable."""
        part, at = self._part, self._pending.position
        line = PartLine(self._row, part.temporary, at, 0, digest, "", "", part.range.token)
        self._copier.record(part_line(line), at - self._last)
        self._last = at


def _stated(entry: Entry, lines: Sequence[PartLine]) -> list[SourceChecksum]:
    return [*map(SourceChecksum.parse, lines[0].stated.split()), *listed(entry)]


def _owed(checksum: SourceChecksum, entry: Entry) -> Proof:
    return Proof(grade_of(checksum, entry.token), str(checksum))


def judged(entry: Entry, lines: Sequence[PartLine]) -> tuple[str, str, Proof | None]:
    """Judge a row by its parts, and return (grade, checksum that matched, proof owed).

    The grade says how strongly the source proves the bytes (`core.grades`). The checksum is "" if none was
    compared. The proof owed is the checksum that verify must compare, with the grade that it will give, or
    None. Raises IntegrityError if the parts contradict the source.
    """
    checksums = _stated(entry, lines)
    size = lines[0].part_bytes
    ends = [min(size, entry.size - number * size) for number in range(len(lines))]
    joined = combine((line.proof, length) for line, length in zip(lines, ends, strict=True))
    composed = compose((line.proof, line.number * size, n) for line, n in zip(lines, ends, strict=True))
    grade, checksum = judge_giant(
        entry.key, [line for line in (joined, composed) if line], checksums, entry.token
    )
    if grade != "full":
        full = best(checksums, "full")
        owed = full or (best(checksums, "composite") if grade == SIZE_ONLY else None)
        if owed:
            return SIZE_ONLY, "", _owed(owed, entry)
    return grade, checksum, None


def _checkable(checksums: Iterable[SourceChecksum]) -> list[SourceChecksum]:
    """Drop duplicates, and checksums that penstock cannot compute."""
    return [
        checksum
        for checksum in dict.fromkeys(checksums)
        if best([checksum], "full") or (checksum.part_bytes and best([checksum], "composite"))
    ]


def _line(row: int, part: Part, number: int, digest: str, proof: str, stated: str) -> PartLine:
    return PartLine(row, part.temporary, part.part_bytes, number, digest, proof, stated, part.range.token)
