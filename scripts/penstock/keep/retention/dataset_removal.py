"""The removal of a dataset, with all of its releases and its state: marks, one rename, then the files.

    <root>/.removed-<dataset>-<nonce>      the dataset, without its name; so below `target.state_root`

`gc_step.remove_all` (`penstock remove --all`) calls it.

Under the dataset's lock each release is marked, as for a removal of its own (`removals`), so that no reader
pins it any more. Pins are looked at again; then one rename takes the folder's name, and with it `current`,
all releases and the state: a reader meets a whole release or nothing. The files are removed without the lock.

| killed            | the dataset | what goes on                                         |
|-------------------|-------------|------------------------------------------------------|
| before the rename | stands      | the next command under the lock takes the marks back |
| after it          | is gone     | the same command removes the files                   |

Limit: a process that is frozen right before the rename, and wakes after its lock was taken over, renames all
the same; of single releases `removals` bars that.
"""

from __future__ import annotations

import contextlib
import os
import re
from itertools import product
from typing import TYPE_CHECKING

from penstock.core.errors import PreflightError
from penstock.core.layout import CURRENT, DATA, RunLayout
from penstock.core.text import in_quotes
from penstock.dataset import adopted_trees, run_claims
from penstock.jobs.arrays.live_arrays import live_arrays, unanswered
from penstock.jobs.ownership import liveness
from penstock.jobs.ownership.dataset_hold import holding
from penstock.jobs.ownership.ops_share import removing
from penstock.keep.retention import collection, interrupted_changes, release_snapshot, removals
from penstock.target import tree_removal

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from penstock.core.documents.marks import RemovalMark
    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context
    from penstock.keep.retention.decision import Criteria, ReleaseDecision

WHY = "all of the dataset is removed"
"""What each release's mark gives as the reason."""


def take_name(
    context: Context,
    layout: DatasetLayout,
    criteria: Criteria,
    step: str,
    unpinned: Collection[str] = (),
) -> list[ReleaseDecision]:
    """Take the dataset's name; where something holds one of its releases nothing is changed, and the
    decisions say what. Raises as `_refuse`, and by `errno_map.storage_error`."""
    with holding(context, layout.dataset, "", step):
        interrupted_changes.settle(context, layout)
        _refuse(context, layout)
        for name in unpinned:
            collection.take_back(context, layout, name)
        decisions = release_snapshot.take(context, layout).decide(criteria)
        marks: list[RemovalMark] = []
        try:
            if not any(one.held_by for one in decisions):
                marks += [removals.mark(layout, one.known, WHY) for one in decisions]
                context.stop.wait(collection.settling(context))
                # Who pinned before it could see the mark.
                decisions = release_snapshot.take(context, layout).decide(criteria)
            if not any(one.held_by for one in decisions):
                elsewhere = [] if layout.state_root is None else [layout.state.parent]
                removals.set_aside(context, layout.folder, *elsewhere)
                marks.clear()
        finally:
            for mark in marks:
                removals.unmark(layout, mark)
    return decisions


def left(layout: DatasetLayout) -> list[Path]:
    """What has lost the dataset's name, and is still to be removed; of a removal that was killed between the
    two renames the state, too."""
    name = re.compile(rf"\.removed-{re.escape(layout.dataset)}-[0-9a-f]{{16}}")
    folders: list[Path] = []
    for root in (layout.root, layout.state_root):
        if root is not None:
            with contextlib.suppress(FileNotFoundError):
                folders += [root / one for one in sorted(os.listdir(root)) if name.fullmatch(one)]
    if folders and layout.state_root is not None and not os.path.lexists(layout.folder):
        # First: what says that it is no dataset's any more goes last.
        folders[:0] = [layout.state.parent] if layout.state.is_dir() else []
    return folders


def clear(context: Context, layout: DatasetLayout) -> int:
    """Remove those files, within the pace of removals; returns how many folders it were."""
    folders = left(layout)
    if folders:
        with removing(context, layout):
            for folder in folders:
                tree_removal.remove_tree(folder, context.spend)
    return len(folders)


def _refuse(context: Context, layout: DatasetLayout) -> None:
    """Raises PreflightError where something is at work, or is not penstock's to remove."""
    claim = run_claims.highest(layout)
    ways = [liveness.of_claim(context, layout, claim)] if claim else []
    ways += [f"array {one.array} has not ended" for one in live_arrays(context, layout.dataset)]
    ways += [f"{one.name} had no answer from the cluster" for one, _ in unanswered(context, layout.dataset)]
    known = {CURRENT, "releases", "audits", "verdicts", "pins", *(path.name for path in layout.under_ways)}
    others = [name for name in sorted(os.listdir(layout.folder)) if name not in known and name[0] != "."]
    ways += [f"{in_quotes(name)} is not of penstock" for name in others]
    trees = filter(None, (adopted_trees.read(RunLayout(one)) for one in layout.runs.glob("*")))
    for tree, staging in product(trees, layout.releases.glob(".*.staging")):
        if adopted_trees.stands_in(tree, staging / DATA):
            ways.append(f"releases/{staging.name} is a tree that is being adopted")
    if ways := list(filter(None, ways)):
        raise PreflightError(
            "something of the dataset is in the way, and nothing was removed",
            where=str(layout.folder),
            why="; ".join(ways[:5]),
            hint=f"`{context.program} cancel {layout.dataset}` ends what is at work; move away what is not "
            "of penstock; then the same command",
        )
