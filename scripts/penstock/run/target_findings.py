"""Plan's findings on the target: files that this run takes over from another run's staging, the MD5s of a
release's files, and the results of the file system's probe.
"""

from __future__ import annotations

import hashlib
import os
import stat
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from penstock.core import run_documents
from penstock.core.errors import InterruptedRunError, PenstockError, PreflightError
from penstock.core.findings import (
    alike,
    grouped,
    merge,
    taken,
)
from penstock.core.grades import is_proven
from penstock.core.run_documents import PROBE_REPORT
from penstock.core.run_steps import sentence
from penstock.dataset import documents
from penstock.engine import journal
from penstock.engine.rows_left import Amendments
from penstock.fs.capabilities import facts
from penstock.fs.probe_judgement import acls, differences, links_work, reflinks_work
from penstock.fs.safe_open import OPEN_FOLDER, open_beneath
from penstock.host.kernel_facts import host_name
from penstock.jobs import run_cleanup
from penstock.sources.port import same_bytes
from penstock.target import dataset_folders, modes
from penstock.target.staging_writer import StagingWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from penstock.core.findings import Held
    from penstock.core.model import Copied, Entry, Reuse
    from penstock.core.run_steps import CheckResult
    from penstock.dataset.documents import Run
    from penstock.jobs.run_cleanup import AbandonedStaging


MOST = 16 << 30  # bytes that this single process reads, at most; other files are fetched by many processes
FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


class HeldFiles:
    """Files below a release's `data`, of which at most MOST bytes are read."""

    def __init__(self, data: Path, check: Callable[[], None]) -> None:
        """`check` is called before each file, and may raise."""
        self._data, self._check, self._left = data, check, MOST

    def md5(self, path: bytes, size: int) -> str:
        """Return the MD5 in hexadecimal digits; "" if the file was not read.

        A file is not read if it is unreadable, has another size or no data here (a stub), or if MOST bytes
        were read before.
        """
        self._check()
        if size > self._left:
            return ""
        self._left -= size
        try:
            root = os.open(self._data, OPEN_FOLDER)
            try:
                fd = open_beneath(root, os.fsdecode(path), FLAGS)
            finally:
                os.close(root)
            with open(fd, "rb", buffering=0) as file:
                status = os.fstat(fd)
                if not stat.S_ISREG(status.st_mode) or status.st_size != size or status.st_blocks == 0:
                    return ""
                return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
        except OSError:
            return ""


# The probe of a target, as plan uses it: it gives causes to stop a run, notes for people, and values for
# elements.
#
# It tries the file system in hidden folders of the dataset and of `releases`, and removes these afterwards.


class TargetProbe:
    """A probe of a run's target; the caller holds the dataset's lock."""

    def __init__(self, run: Run) -> None:
        self._folder = run.folder
        self._report = dataset_folders.probe(run.layout)
        self._at = str(run.layout.folder)
        store = facts(run.layout.folder)
        entries = run.config.dataset.permissions.acl
        # Differences between the target and penstock's table of file systems, and problems with the dataset's
        # ACL.
        self.results: Sequence[CheckResult] = [
            *acls(self._report, len(entries), store.traits.acls),
            *differences(store, self._report),
        ]

    @property
    def links(self) -> bool:
        return links_work(self._report)

    @property
    def reflinks(self) -> bool:
        return reflinks_work(self._report)

    @property
    def holes(self) -> bool:
        """Whether a file with holes takes less than its size."""
        return self._report["holes"].answer == run_documents.YES

    @property
    def link_cost(self) -> str:
        """A phrase on the time that calls on a linked file take here; "" if not measured."""
        return str(self._report.link_cost) if self._report.link_cost else ""

    @property
    def rates(self) -> Mapping[str, float]:
        return self._report.rates

    @property
    def keeps_inodes(self) -> bool:
        return not self._report.refused("inode_stable")

    def check(self) -> None:
        stops = [result for result in self.results if result.verdict == "stop"]
        if stops:
            raise PreflightError(
                "no release can be staged on the target's file system",
                where=self._at,
                why="; ".join(f"{result.about}: {result.found}" for result in stops),
                hint="; ".join(dict.fromkeys(result.mend for result in stops)),
            )

    def keep(self) -> None:
        """Write `probe.json`, which elements read instead of probing again. Raises OSError."""
        documents.write(PROBE_REPORT, self._folder.probe, self._report)

    def sentences(self) -> list[str]:
        return [sentence(result) for result in self.results if result.verdict == "warning"]


# Files that another run has staged already and that this run takes over instead of copying them.
#
# A row keeps the source proof that the other run recorded. Verify reads every taken-over file back in this
# run, whatever `verify.linked` is, and copies it from the source if its digest differs. Elements link or move
# whole files (`target.links.Linker.take_over`). The copy step moves giants before any element begins:
# elements on several nodes then write the missing parts into the same file.


class TakeOver:
    """The rows that a plan takes over. Each pass over the listing yields the same rows."""

    def __init__(
        self,
        stagings: Sequence[AbandonedStaging],
        run: Run,
        *,
        proven: bool,
        distrust: bool = False,
    ) -> None:
        """`proven` means to take only rows proven by their source's checksum, or later by verify's reading.

        `distrust` means to take only rows that the other run read from the source, and no rows that it linked
        from a release.
        """
        self._distrust = distrust
        self.stagings, self._info, self._plan, self._proven = stagings, run.info, run.config.plan, proven
        self._keep_mtime = run.config.dataset.permissions.mtime == "keep"
        # {path of a giant: (the run whose staging has parts of it, the giant's size, the parts' `Reuse`)}
        self.giants: dict[str, tuple[str, int, dict[int, Reuse]]] = {}
        self.used: set[str] = set()  # ids of the runs whose rows are taken over

    def __bool__(self) -> bool:
        return bool(self.stagings)

    def over(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from penstock.tables.run_tables import as_columns, as_rows

        rows: Iterator[list[Entry]] = map(as_rows, batches)
        for staging in self.stagings:
            rows = merge(rows, grouped(_rows(staging, self._distrust)), partial(self._reused, staging))
        return chain.from_iterable(map(as_columns, rows))

    def parts(self, rows: Iterable[Entry]) -> Iterator[Entry]:
        for row in rows:
            *_, held = self.giants.get(row.path, ("", 0, {}))
            reuse = held.get(row.part)
            yield row._replace(reuse=reuse) if reuse else row

    def _reused(self, staging: AbandonedStaging, entry: Entry, held: Held) -> Reuse | None:
        same = alike(
            entry,
            held.entry,
            sources=staging.sources,
            keep_mtime=self._keep_mtime,
            certain=lambda item: same_bytes(self._info.sources[item.source], item.token),
        )
        if not same:
            return None
        giant = entry.size >= max(self._plan.giant_bytes, self._plan.part_bytes + 1)
        if held.copied is not None and not giant:
            if self._lacks_proof(entry, held.copied):
                return None
            self.used.add(staging.key)
            return taken(held.copied, staging.key)
        # A late process of the other run can only rename a whole file into place, but it writes directly into
        # a giant. So giants are taken over only if all processes of the other run are known to have ended.
        if giant and staging.certain and entry.path not in self.giants:
            self._giant(staging, entry, held)
        return None

    def _giant(self, staging: AbandonedStaging, entry: Entry, held: Held) -> None:
        step = self._plan.part_bytes
        parts = {
            number: taken(copied, staging.key)
            for number, (part, copied) in held.parts.items()
            if (part.offset, part.length) == (number * step, min(step, entry.size - number * step))
        }
        if parts:
            self.giants[entry.path] = staging.key, entry.size, parts
            self.used.add(staging.key)

    def _lacks_proof(self, entry: Entry, copied: Copied) -> bool:
        if is_proven(copied.source_grade) or copied.owed:
            return False
        return self._proven and entry.size > 0


def _rows(staging: AbandonedStaging, distrust: bool) -> Iterator[tuple[Entry, Copied]]:
    """Yield, in order, the rows that the other run copied, in their copied versions.

    With `distrust`, yields only rows read from the source. Stops at the first shard whose journals cannot be
    read, so that later rows are copied.
    """
    from penstock.tables.run_tables import read_shard

    for shard in staging.run.plan.shards:
        journals = staging.run.folder.journals(shard.index)
        try:
            copied = journal.replay(journals, shard.digest)
            amended = Amendments.read(journals, shard.digest, copied)
        except InterruptedRunError:
            raise
        except PenstockError:
            return
        entries = chain.from_iterable(amended.rows(read_shard(staging.run.folder.shard(shard.index))))
        for row, entry in enumerate(entries):
            record = copied.get(row)
            if record is not None and not amended.left_out(row) and not (distrust and record.linked):
                yield entry, record


def move_giants(run: Run) -> None:
    """Move the giants that the plan takes over into this run's staging, unless that was done. Keeps their
    modes. Call it while no element of copy lives. Raises the errors of `safe_open.storage_error`."""
    taken_over = run.plan.giants_taken
    if not taken_over:
        return
    policy = run.config.dataset.permissions
    with StagingWriter(
        run.data,
        file_mode=policy.file_mode,
        dir_mode=policy.dir_mode,
        gid=modes.group_id(policy),
        durability="fsync",
        attempt=host_name(),
        keep_mtime=policy.mtime == "keep",
        rules=modes.access_rules(policy),
    ) as writer:
        stagings = run_cleanup.planned(run)
        for theirs, path, size in taken_over:
            writer.move(stagings[theirs], path, int(size), None)
        writer.settle()
