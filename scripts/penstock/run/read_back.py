"""The work of verify: every stored file read back and compared, by elements of a second array.

On return, every shard has records of each file as seen on the target. A file that reads back with other bytes
is copied and read again, a bounded number of times. Invalid receipts of verify are dropped, as are the copy's
receipts of damaged shards.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from penstock.core import human, run_steps
from penstock.core.errors import (
    CancelledError,
    InterruptedRunError,
    LockedError,
    PenstockError,
    PreflightError,
)
from penstock.dataset import receipts
from penstock.jobs import shard_claims
from penstock.jobs.array_runner import run_array
from penstock.jobs.array_supervision import started_event
from penstock.jobs.forecast import element_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from penstock.core.element_documents import ElementOutcome
    from penstock.core.step_results import VerifyReceipt
    from penstock.dataset.context import Context
    from penstock.dataset.documents import Run

STEP = "verify"
SHOWN = 5  # number of files in a warning, at most
ROUNDS = 2  # number of times that a shard's damaged files are copied again in one call, before verify fails


def read_back(context: Context, run: Run, copy_again: Callable[[], None]) -> VerifyReceipt:
    """Read back and compare. The caller holds the dataset's lock.

    `copy_again` copies shards without a receipt and closes staging. It is called after damaged shards lost
    their receipts. Raises PenstockError if elements fail for other causes, or if a shard is still damaged
    after ROUNDS copies.
    """
    started = time.time()
    before = receipts.bytes_before(run, STEP, shard_claims.standing(run.folder, STEP))
    folder, ok = run.folder, receipts.held(run, STEP)
    plan = run.plan
    if not all(map(ok, run.indices)):
        context.emit(started_event(context, run, STEP, plan.files))
    again: Counter[int] = Counter()
    expected = element_time(run.layout, run.shards, copies=False)
    while True:
        for index in run.indices:
            if not ok(index):
                receipts.drop(folder.receipt(STEP, index))
        named = {index: outcome.generation for index, outcome in shard_claims.last_ends(folder, STEP)}
        try:
            run_array(context, run.dataset, folder, STEP, run.indices, ok, expected=expected)
            break
        except (LockedError, PreflightError, InterruptedRunError, CancelledError):
            raise
        except PenstockError:
            # Workers that read wrong bytes end the reading. They have already taken the rows concerned back
            # from the journal, and their outcomes list these rows.
            ends = shard_claims.last_ends(folder, STEP)
            damaged = {
                index: outcome
                for index, outcome in ends
                if outcome.failures and outcome.generation > named.get(index, 0) and not ok(index)
            }
            if not damaged or any(again[index] >= ROUNDS for index in damaged):
                raise
        again.update(list(damaged))
        _take_back(context, run, damaged)
        copy_again()
    elements = receipts.of_elements(run, STEP)
    receipt: VerifyReceipt = {
        **receipts.head(run, STEP, started),
        "files": plan.files,
        "bytes": plan.bytes,
        "elements": len(run.indices),
        "grades": _summed(element.grades for element in elements),
        "methods": _summed(element.methods for element in elements),
        "copied_again": sorted(again),
        "hosts": sorted({element.host for element in elements}),
        "slurm_api": context.cluster.way,
        "carried_files": sum(element.carried[0] for element in elements),
        "carried_bytes": sum(element.carried[1] for element in elements),
        "beside_copy_bytes": receipts.read_beside_copy(run, elements),
    }
    receipts.keep(run, receipt, elements, before, shard_claims.standing(run.folder, STEP))
    context.emit(run_steps.Ended(run.dataset, STEP, receipt))
    return receipt


def _take_back(context: Context, run: Run, damaged: Mapping[int, ElementOutcome]) -> None:
    shards = human.counted(len(damaged), "shard")
    text = f"{shards} with files that do not read back as copied: those files are copied again"
    context.emit(run_steps.Warned(run.dataset, STEP, text=text))
    base = run.plan.base
    linked = [failure for outcome in damaged.values() for failure in outcome.linked_failures]
    if base and linked:
        context.emit(run_steps.Warned(run.dataset, STEP, text=_base_damaged(run.dataset, base, linked)))
    for index in damaged:
        receipts.drop(run.folder.receipt("copy", index))


def _base_damaged(dataset: str, base: str, linked: list[tuple[str, str]]) -> str:
    named = "; ".join(f"{path}: {why}" for path, why in linked[:SHOWN])
    more = f"; and {len(linked) - SHOWN} more" if len(linked) > SHOWN else ""
    return (
        f"release {base} holds {human.counted(len(linked), 'file')} that cannot be linked: {named}{more}. "
        f"They are copied from the source here; release {base} stays as it is: audit it "
        f"with `penstock audit {dataset} --release {base}`, repair it with "
        f"`penstock repair {dataset} --release {base}`"
    )


def _summed(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for some in counts:
        total.update(some)
    return dict(total)
