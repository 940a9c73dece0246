"""What a published run keeps of its state, and the removal of the rest.

| file of the run                            | after publication                                             |
|--------------------------------------------|---------------------------------------------------------------|
| `run.json`, `probe.json`                   | kept: the next run, audit and repair read them                |
| `plan.json`, receipts, arrays, logs        | kept: report, status and the next run's estimate read them    |
| `listing.parquet`, `amended.parquet`       | removed: the manifest has each of their rows                  |
| `shards/`, `journal/`, `records/`          | removed: the manifest has what they became                    |

The rest grows with the files, by some 330 bytes for each file and release; what is kept, by some hundred
bytes for each element.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.core import events
from penstock.core.errors import FailedError, LockedError, NewerFormatError, PenstockError
from penstock.dataset import seals
from penstock.dataset.run import load
from penstock.fs import small_files
from penstock.target import tree_removal

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.layout import DatasetLayout, RunLayout
    from penstock.dataset.context import Context
    from penstock.dataset.run import Run


def tidy(context: Context, run: Run) -> None:
    """Prune right after a publication; an overtaken run only warns, and leaves the rest to the other run."""
    try:
        prune(context, run.layout)
    except LockedError as error:
        text = f"state that the manifest covers stays: {error}"
        context.emit(events.Warned(run.dataset, "publish", text=text))


def prune(context: Context, layout: DatasetLayout) -> None:
    """Remove state that the manifests cover, of all published runs of a dataset, also what a killed run left.

    The caller holds the dataset's lock. Nothing reads this state once a run's receipt of publish is durable,
    so a kill is safe anywhere. A failed removal is a warning: the release is published all the same. Raises
    LockedError when this run was overtaken.
    """
    for key in sorted(os.listdir(layout.runs)):
        folder = layout.run(key)
        rest = covered(folder)
        if not rest or not _published(layout, folder, key):
            continue
        try:
            for path in rest:
                context.assert_held()
                _remove(context, path)
            small_files.fsync_dir(folder.folder)
        except (PenstockError, OSError) as error:
            context.assert_held()
            text = f"state of run {key} that its manifest covers stays: {error}"
            context.emit(events.Warned(layout.dataset, "publish", text=text))


def covered(folder: RunLayout) -> list[Path]:
    """Return the state that a published release's manifest covers, in the order of removal."""
    folders = (folder.journals(0).parent, folder.records(0).parent, folder.shard(0).parent)
    return [path for path in (*folders, folder.amended, folder.listing) if os.path.lexists(path)]


def _published(layout: DatasetLayout, folder: RunLayout, key: str) -> bool:
    if not folder.receipt("publish").exists():
        return False
    try:
        run = load(layout, folder)
        return run.id == key and seals.of_run(run) is not None
    except (FailedError, NewerFormatError):
        return False


def _remove(context: Context, path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        tree_removal.remove_tree(path, context.spend)
    else:
        path.unlink(missing_ok=True)
