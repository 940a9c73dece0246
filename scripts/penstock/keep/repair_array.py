"""The array of a repair, below `.penstock/repairs/<release>/`: the published files that it replaces, its
plan, the space and the elements that it needs. It also puts the fetched files in their places.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, Self

from penstock.config.access_rules import sealed_rules
from penstock.config.serialization import freeze
from penstock.config.settings import VerifyConfig
from penstock.core import findings, run_documents, run_steps
from penstock.core.dataset_documents import Repair, RepairCounts
from penstock.core.errors import FailedError, NoSpaceError, PenstockError
from penstock.core.layout import DATA, MANIFEST
from penstock.core.model import Digest, Entry, Reuse, SourceChecksum, of_hex, part_of
from penstock.core.run_documents import FILE_COST, Load
from penstock.core.run_steps import sentence
from penstock.dataset import documents, receipts, release_records, staging_notice
from penstock.engine import journal
from penstock.fs import capabilities, small_files
from penstock.fs.owners import is_mapped, numbers_here
from penstock.fs.placement import INHERIT
from penstock.fs.safe_open import storage_error
from penstock.jobs import array_job, audits_and_adoptions, forecast
from penstock.jobs.array_runner import run_array, still_alive
from penstock.jobs.array_supervision import read_slots, started_event
from penstock.jobs.bandwidth import cap_now
from penstock.jobs.forecast import LoweredNotice, TargetStores, Totals, element_rate, element_time
from penstock.keep import audit_plan
from penstock.keep.audit_step import findings_of
from penstock.sources.port import credentials, open_source
from penstock.tables.manifest import with_digests
from penstock.tables.run_tables import SHARD_FORM, read_shard
from penstock.target import dataset_folders, modes, tree_removal
from penstock.target.file_replacement import Mender

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from penstock.config.access_rules import AccessRules
    from penstock.core.findings import Audit, FetchedFile, FetchedFiles, Finding
    from penstock.core.layout import DatasetLayout
    from penstock.core.model import Record
    from penstock.core.run_documents import PlanInfo
    from penstock.core.seal import Seal, SealedPermissions
    from penstock.dataset.context import Context
    from penstock.dataset.documents import Run
    from penstock.tables.run_tables import ShardsWriter


NAMED = 1000  # number of paths that a line of the history names, at most


def mender_of(context: Context, layout: DatasetLayout, seal: Seal, release: str) -> Mender:
    """Make a mender, which replaces files and gives them the published modes, group and owner. The mender
    opens the release's `data`, and makes it again if it is missing. Raises FailedError if this mount cannot
    restore the ACL."""
    published = seal.permissions
    data = layout.release(release) / DATA
    uid, gid = numbers_here(
        published.uid, published.user, published.gid, published.group, mapped=is_mapped(data)
    )
    return Mender(
        data,
        file_mode=published.file_mode,
        dir_mode=published.dir_mode,
        gid=gid,
        uid=uid,
        rules=_rules(published, data),
        spend=context.spend,
    )


def _rules(published: SealedPermissions, data: Path) -> AccessRules:
    """Return the rules. Raises FailedError if the numbers in the release's ACL differ on this mount."""
    if published.acl and is_mapped(data):
        raise FailedError(
            "the release's ACL cannot be set again here",
            where=str(data),
            why="this mount maps the numbers of users and groups, by which the ACL names them",
            hint="repair on a machine that mounts it without id mapping",
        )
    return sealed_rules(published)


def inode_of(layout: DatasetLayout, release: str, path: str) -> os.stat_result | None:
    try:
        return os.lstat(layout.release(release) / DATA / path)
    except OSError:
        return None


# Damaged files of a release may be the same inodes in other releases. A repair replaces them there too.
#
# Candidates are all files in other releases whose record has the digest of a damaged file. Other releases get
# the new file first, so a repair that continues after a kill still finds the remaining files by the old
# inode. The caller holds the locks of the dataset and of its audits.


class Name(NamedTuple):
    """Another name of a damaged file, in another release."""

    release: str
    path: str
    mtime_ns: int  # modification time in the other release's manifest


@dataclass
class HardLinkedDamage:
    """The other names of damaged files, and their repairs. Threads may call `mend` for different files."""

    context: Context
    layout: DatasetLayout
    release: str  # the release under repair
    spared: Mapping[str, str]  # {name of another release: why that release is not changed}
    # {path in the release under repair: the file's other names}
    names: dict[str, list[Name]] = field(default_factory=dict)
    mended: dict[str, set[str]] = field(default_factory=dict)  # {name of another release: its repaired paths}
    # {name of another release: its paths that are still damaged, with the reason}
    failed: dict[str, dict[str, str]] = field(default_factory=dict)
    _menders: dict[str, Mender] = field(default_factory=dict)
    _why: dict[str, str] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)

    @classmethod
    def of(
        cls,
        context: Context,
        layout: DatasetLayout,
        release: str,
        records: Sequence[Record],
        spared: Mapping[str, str],
    ) -> Self:
        """Find the other names of these files, before a file is replaced. `spared`: releases not to be
        changed, with the reason."""
        damage = cls(context, layout, release, spared)
        inodes: dict[tuple[int, int], str] = {}
        for record in records:
            status = inode_of(layout, release, record.path)
            if status is not None and status.st_nlink > 1:
                inodes[status.st_dev, status.st_ino] = record.path
        digests = {record.digest for record in records if record.path in inodes.values()}
        for sibling in dataset_folders.releases(layout) if inodes else ():
            if sibling != release:
                damage._look(sibling, digests, inodes)
        return damage

    def _look(self, sibling: str, digests: set[str], inodes: dict[tuple[int, int], str]) -> None:
        try:
            for path, mtime_ns in with_digests(self.layout.release(sibling) / MANIFEST, digests):
                status = inode_of(self.layout, sibling, path)
                mine = inodes.get((status.st_dev, status.st_ino)) if status is not None else None
                if mine is not None:
                    self.names.setdefault(mine, []).append(Name(sibling, path, mtime_ns))
        except PenstockError as error:
            # Without the other release's manifest, only the same path can be checked.
            for (device, inode), path in inodes.items():
                status = inode_of(self.layout, sibling, path)
                if status is not None and (status.st_dev, status.st_ino) == (device, inode):
                    self.failed.setdefault(sibling, {})[path] = str(error).partition("\n")[0]

    def __enter__(self) -> Self:
        """Open the other releases. A release that cannot be changed is left out, and `_why` has the
        reason."""
        for sibling in sorted({name.release for names in self.names.values() for name in names}):
            if sibling in self.spared:
                self._why[sibling] = self.spared[sibling]
                continue
            try:
                seal, digest = audit_plan.read_seal(self.layout, sibling)
                if damaged := audit_plan.unsound(self.layout, sibling, seal, digest):
                    self._why[sibling] = f"its manifest or seal is damaged: {damaged[0]}"
                else:
                    mender = mender_of(self.context, self.layout, seal, sibling)
                    self._menders[sibling] = self._stack.enter_context(mender)
            except PenstockError as error:
                self._why[sibling] = str(error).partition("\n")[0]
        return self

    def __exit__(self, *_: object) -> None:
        self._menders.clear()
        self._stack.close()

    def mend(self, path: str, new: Path) -> None:
        """Put the file `new` into each other release that shares the damaged file of `path`. `new` already
        has its final permissions and times."""
        for name in self.names.get(path, ()):
            before = inode_of(self.layout, self.release, path)
            theirs = inode_of(self.layout, name.release, name.path)
            if before is None or theirs is None or before.st_ino != theirs.st_ino:
                continue
            mender = self._menders.get(name.release)
            why = self._why.get(name.release, "")
            if mender is not None:
                try:
                    mender.link_or_copy(name.path, name.mtime_ns, new)
                except PenstockError as error:
                    why = str(error).partition("\n")[0]
            if why:
                self.failed.setdefault(name.release, {})[name.path] = why
            else:
                self.mended.setdefault(name.release, set()).add(name.path)

    def note(self, audit: Audit, fsync_ends: str) -> None:
        """Write a history line and the verdict for each other release that was repaired."""
        for sibling, paths in sorted(self.mended.items()):
            line = Repair(
                at=capabilities.stamp(self.layout.releases),
                dataset=self.layout.dataset,
                release=sibling,
                author=release_records.this_author(),
                audit=audit.id,
                repaired=sorted(paths)[:NAMED],
                counts=RepairCounts(len(paths), 0),
                fsync_ends=fsync_ends,
            )
            release_records.append_history(self.layout, line)
            before = release_records.read_verdict(self.layout, sibling)
            if before is None:
                before = release_records.new_verdict(
                    self.layout, sibling, audit_plan.read_seal(self.layout, sibling)[1]
                )
            fell = {
                later.id: Counter(f.kind for f in findings_of(self.layout, later) if f.path in paths)
                for later in audits_and_adoptions.since_whole(self.layout, sibling)
            }
            release_records.write_verdict(
                self.layout, release_records.mended(before, audit.id, fell, len(paths))
            )


# The array of a repair: its plan below `.penstock/repairs/<release>/`, the space and the elements that it
# needs. It also puts the fetched files in their places.

STEP = "repair"


def take(
    context: Context,
    layout: DatasetLayout,
    release: str,
    files: Iterable[Sequence[Entry]],
    standing: PlanInfo | None,
) -> None:
    """Announce the space that `files` need (rows for each file), then check the space as for a plan.
    `standing` is the plan of an attempt to continue; files that it fetched are not counted again. Raises
    NoSpaceError naming the runs that take the space."""
    gid = modes.group_id(context.dataset(layout.dataset).permissions)
    stores = TargetStores(layout, replace(context.config.target, striping=INHERIT), gid)
    totals = _totals(files if standing is None else _left(layout, release, standing), stores)
    try:
        path = layout.repair_under_way
        _, results = forecast.take(context, layout, path, STEP, totals, stores)
    except NoSpaceError as error:
        raise NoSpaceError(
            f"the target has too little room for the repair of release {release}",
            where=error.where,
            why=error.why,
            hint=f"the damaged files need their space once more until they are replaced; {error.hint}",
        ) from None
    for result in results:
        if result.verdict == "warning":
            context.emit(run_steps.Warned(layout.dataset, STEP, text=sentence(result)))


def _totals(files: Iterable[Sequence[Entry]], stores: TargetStores) -> Totals:
    totals = Totals(to_place=stores.sizes)
    folders: set[str] = set()
    for rows in files:
        totals.add([sum(row.length for row in rows)])
        folder = os.path.dirname(rows[0].path)
        while folder and folder not in folders:
            folders.add(folder)
            folder = os.path.dirname(folder)
    totals.folders = len(folders)
    return totals


def _left(layout: DatasetLayout, release: str, plan: PlanInfo) -> Iterator[list[Entry]]:
    """Yield, for each file, the rows that no attempt has recorded as fetched."""
    folder = layout.repair(release)
    for shard in plan.shards:
        done = journal.replay(folder.journals(shard.index), shard.digest)
        left: dict[str, list[Entry]] = {}
        entries = (entry for batch in read_shard(folder.shard(shard.index)) for entry in batch)
        for row, entry in enumerate(entries):
            if row not in done:
                left.setdefault(entry.path, []).append(entry)
        yield from left.values()


# Plans the shards of a repair. `.penstock/repairs/<release>/` has a run's layout, so that elements work in it
# as in a run:
#
#     run.json, plan.json, shards/, journal/, receipts/repair/, arrays.jsonl: as in a run
#     fetched/NNNNN.json  an element's result for each file
#
# A repair of the same audits' findings continues a stopped repair, unless that is older than a week, since
# older proofs are worth little. The repair's folder and staging are removed when it ends.

UNKNOWN = "its source is not in the configuration any more"


def sources(context: Context, dataset: str, seal: Seal) -> dict[int, int]:
    """Map the numbers of sources in a release's records to the sources configured now, without a request.
    Sources that are no longer configured are left out."""
    config = context.dataset(dataset)
    named = {
        open_source(source, config, credentials=credentials(source)).url: index
        for index, source in enumerate(config.sources)
    }
    return {index: named[source.url] for index, source in enumerate(seal.sources) if source.url in named}


def rows(record: Record, finding: Finding, source: int) -> list[Entry]:
    """Return the rows to fetch for one damaged file: the file, or each part of a giant. Parts that the audits
    did not name are copied from the existing file (`reuse`)."""
    entry = Entry(
        record.path, record.key, record.size, record.token, record.modified_ns, source, record.version,
        length=record.size,
    )  # fmt: skip
    digest = Digest.parse(record.digest)
    if not record.parts:
        return [entry._replace(checksum=str(SourceChecksum(digest.algorithm, "full", digest.value)))]
    size, entries = digest.part_bytes, []
    for number, offset in enumerate(range(0, record.size, size)):
        own = part_of(record.parts, number).hex()
        entries.append(
            entry._replace(
                checksum=str(SourceChecksum(digest.algorithm, "part", own)),
                part=number,
                offset=offset,
                length=min(size, record.size - offset),
                reuse=None if number in finding.parts else Reuse(of_hex(own)),
            )
        )
    return entries


def shard_name(audits: Sequence[Audit], seal: str, files: Iterable[Sequence[Entry]]) -> str:
    """Return the id of a repair. Repairs with equal audits, release, files and sources have the same id."""
    text = json.dumps([[audit.id for audit in audits], seal, list(files)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def standing(layout: DatasetLayout, release: str, repair: str) -> PlanInfo | None:
    """Return the plan of the stopped repair `repair` if it can be continued, else None."""
    folder = layout.repair(release)
    try:
        old = capabilities.now(folder.folder) - folder.plan.stat().st_mtime >= array_job.STALE
        made = documents.load(run_documents.PLAN, folder.plan)
    except (FileNotFoundError, ValueError):
        return None
    here = (layout.repair_staging(release) / DATA).is_dir()
    return made if made.run == repair and here and not old else None


def clear(context: Context, layout: DatasetLayout, release: str) -> None:
    """Remove a repair's folder and staging. Its elements must have ended."""
    for path in (layout.repair_staging(release), layout.repair(release).folder):
        if path.exists():
            tree_removal.remove_tree(path, context.spend)


def begin(
    context: Context, layout: DatasetLayout, release: str, repair: str, files: Sequence[Sequence[Entry]]
) -> PlanInfo:
    """Write the shards and `plan.json`, and make the staging, after `clear`."""
    folder = layout.repair(release)
    costs = [sum(FILE_COST + row.length for row in file) for file in files]
    size = sum(row.length for file in files for row in file)

    def write(shards: ShardsWriter) -> None:
        # All rows of a file are in one shard, so that one element proves the whole file.
        for shard, start, end in shards.runs(costs):
            shard.add(chain.from_iterable(files[start:end]))

    try:
        small_files.make_dirs(layout.repair_staging(release) / DATA)
        made = array_job.cut(
            context,
            layout,
            folder,
            "repair",
            Load(sum(costs), size, len(files)),
            write,
            job=repair,
            release=release,
            giants=sum(file[0].part >= 0 for file in files),
            part_bytes=context.config.plan.part_bytes,
            form=SHARD_FORM,
        )
    except OSError as error:
        raise storage_error(error, "a repair cannot be planned", str(folder.folder)) from error
    documents.write(run_documents.PLAN, folder.plan, made)
    return made


def describe(context: Context, layout: DatasetLayout, seal: Seal, plan: PlanInfo) -> Run:
    """Write the `run.json` that elements read, with the present engine and sources. A repair fetches the
    published version or nothing: it does not follow a changed object."""
    dataset = context.dataset(layout.dataset)
    if dataset.changed == "follow":
        dataset = replace(dataset, changed="refuse")
    policy = context.config.verify.source_checksum
    # The manifest proves every row, so no checksum of the source is required.
    verify = VerifyConfig(
        source_checksum="auto" if policy == "require" else policy, direct=context.config.verify.direct
    )
    return array_job.describe(
        layout,
        layout.repair(plan.release),
        plan.run,
        plan.release,
        created=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        listing=seal.listing,
        counts=(plan.files, plan.bytes, plan.files),
        config=freeze(replace(context.config, verify=verify), dataset),
        probed=layout.run(seal.run),
    )


# Runs the array of a repair, and puts the fetched files in their places.
#
# A file in the release is only replaced by a file that read back as published. A killed repair continues with
# the files that it fetched, unless it worked on other audits' findings.

STREAMS = 8  # number of files that are put in place at the same time
ALREADY = "it was right already"


@dataclass(frozen=True)
class PathOutcome:
    """The result for one path."""

    path: str
    how: str = ""
    why: str = ""  # why the path could not be repaired; "" if it was repaired


def planned(
    context: Context,
    layout: DatasetLayout,
    audits: Sequence[Audit],
    sealed: tuple[Seal, str],
    records: Sequence[Record],
    wanted: dict[str, Finding],
    done: list[PathOutcome],
) -> Run | None:
    """Plan or continue the repair of these files; None if no file is to be fetched. It adds files whose
    source is no longer configured to `done`. Raises NoSpaceError if the files do not fit."""
    seal, digest = sealed
    release = audits[0].release
    configured = sources(context, layout.dataset, seal) if records else {}
    done += [PathOutcome(r.path, why=UNKNOWN) for r in records if r.source not in configured]
    files = [
        rows(record, wanted[record.path], configured[record.source])
        for record in records
        if record.source in configured
    ]
    name = shard_name(audits, digest, files)
    plan = standing(layout, release, name)
    if plan is None:
        _end_other(context, layout, release)
        clear(context, layout, release)
        if not files:
            return None
        take(context, layout, release, files, None)
        plan = begin(context, layout, release, name, files)
    else:
        context.emit(run_steps.Noted(layout.dataset, STEP, f"going on with repair {name}"))
        take(context, layout, release, files, plan)
    return describe(context, layout, seal, plan)


def _end_other(context: Context, layout: DatasetLayout, release: str) -> None:
    """End the elements of a repair that worked on other audits' findings."""
    folder = layout.repair(release)
    began = time.monotonic()
    while alive := still_alive(context, layout.dataset, folder, STEP):
        if not context.cluster.abilities.elements_end_with_controller:
            for array in alive:
                context.cluster.cancel(array)
        context.stop.wait(context.cluster.interval(time.monotonic() - began))


def fetch(
    context: Context,
    run: Run,
    seal: Seal,
    records: Sequence[Record],
    done: list[PathOutcome],
    sizes: list[int],
    others: HardLinkedDamage,
) -> None:
    """Fetch the damaged files and put them in place, here and in releases that share them. If interrupted, it
    still puts the files fetched so far in place. It appends outcomes to `done` and fetched bytes to
    `sizes`."""

    ok = receipts.held(run, STEP)
    for index in filter(ok, run.indices):
        if any(_lost(run, file) for file in _fetched(run, index).files):
            receipts.drop(run.folder.receipt(STEP, index))
    plan = run.plan
    context.emit(started_event(context, run, STEP, plan.files))
    times = {record.path: record.mtime_ns for record in records}

    def put(stop: Callable[[], None]) -> None:
        with (
            mender_of(context, run.layout, seal, run.release) as mender,
            others,
            ThreadPoolExecutor(STREAMS) as pool,
        ):
            for index in filter(ok, run.indices):
                fetched = _fetched(run, index)
                sizes.append(fetched.bytes)
                done.extend(
                    pool.map(
                        partial(_place, run, times=times, mender=mender, others=others, stop=stop),
                        fetched.files,
                    )
                )

    notice = run.layout.repair_under_way
    left = sum(not ok(index) for index in run.indices)
    elements = min(read_slots(context, run.folder, STEP), left)
    lowered = LoweredNotice(run.layout, notice, plan.files, plan.bytes)
    try:
        rate = element_rate(run.config.engine.limit, cap_now(context.config.bandwidth).rate, elements)
        expected = element_time(run.layout, run.shards, rate, copies=True)
        run_array(
            context, run.dataset, run.folder, STEP, run.indices, ok, amounts=lowered, expected=expected,
        )  # fmt: skip
    except BaseException:
        put(lambda: None)
        raise
    staging_notice.written(run.layout, notice)
    put(context.stop.check)


def _fetched(run: Run, index: int) -> FetchedFiles:
    return documents.load(findings.FETCHED_FILES, run.folder.fetched(index))


def _staged(run: Run, file: FetchedFile) -> Path:
    return run.layout.repair_staging(run.release) / DATA / file.path


def _in_place(run: Run, file: FetchedFile) -> bool:
    status = inode_of(run.layout, run.release, file.path)
    return status is not None and status.st_ino == file.inode and not os.path.lexists(_staged(run, file))


def _lost(run: Run, file: FetchedFile) -> bool:
    """Whether the file was lost between the staging and its folder: a repair was killed, and a cleanup
    removed the file."""
    return file.inode > 0 and not os.path.lexists(_staged(run, file)) and not _in_place(run, file)


def _place(
    run: Run,
    file: FetchedFile,
    *,
    times: dict[str, int],
    mender: Mender,
    others: HardLinkedDamage,
    stop: Callable[[], None],
) -> PathOutcome:
    stop()
    new = _staged(run, file)
    if file.why:
        return PathOutcome(file.path, why=file.why)
    if not file.inode:
        return PathOutcome(file.path, ALREADY)
    try:
        # A killed repair may have put the file in place.
        if not _in_place(run, file):
            if file.path in others.names:
                mender.dress(file.path, times[file.path], new)
                others.mend(file.path, new)
            mender.replace(file.path, times[file.path], new)
    except PenstockError as error:
        if isinstance(error, NoSpaceError):
            raise
        return PathOutcome(file.path, why=str(error).partition("\n")[0])
    return PathOutcome(file.path, file.how)
