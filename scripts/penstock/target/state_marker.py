"""The marker of a dataset's state folder (`.penstock/state.json`), which shows whether this version of
penstock can use the state.

From version 1.0 on, the marker is the first file made in a state folder.

| the state folder          | `state.json`                | result                                      |
|---------------------------|-----------------------------|---------------------------------------------|
| missing, or closed to     |                             | there is no state, or this account cannot   |
| this account              |                             | check it                                    |
| has no files of a run     | missing                     | a new state, which `mark_state` marks       |
| has files of a run        | missing                     | a version before 1.0: OlderVersionError     |
| exists                    | of a known format           | accepted                                    |
| exists                    | of a higher format          | NewerFormatError                            |
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import penstock
from penstock.core import dataset_documents
from penstock.core.dataset_documents import StateMarker
from penstock.core.errors import FailedError, OlderVersionError
from penstock.fs import small_files

if TYPE_CHECKING:
    from penstock.core.layout import DatasetLayout

# Names in a state folder; if a dataset was ever staged, adopted or audited, its state has at least one of
# them.
_OF_A_RUN = frozenset({"adoptions", "audits", "claims", "history.jsonl", "repairs", "runs"})


def check_marker(layout: DatasetLayout) -> bool:
    """Return whether the dataset has a marked state. False if there is none, or this account may not look.

    Raises OlderVersionError or NewerFormatError if another version made the state, and FailedError for a
    damaged marker.
    """
    path = layout.state_marker
    try:
        dataset_documents.STATE_MARKER.from_json(small_files.read(path), path)
    except ValueError as error:
        raise FailedError(
            "a state file is damaged",
            where=str(path),
            why=str(error),
            hint="put the file back, or remove it: `penstock run` makes it anew",
        ) from None
    except FileNotFoundError:
        return _without(layout)
    except (NotADirectoryError, PermissionError):
        return False
    return True


def mark_state(layout: DatasetLayout) -> None:
    """Durably mark an existing state folder, if it has no marker. Raises the errors of `check_marker`, and
    OSError."""
    if not check_marker(layout):
        marker = dataset_documents.STATE_MARKER.to_json(StateMarker(penstock.__version__))
        small_files.create_file(layout.state_marker, small_files.json_line(marker))


def drop_state(layout: DatasetLayout) -> None:
    """Remove a state folder that is empty, or has only its marker. Raises OSError if it has more files."""
    if os.listdir(layout.state) == [layout.state_marker.name]:
        content = small_files.read(layout.state_marker)
        layout.state_marker.unlink()
        try:
            layout.state.rmdir()
        except OSError:  # another process has begun to use the folder
            small_files.create_file(layout.state_marker, content)
            raise
    else:
        layout.state.rmdir()


def _without(layout: DatasetLayout) -> bool:
    """Judge a state without a marker, for `check_marker`."""
    try:
        names = set(os.listdir(layout.state))
    except OSError:
        return False
    if layout.state_marker.name in names:
        return True  # another process has made the marker
    if not names & _OF_A_RUN:
        return False
    moves = [layout.folder] if layout.state_root is None else [layout.folder, layout.state.parent]
    moved = " and ".join(f"`mv {place} {place}.old`" for place in moves)
    raise OlderVersionError(
        "the dataset's state is of a penstock before 1.0",
        where=str(layout.state),
        why=f"it has no {layout.state_marker.name}, and nothing was changed",
        hint=f"move it aside, while nothing is at work: {moved}; then `penstock run {layout.dataset}` stages "
        "the dataset anew, or `penstock adopt --seal` makes a release of the files that are there",
    )
