"""The step audit: compares a published release with its manifest, whole or by sample or slice. It can be
resumed.

Elements (processes here, or SLURM jobs) read the bytes. This process submits and watches them, compares the
tree, and writes the audit's state (`audits_and_adoptions`). For the dataset's owner it also writes a line of
`audits.jsonl`, and the verdict, which opens or closes the gate. On a full target it uses files of the
dataset's reserve.

An audit does not change the release. It recalls no data from an archive or tier beyond `audit.recall`: files
whose data is elsewhere are counted, not opened. The next audit with the same choice continues a stopped
audit, unless a week has passed. Any flipped bit in the bytes read is found; for a giant (64 GiB or more,
copied in parts), the finding names the part. The result says how much was read and how caches were bypassed.
"""

from __future__ import annotations

import os
import signal
import stat
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, groupby, islice
from typing import TYPE_CHECKING, Self

from penstock.core import human, run_steps, typed_json
from penstock.core.errors import FailedError, FindingsError, InterruptedRunError, PreflightError
from penstock.core.findings import (
    OF_A_FILE,
    WHOLE,
    AuditSelection,
    Finding,
    LastAudit,
    SkippedFile,
)
from penstock.core.grades import answered_by, audit_grade
from penstock.core.layout import DATA, EMPTY_FOLDERS, MANIFEST, MANIFEST_SHA256, MANIFEST_XXH, SEAL
from penstock.dataset import (
    receipts,
    release_records,
    reserve,
    staging_notice,
)
from penstock.dataset.pins import check_release_stands, choose_release, release_standing
from penstock.engine.shard_readings import AuditedRows
from penstock.fs import small_files
from penstock.fs.capabilities import traits_of_mount
from penstock.fs.store_checks import data_states
from penstock.jobs import audits_and_adoptions
from penstock.jobs.array_runner import run_array
from penstock.jobs.array_supervision import started_event
from penstock.jobs.dataset_state import lock_of
from penstock.jobs.forecast import element_time
from penstock.keep import audit_plan
from penstock.keep.audit_tree import findings_without_data, tree_findings
from penstock.tables.run_tables import read_expected
from penstock.target import dataset_folders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from penstock.core.findings import Audit
    from penstock.core.layout import DatasetLayout, RunLayout
    from penstock.core.run_documents import PlanInfo, ShardInfo
    from penstock.core.seal import Seal
    from penstock.core.step_results import AuditResult, OverruleResult, SkippedJson
    from penstock.dataset.context import Context
    from penstock.dataset.dataset_lock import DatasetLock
    from penstock.fs.stores import DataStates


STEP = "audit"
SHOWN = 1000  # number of findings in the result, at most; `findings.jsonl` has all findings


NAMED = 10  # number of skipped files of each kind that the result names, at most
# Limits for files with another modification time that are read beside a sample: number of files, and bytes.
TOUCHED_FILES, TOUCHED_BYTES = 10_000, 16 << 30
# files beside `data` that describe the release
CONTROL = (SEAL, MANIFEST, MANIFEST_XXH, MANIFEST_SHA256, EMPTY_FOLDERS)


@dataclass(frozen=True)
class AuditRequest:
    """The choices for an audit."""

    release: str | None = None  # the release's name; None: the release that `current` names
    choice: AuditSelection = WHOLE
    # number of slices into which the release is divided; if above 0, the audit reads the next slice, and
    # `choice` is ignored
    rotate: int = 0
    limit: int | None = None  # bytes per second that all elements together may read; None: no limit
    # Whether to read also files whose modification time differs from the time that verify recorded. Such an
    # audit is not continued, since files that it compared before may have changed meanwhile.
    times: bool = False


class Touched:
    """Files whose modification time differs from verify's, up to the limits for an audit with `times`."""

    def __init__(self) -> None:
        self.files = self.bytes = 0
        self.paths: set[bytes] = set()

    def add(self, path: str, size: int) -> None:
        self.files += 1
        self.bytes += size
        if not self.too_many:
            self.paths.add(os.fsencode(path))

    @property
    def too_many(self) -> bool:
        return self.files > TOUCHED_FILES or self.bytes > TOUCHED_BYTES


def run(context: Context, dataset: str, request: AuditRequest | None = None) -> AuditResult:
    """Audit one release and return the result; `status` is PASSED, PARTLY or FINDINGS.

    | raises              | if                                                            |
    |---------------------|---------------------------------------------------------------|
    | ConfigError         | the release does not exist                                    |
    | PreflightError      | nothing is published, or seal or manifest cannot be read here |
    | FindingsError       | the seal is damaged, or `times` finds too many touched files  |
    | LockedError         | another audit or a repair of the dataset runs                 |
    | InterruptedRunError | the audit was stopped; the same command continues it          |
    """
    request = request or AuditRequest()
    layout = context.layout(dataset)
    release = choose_release(context, layout, request.release, STEP)
    if dataset_folders.owns(layout):
        dataset_folders.check_owner(layout)
    else:
        layout = _as_reader(context, layout)
    return reserve.sparing(
        context, layout, STEP, lambda: _run(context, layout, release, request), keep=reserve.KEPT
    )


def _run(context: Context, layout: DatasetLayout, release: str, request: AuditRequest) -> AuditResult:
    dataset, began = layout.dataset, time.time()
    with auditing(context, layout, release, STEP), release_standing(layout, release, STEP):
        _control_files_are_here(context, layout, release)
        seal, digest = audit_plan.read_seal(layout, release)
        choice = request.choice
        if request.rotate:
            soon = _soon(layout, release, seal)
            choice = audits_and_adoptions.next_slice(layout, release, digest, request.rotate, soon)
        audit = None if request.times else audits_and_adoptions.open_audit(layout, release, digest, choice)
        if audit is None:
            audit = audits_and_adoptions.begin_audit(
                layout,
                release,
                digest,
                choice,
                request.limit,
                recall=context.config.audit.recall,
                filesystem=context.config.target.filesystem,
                direct=context.config.verify.direct,
                look=request.times,
            )
        else:
            audit = audit._replace(limit=request.limit)
            context.emit(run_steps.Noted(dataset, STEP, f"going on with audit {audit.id}"))
        result = _audit(context, layout, audit, seal, digest, began, times=request.times)
        audits_and_adoptions.tidy_audits(layout)
    context.emit(run_steps.Ended(dataset, STEP, {k: v for k, v in result.items() if k != "findings"}))
    return result


def _soon(layout: DatasetLayout, release: str, seal: Seal) -> float:
    """Return the fraction of a release's files that were read back soon after writing; 0 if a whole audit has
    followed."""
    delay, readings = seal.evidence.read_after, audits_and_adoptions.counted_readings(layout, release)
    if delay is None or not seal.files or (readings is not None and readings.whole):
        return 0.0
    return delay.soon / seal.files


def _control_files_are_here(context: Context, layout: DatasetLayout, release: str) -> None:
    """Raise PreflightError if the seal or the manifest is archived, since the audit needs both."""
    folder = layout.release(release)
    with _states(context, folder) as states:
        away = states.away(CONTROL) if states else {}
    for name, state in away.items():
        raise PreflightError(
            "the release's own description is not here, and an audit restores nothing",
            where=str(folder / name),
            why=f"{state.place}: {state.why}",
            hint="have the file restored by the file system's own command, then audit again",
        )


@contextmanager
def _states(context: Context, folder: Path) -> Iterator[DataStates | None]:
    """Yield an object that reports where the data of files below `folder` is; None if data never leaves this
    file system."""
    states = data_states(folder, context.config.target.filesystem)
    try:
        yield states
    finally:
        if states is not None:
            states.close()


def _as_reader(context: Context, layout: DatasetLayout) -> DatasetLayout:
    """Return the paths for auditing another account's dataset, with this account's own state. The audit's
    findings do not reach the gate. Files that this account may not read are findings. The kernel hides from
    this account which pages are cached, so the audit claims `reread` at most."""
    own = staging_notice.state_beside(layout, "this audit")
    text = f"another account stages this dataset: what is found stands in {own.audits}, and not at the gate"
    context.emit(run_steps.Noted(layout.dataset, STEP, text))
    return own


def auditing(context: Context, layout: DatasetLayout, release: str, command: str) -> DatasetLock:
    """Return the lock by which only one audit or repair of a dataset runs at a time. It is not the dataset's
    lock, since an audit changes no file that a run changes."""
    return lock_of(context, layout, release, command, "audit.lock")


def _audit(
    context: Context,
    layout: DatasetLayout,
    audit: Audit,
    seal: Seal,
    digest: str,
    began: float,
    *,
    times: bool,
) -> AuditResult:
    dataset, release, folder = layout.dataset, audit.release, audit.layout(layout)
    manifest = [
        Finding("manifest", line.partition(": ")[0], line.partition(": ")[2])
        for line in audit_plan.unsound(layout, release, seal, digest)
    ]
    if any(finding.path == MANIFEST for finding in manifest):
        # A manifest that was not published proves nothing about the files.
        return _close(layout, audit, seal, None, iter(manifest), began, Counter())
    if not _is_folder(layout.release(release) / DATA):
        gone = findings_without_data(layout, release, seal)
        return _close(layout, audit, seal, None, chain(manifest, gone), began, Counter())
    shape, touched = audits_and_adoptions.shape(folder), Touched()

    def compare(stop: Callable[[], None]) -> None:
        deviations = tree_findings(layout, release, seal, stop, touched.add if times else None)
        audits_and_adoptions.keep_findings(shape, deviations)

    if times:
        compare(context.stop.check)
        _not_too_many(layout, release, touched)
    run = audit_plan.plan(context, layout, audit, seal, touched.paths)
    plan, indices = run.plan, run.indices
    context.emit(started_event(context, run, STEP, _rows(plan)))
    methods: Counter[str] = Counter()
    resumed = sum(AuditedRows.read(folder.audited_rows(i), run.shards[i]).files for i in indices)
    with _Aside((lambda _: None) if times else compare, context.stop.check) as aside:
        if indices:
            expected = element_time(layout, run.shards, copies=False)
            run_array(context, dataset, folder, STEP, indices, receipts.held(run, STEP), expected=expected)
        aside.wait()
    audits_and_adoptions.keep_skipped(audits_and_adoptions.skipped(folder), _skipped(folder, plan))
    with _states(context, layout.release(release) / DATA) as states:
        shape_here = audits_and_adoptions.shape_here(folder)
        audits_and_adoptions.keep_findings(
            shape_here, _no_stubs(audits_and_adoptions.kept_findings(shape), states)
        )
    read = _unsaid(_read(folder, plan, methods), audits_and_adoptions.kept_findings(shape_here))
    findings = chain(manifest, audits_and_adoptions.kept_findings(shape_here), read)
    result = _close(layout, audit, seal, plan, findings, began, methods, resumed)
    return {**result, "touched": touched.files} if times else result


def _not_too_many(layout: DatasetLayout, release: str, touched: Touched) -> None:
    if touched.too_many:
        raise FindingsError(
            f"{touched.files:,} files of {human.size(touched.bytes)} have other modification times than "
            "published",
            where=str(layout.release(release)),
            why=f"at most {TOUCHED_FILES} files, or {TOUCHED_BYTES >> 30} GiB of them, are read in a look",
            hint=f"run `penstock audit {layout.dataset}`, which reads them all",
        )


def _unsaid(read: Iterator[Finding], shaped: Iterator[Finding]) -> Iterator[Finding]:
    """Yield the elements' findings, except for files whose shape is wrong, too. Files of a wrong shape have
    wrong bytes, and a finding already. Both sequences are in the manifest's order, so neither is kept in
    memory."""
    files = (os.fsencode(finding.path) for finding in shaped if finding.kind in OF_A_FILE)
    said = next(files, None)
    for finding in read:
        path = os.fsencode(finding.path)
        while said is not None and said < path:
            said = next(files, None)
        if said != path:
            yield finding


def _no_stubs(shaped: Iterator[Finding], states: DataStates | None) -> Iterator[Finding]:
    """Yield the findings, except for files whose size differs because they are stubs now. Only the vendor's
    command identifies a stub: a file of another size may lack blocks for other reasons."""
    if states is None:
        yield from shaped
        return
    while some := list(islice(shaped, SHOWN)):
        away = states.away([finding.path for finding in some if finding.kind == "changed"], hints=False)
        yield from (finding for finding in some if finding.kind != "changed" or finding.path not in away)


def _skipped(folder: RunLayout, plan: PlanInfo) -> Iterator[SkippedFile]:
    """Yield the files that the elements did not open, once per reason; a giant's parts are merged."""

    def rows() -> Iterator[SkippedFile]:
        for shard in plan.shards:
            away = _audited(folder, shard).away
            if not away:
                continue
            entries = chain.from_iterable(read_expected(folder.shard(shard.index)))
            for row, entry in enumerate(entries):
                length = entry.size if entry.part < 0 else entry.length
                for (place, why), left in away.items():
                    if left[row]:
                        yield SkippedFile(place, entry.path, length, why)

    for _, same in groupby(rows(), key=lambda skipped: (skipped.kind, skipped.path, skipped.why)):
        of_file = list(same)
        yield of_file[0]._replace(bytes=sum(skipped.bytes for skipped in of_file))


class _Aside:
    """A thread that works beside the elements. Leaving the `with` block stops the thread and waits for it."""

    def __init__(self, work: Callable[[Callable[[], None]], None], stop: Callable[[], None]) -> None:
        self._left = threading.Event()
        self._stop = stop
        self._pool = ThreadPoolExecutor(1)
        self._future = self._pool.submit(work, self._check)

    def _check(self) -> None:
        self._stop()
        if self._left.is_set():
            raise InterruptedRunError(signal.SIGTERM)

    def wait(self) -> None:
        self._future.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._pool.shutdown()


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def _rows(plan: PlanInfo) -> int:
    """Return the number of files and of giants' parts in the plan."""
    return sum(shard.rows for shard in plan.shards)


def _read(folder: RunLayout, plan: PlanInfo, methods: Counter[str]) -> Iterator[Finding]:
    """Yield the elements' findings, one for each file: a giant's damaged parts are one finding."""
    held: Finding | None = None
    for shard in plan.shards:
        audited = _audited(folder, shard)
        methods.update(audited.methods)
        for finding in _named(folder, shard.index, audited):
            if held is not None and held.path == finding.path:
                held = held._replace(parts=(*held.parts, *finding.parts))
                continue
            if held is not None:
                yield held
            held = finding
    if held is not None:
        yield held


def _audited(folder: RunLayout, shard: ShardInfo) -> AuditedRows:
    """Read the elements' findings in a shard; raise FailedError if their file was changed since."""
    path = folder.audited_rows(shard.index)
    receipt = receipts.element(folder, STEP, shard.index)
    audited = AuditedRows.read(path, shard)
    if audited.left or receipt is None or receipts.file_digest(path) != receipt.seen:
        receipts.drop(folder.receipt(STEP, shard.index))
        raise FailedError(
            "what an element saw is not what it wrote",
            where=str(path),
            hint="the same command reads it again",
        )
    return audited


def _named(folder: RunLayout, index: int, audited: AuditedRows) -> Iterator[Finding]:
    if not audited.bad:
        return
    bad = {bad_row.row: bad_row for bad_row in audited.bad}
    row = 0
    for batch in read_expected(folder.shard(index)):
        for entry in batch:
            bad_row = bad.get(row)
            row += 1
            if bad_row is not None:
                parts = (entry.part,) if entry.part >= 0 else ()
                yield Finding("unread" if bad_row.unread else "changed", entry.path, bad_row.why, parts)


def _close(
    layout: DatasetLayout,
    audit: Audit,
    seal: Seal,
    plan: PlanInfo | None,
    findings: Iterable[Finding],
    began: float,
    methods: Counter[str],
    resumed: int = 0,
) -> AuditResult:
    folder = audit.layout(layout)
    read = [receipts.element(folder, STEP, shard.index) for shard in plan.shards] if plan else []
    counts: Counter[str] = Counter()
    shown: list[Finding] = []

    def counted() -> Iterator[Finding]:
        for finding in findings:
            counts[finding.kind] += 1
            if len(shown) < SHOWN:
                shown.append(finding)
            yield finding

    audits_and_adoptions.keep_findings(audits_and_adoptions.findings(folder), counted())
    check_release_stands(layout, audit.release, STEP)
    skipped = _amounts(audits_and_adoptions.kept_skipped(audits_and_adoptions.skipped(folder)))
    unopened = sum(amount["files"] for amount in skipped.values())
    files = plan.files - unopened if plan else 0
    owner = dataset_folders.owns(layout)
    servers = not traits_of_mount(os.path.realpath(layout.release(audit.release))).local
    memory = answered_by(methods, servers=servers, owner=owner)
    proven = not skipped and not (plan and seal.files and not _rows(plan))
    result: AuditResult = {
        "dataset": layout.dataset,
        "release": audit.release,
        "audit": audit.id,
        "status": "FINDINGS" if counts else "PASSED" if proven else "PARTLY",
        "counts": dict(counts),
        "findings": shown,
        "all_findings": str(audits_and_adoptions.findings(folder)),
        "skipped": skipped,
        "all_skipped": str(audits_and_adoptions.skipped(folder)) if skipped else "",
        "grade": audit_grade(
            methods, whole=audit.choice.kind == "whole" and not skipped, servers=servers, owner=owner
        ),
        "files": files,
        "of_files": seal.files,
        "rows": _rows(plan) if plan else 0,
        "resumed": resumed,
        "bytes": plan.bytes - sum(amount["bytes"] for amount in skipped.values()) if plan else 0,
        "elements": len(plan.shards) if plan else 0,
        "methods": dict(methods),
        "choice": audit.choice.kind,
        "owner": owner,
        "promise": _promise(audit, plan, unopened, memory) if plan else "no file was read",
        "began": audit.created,
        "moved_bytes": receipts.moved(filter(None, read), began),
        "seconds": round(time.time() - began, 3),
    }
    _tell(layout, audit, result, compared=plan is not None)
    # The result is written last: an audit with a result has ended, and the gate has its verdict.
    small_files.write_json(folder.result, typed_json.plain(result))
    return result


def _promise(audit: Audit, plan: PlanInfo, unopened: int, memory: str) -> str:
    promise = audit.choice.promise(memory)
    if not _rows(plan) and audit.choice.kind != "whole":
        which = "this slice" if audit.choice.kind == "slice" else "this sample"
        return f"{which} holds no file: nothing is proven of their bytes, all else was compared; {promise}"
    if not unopened:
        return promise
    return f"nothing is known of the {unopened} files that were not read; of the others: {promise}"


def _amounts(skipped: Iterable[SkippedFile]) -> dict[str, SkippedJson]:
    """Sum up skipped files by kind."""
    amounts: dict[str, SkippedJson] = {}
    paths: dict[str, list[tuple[str, str]]] = {}
    last = ""
    for file in skipped:
        amount = amounts.setdefault(
            file.kind, {"files": 0, "bytes": 0, "paths": paths.setdefault(file.kind, [])}
        )
        amount["bytes"] += file.bytes
        # A giant's parts may be skipped for different reasons.
        if file.path != last:
            amount["files"] += 1
            if len(paths[file.kind]) < NAMED:
                paths[file.kind].append((file.path, file.why))
        last = file.path
    return amounts


def _tell(layout: DatasetLayout, audit: Audit, result: AuditResult, *, compared: bool) -> None:
    """If the dataset's owner audits, write the verdict and append to the history of audits. If the audit
    stops before it writes its result, the continued audit calls this again, and the history gets its line
    twice."""
    if not result["owner"]:
        return
    last = LastAudit(
        audit=audit.id,
        began=audit.created,
        choice=audit.choice.kind,
        status=result["status"],
        counts=result["counts"],
        files=result["files"],
        of_files=result["of_files"],
        bytes=result["bytes"],
        seconds=result["seconds"],
        promise=result["promise"],
        ended=release_records.now(),
        by=release_records.user(),
        skipped={kind: amount["files"] for kind, amount in result["skipped"].items()},
        grade=result["grade"],
        from_disks=set(result["methods"]) == {"disk"},
    )
    published_digest = release_records.published_seal(layout, audit.release) or audit.seal
    before = release_records.read_verdict(layout, audit.release)
    if before is None or before.seal != published_digest:
        before = release_records.new_verdict(layout, audit.release, published_digest)
    release_records.write_verdict(
        layout, release_records.audited(before, last, audit.choice, compared=compared)
    )
    kept = ("dataset", "release", "audit", "choice", "status", "counts", "files", "bytes", "began", "seconds")
    line: dict[str, object] = {key: value for key, value in result.items() if key in kept}
    if last.skipped:
        line["skipped"] = last.skipped
    small_files.append_line(
        layout.audit_history,
        {"event": STEP, "at": release_records.now(), **line, **release_records.this_author()._asdict()},
    )


def overrule(context: Context, dataset: str, why: str, release: str | None = None) -> OverruleResult:
    """Overrule a release's findings on its owner's word, so that the gate no longer counts them. The result's
    `counts` are the numbers of overruled findings by kind. Without findings, nothing is written. Raises
    PreflightError for another account, ConfigError for an unknown release, FailedError, LockedError."""
    layout = context.layout(dataset)
    dataset_folders.check_owner(layout)
    release = choose_release(context, layout, release, STEP)
    with auditing(context, layout, release, STEP), release_standing(layout, release, STEP):
        before = release_records.read_verdict(layout, release)
        counts = release_records.standing_findings(before)
        result: OverruleResult = {
            "dataset": dataset, "release": release, "status": "OVERRULED", "counts": counts, "why": why,
        }  # fmt: skip
        if before is not None and counts:
            release_records.write_verdict(
                layout, release_records.overruled(before, why, release_records.user())
            )
            line = {
                "event": "overrule",
                "at": release_records.now(),
                **result,
                **release_records.this_author()._asdict(),
            }
            small_files.append_line(layout.audit_history, line)
    return result


def findings_of(layout: DatasetLayout, audit: Audit) -> Iterator[Finding]:
    """Yield all findings of a finished audit. Raises FailedError if their file is damaged."""
    return audits_and_adoptions.kept_findings(audits_and_adoptions.findings(audit.layout(layout)))


def judge(result: AuditResult) -> None:
    """Raise FindingsError (exit 4) if the audit has findings; skipped files are not findings."""
    if result["status"] == "FINDINGS":
        advice = "tell the account that stages the dataset"
        if result["owner"]:
            advice = release_records.advice_on(result["dataset"], result["counts"])
        raise FindingsError(
            "the audit found deviations",
            where=f"{result['dataset']}/{result['release']}",
            why=release_records.counts_text(result["counts"]),
            hint=f"they are listed in {result['all_findings']}; {advice}",
        )
