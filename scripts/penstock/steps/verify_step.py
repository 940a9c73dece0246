"""verify: every stored file read back and compared, by elements of a second array.

Guarantee: on return every shard has records of what was seen of each file on the target. What
does not read back as it was copied is copied again, a bounded number of times, and read again.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from penstock.arrays.array_runner import run_array
from penstock.core import events
from penstock.errors import PenstockError
from penstock.ownership.dataset_hold import holding
from penstock.state import outcomes, receipts, run_store, seals
from penstock.steps import permissions_step
from penstock.steps.copy_step import copy, head, keep, published
from penstock.views import human

if TYPE_CHECKING:
    from penstock.core.layout import RunLayout
    from penstock.core.run_documents import PlanInfo, RunInfo
    from penstock.state.context import Context

STEP = "verify"
SHOWN = 5
"""Files that a warning names."""
ROUNDS = 2
"""How often damaged files are copied again within one run before a person has to look."""


def run(context: Context, dataset: str) -> dict[str, Any]:
    """Read back and compare. Returns the receipt: {dataset, run, release, files, bytes, ...}.

    Raises FailedError when files keep reading back damaged, LockedError, NoSpaceError,
    SourceChangedError.
    """
    layout = context.layout(dataset)
    info, folder = run_store.open_run(layout, context.run)
    if seals.of_run(layout, info) is not None:
        return published(info, STEP)
    plan = run_store.read_plan(folder)
    with holding(context, dataset, info.run, STEP):
        return verify(context, dataset, info, folder, plan)


def verify(
    context: Context, dataset: str, info: RunInfo, folder: RunLayout, plan: PlanInfo
) -> dict[str, Any]:
    """The same, by one who holds the lock."""
    started = time.time()
    shards, ok = receipts.indices(plan), receipts.verify_ok(folder, plan)
    if permissions_step.current(folder, plan) is None:
        _prepare(context, dataset, info, folder, plan)
    context.emit(events.Started(dataset, STEP, files=plan.files, bytes=plan.bytes, elements=len(shards)))
    again: Counter[int] = Counter()
    while True:
        for index in shards:
            if not ok(index):
                receipts.drop(folder.receipt(STEP, index))
        try:
            run_array(context, dataset, folder, STEP, shards, ok)
            break
        except PenstockError:
            damaged = [i for i in shards if _damaged(folder, i)]
            if not damaged or any(again[i] >= ROUNDS for i in damaged):
                raise
        again.update(damaged)
        _copy_again(context, dataset, info, folder, plan, damaged)
    told = [receipts.read(folder.receipt(STEP, index)) or {} for index in shards]
    receipt = {
        **head(info, STEP, started),
        "files": plan.files,
        "bytes": plan.bytes,
        "elements": len(shards),
        "grades": _summed(told, "grades"),
        "methods": _summed(told, "methods"),
        "copied_again": sorted(again),
        "hosts": sorted({r.get("host", "") for r in told}),
    }
    receipt = keep(folder, receipt)
    context.emit(events.Ended(dataset, STEP, receipt))
    return receipt


def _prepare(context: Context, dataset: str, info: RunInfo, folder: RunLayout, plan: PlanInfo) -> None:
    """After a verify that was killed while it had damaged files copied again, copy and permissions
    are done to their end here: whoever calls believes that both have been. Before their time they
    are asked for."""
    if not folder.receipt("copy").exists():
        receipts.need(receipts.copy_ok(folder, plan), receipts.indices(plan), "copy", dataset)
    copy(context, dataset, info, folder, plan)
    permissions_step.close(context, dataset, info, folder, plan)


def _damaged(folder: RunLayout, index: int) -> bool:
    """Whether the element ended its reading and found rows that are not what was copied: it took
    them back from the journal, and its outcome names them."""
    outcome = outcomes.find(folder, STEP, index)
    return outcome is not None and bool(outcome.failures)


def _copy_again(
    context: Context, dataset: str, info: RunInfo, folder: RunLayout, plan: PlanInfo, damaged: list[int]
) -> None:
    shards = human.counted(len(damaged), "shard")
    text = f"{shards} with files that do not read back as copied: those files are copied again"
    context.emit(events.Warned(dataset, STEP, text))
    if plan.base and (linked := _linked_failures(folder, damaged)):
        context.emit(events.Warned(dataset, STEP, _base_damaged(dataset, plan.base, linked)))
    for index in damaged:
        receipts.drop(folder.receipt("copy", index))
        receipts.drop(folder.outcome(STEP, index))
    copy(context, dataset, info, folder, plan)
    permissions_step.close(context, dataset, info, folder, plan)


def _linked_failures(folder: RunLayout, damaged: list[int]) -> list[tuple[str, str]]:
    """(path, why) of files that these elements found wrong and that are linked."""
    found = (outcomes.find(folder, STEP, index) for index in damaged)
    return [one for outcome in found if outcome for one in outcome.linked_failures]


def _base_damaged(dataset: str, base: str, linked: list[tuple[str, str]]) -> str:
    """What to say of a release that files were linked from which are not as it states them."""
    named = "; ".join(f"{path}: {why}" for path, why in linked[:SHOWN])
    more = f"; and {len(linked) - SHOWN} more" if len(linked) > SHOWN else ""
    return (
        f"release {base} holds {human.counted(len(linked), 'file')} that cannot be linked: {named}{more}. "
        f"They are copied from the source here; release {base} stays as it is: look with "
        f"`penstock audit {dataset} --release {base}`, mend with `penstock repair {dataset} --release {base}`"
    )


def _summed(told: list[dict[str, Any]], key: str) -> dict[str, int]:
    total: Counter[str] = Counter()
    for receipt in told:
        total.update(receipt.get(key) or {})
    return dict(total)
