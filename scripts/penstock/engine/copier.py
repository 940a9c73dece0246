"""A stream (a worker's thread) that copies rows: it reads, hashes, checks and writes them in one pass.

A small object is read whole and checked before anything is written to the target. A large object is written
block by block into a temporary file, which is renamed only after every check passed. `do` returns the row's
journal line, and the workers' parent writes it.
"""

from __future__ import annotations

import os
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import xxhash

from penstock.core.errors import IntegrityError, SourceChangedError, TransientError, UnprovenError
from penstock.core.grades import SIZE_ONLY
from penstock.core.model import Part
from penstock.core.row_codec import fresh_line, line_of, reused_line
from penstock.engine.checksums import Sums, judge_at_once
from penstock.engine.part_copier import PartCopier
from penstock.engine.pump import Pump, long, short, sizes_of_upload
from penstock.engine.stream import BLOCK, Prefetch, Stream
from penstock.sources.port import AheadReader, WholeReader
from penstock.sources.posix.reader import SparseBody

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from penstock.core.model import Entry, Reuse, SourceChecksum
    from penstock.engine.open_sources import Sources
    from penstock.sources.port import Body, Reader
    from penstock.target.links import Abandoned
    from penstock.target.staging_writer import StagingWriter


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
