"""Fetches a shard of damaged files of a published release into the repair's staging, and proves them there.

A row is a whole file, or one part of a giant (an object copied in parts over several shards). Its `checksum`
is the manifest's digest, so `copy_shard` rejects other bytes. `reuse` marks parts of damaged giants that no
audit reported. The phases, in this order:

| rows                                  | action                                                             |
|---------------------------------------|--------------------------------------------------------------------|
| rows that audits reported             | read in the release, as a file that is right by now needs no fetch |
|                                       | (not if the servers' memory might answer, see `_right`)            |
| other parts of damaged giants         | copied from the release's file                                     |
| rows of files whose data is elsewhere | never read in the release (`_not_here`)                            |
| all other rows, and those that failed | fetched by `copy_shard`                                            |
| all rows of files that are complete   | read in staging past the caches; a wrong row is fetched once more  |

The shard's journal records the rows in staging, so any end of this process costs the rows of the last
seconds. The release is only read.
"""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import xxhash

from penstock.core.errors import FailedError, ObjectError, TransientError
from penstock.core.findings import FetchedFile, FetchedFiles
from penstock.core.model import Reuse, SourceChecksum, of_hex
from penstock.core.row_codec import reused_line
from penstock.engine import journal
from penstock.engine.copy_shard import copy_shard
from penstock.engine.tasks import Outcome
from penstock.fs.capabilities import direct_reads, facts
from penstock.fs.cold_read import ColdReader
from penstock.fs.kinds import AUTO
from penstock.fs.probe_judgement import limited
from penstock.fs.safe_open import printable, storage_error
from penstock.fs.store_checks import data_states
from penstock.host import waits
from penstock.host.pacing import spending, unlimited
from penstock.target import modes
from penstock.target.file_replacement import copy_range, standing
from penstock.target.staging_writer import StagingWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from penstock.core.model import Copied
    from penstock.engine.tasks import CopyTask, Report, StopCheck
    from penstock.fs.capabilities import DirectReads, StorageFacts
    from penstock.host.pacing import Allowances

STREAMS = 8  # threads that read files, or copy parts from the release's files
FETCHES = 2  # the most fetches of a row that does not read back as written
# the ways in which a read treated the caches, from the strongest proof to the weakest
WEAKEST = ("disk", "direct", "dropped", "cached")
# reasons why a file counts as not fetched
UNLIKE = "the repaired file does not read back as written"
OTHERS = "the source's bytes are not those that were published"


def repair_shard(
    task: CopyTask,
    release: Path,
    report: Report,
    stop: StopCheck,
    ops: Callable[[], float] | None = None,
    share: Allowances | None = None,
    *,
    named: str = AUTO,
) -> tuple[Outcome, FetchedFiles]:
    """Bring every file of the shard that is not right in the release into staging, as it was published.

    `release` is the release's `data` folder, and `named` the setting `target.filesystem`. `ops` and `share`
    are explained at `copy_shard`. Returns the outcome of the last `copy_shard`, without its failures. Also
    states for each file that it is right in the release, or was fetched, or why it was not fetched.

    Raises the errors of `copy_shard`: NoSpaceError if the target is full, InterruptedRunError after a tidy
    stop, FailedError if the error concerns more than a file. The rows done until then are kept.
    """
    return _Repair(task, release, stop, ops, share, named).run(report)


class _Repair:
    def __init__(
        self,
        task: CopyTask,
        release: Path,
        stop: StopCheck,
        ops: Callable[[], float] | None,
        share: Allowances | None,
        named: str,
    ) -> None:
        from penstock.tables.run_tables import read_shard

        self._task, self._release, self._stop = task, release, stop
        self._ops, self._share = ops, share
        self._entries = [entry for batch in read_shard(task.rows) for entry in batch]
        self._files: dict[str, list[int]] = {}
        for row, entry in enumerate(self._entries):
            self._files.setdefault(entry.path, []).append(row)
        self._away = self._not_here(named)
        self._why: dict[str, str] = {}  # why files could not be fetched, by their printable path

    def run(self, report: Report) -> tuple[Outcome, FetchedFiles]:
        task, right = self._task, self._right()
        self._keep(right)
        outcome, whole, good = Outcome(), set[str](), dict[int, str]()
        for _ in range(FETCHES):
            outcome = copy_shard(task, report, self._stop, self._ops, self._share)
            for failure in outcome.failures:
                self._why[failure.path] = OTHERS if failure.contradicts else failure.why
            copied = self._copied()
            whole = {
                p for p, rows in self._files.items() if p not in right and all(r in copied for r in rows)
            }
            rows = {row for path in whole for row in self._files[path]}
            good |= self._good(task.data, rows - good.keys())
            if not (unlike := rows - good.keys()):
                break
            journal.take_back(
                task.journals, task.shard.digest, unlike, run=task.run, host=task.host, contradicted=unlike
            )
        outcome.failures = []
        return outcome, self._fetched(right, whole, good)

    def _not_here(self, named: str) -> Collection[str]:
        """Return the files whose data is not on the release's file system. They are fetched whole, and never
        opened in the release."""
        states = data_states(self._release, named) if self._release.is_dir() else None
        if states is None:
            return ()
        with contextlib.closing(states):
            return states.away([*self._files])

    def _right(self) -> set[str]:
        """Return the files that are right in the release by now, since something else repaired them.

        Returns no file if reads might come from the servers' memory, while an audit may have read the disks.
        """
        if self._release.is_dir():
            storage = self._facts(self._release)
            if storage.proof.direct_from_disks and self._direct(self._release, storage) == "none":
                return set()
        suspects = {}
        for path, rows in self._files.items():
            if path not in self._away:
                named = [row for row in rows if not self._entries[row].reuse]
                suspects[path] = named or rows
        good = self._good(self._release, [row for rows in suspects.values() for row in rows])
        return {path for path, rows in suspects.items() if good.keys() >= set(rows)}

    def _keep(self, right: Collection[str]) -> None:
        """Record the rows that need no fetch: rows of files that are right in the release, and parts copied
        from the release."""
        copied = self._copied()
        kept = {row for path in right for row in self._files[path]}
        # rows of files that were right when an earlier attempt recorded them, but are not right now
        stale = {
            row for row, record in copied.items() if record.linked and not record.staging and row not in kept
        }
        journal.take_back(
            self._task.journals, self._task.shard.digest, stale, run=self._task.run, host=self._task.host
        )
        due = [
            row
            for row, entry in enumerate(self._entries)
            if entry.reuse and entry.path not in {*right, *self._away} and (row not in copied or row in stale)
        ]
        with self._spending() as spend, ThreadPoolExecutor(STREAMS) as pool:
            slices = (due[n::STREAMS] for n in range(STREAMS))
            taken = [row for rows in pool.map(partial(self._taken, spend), slices) for row in rows]
        lines = [self._line(row, "") for row in sorted(kept) if row not in copied]
        lines += [self._line(row, self._task.run) for row in sorted(taken)]
        if lines:
            with contextlib.closing(self._journal()) as book:
                book.append("".join(lines).encode())
                book.sync()

    def _spending(self) -> AbstractContextManager[Callable[[int], None]]:
        """Return a function that waits until a number of metadata operations may be made on the target."""
        return contextlib.nullcontext(unlimited) if self._ops is None else spending(self._ops, self._wait)

    def _wait(self, seconds: float) -> None:
        waits.pause(seconds)
        self._stop()

    def _writer(self, spend: Callable[[int], None]) -> StagingWriter:
        permissions = self._task.dataset.permissions
        return StagingWriter(
            self._task.data,
            spend,
            file_mode=permissions.file_mode,
            dir_mode=permissions.dir_mode,
            gid=self._task.gid,
            durability="fsync",
            attempt=self._task.attempt,
            keep_mtime=False,
            preallocate=self._facts(self._task.data).traits.preallocate,
            rules=modes.access_rules(permissions),
        )

    def _taken(self, spend: Callable[[int], None], rows: Sequence[int]) -> list[int]:
        """Durably copy these parts from the release's files, and return the parts copied."""
        taken = []
        with self._writer(spend) as writer:
            for row in rows:
                self._stop()
                entry = self._entries[row]
                with standing(self._release, entry.path) as old:
                    if old is None:
                        continue
                    pending = writer.begin_part(entry.path, entry.size, entry.offset, entry.length)
                    try:
                        good = copy_range(old, pending.fd, entry.offset, entry.length)
                    except OSError as error:
                        writer.discard(pending)
                        raise storage_error(error, "cannot write", entry.path) from None
                    writer.finish_part(pending)
                    if good:
                        taken.append(row)
            writer.settle()
        return taken

    def _line(self, row: int, staging: str) -> str:
        digest = of_hex(SourceChecksum.parse(self._entries[row].checksum).value)
        return reused_line(row, Reuse(digest, staging=staging))

    def _journal(self) -> journal.Journal:
        task = self._task
        return journal.Journal(
            task.journals, shard_digest=task.shard.digest, run=task.run, attempt=task.attempt, host=task.host
        )

    def _copied(self) -> Mapping[int, Copied]:
        return journal.replay(self._task.journals, self._task.shard.digest)

    def _good(self, data: Path, rows: Iterable[int]) -> dict[int, str]:
        """Return the rows whose bytes below `data` are those published, each with its read's method."""
        wanted = sorted(rows)
        with ThreadPoolExecutor(STREAMS) as pool:
            readings = pool.map(partial(self._read, data), (wanted[n::STREAMS] for n in range(STREAMS)))
            return {row: method for some in readings for row, method in some}

    def _read(self, data: Path, rows: Sequence[int]) -> list[tuple[int, str]]:
        good = []
        storage = self._facts(data)
        with ColdReader(data, storage, self._direct(data, storage)) as cold:
            for row in rows:
                entry, digest = self._entries[row], xxhash.xxh3_128()
                with contextlib.suppress(ObjectError, TransientError, FailedError):
                    reading = cold.read(entry.path, entry.offset, entry.length, partial(self._hash, digest))
                    same = digest.hexdigest() == SourceChecksum.parse(entry.checksum).value
                    if same and reading.stat.st_size == entry.size:
                        good.append((row, reading.method))
        return good

    def _direct(self, data: Path, storage: StorageFacts) -> DirectReads:
        return direct_reads(storage, self._task.verify.direct, published=data == self._release)

    def _facts(self, data: Path) -> StorageFacts:
        """Return the facts of a tree's file system, without features that failed when plan probed it."""
        return limited(facts(data), self._task.probe)

    def _hash(self, digest: xxhash.xxh3_128, block: memoryview) -> None:
        self._stop()
        digest.update(block)

    def _fetched(
        self, right: Collection[str], whole: Collection[str], good: Mapping[int, str]
    ) -> FetchedFiles:
        files, size = [], 0
        copied = self._copied()
        for path, rows in self._files.items():
            size += sum(self._entries[row].length for row in rows if row in copied and not copied[row].linked)
            if path in right:
                files.append(FetchedFile(path))
            elif path not in whole:
                files.append(FetchedFile(path, why=self._why.get(printable(path), "it was not fetched")))
            elif not good.keys() >= set(rows):
                files.append(FetchedFile(path, why=UNLIKE))
            else:
                how = max((good[row] for row in rows), key=WEAKEST.index)
                inode = os.lstat(self._task.data / path).st_ino
                files.append(FetchedFile(path, how=how, inode=inode))
        return FetchedFiles(files, size)
