"""audit: a published release against its manifest, whole, by sample or by slice; resumable.

Guarantees: it changes nothing of the release; an audit that was stopped goes on where it stopped
when the same is asked again; one flipped bit in what was read is found, and named by part in a
giant. What it claims is what was read: the result says how much, and how the caches were passed.
"""

from __future__ import annotations

import json
import signal
import stat
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

from penstock.core.choosing import Choice
from penstock.core.findings import Finding, from_json, to_json
from penstock.core.layout import DATA, MANIFEST
from penstock.engine.auditing import Seen
from penstock.errors import FailedError, FindingsError, InterruptedRunError
from penstock.formats.shards import read_shard
from penstock.steps import auditbook, auditplan, receipts
from penstock.steps.arrays import run_array
from penstock.steps.audittree import look
from penstock.steps.holding import lock_of
from penstock.storage import durable, target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from penstock.core.layout import DatasetLayout, RunLayout
    from penstock.core.runs import PlanInfo, ShardInfo
    from penstock.steps.auditbook import Audit
    from penstock.steps.context import Context
    from penstock.storage.locking import DatasetLock

STEP = "audit"
SHOWN = 1000
"""Findings that a result carries itself; all of them are in `findings.jsonl`."""


WHOLE = Choice()


@dataclass(frozen=True)
class Request:
    """What is asked for."""

    release: str | None = None
    """None: the one that `current` names."""
    choice: Choice = WHOLE
    rotate: int = 0
    """Above 0: the next slice of that many."""
    limit: int | None = None


def run(context: Context, dataset: str, request: Request | None = None) -> dict[str, Any]:
    """Audit one release. Returns the result: {dataset, release, audit, status, findings, counts,
    files, bytes, methods, promise, seconds, ...}; `status` is PASSED or FINDINGS.

    Raises FindingsError when the seal cannot even be read, LockedError when another audit of the
    dataset runs, FailedError, InterruptedRunError (go on by the same command).
    """
    request = request or Request()
    layout = context.layout(dataset)
    target.check_owner(layout)
    release = request.release or target.current(layout)
    if release is None or release not in target.releases(layout):
        raise FailedError(
            "there is no such release to audit" if release else "nothing is published yet",
            where=f"{dataset}/{release}" if release else dataset,
            hint=f"released are: {', '.join(target.releases(layout)) or 'none'}",
        )
    began = time.time()
    with auditing(context, layout, release, STEP):
        seal, digest = auditplan.read_seal(layout, release)
        choice = request.choice
        if request.rotate:
            choice = Choice("slice", turn=auditbook.next_turn(layout, request.rotate), turns=request.rotate)
        audit = auditbook.open_audit(layout, release, digest, choice)
        if audit is None:
            audit = auditbook.begin(layout, release, digest, choice, request.limit)
        else:
            audit = replace(audit, limit=request.limit)
            context.emit("note", dataset, STEP, text=f"going on with audit {audit.id}")
        result = _audit(context, layout, audit, seal, digest, began)
        auditbook.tidy(layout)
    context.emit("end", dataset, STEP, **{k: v for k, v in result.items() if k != "findings"})
    return result


def auditing(context: Context, layout: DatasetLayout, release: str, command: str) -> DatasetLock:
    """The lock of audits and repairs: one of them at a time for each dataset. It is not the dataset's:
    an audit changes nothing that a run does."""
    return lock_of(context, layout, release, command, "audit.lock")


def _audit(
    context: Context,
    layout: DatasetLayout,
    audit: Audit,
    seal: dict[str, Any],
    digest: str,
    began: float,
) -> dict[str, Any]:
    dataset, release, folder = layout.dataset, audit.release, audit.layout(layout)
    manifest = [
        Finding("manifest", line.partition(": ")[0], line.partition(": ")[2])
        for line in auditplan.unsound(layout, release, seal, digest)
    ]
    if any(finding.path == MANIFEST for finding in manifest):
        # Nothing can be judged by a manifest that is not the published one.
        return _close(layout, audit, seal, None, iter(manifest), began, Counter())
    if not _is_folder(layout.release(release) / DATA):
        gone = Finding("missing", ".", "the release's data folder is not there")
        return _close(layout, audit, seal, None, iter([*manifest, gone]), began, Counter())
    plan = auditplan.plan(context, layout, audit, seal)
    context.emit("start", dataset, STEP, files=_rows(plan), bytes=plan.bytes, elements=len(plan.shards))
    indices = receipts.indices(plan)
    shards = receipts.by_index(plan)
    methods: Counter[str] = Counter()
    resumed = sum(Seen.read(auditbook.seen(folder, i), shards[i]).files for i in indices)

    def ok(index: int) -> bool:
        receipt = receipts.read(folder.receipt(STEP, index))
        return receipt is not None and receipt.get("shard") == shards[index].digest

    with _Aside(lambda stop: list(look(layout, release, seal, stop)), context.stop.check) as shape:
        if indices:
            run_array(context, dataset, folder, STEP, indices, ok)
        shaped = shape.result()
    known = {finding.path for finding in shaped if finding.kind != "mode"}
    # What is wrong with its shape cannot have the right bytes: it was told already.
    read = (f for f in _read(folder, plan, methods) if f.path not in known)
    return _close(layout, audit, seal, plan, chain(manifest, shaped, read), began, methods, resumed)


class _Aside:
    """Work in a thread beside the elements; left early, it is told to stop and awaited."""

    def __init__(self, work: Callable[[Callable[[], None]], list[Finding]], stop: Callable[[], None]) -> None:
        self._left = threading.Event()
        self._stop = stop
        self._pool = ThreadPoolExecutor(1)
        self._future = self._pool.submit(work, self._check)

    def _check(self) -> None:
        self._stop()
        if self._left.is_set():
            raise InterruptedRunError(signal.SIGTERM)

    def result(self) -> list[Finding]:
        return self._future.result()

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
    """Files and, of giants, parts."""
    return sum(shard.rows for shard in plan.shards)


def _read(folder: RunLayout, plan: PlanInfo, methods: Counter[str]) -> Iterator[Finding]:
    """What the elements found, by file: the damaged parts of a giant are one finding."""
    held: Finding | None = None
    for shard in plan.shards:
        seen = _seen(folder, shard)
        methods.update(seen.methods)
        for finding in _named(folder, shard.index, seen):
            if held is not None and held.path == finding.path:
                held = held._replace(parts=(*held.parts, *finding.parts))
                continue
            if held is not None:
                yield held
            held = finding
    if held is not None:
        yield held


def _seen(folder: RunLayout, shard: ShardInfo) -> Seen:
    """What the elements saw of a shard, all of it, as the last one left it."""
    path = auditbook.seen(folder, shard.index)
    receipt = receipts.read(folder.receipt(STEP, shard.index)) or {}
    seen = Seen.read(path, shard)
    if seen.left or receipts.file_digest(path) != receipt.get("seen"):
        receipts.drop(folder.receipt(STEP, shard.index))
        raise FailedError(
            "what an element saw is not what it wrote",
            where=str(path),
            hint="the same command reads it again",
        )
    return seen


def _named(folder: RunLayout, index: int, seen: Seen) -> Iterator[Finding]:
    if not seen.bad:
        return
    bad = {row: (why, unread) for row, why, unread in seen.bad}
    row = 0
    for batch in read_shard(folder.shard(index)):
        for entry in batch:
            told = bad.get(row)
            row += 1
            if told is not None:
                why, unread = told
                parts = (entry.part,) if entry.part >= 0 else ()
                yield Finding("unread" if unread else "changed", entry.path, why, parts)


def _close(
    layout: DatasetLayout,
    audit: Audit,
    seal: dict[str, Any],
    plan: PlanInfo | None,
    found: Iterable[Finding],
    began: float,
    methods: Counter[str],
    resumed: int = 0,
) -> dict[str, Any]:
    folder = audit.layout(layout)
    counts: Counter[str] = Counter()
    shown: list[dict[str, Any]] = []

    def lines() -> Iterator[bytes]:
        for finding in found:
            counts[finding.kind] += 1
            told = to_json(finding)
            if len(shown) < SHOWN:
                shown.append(told)
            yield json.dumps(told, sort_keys=True).encode() + b"\n"

    durable.write_file(auditbook.findings(folder), b"".join(lines()))
    result = {
        "dataset": layout.dataset,
        "release": audit.release,
        "audit": audit.id,
        "status": "FINDINGS" if counts else "PASSED",
        "counts": dict(counts),
        "findings": shown,
        "all_findings": str(auditbook.findings(folder)),
        "files": plan.files if plan else 0,
        "of_files": int(seal.get("files") or 0),
        "rows": _rows(plan) if plan else 0,
        "resumed": resumed,
        "bytes": plan.bytes if plan else 0,
        "elements": len(plan.shards) if plan else 0,
        "methods": dict(methods),
        "choice": audit.choice.kind,
        "promise": audit.choice.promise() if plan else "no file was read",
        "began": audit.created,
        "seconds": round(time.time() - began, 3),
    }
    durable.write_json(auditbook.result(folder), result)
    return result


def findings_of(layout: DatasetLayout, audit: Audit) -> list[Finding]:
    """All findings of a finished audit. Raises FailedError when their file is damaged."""
    path = auditbook.findings(audit.layout(layout))
    try:
        return [from_json(json.loads(line)) for line in path.read_text().splitlines()]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FailedError("an audit's findings cannot be read", where=str(path), why=str(error)) from error


def judge(result: dict[str, Any]) -> None:
    """Raises FindingsError (exit 4) when there are findings."""
    if result["status"] != "PASSED":
        counts = ", ".join(f"{n} {kind}" for kind, n in sorted(result["counts"].items()))
        raise FindingsError(
            "the audit found deviations",
            where=f"{result['dataset']}/{result['release']}",
            why=counts,
            hint=f"they are listed in {result['all_findings']}; "
            f"`penstock repair {result['dataset']}` fetches what is damaged anew",
        )
