"""copy: every shard into staging, by elements of an array.

Guarantee: on return each row of the plan lies in staging under its final name, durable and
recorded in its shard's journal. What an earlier attempt recorded is not copied again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from penstock.arrays.array_runner import run_array, still_alive
from penstock.config.settings import dataset_config
from penstock.core import events
from penstock.core.layout import DATA
from penstock.errors import FailedError, SourceChangedError
from penstock.ownership.dataset_hold import holding
from penstock.planning.takeover import move_giants
from penstock.release import amended_listing
from penstock.runtime.job_environment import host_name
from penstock.state import receipts, run_store, seals
from penstock.storage import dataset_folders, tree_removal
from penstock.storage.modes import dir_mode, group_id, unseal
from penstock.views import human

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from penstock.core.layout import RunLayout
    from penstock.core.run_documents import PlanInfo, RunInfo
    from penstock.state.context import Context

STEP = "copy"


def run(context: Context, dataset: str) -> dict[str, Any]:
    """Copy what the plan says. Returns the receipt: {dataset, run, release, files, bytes, ...}.

    Raises FailedError, SourceChangedError, NoSpaceError, LockedError; what was done is kept.
    """
    layout = context.layout(dataset)
    info, folder = run_store.open_run(layout, context.run)
    if seals.of_run(layout, info) is not None:
        return published(info)
    plan = run_store.read_plan(folder)
    with holding(context, dataset, info.run, STEP):
        return copy(context, dataset, info, folder, plan)


def copy(context: Context, dataset: str, info: RunInfo, folder: RunLayout, plan: PlanInfo) -> dict[str, Any]:
    """The same, by one who holds the lock."""
    layout = context.layout(dataset)
    started = time.time()
    shards, ok = receipts.indices(plan), receipts.copy_ok(folder, plan)
    if _follows(info) and (joined := amended_listing.complete_joins(folder, plan, host_name())):
        _tell_joined(context, dataset, joined)
    done_before = [index for index in shards if ok(index)]
    context.emit(events.Started(dataset, STEP, files=plan.files, bytes=plan.bytes, elements=len(shards)))
    data = layout.staging(info.release) / DATA
    if not data.is_dir():
        raise FailedError(
            "the staging folder is not here",
            where=str(data),
            hint=f"plan again: `penstock list {dataset}`, then `penstock plan {dataset}`",
        )
    if len(done_before) < len(shards) and folder.receipt("permissions").exists():
        # What permissions closed is written to again. The receipt goes last: after a crash in
        # between all of this is done again.
        policy = dataset_config(info.config["dataset"]).permissions
        dataset_folders.open_staging(layout, info.release, dir_mode(policy), group_id(policy))
        tree_removal.open_folders(data)
        unseal(data, _giants(folder, set(shards) - set(done_before)))
        receipts.drop(folder.receipt("permissions"))
    if len(done_before) < len(shards) and not still_alive(context, dataset, folder, STEP):
        move_giants(layout, info, plan)
    _run(context, dataset, info, folder, plan, ok)
    told = [receipts.read(folder.receipt(STEP, index)) or {} for index in shards]
    fresh = [r for i, r in zip(shards, told, strict=True) if i not in set(done_before)]
    for text in (text for r in fresh for text in r.get("warnings", ())):
        context.emit(events.Warned(dataset, STEP, text))
    changed, gone = amended_listing.totals(told)
    if changed or gone:
        amended_listing.check_limits(dataset_config(info.config["dataset"]), info, told)
        if not folder.receipt("permissions").exists():
            amended_listing.remove_empty_folders(folder, plan, data, told)
        text = (
            f"the source changed while it was copied: {human.counted(changed, 'file')} in their new version"
        )
        context.emit(events.Noted(dataset, STEP, f"{text}, {gone:,} gone"))
    receipt = {
        **head(info, STEP, started),
        "files": plan.files - gone,
        "bytes": plan.bytes,
        "amended": changed,
        "gone": gone,
        "elements": len(shards),
        "elements_run": len(fresh),
        "copied_rows": sum(r.get("done_files", 0) - r.get("linked", 0) for r in fresh),
        "copied_bytes": sum(r.get("done_bytes", 0) for r in fresh),
        "linked": sum(r.get("linked", 0) - r.get("taken", 0) for r in told),
        "taken": sum(r.get("taken", 0) for r in told),
        "retries": sum(r.get("retries", 0) for r in told),
        "hosts": sorted({r.get("host", "") for r in told}),
    }
    receipt = keep(folder, receipt)
    context.emit(events.Ended(dataset, STEP, receipt))
    return receipt


def _run(
    context: Context,
    dataset: str,
    info: RunInfo,
    folder: RunLayout,
    plan: PlanInfo,
    ok: Callable[[int], bool],
) -> None:
    """Until every element is done. Giants whose object changed are copied whole, in a further round."""
    while True:
        try:
            run_array(context, dataset, folder, STEP, receipts.indices(plan), ok)
            return
        except SourceChangedError:
            joined = amended_listing.join_giants(folder, plan, host_name()) if _follows(info) else []
            if not joined:
                raise
            _tell_joined(context, dataset, joined)


def _follows(info: RunInfo) -> bool:
    return dataset_config(info.config["dataset"]).changed == "follow"


def _tell_joined(context: Context, dataset: str, giants: Sequence[str]) -> None:
    text = f"{human.counted(len(giants), 'giant')} changed while their parts were copied: copied whole"
    context.emit(events.Noted(dataset, STEP, text))


def _giants(folder: RunLayout, shards: Iterable[int]) -> Iterator[str]:
    """Paths of giants that have parts in these shards."""
    from penstock.formats.shards import read_shard

    before = ""
    for index in sorted(shards):
        for batch in read_shard(folder.shard(index)):
            for entry in batch:
                if entry.part >= 0 and entry.path != before:
                    before = entry.path
                    yield before


def head(info: RunInfo, step: str, started: float) -> dict[str, Any]:
    """What every step's receipt begins with."""
    return {
        "step": step,
        "dataset": info.dataset,
        "run": info.run,
        "release": info.release,
        "published": False,
        "started": started,
        "ended": time.time(),
    }


def keep(folder: RunLayout, receipt: dict[str, Any]) -> dict[str, Any]:
    """Keep a step's receipt with its run; the time of earlier calls counts too."""
    before = receipts.read(folder.receipt(receipt["step"])) or {}
    seconds = round(before.get("seconds", 0.0) + receipt["ended"] - receipt["started"], 3)
    receipt = {**receipt, "started": before.get("started", receipt["started"]), "seconds": seconds}
    receipts.write(folder.receipt(receipt["step"]), receipt)
    return receipt


def published(info: RunInfo, step: str = STEP) -> dict[str, Any]:
    """The receipt of a step that has nothing to do since the release stands."""
    return {**head(info, step, time.time()), "published": True, "files": info.files, "bytes": info.bytes}
