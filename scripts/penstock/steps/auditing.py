"""audit: a published release against its manifest, whole, by sample or by slice; resumable.

Guarantees: it changes nothing of the release; an audit that was stopped goes on where it stopped
when the same is asked again; one flipped bit in what was read is found, and named by part in a
giant. What it claims is what was read: the result says how much, and how the caches were passed.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.core.choosing import Choice
from penstock.core.findings import Finding, from_json, to_json
from penstock.errors import FailedError, FindingsError
from penstock.formats.shards import read_shard
from penstock.steps import auditbook, auditplan, receipts
from penstock.steps.arrays import run_array
from penstock.steps.audittree import look
from penstock.storage import durable, target
from penstock.storage.locking import DatasetLock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.core.layout import DatasetLayout, RunLayout
    from penstock.core.runs import PlanInfo
    from penstock.engine.auditing import Seen
    from penstock.steps.auditbook import Audit
    from penstock.steps.context import Context

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
    release = request.release or target.current(layout)
    if release is None or release not in target.releases(layout):
        raise FailedError(
            "there is no such release to audit" if request.release else "nothing is published yet",
            where=f"{dataset}/{release}" if release else dataset,
            hint=f"released are: {', '.join(target.releases(layout)) or 'none'}",
        )
    began = time.time()
    locked = DatasetLock(
        layout, run=release, command=STEP, holder_ended=context.cluster.holder_ended, name="audit.lock"
    )
    with locked:
        seal, digest = auditplan.read_seal(layout, release)
        choice = request.choice
        if request.rotate:
            choice = Choice(
                "slice", turn=auditbook.next_turn(layout, release, request.rotate), turns=request.rotate
            )
        found = auditbook.open_audit(layout, release, digest, choice)
        audit = found or auditbook.begin(layout, release, digest, choice, request.limit)
        if found is not None:
            context.emit("note", dataset, STEP, text=f"going on with audit {audit.id}")
        result = _audit(context, layout, audit, seal, digest, began)
    context.emit("end", dataset, STEP, **{k: v for k, v in result.items() if k != "findings"})
    return result


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
    if any(finding.path == "manifest.parquet" for finding in manifest):
        # Nothing can be judged by a manifest that is not the published one.
        return _close(layout, audit, None, iter(manifest), began, Counter())
    plan = auditplan.plan(context, layout, audit, seal)
    context.emit("start", dataset, STEP, files=plan.files, bytes=plan.bytes, elements=len(plan.shards))
    indices = receipts.indices(plan)

    def ok(index: int) -> bool:
        receipt = receipts.read(folder.receipt(STEP, index))
        return receipt is not None and receipt.get("shard") == receipts.by_index(plan)[index].digest

    if indices:
        run_array(context, dataset, folder, STEP, indices, ok)
    methods: Counter[str] = Counter()

    def findings() -> Iterator[Finding]:
        yield from manifest
        shaped = set()
        for finding in look(layout, release, seal, context.stop.check):
            if finding.kind in ("missing", "replaced"):
                shaped.add(finding.path)
            yield finding
        for finding in _read(folder, plan, methods):
            # Its bytes could not be right: it was told already.
            if finding.path not in shaped:
                yield finding

    return _close(layout, audit, plan, findings(), began, methods)


def _read(folder: RunLayout, plan: PlanInfo, methods: Counter[str]) -> Iterator[Finding]:
    """What the elements found, by file: the damaged parts of a giant are one finding."""
    from penstock.engine.auditing import Seen

    for shard in plan.shards:
        seen = Seen.read(auditbook.seen(folder, shard.index), shard.digest)
        methods.update(seen.methods)
        if not seen.bad:
            continue
        yield from _named(folder, shard.index, seen)


def _named(folder: RunLayout, index: int, seen: Seen) -> Iterator[Finding]:
    bad = {row: (why, unread) for row, why, unread in seen.bad}
    row = 0
    held: Finding | None = None
    for batch in read_shard(folder.shard(index)):
        for entry in batch:
            told = bad.get(row)
            row += 1
            if told is None:
                continue
            why, unread = told
            finding = Finding("unread" if unread else "changed", entry.path, why)
            if entry.part >= 0:
                finding = finding._replace(parts=(entry.part,))
            if held is not None and held.path == finding.path:
                held = held._replace(parts=(*held.parts, *finding.parts))
                continue
            if held is not None:
                yield held
            held = finding
    if held is not None:
        yield held


def _close(
    layout: DatasetLayout,
    audit: Audit,
    plan: PlanInfo | None,
    found: Iterator[Finding],
    began: float,
    methods: Counter[str],
) -> dict[str, Any]:
    folder = audit.layout(layout)
    counts: Counter[str] = Counter()
    shown: list[dict[str, Any]] = []
    lines = []
    for finding in found:
        counts[finding.kind] += 1
        told = to_json(finding)
        lines.append(json.dumps(told, sort_keys=True))
        if len(shown) < SHOWN:
            shown.append(told)
    durable.write_file(auditbook.findings(folder), "".join(f"{line}\n" for line in lines).encode())
    result = {
        "dataset": layout.dataset,
        "release": audit.release,
        "audit": audit.id,
        "status": "FINDINGS" if counts else "PASSED",
        "counts": dict(counts),
        "findings": shown,
        "all_findings": str(auditbook.findings(folder)),
        "files": plan.files if plan else 0,
        "bytes": plan.bytes if plan else 0,
        "elements": len(plan.shards) if plan else 0,
        "methods": dict(methods),
        "choice": audit.choice.kind,
        "promise": audit.choice.promise() if plan else "nothing was read: the manifest is damaged",
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
