"""The marker of a dataset's state folder (`.penstock/state.json`): whether this version can use the state.

From version 1.0 on it is the first file made in a state.

| the state's folder        | `state.json`                | the state is                                |
|---------------------------|-----------------------------|---------------------------------------------|
| is missing, or is         |                             | none, or not this account's to judge        |
| closed to this account    |                             |                                             |
| holds nothing of a run    | missing                     | new: `mark_state` marks it                  |
| holds what a run leaves   | missing                     | of a version before 1.0: OlderVersionError  |
| any                       | of a known format           | used                                        |
| any                       | of a higher format          | NewerFormatError                            |
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

# One of these, at least, is in the state of a dataset that was ever staged, adopted or audited.
_OF_A_RUN = frozenset({"adoptions", "audits", "claims", "history.jsonl", "repairs", "runs"})


def check_marker(layout: DatasetLayout) -> bool:
    """Return whether the dataset has a marked state; False for none yet, or where this account may not look.

    Raises OlderVersionError and NewerFormatError for another version's state, FailedError for a damaged
    marker.
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
    """Mark an existing state folder durably, if unmarked. Raises as `check_marker`, and OSError."""
    if not check_marker(layout):
        marker = dataset_documents.STATE_MARKER.to_json(StateMarker(penstock.__version__))
        small_files.create_file(layout.state_marker, small_files.json_line(marker))


def drop_state(layout: DatasetLayout) -> None:
    """Remove a state folder that is empty, or has only its marker. Raises OSError where it has more."""
    if os.listdir(layout.state) == [layout.state_marker.name]:
        content = small_files.read(layout.state_marker)
        layout.state_marker.unlink()
        try:
            layout.state.rmdir()
        except OSError:  # another process began meanwhile
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
        return True  # another process made it meanwhile
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
