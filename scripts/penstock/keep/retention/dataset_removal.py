"""Removes a dataset with all its releases and state: marks, one rename, then the files.

    <root>/.removed-<dataset>-<nonce>      the dataset, without its name; so below `target.state_root`

Under the dataset's lock each release is marked as in `removals`, so that no reader pins it, and pins are
checked again. One rename then takes the folder with `current`, releases and state: a reader sees a whole
release or nothing. The files are removed without the lock.

| killed            | the dataset | what continues                                     |
|-------------------|-------------|----------------------------------------------------|
| before the rename | stands      | the next command under the lock removes the marks  |
| after it          | is gone     | the same command removes the files                 |

Limit: a process frozen right before the rename that wakes after its lock was taken over still renames; only
`removals` bars that.
"""

from __future__ import annotations

import contextlib
import os
import re
from itertools import product
from typing import TYPE_CHECKING

from penstock.core.errors import PreflightError
from penstock.core.human import in_quotes
from penstock.core.layout import CURRENT, DATA, RunLayout
from penstock.dataset import documents, run_claims
from penstock.jobs import dataset_state
from penstock.jobs.array_orders import live_arrays, unanswered
from penstock.jobs.dataset_hold import holding
from penstock.jobs.shares import removing
from penstock.keep.retention import collection, interrupted_changes, release_snapshot, removals
from penstock.target import tree_removal

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from penstock.core.dataset_documents import RemovalMark
    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context
    from penstock.keep.retention.decision import Criteria, ReleaseDecision

WHY = "all of the dataset is removed"  # the reason in each release's mark


def take_name(
    context: Context,
    layout: DatasetLayout,
    criteria: Criteria,
    step: str,
    unpinned: Collection[str] = (),
) -> list[ReleaseDecision]:
    """Rename the dataset away, unless a release is held; the decisions say by what. Raises as `_refuse`, and
    by `errno_map.storage_error`."""
    with holding(context, layout.dataset, "", step):
        interrupted_changes.settle(context, layout)
        _refuse(context, layout)
        for name in unpinned:
            collection.take_back(context, layout, name)
        decisions = release_snapshot.take(context, layout).decide(criteria)
        marks: list[RemovalMark] = []
        try:
            if not any(decision.held_by for decision in decisions):
                marks += [removals.mark(layout, decision.facts, WHY) for decision in decisions]
                context.stop.wait(collection.settling(context))
                # Pins placed before their reader could see the mark.
                decisions = release_snapshot.take(context, layout).decide(criteria)
            if not any(decision.held_by for decision in decisions):
                elsewhere = [] if layout.state_root is None else [layout.state.parent]
                removals.set_aside(context, layout.folder, *elsewhere)
                marks.clear()
        finally:
            for mark in marks:
                removals.unmark(layout, mark)
    return decisions


def left(layout: DatasetLayout) -> list[Path]:
    """Return the renamed folders still to be removed; after a kill between the two renames, the state too."""
    name = re.compile(rf"\.removed-{re.escape(layout.dataset)}-[0-9a-f]{{16}}")
    folders: list[Path] = []
    for root in (layout.root, layout.state_root):
        if root is not None:
            with contextlib.suppress(FileNotFoundError):
                folders += [root / entry for entry in sorted(os.listdir(root)) if name.fullmatch(entry)]
    if folders and layout.state_root is not None and not os.path.lexists(layout.folder):
        # First: the evidence that the state belongs to no dataset goes last.
        folders[:0] = [layout.state.parent] if layout.state.is_dir() else []
    return folders


def clear(context: Context, layout: DatasetLayout) -> int:
    """Remove those files, within the pace of removals; return the number of folders."""
    folders = left(layout)
    if folders:
        with removing(context, layout):
            for folder in folders:
                tree_removal.remove_tree(folder, context.spend)
    return len(folders)


def _refuse(context: Context, layout: DatasetLayout) -> None:
    """Raise PreflightError if something is at work, or is not penstock's to remove."""
    claim = run_claims.highest(layout)
    ways = [dataset_state.of_claim(context, layout, claim)] if claim else []
    ways += [f"array {array.array} has not ended" for array in live_arrays(context, layout.dataset)]
    ways += [
        f"{array.name} had no answer from the cluster" for array, _ in unanswered(context, layout.dataset)
    ]
    own_names = {
        CURRENT,
        "releases",
        "audits",
        "verdicts",
        "pins",
        *(path.name for path in layout.under_ways),
    }
    others = [name for name in sorted(os.listdir(layout.folder)) if name not in own_names and name[0] != "."]
    ways += [f"{in_quotes(name)} is not of penstock" for name in others]
    trees = filter(None, (documents.read_adopted_tree(RunLayout(folder)) for folder in layout.runs.glob("*")))
    for tree, staging in product(trees, layout.releases.glob(".*.staging")):
        if documents.stands_in(tree, staging / DATA):
            ways.append(f"releases/{staging.name} is a tree that is being adopted")
    if ways := list(filter(None, ways)):
        raise PreflightError(
            "something of the dataset is in the way, and nothing was removed",
            where=str(layout.folder),
            why="; ".join(ways[:5]),
            hint=f"`{context.program} cancel {layout.dataset}` ends what is at work; move away what is not "
            "of penstock; then the same command",
        )
