"""The step repair: replaces only files that audits found damaged, from the same pinned source.

Elements fetch the files into a staging beside the release and prove them there. This process puts each file
in its place. Manifest and seal never change. A file is replaced whole, by bytes that read back with the
published digest. Otherwise it stays and is reported as unrepairable. Listed empty folders are made again. The
next repair continues a killed repair.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from types import MappingProxyType
from typing import TYPE_CHECKING

from penstock.core import human, run_steps
from penstock.core.dataset_documents import Repair, RepairCounts
from penstock.core.errors import FailedError, FindingsError, NoSpaceError, PenstockError
from penstock.core.findings import (
    EMPTY_FOLDER,
    REPAIRABLE,
    Finding,
    also_in,
    also_repaired,
)
from penstock.core.layout import DATA, EMPTY_FOLDERS, MANIFEST
from penstock.dataset import receipts, release_records, reserve
from penstock.dataset.pins import choose_release, release_standing
from penstock.fs import capabilities
from penstock.fs.safe_open import printable, storage_error
from penstock.jobs import audits_and_adoptions
from penstock.jobs.dataset_state import holding
from penstock.keep import audit_plan, repair_array
from penstock.keep.audit_step import auditing, findings_of
from penstock.keep.repair_array import (
    ALREADY,
    NAMED,
    STEP,
    HardLinkedDamage,
    PathOutcome,
    fetch,
    mender_of,
    planned,
)
from penstock.tables import json_files
from penstock.tables.manifest import read_manifest
from penstock.target import dataset_folders

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from penstock.core.element_documents import ElementReceipt
    from penstock.core.findings import Audit
    from penstock.core.layout import DatasetLayout
    from penstock.core.model import Record
    from penstock.core.step_results import RepairResult
    from penstock.dataset.context import Context
    from penstock.dataset.documents import Run
    from penstock.target.file_replacement import Mender


SHOWN = 20
NO_RELEASE: Mapping[str, str] = MappingProxyType({})
NOTHING = "NOTHING"  # status of the result if the audits have no findings to repair


def run(
    context: Context, dataset: str, release: str | None = None, *, spared: Mapping[str, str] = NO_RELEASE
) -> RepairResult:
    """Repair the findings of a release's audits: those since the last whole audit, and earlier audits whose
    findings stand. `spared`: other releases that share damaged files but are not repaired, with the reason.
    `status` is REPAIRED, PARTLY if a finding remains (for `judge`), or NOTHING. Raises ConfigError for an
    unknown release, FailedError without an audit, FindingsError if the manifest is damaged, LockedError."""
    layout = context.layout(dataset)
    dataset_folders.check_owner(layout)
    release = choose_release(context, layout, release, STEP)
    verdict = release_records.read_verdict(layout, release)
    stands = {findings.audit for findings in verdict.stands} if verdict else set()
    audits = audits_and_adoptions.since_whole(layout, release, stands)
    if not audits:
        raise FailedError(
            "there is no finished audit to go by",
            where=f"{dataset}/{release}",
            hint=f"run `penstock audit {dataset}` first: it tells what is damaged",
        )

    def repair() -> RepairResult:
        with (
            auditing(context, layout, release, STEP),
            release_standing(layout, release, STEP),
            holding(context, dataset, "", STEP, release=release),
        ):
            return _repair(context, layout, audits, spared)

    return reserve.sparing(context, layout, STEP, repair, keep=reserve.KEPT)


def clear_ended(context: Context, dataset: str, release: str) -> None:
    """Remove the rest of a finished repair that was killed during its cleanup. The caller knows that the
    release needs no repair, so no other repair could use those files."""
    layout = context.layout(dataset)
    if layout.repair(release).folder.exists() or layout.repair_staging(release).exists():
        with auditing(context, layout, release, STEP), holding(context, dataset, "", STEP, release=release):
            repair_array.clear(context, layout, release)


def _repair(
    context: Context, layout: DatasetLayout, audits: Sequence[Audit], spared: Mapping[str, str]
) -> RepairResult:
    began, audit = time.time(), audits[0]
    dataset = layout.dataset
    seal, digest = audit_plan.read_seal(layout, audit.release)
    remade = audit_plan.remake_manifests(layout, audit.release, seal)
    damaged = audit_plan.unsound(layout, audit.release, seal, digest)
    if damaged:
        raise FindingsError(
            "the manifest or the seal is damaged: nothing can be repaired by it",
            where=str(layout.release(audit.release)),
            why="; ".join(damaged),
            hint=f"stage the same content as a new release: `{context.program} run --new-release {dataset}`",
        )
    findings = _together(layout, audits)
    wanted = {f.path: f for f in findings if f.kind in REPAIRABLE}
    folders = [f.path for f in findings if f.kind == EMPTY_FOLDER]
    data = layout.release(audit.release) / DATA
    _refuse_other_than_folder(data)
    done = [PathOutcome(f"../{name}", "made again from the manifest") for name in remade]
    left: list[str] = []
    again = "made again" if not os.path.lexists(data) else ALREADY
    if wanted.pop(".", None):
        # The `Mender` makes the folder `data`.
        done.append(PathOutcome(".", again))
    dark = [path for path, finding in wanted.items() if finding.kind == "unread" and _is_folder(data, path)]
    records = _records(layout, audit, wanted, dark)
    hard_linked = HardLinkedDamage.of(context, layout, audit.release, records, spared)
    named = {record.path for record in records}
    done += [
        PathOutcome(p, why="no record of the manifest names it")
        for p in wanted
        if p not in named and p not in dark
    ]
    sizes: list[int] = []
    run: Run | None = None
    try:
        with mender_of(context, layout, seal, audit.release) as mender:
            _others(findings, mender, done, left)
            done += [_readable(data, path) for path in dark]
            _folders(layout, audit, folders, mender, done)
            records = [record for record in records if _may_be_replaced(record, mender, done)]
        run = planned(context, layout, audits, (seal, digest), records, wanted, done)
        if run is not None:
            fetch(context, run, seal, records, done, sizes, hard_linked)
    except PenstockError:
        # Record the files that were repaired before the error.
        ends = receipts.fsync_ends(_elements(run))
        _note(layout, audit, done, sum(sizes), ends)
        hard_linked.note(audit, ends)
        raise
    except OSError as error:
        raise storage_error(error, "the release cannot be repaired", str(data)) from error
    kinds = {path: finding.kind for path, finding in wanted.items()} | dict.fromkeys(folders, EMPTY_FOLDER)
    result = _close(context, layout, audit, done, left, kinds, hard_linked, sum(sizes), began, run)
    repair_array.clear(context, layout, audit.release)
    return result


def _together(layout: DatasetLayout, audits: Sequence[Audit]) -> list[Finding]:
    """Merge the findings of several audits. A giant's finding has all parts that any audit named."""
    merged: dict[tuple[bool, bool, str], Finding] = {}
    for audit in audits:
        for finding in findings_of(layout, audit):
            place = (finding.kind in REPAIRABLE, finding.kind == EMPTY_FOLDER, finding.path)
            earlier = merged.setdefault(place, finding)
            if earlier.parts != finding.parts:
                # A finding without parts means that the whole file is wrong.
                parts = {*earlier.parts, *finding.parts} if earlier.parts and finding.parts else ()
                merged[place] = earlier._replace(parts=tuple(sorted(parts)))
    return list(merged.values())


def _may_be_replaced(record: Record, mender: Mender, done: list[PathOutcome]) -> bool:
    """Check before fetching that the file can be put in place. Also close a folder left open by a kill."""
    try:
        mender.check(record.path)
    except PenstockError as error:
        if isinstance(error, NoSpaceError):
            raise
        done.append(PathOutcome(record.path, why=str(error).partition("\n")[0]))
        return False
    return True


def _others(findings: Sequence[Finding], mender: Mender, done: list[PathOutcome], left: list[str]) -> None:
    """Restore modes, and remove leftovers of killed repairs. Other extra files stay."""
    for finding in findings:
        if finding.kind == "extra":
            if mender.sweep(finding.path):
                done.append(PathOutcome(finding.path, "removed"))
            elif mender.holds(finding.path):
                left.append(finding.path)
    for finding in findings:
        if finding.kind == "mode":
            try:
                mender.set_mode(finding.path)
                done.append(PathOutcome(finding.path, "mode"))
            except PenstockError as error:
                done.append(PathOutcome(finding.path, why=str(error).partition("\n")[0]))


def _folders(
    layout: DatasetLayout, audit: Audit, missing: Iterable[str], mender: Mender, done: list[PathOutcome]
) -> None:
    """Make listed empty folders again."""
    listed = set(json_files.read_empty_folders(layout.release(audit.release) / EMPTY_FOLDERS))
    for path in missing:
        if path not in listed:
            done.append(PathOutcome(path, why=f"{EMPTY_FOLDERS} does not name it"))
            continue
        try:
            done.append(PathOutcome(path, "made again" if mender.make(path) else ALREADY))
        except PenstockError as error:
            if isinstance(error, NoSpaceError):
                raise
            done.append(PathOutcome(path, why=str(error).partition("\n")[0]))


def _refuse_other_than_folder(data: Path) -> None:
    """Raise FindingsError if a link or file replaced `data`: it is neither followed nor removed."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISDIR(data.lstat().st_mode):
            raise FindingsError(
                "something else stands in the place of the release's data folder",
                where=str(data),
                hint="nothing is deleted that penstock did not write: move it away, and run the same again",
            )


def _is_folder(data: Path, path: str) -> bool:
    try:
        return stat.S_ISDIR((data / path).lstat().st_mode)
    except OSError:
        return False


def _readable(data: Path, folder: str) -> PathOutcome:
    """Check a folder that the audit could not read, now that its mode is restored."""
    try:
        os.close(os.open(data / folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC))
    except OSError as error:
        return PathOutcome(folder, why=f"the folder cannot be read: {os.strerror(error.errno or 0)}")
    return PathOutcome(folder, ALREADY)


def _records(
    layout: DatasetLayout, audit: Audit, wanted: dict[str, Finding], dark: Sequence[str]
) -> list[Record]:
    """Return the records of the damaged files. No audit compared the files below the unreadable folders
    `dark`. These files are added to `wanted`, to be read, and fetched if wrong."""
    manifest, below = layout.release(audit.release) / MANIFEST, tuple(f"{folder}/" for folder in dark)
    records = []
    for batch in read_manifest(manifest):
        for record in batch:
            if below and record.path.startswith(below):
                wanted.setdefault(record.path, Finding("unread", record.path, "its folder could not be read"))
            if record.path in wanted:
                records.append(record)
    return records


def _close(
    context: Context,
    layout: DatasetLayout,
    audit: Audit,
    done: list[PathOutcome],
    left: list[str],
    kinds: dict[str, str],
    hard_linked: HardLinkedDamage,
    fetched: int,
    began: float,
    run: Run | None,
) -> RepairResult:
    """Write the repair's results. `kinds`: the kind of finding of each path to remake; other paths had a
    wrong mode. `run` is None if no file was fetched."""
    failed = [[d.path, d.why] for d in done if d.why]
    elements = _elements(run)
    ends = receipts.fsync_ends(elements)
    result: RepairResult = {
        "dataset": layout.dataset,
        "release": audit.release,
        "audit": audit.id,
        "status": "PARTLY" if failed or left else "REPAIRED" if done else NOTHING,
        "repaired": [[d.path, d.how] for d in done if not d.why],
        "unrepairable": failed,
        "left": left,
        "also_repaired": {name: sorted(paths) for name, paths in sorted(hard_linked.mended.items())},
        "also_in": {name: len(paths) for name, paths in sorted(hard_linked.failed.items())},
        "fetched_bytes": fetched,
        "moved_bytes": receipts.moved(elements, began),
        "seconds": round(time.time() - began, 3),
    }
    if ends:
        result["fsync_ends"] = ends
    for name, paths in result["also_repaired"].items():
        context.emit(run_steps.Noted(layout.dataset, STEP, also_repaired(name, len(paths))))
    for name, failed_there in sorted(hard_linked.failed.items()):
        hint = f"`penstock audit {layout.dataset} --release {name}`, then repair it"
        why = "; ".join(sorted(set(failed_there.values())))
        text = f"{also_in(name, len(failed_there))} ({why}): {hint}"
        context.emit(run_steps.Warned(layout.dataset, STEP, text))
    _note(layout, audit, done, fetched, ends)
    hard_linked.note(audit, ends)
    standing = [kinds.get(path, "mode") for path, _ in failed] + ["extra"] * len(left)
    before = release_records.read_verdict(layout, audit.release) or release_records.new_verdict(
        layout, audit.release, audit.seal
    )
    release_records.write_verdict(
        layout, release_records.repaired(before, audit.id, standing, sum(not d.why for d in done))
    )
    context.emit(run_steps.Ended(layout.dataset, STEP, result))
    return result


def _elements(run: Run | None) -> list[ElementReceipt]:
    return receipts.of_elements(run, STEP) if run is not None else []


def _note(layout: DatasetLayout, audit: Audit, done: Sequence[PathOutcome], fetched: int, ends: str) -> None:
    """Append the repair to the dataset's history. A long list is cut, since the audit has all findings."""
    repaired = [d.path for d in done if not d.why and d.how != ALREADY]
    failed = [(d.path, d.why) for d in done if d.why]
    if not repaired and not failed:
        return
    line = Repair(
        at=capabilities.stamp(layout.releases),
        dataset=layout.dataset,
        release=audit.release,
        author=release_records.this_author(),
        audit=audit.id,
        repaired=repaired[:NAMED],
        unrepairable=failed[:NAMED],
        counts=RepairCounts(len(repaired), len(failed)),
        fetched_bytes=fetched,
        fsync_ends=ends,
    )
    release_records.append_history(layout, line)


def judge(result: RepairResult) -> None:
    """Raise FindingsError (exit 4) if a finding could not be repaired."""
    if result["unrepairable"] or result["left"]:
        lines = [f"{printable(path)}: {why}" for path, why in result["unrepairable"]]
        lines += [f"{printable(path)}: not published, left for you to remove" for path in result["left"]]
        more = [f"and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
        raise FindingsError(
            f"{human.counted(len(lines), 'finding')} could not be repaired",
            where=f"{result['dataset']}/{result['release']}",
            why="\n  ".join(["", *lines[:SHOWN], *more]),
            hint="they stay as they are; staging the dataset as a new release replaces them",
        )
