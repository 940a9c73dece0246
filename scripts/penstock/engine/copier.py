"""Copies rows: a stream reads, hashes, checks and writes a row in one pass, or does the jobs of a row that is
copied in parts, each read from the listed version and written at its offset.
"""

from __future__ import annotations

import os
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import xxhash

from penstock.core.errors import IntegrityError, SourceChangedError, TransientError, UnprovenError
from penstock.core.grades import SIZE_ONLY
from penstock.core.model import Copied, Part, PartLine, Proof, SourceChecksum, as_in_parts, of_hex
from penstock.core.row_codec import fresh_line, line_of, part_line, reused_line
from penstock.engine.checksums import (
    Sums,
    best,
    combine,
    compose,
    grade_of,
    judge_at_once,
    judge_giant,
    listed,
    tree_digest,
)
from penstock.engine.pump import Pump, ResumedBody, as_assumed, long, part_sizes, short, sizes_of_upload
from penstock.engine.stream import BLOCK, Prefetch, Stream
from penstock.engine.tasks import BEGIN, BEGUN, DROP, DROPPED, FETCH, IN_ORDER, temporary_name
from penstock.sources.port import AheadReader, WholeReader
from penstock.sources.posix_reader import SparseBody

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from penstock.core.model import Entry, Reuse
    from penstock.engine.stream import Sources
    from penstock.sources.port import Body, Reader
    from penstock.target.links import Abandoned
    from penstock.target.staging_folder import Pending
    from penstock.target.staging_writer import StagingWriter


# Does the jobs of rows that are copied in parts: reads a part of the listed version, and writes it at its
# offset.
#
# Some checksums can be proven by the parts together: CRCs, and a composite whose parts end where the row's
# parts end. They are checked before the file is renamed. A checksum that needs all bytes in order (MD5, SHA,
# XXH3 of the whole) is recorded as owed. Later, verify reads the whole file, checks that checksum, and
# computes the file's plain digest. Until then the row has a digest over its parts' digests.
#
# One stream copies a large file of a folder source in order, with one digest: see `engine.tasks`.


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


# A stream (a worker's thread) that copies rows: it reads, hashes, checks and writes them in one pass.
#
# A small object is read whole and checked before anything is written to the target. A large object is written
# block by block into a temporary file, which is renamed only after every check passed. `do` returns the row's
# journal line, and the workers' parent writes it.

_hash = xxhash.xxh3_128_hexdigest


class Copier(Stream):
    """Copies rows with its own readers and writer, for one thread.

    - `base`: the `data` folder of the release whose unchanged files are reused. `way` (`link`, `reflink` or
      `copy`) says how they are reused.
    - `stagings`: other runs' staging trees, by run, from which files are moved.
    - `policy`: the setting `verify.source_checksum`. With `require`, a row that no checksum can prove fails
      before a byte of it is written. `checksums.admitted` explains the other policies.
    - `later`: digests that verify computes over all bytes of a giant (an object whose parts are rows of
      several shards). A source's checksum with such an algorithm can then prove the giant.

    `do` returns "" for a part whose temporary file is gone. It raises the errors of readers and writer, and:

    - IntegrityError if the bytes contradict a checksum or are more than listed
    - TransientError if the bytes end early
    - SourceChangedError if the object changed since the listing
    - UnprovenError if the policy is `require` and no checksum proves the row
    """

    def __init__(
        self,
        *,
        sources: Sources,
        writer: StagingWriter,
        base: Path | None,
        way: str = "link",
        stagings: Mapping[str, Abandoned] = MappingProxyType({}),
        policy: str = "auto",
        later: Sequence[str] = (),
        **common: Any,
    ) -> None:
        super().__init__(**common)
        self.sources, self.writer, self.base, self.stagings = sources, writer, base, stagings
        self.way = way
        self.policy, self.require, self.later = policy, policy == "require", later
        # Sizes of the uploaded parts of objects that must be read again, since other sizes were assumed. An
        # object is named by its source, key and token.
        self._sizes: dict[tuple[int, str, str], Sequence[int]] = {}
        self.pump = Pump(self, writer.alive)
        self.parts = PartCopier(self)
        # readers by the source's number in the dataset, which is also the key of `wholes` and `aheads`
        self.readers: dict[int, Reader] = {}
        # Functions that read a small object with one call, for sources that can. They return None if the
        # object must be read with `open`.
        self.wholes: dict[
            int, Callable[[Entry, memoryview], tuple[memoryview, Sequence[SourceChecksum]] | None]
        ] = {}
        self.aheads: dict[int, Callable[[Entry], None] | None] = {}  # functions that prefetch an object
        self.prefetch = Prefetch(self._asker, linking=base is not None or bool(stagings))

    def prepare(self, entries: Sequence[Entry], ahead: int) -> None:
        """As `Stream.prepare`. It sends no request yet."""
        self.prefetch.begin(entries, ahead)

    def rest(self) -> None:
        for reader in self.readers.values():
            reader.close()

    def settle(self) -> None:
        """Make the names of finished files durable, if the durability is `fsync`."""
        self.writer.settle()

    def do(self, row: int, entry: Entry | Part) -> str:
        if isinstance(entry, Part):
            done = self.parts.do(row, entry)
            return line_of(done) if done else ""
        if entry.reuse and (line := self._reused(row, entry, entry.reuse)):
            return line
        reader = self.reader(entry.source)
        length = entry.length if entry.part >= 0 else entry.size
        self.asks()
        if self.limiter and length <= BLOCK:
            self.limiter.take(length)
        small = length <= BLOCK and entry.part < 0
        if self.prefetch:
            self.prefetch.turn(entry)
        # After a broken connection the row is read with `open`, which can resume it.
        if (
            small
            and not self.vain_tries
            and (whole := self.wholes.get(entry.source))
            and (small_object := whole(entry, self.view))
        ):
            return self._judged(row, entry, *small_object)
        url = self.sources.get(entry.source).url
        body = self.pump.open(url, reader, entry, entry.offset, length)
        try:
            return (self._small if small else self._large)(row, entry, body, length)
        except BaseException:
            body.abandon()
            raise

    def _reused(self, row: int, entry: Entry, reuse: Reuse) -> str:
        """Link or copy the row's file on the target, or move it from another run's staging.

        Returns the row's line, or "" if the row must be fetched.
        """
        path = entry.path
        mtime = entry.modified_ns if reuse.mtime_ns is None else reuse.mtime_ns
        if not reuse.staging:
            if self.base is None:
                return ""
            # A renamed file that needs its own time cannot be a link to the same inode.
            own = entry.held_as != "" and reuse.mtime_ns is None
            way = "copy" if own and self.way == "link" else self.way
            if way == "link":
                done = self.writer.link(self.base, path, entry.size, mtime, entry.held_as)
                # A renamed file may need another mode, so it is copied if it cannot be linked.
                way = "copy" if entry.held_as and not done else way
            if way != "link":
                done = self.copy_here(self.base, entry, None if own else mtime, way)
                if way == "copy":
                    reuse = reuse._replace(written_host="")  # this node wrote it; its name is not known here
            if not done:
                return ""
            self.linked += 1
        elif entry.part >= 0:
            # `run.target_findings` moved the giant's file here before any element (process of the job) began.
            if not self.writer.holds(path, entry.size, None):
                return ""
            self.taken += 1
        else:
            stagings = [self.stagings[reuse.staging]] if reuse.staging in self.stagings else []
            stagings += [data for run, data in self.stagings.items() if run != reuse.staging]
            if not self.writer.take_over(stagings, path, entry.size, mtime):
                return ""
            self.taken += 1
        self.counters[self.slot] += entry.length if entry.part >= 0 else entry.size
        # A linked file's ctime was not compared, so `touched` makes verify read the file.
        return reused_line(row, reuse, touched=not reuse.staging)

    def copy_here(self, base: Path, entry: Entry, mtime_ns: int | None, way: str) -> bool:
        """Make a new file in staging from the release's file. With `reflink` the two files share blocks, with
        `copy` the bytes are copied.

        Returns False, and makes no file, if blocks cannot be shared, or the release's file has another size,
        or another time than `mtime_ns` (None: any). Verify reads the new file back, as it does linked files.
        """
        fd = self.writer.held(base, entry.held_as or entry.path, entry.size, mtime_ns)
        if fd is None:
            return False
        try:
            pending = self.writer.begin(entry.path, entry.size, holes=way == "reflink")
            try:
                if way == "reflink":
                    if not pending.reflink(fd):
                        self.writer.discard(pending)
                        return False
                else:
                    pending.copy(fd, self.view, lambda: self.writer.alive(pending))
            except BaseException:
                self.writer.discard(pending)
                raise
            self.writer.finish(pending, entry.modified_ns)
        finally:
            os.close(fd)
        return True

    def reader(self, index: int) -> Reader:
        return self.readers.get(index) or self._reader(index)

    def _reader(self, index: int) -> Reader:
        reader = self.readers[index] = self.sources.get(index).reader()
        if isinstance(reader, WholeReader):
            self.wholes[index] = reader.whole
        self.aheads[index] = reader.ahead if isinstance(reader, AheadReader) else None
        return reader

    def _asker(self, index: int) -> Callable[[Entry], None] | None:
        if index not in self.readers:
            self._reader(index)
        return self.aheads[index]

    def _small(self, row: int, entry: Entry, body: Body, length: int) -> str:
        view = self.view
        read = body.readinto(view)
        while read < length:
            more = body.readinto(view[read:])
            if not more:
                raise short(entry, read, length)
            read += more
        if read > length or body.readinto(view[read:]):
            raise long(entry, length)
        body.close()
        return self._judged(row, entry, view[:length], body.checksums)

    def _judged(self, row: int, entry: Entry, data: memoryview, checksums: Sequence[SourceChecksum]) -> str:
        """Hash a small object's bytes, check them with the source's checksums, and only then write them."""
        digest = _hash(data)
        grade, proof = SIZE_ONLY, ""
        if checksums or entry.checksum or self.require:
            grade, proof = judge_at_once(entry, checksums, data) or self._summed(entry, checksums, data)
        self.writer.put(entry.path, data, entry.modified_ns)
        self.counters[self.slot] += len(data)
        return fresh_line(row, digest, grade, proof)

    def _summed(self, entry: Entry, checksums: Sequence[SourceChecksum], data: memoryview) -> tuple[str, str]:
        sums = Sums(entry, checksums, policy=self.policy)
        if self.require:
            self.require_proof(entry, sums)
        if sums:
            sums.update(data)
        try:
            return sums.judge()
        except IntegrityError as error:
            sizes = self.uploaded(entry, sums.failed, error)
        if not sizes:
            return SIZE_ONLY, ""
        sums = Sums(entry, checksums, policy=self.policy, sizes=sizes)
        sums.update(data)
        return sums.judge()

    def uploaded(self, entry: Entry, failed: SourceChecksum | None, error: IntegrityError) -> Sequence[int]:
        """Return the sizes of the object's uploaded parts, as `pump.sizes_of_upload` does.

        Raises its errors. Also raises UnprovenError if the sizes are unknown and a proof is required, and
        SourceChangedError if the bytes differ from the bytes at the listing.
        """
        if failed is not None and failed.kind == "read":
            raise SourceChangedError(error.what, where=error.where, why=error.why) from None
        sizes = sizes_of_upload(self.asks, self.sources.get(entry.source), entry, failed, error)
        if not sizes and self.require and failed is not None:
            raise UnprovenError(
                "no checksum of the source proves the object, and verify.source_checksum requires one",
                where=entry.key,
                why=f"{failed.algorithm} (composite) cannot be checked: the sizes of its parts are not known",
            )
        return sizes

    def checksums(self, entry: Entry) -> Sequence[SourceChecksum]:
        """Request the checksums of an entry without its bytes."""
        self.asks()
        return self.sources.checksums(entry)

    def _large(self, row: int, entry: Entry, body: Body, length: int) -> str:
        writer = self.writer
        place = (entry.source, entry.key, entry.token)
        sums = Sums(
            entry,
            body.checksums,
            lambda: self.checksums(entry),
            policy=self.policy,
            sizes=self._sizes.get(place, ()),
        )
        if self.require:
            self.require_proof(entry, sums)
        if entry.part < 0:
            pending = writer.begin(entry.path, length, holes=isinstance(body, SparseBody))
        else:
            pending = writer.begin_part(entry.path, entry.size, entry.offset, length)
        try:
            digest = self.pump.run(entry, body, pending, sums or None, length)
            body.close()
            try:
                grade, proof = sums.judge()
            except IntegrityError as error:
                self._sizes.pop(place, None)
                sizes = self.uploaded(entry, sums.failed, error)
                if sizes:
                    self._sizes[place] = sizes
                    raise TransientError(
                        "the checksum is computed anew, with the sizes of the parts of its upload",
                        where=entry.key,
                    ) from None
                grade, proof = SIZE_ONLY, ""
        except BaseException:
            writer.discard(pending)
            raise
        self._sizes.pop(place, None)
        if entry.part < 0:
            writer.finish(pending, entry.modified_ns)
        else:
            writer.finish_part(pending, entry.modified_ns)
        return fresh_line(row, digest, grade, proof)

    def require_proof(self, entry: Entry, sums: Sums) -> None:
        """Raise UnprovenError if no checksum of its source can prove the row.

        A giant's part passes if verify can prove the whole giant (`later`).
        """
        if sums.proves or not entry.size:
            return
        if entry.part >= 0 and any(c.kind == "full" and c.algorithm in self.later for c in sums.stated):
            return
        stated = ", ".join(f"{c.algorithm} ({c.kind})" for c in sums.stated if c.kind != "read")
        raise UnprovenError(
            "no checksum of the source proves the object, and verify.source_checksum requires one",
            where=entry.key,
            why=f"{stated} cannot be checked" if stated else "the source states none",
        )

    def close(self) -> None:
        for reader in self.readers.values():
            reader.close()
        self.readers.clear()
        self.writer.close()
        super().close()
