"""report: gather a run's receipts into one result (`look.views.keys.Result`), and write its page and table.

Takes no lock, and changes no files except the page and the table (`elements.parquet` beside it). For a failed
run the page shows its progress, and what failed.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from typing import TYPE_CHECKING, cast

import penstock
from penstock.core import element_documents, run_steps, typed_json
from penstock.core.element_documents import StepUse, Usage, slowest
from penstock.core.errors import FindingsError
from penstock.core.estimates import Work, pebibyte_miles_an_hour, reached
from penstock.core.grades import CARRIED, SERVERS, answered_by
from penstock.core.run_steps import RUN_IN_ELEMENTS, WITH_RECEIPT
from penstock.dataset import (
    dataset_lock,
    gate,
    receipts,
    release_records,
    run_store,
    seals,
    staging_notice,
)
from penstock.fs import small_files
from penstock.fs.capabilities import facts, traits_of_mount
from penstock.jobs import forecast, shard_claims, worker
from penstock.jobs.worker import ElementAccounts
from penstock.look.views import text_layout

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from penstock.core.element_documents import ElementReceipt
    from penstock.core.layout import RunLayout
    from penstock.core.run_documents import PlanInfo
    from penstock.core.step_results import StepReceipt
    from penstock.dataset.context import Context
    from penstock.dataset.documents import Run
    from penstock.dataset.gate import Judgement
    from penstock.look.views.keys import (
        AmendedFiles,
        ElementResult,
        EvidenceAmounts,
        Failed,
        Result,
        StepResult,
        TimedAmount,
    )

SHOWN = 100  # number of failed files in a result, at most
SHOWN_CAUSES, SHOWN_SLOWEST = 12, 10  # number of causes of retries, and of slow objects, in a result, at most
POINTS = 400  # number of points that the thinned curve of throughput keeps, at least


def run(context: Context, dataset: str, *, html: Path | None = None) -> Result:
    """Return the result of the dataset's last run, and write its page to `html`, if given. Raises OSError,
    NoSpaceError and FailedError if page or table cannot be written."""
    result, accounts = _gathered(context, run_store.open_run(context.layout(dataset), context.run))
    if html is not None:
        from penstock.look.views import html_report

        if accounts.rows and html_report.has_neighbours(html):
            from penstock.tables import run_tables

            table = elements_path(html)
            small_files.refuse_another(table, small_files.ROWS)
            run_tables.write_elements(table, accounts.rows)
            result["usage"] = result["usage"]._replace(file=str(table.absolute()))
        result["report"] = str(html.absolute())
        html_report.write(html, result)
    context.emit(run_steps.Ended(dataset, "report", {"status": result["status"]}))
    return result


def elements_path(html: Path) -> Path:
    """Return the path of the table of elements beside a page. A folder may contain several pages.

    >>> from pathlib import Path
    >>> elements_path(Path("a/report.html")), elements_path(Path("a/mine.html"))
    (PosixPath('a/elements.parquet'), PosixPath('a/mine.elements.parquet'))
    """
    return html.with_name("elements.parquet" if html.stem == "report" else f"{html.stem}.elements.parquet")


def gather(context: Context, run: Run) -> Result:
    """Return the result of a run, without unknown figures. Changes nothing."""
    return _gathered(context, run)[0]


def _gathered(context: Context, run: Run) -> tuple[Result, ElementAccounts]:
    layout, info, folder = run.layout, run.info, run.folder
    plan = run.plan if folder.plan.exists() else None
    done = {step: receipts.step(folder, step) for step in WITH_RECEIPT}
    elements = list(_elements(folder, plan)) if plan else []
    accounts = worker.gather_accounts(context, run, elements) if plan else ElementAccounts((), ())
    stored = seals.of_run(run)
    published = stored is not None and run_store.publish_ended(run)
    failures, failed = _failures(folder, plan)
    result: Result = {
        "dataset": info.dataset,
        "status": "PASSED" if published else "FAILED",
        "why": "" if published else _why(run, plan, done),
        "run": info.run,
        "release": info.release,
        "sources": list(info.sources),
        "target": str(layout.root),
        "listing_digest": info.listing_digest,
        "created": info.created,
        "started": info.created,
        "files": info.files,
        "bytes": info.bytes,
        "scanned": {"files": info.scanned},
        "ignored": dict(info.ignored),
        "hard_links": dict(info.hard_links),
        "histogram": [list(row) for row in info.histogram],
        "failed": failed,
        "failures": failures,
        "version": penstock.__version__,
    }
    if layout.folder.is_dir():
        result["file_system"] = facts(layout.folder).kind
    if plan is not None:
        result |= _amounts(plan, elements, done)
        verified = [receipt for receipt in elements if receipt.step == "verify"]
        if beside := receipts.read_beside_copy(run, verified):
            result["verified"]["beside_copy_bytes"] = beside
        result["elements"] = [_shown(receipt) for receipt in elements]
        result["throughput"] = throughput([e for e in elements if e.step == "copy"])
        moved = {"copy": result.get("copied"), "verify": result.get("verified")}
        result["steps"] = [_step(name, receipt, moved.get(name)) for name, receipt in done.items() if receipt]
        result |= _compared(context, run, elements, result.get("copied", {}))
    if accounts.rows:
        result["usage"] = _usage(accounts)
    if published and stored is not None:
        seal = stored.seal
        result |= {
            "evidence": cast("EvidenceAmounts", typed_json.plain(seal.evidence)),
            "seal": seal.records.root,
            "giants": seal.giants,
        }
        if seal.carried is not None:
            result["carried"] = text_layout.carried(seal.carried._asdict())
        if seal.evidence.read_after is not None:
            servers = not traits_of_mount(os.path.realpath(layout.root)).local
            memory = answered_by(seal.evidence.methods.keys() - {CARRIED, "unread"}, servers=servers)
            delay = typed_json.plain(seal.evidence.read_after)
            result["read_after"] = text_layout.delay(delay, servers=SERVERS in memory)
        if seal.amended is not None:
            amended = cast("AmendedFiles", typed_json.plain(seal.amended))
            result |= {"amended": amended, "files": seal.files, "bytes": seal.bytes}
        owners = context.config.target.owners
        readers = judgement = gate.judged(layout, owners)
        result["current"] = str(layout.current) if readers.release else ""
        if readers.release != info.release:
            result["why"] = f"published; `current` names {readers.release or 'no release'}"
            judgement = gate.judged(layout, owners, release=info.release)
        result |= judged(judgement, readers)
    ended = max((r["ended"] for r in done.values() if r), default=0.0)
    if ended:
        result["ended"] = _iso(ended)
        # The sum of the steps' times is used, since it excludes the days between a failure and the command
        # that continued the run.
        result["seconds"] = round(sum(step["seconds"] for step in result.get("steps", ())), 3)
    return result, accounts


def judged(judgement: Judgement, readers: Judgement) -> Result:
    """Return the values that the judgement of a release adds to its run's result.

    These are the last audit and, if the release's gate is closed, {status, why, findings}. `readers` is the
    judgement of `current`, which adds the release that readers use.
    """
    last = release_records.last_audit_of(judgement.verdict)
    shown: Result = {"last_audit": last} if last else {}
    if readers.release:
        shown |= {"current_release": readers.release, "path": str(readers.data)}
    if judgement.error is not None:
        problem = f"held: {judgement.problem}" if judgement.state == gate.HELD else judgement.problem
        why = f"{problem}; {judgement.error.hint}" if judgement.error.hint else problem
        status = "FINDINGS" if isinstance(judgement.error, FindingsError) else "FAILED"
        shown |= {"status": status, "why": why, "findings": judgement.findings}
    return shown


def _amounts(
    plan: PlanInfo, elements: Sequence[ElementReceipt], done: Mapping[str, StepReceipt | None]
) -> Result:
    copies = [e for e in elements if e.step == "copy"]
    verified = [e for e in elements if e.step == "verify"]
    linked, taken = reused(plan.unchanged, {shard.index: shard.reused for shard in plan.shards}, copies)
    # If all planned rows were taken over, use plan's counts: a giant has many rows, but is one file.
    all_taken = taken == sum(shard.reused for shard in plan.shards) - plan.unchanged
    taken_files = plan.taken if all_taken else taken
    whole = len(copies) == len(plan.shards)
    amounts: Result = {
        "giants": plan.giants,
        "parts": sum(s.rows for s in plan.shards) - plan.files + plan.giants if plan.giants else 0,
        "unchanged": {"files": plan.unchanged, "bytes": plan.unchanged_bytes},
        "retries": sum(e.retries for e in elements),
        "retried": dict(
            sum((Counter(e.retried) for e in elements), Counter[str]()).most_common(SHOWN_CAUSES)
        ),
        "slowest": slowest((row for e in copies for row in e.slowest), SHOWN_SLOWEST),
    }
    if plan.renamed:
        amounts["renamed"] = {"files": plan.renamed, "bytes": plan.renamed_bytes}
    if taken:
        amounts["taken"] = {"files": taken_files, **({"bytes": plan.taken_bytes} if all_taken else {})}
    if copies:
        read = sum(e.bytes for e in copies) - plan.unchanged_bytes * (linked == plan.unchanged)
        read -= plan.taken_bytes * all_taken
        amounts["copied"] = {
            "files": plan.files - linked - taken_files if whole else sum(e.files for e in copies),
            "bytes": read,
            "seconds": _wall(done.get("copy"), copies),
        }
        resumed: TimedAmount = {
            "files": sum(e.files - e.done_files for e in copies),
            "bytes": sum(e.bytes - e.done_bytes for e in copies),
        }
        amounts["resumed"] = resumed
        amounts["copied"] |= _moved(done.get("copy"), copies)
        now = amounts["copied"]["moved_bytes"]
        amounts |= {"bytes_in": now, "bytes_out": now}
        amounts["durability"] = next((e.durability for e in copies if e.durability), "")
        if ends := receipts.fsync_ends(copies):
            amounts["durability"] += f", which ended {ends}"
    if verified:
        whole = len(verified) == len(plan.shards)
        carried = [e.carried for e in verified]
        amounts["verified"] = {
            "files": (plan.files if whole else sum(e.files for e in verified)) - sum(c[0] for c in carried),
            "bytes": sum(e.bytes for e in verified) - sum(c[1] for c in carried),
            "seconds": _wall(done.get("verify"), verified),
            **_moved(done.get("verify"), verified),
        }
    return amounts


def _compared(context: Context, run: Run, elements: Sequence[ElementReceipt], copied: TimedAmount) -> Result:
    """Return the last command's copy, compared with the ceiling that limits it. The elements' own rates do
    not count as a ceiling, since they were measured by this copy, or are assumed."""
    copies = [e for e in elements if e.step == "copy"]
    size, seconds = copied.get("moved_bytes", 0), copied.get("moved_seconds", 0.0)
    if not size or not seconds:
        return {}
    compared: Result = {}
    # Bytes are known for each command; files are known only if a single command moved all of them.
    files = sum(e.done_files - e.linked for e in copies) if receipts.moved(copies) == size else 0
    at_once = min(len(copies), context.cluster.slots("copy"))
    ceilings = forecast.known(context.config, run.layout)
    others = [ceiling for name, ceiling in ceilings.items() if name not in forecast.OF_ELEMENTS]
    if nearest := reached(Work(files, size), seconds, at_once, others):
        compared["ceiling"] = nearest
    if miles := context.config.bandwidth.miles:
        compared["pib_miles_an_hour"] = round(pebibyte_miles_an_hour(size, miles, seconds), 6)
    return compared


def reused(unchanged: int, planned: Mapping[int, int], copies: Sequence[ElementReceipt]) -> tuple[int, int]:
    """Return the number of rows that all attempts linked, and the number that they took over.

    `planned` has the reused rows by shard, of which `unchanged` in all are linked. A receipt counts only its
    own attempt's reuse. Earlier attempts reused rows before they copied any. So each counts as having reused
    the planned number of rows, but never more than the rows that it finished.
    """
    before = sum(min(e.files - e.done_files, planned.get(e.index, 0) - e.linked) for e in copies)
    rows = sum(e.linked for e in copies) + before
    if before and rows == sum(planned.values()):
        return unchanged, rows - unchanged
    taken = sum(e.taken for e in copies)
    return rows - taken, taken


def _moved(receipt: StepReceipt | None, elements: Sequence[ElementReceipt]) -> TimedAmount:
    """Return the amount moved by the last command that moved anything. Before the step's end, return the
    amount moved by the attempts that finished its shards."""
    if receipt is not None and "moved_bytes" in receipt:
        return {"moved_bytes": receipt["moved_bytes"], "moved_seconds": receipt["moved_seconds"]}
    return {"moved_bytes": receipts.moved(elements), "moved_seconds": _wall(receipt, elements)}


def _wall(receipt: StepReceipt | None, elements: Iterable[ElementReceipt]) -> float:
    if receipt and receipt.get("seconds"):
        return receipt["seconds"]
    spans = [(e.started, e.ended) for e in elements]
    wall = max(end for _, end in spans) - min(start for start, _ in spans)
    return round(wall, 3)


def _elements(folder: RunLayout, plan: PlanInfo) -> Iterable[ElementReceipt]:
    for step in RUN_IN_ELEMENTS:
        for shard in plan.shards:
            receipt = receipts.element(folder, step, shard.index)
            if receipt is not None and receipt.shard == shard.digest:
                yield receipt


def _usage(accounts: ElementAccounts) -> Usage:
    rows = accounts.rows
    sources = {
        "queue_wait": Counter(row.queue_wait_by for row in rows if row.queue_wait_by),
        "hours": Counter(row.hours_by for row in rows if row.hours_by),
    }
    return Usage(
        [_rounded(line) for line in element_documents.by_step(rows)],
        element_documents.worst(rows),
        {name: counts for name, counts in sources.items() if counts},
        accounts.notes,
        element_documents.spans(rows),
    )


def _rounded(line: StepUse) -> StepUse:
    return StepUse._make(round(value, 6) if isinstance(value, float) else value for value in line)


def _shown(receipt: ElementReceipt) -> ElementResult:
    return {
        "step": receipt.step,
        "index": receipt.index,
        "attempt": receipt.attempt,
        "node": receipt.host,
        "started": receipt.started,
        "ended": receipt.ended,
        "files": receipt.files,
        "bytes": receipt.bytes,
        "moved_bytes": receipts.moved([receipt]),
        "seconds": receipt.seconds,
        "cpus": receipt.cpus,
        "workers": receipt.workers,
        "streams": receipt.streams,
        "why": receipt.why,
    }


def throughput(copies: Sequence[ElementReceipt]) -> list[list[float]]:
    """Return [[seconds since the copy began, bytes so far, files so far], ...] over all elements.

    >>> from penstock.core.element_documents import ElementReceipt
    >>> throughput([ElementReceipt(started=5.0, done_bytes=9, done_files=1, bytes=9, files=1,
    ...                            samples=((0.0, 0, 0), (2.0, 9, 1)))])
    [[0.0, 0, 0], [2.0, 9, 1]]
    """
    if not copies:
        return []
    begin = min(e.started for e in copies)
    steps = []
    for element in copies:
        # Work that earlier attempts did is left out, since it was not done in this element's time.
        files, size = element.files - element.done_files, element.bytes - element.done_bytes
        for seconds, many, much in element.samples:
            many, much = max(many, files), max(much, size)
            steps.append((element.started - begin + seconds, much - size, many - files))
            files, size = many, much
    steps.sort()
    curve: list[list[float]] = []
    total_files = total_bytes = 0
    for seconds, much, many in steps:
        total_bytes += much
        total_files += many
        if curve and curve[-1][0] == round(seconds, 2):
            curve[-1][1:] = [total_bytes, total_files]
        else:
            curve.append([round(seconds, 2), total_bytes, total_files])
    every = max(1, len(curve) // POINTS)
    return [*curve[:-1:every], curve[-1]] if len(curve) > 1 else curve


def _failures(folder: RunLayout, plan: PlanInfo | None) -> tuple[list[Failed], int]:
    shown: list[Failed] = []
    failed = 0
    for step in RUN_IN_ELEMENTS if plan else ():
        for index, outcome in shard_claims.last_ends(folder, step):
            if receipts.element(folder, step, index) is not None:
                continue
            failed += outcome.failed
            head: Failed = {"step": step, "exit_code": outcome.exit_code, "retry": outcome.retry}
            named: list[Failed] = [{**head, "path": path, "why": why} for path, why in outcome.failures]
            shown += named[: SHOWN - len(shown)]
    return shown, failed


def _why(run: Run, plan: PlanInfo | None, done: Mapping[str, StepReceipt | None]) -> str:
    """Return an element's error or, without one, the note of the last end, as `penstock status` does."""
    folder, layout = run.folder, run.layout
    for step in RUN_IN_ELEMENTS:
        for index, outcome in shard_claims.last_ends(folder, step) if plan else ():
            if receipts.element(folder, step, index) is not None:
                continue
            if outcome.error:
                return f"{step}: {outcome.error.partition(chr(10))[0]}"
            if outcome.failures:
                path, why = outcome.failures[0]
                return f"{step}: {path}: {why}"
    missing = next((step for step in WITH_RECEIPT if not done.get(step)), "publish")
    fallback = f"{missing} has not ended" if plan else "it was not planned yet"
    end, claim = staging_notice.find_end(layout), dataset_lock.highest_claim(layout)
    return (
        staging_notice.described_end(layout, end).get("why", fallback)
        if end and claim and claim.run == run.id
        else fallback
    )


def _step(name: str, receipt: StepReceipt, moved: TimedAmount | None) -> StepResult:
    """Return a step's row. `moved` is the step's own work, without linked or carried-over files."""
    out: StepResult = {
        "step": name,
        "status": "done",
        "started": _iso(receipt["started"]),
        "ended": _iso(receipt["ended"]),
        "seconds": receipts.seconds(receipt),
    }
    amounts = cast("StepResult", {k: receipt[k] for k in ("files", "bytes", "elements") if k in receipt})
    if moved is not None:
        amounts |= cast("StepResult", {name: amount for name, amount in moved.items() if name != "seconds"})
    return out | amounts


def _iso(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds)) if seconds else ""
