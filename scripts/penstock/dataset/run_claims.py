"""Claims: for which run a dataset is staged. A step holds the dataset's lock until it ends; a run keeps its
claim from step to step. `HeldDataset` has both.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict
from typing import TYPE_CHECKING

from penstock.core import dataset_documents
from penstock.core.dataset_documents import ClaimFile
from penstock.core.errors import STATE_ANEW, FailedError, OvertakenError
from penstock.dataset import documents, history
from penstock.dataset import holder as holders
from penstock.fs import small_files
from penstock.fs.safe_open import storage_error
from penstock.target import dataset_folders

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.core.layout import DatasetLayout
    from penstock.dataset.dataset_lock import DatasetLock


# Claims, in which the highest number counts:
#
#     <state>/claims/00000007.json   the seventh claim; made by O_EXCL, durable, never changed
#
# `list` claims the dataset for its run. Steps of other runs then exit with 7 at their next check. Publish
# checks right before each rename. So a frozen run that wakes later changes nothing that readers see.
#
# | the highest claim is | its run is alive (`dataset_state.of_claim`) | list            | a step of run R |
# |----------------------|---------------------------------------------|-----------------|-----------------|
# | none                 |                                             | claims          | continues       |
# | run R's              | any                                         | claims again    | continues       |
# | another run's        | yes                                         | LockedError (7) | OvertakenError  |
# | another run's        | no                                          | claims          | OvertakenError  |

KEPT = 8  # claims kept for people; only the highest counts
_NAME = re.compile(r"(\d{8,})\.json")


def highest(layout: DatasetLayout) -> ClaimFile | None:
    """Return the highest claim; None if nothing was listed yet. Raises FailedError, NewerFormatError."""
    return next(kept(layout), None)


def kept(layout: DatasetLayout) -> Iterator[ClaimFile]:
    """Yield the existing claims, the highest first. During iteration it raises as `highest`."""
    try:
        names = os.listdir(layout.claims)
    except FileNotFoundError:
        names = []
    except OSError as error:
        raise FailedError(
            "the claims cannot be read", where=str(layout.claims), why=str(error), hint=STATE_ANEW
        ) from error
    numbered = [(int(match[1]), match[0]) for name in names if (match := _NAME.fullmatch(name))]
    yield from (_read(layout, number, name) for number, name in sorted(numbered, reverse=True))


def make(layout: DatasetLayout, run: str, above: ClaimFile | None, controller: str) -> ClaimFile:
    """Claim the dataset for `run`, durably, with a number above that of `above`, the claim found when the
    lock was taken. `controller` is the workflow's process, as in `Context`. Raises LockedError if another run
    was faster, and the errors of `safe_open.storage_error`."""
    try:
        # The number also exceeds all in the history, so numbers rise even if somebody removed the claims.
        number = 1 + max(above.number if above else 0, history.last_claim(layout))
        claim = ClaimFile(run, number, asdict(holders.this_process(run, "list")), controller)
        text = (
            json.dumps(
                dataset_documents.CLAIM_FILE.to_json(claim), sort_keys=True, ensure_ascii=True, indent=1
            )
            + "\n"
        )
        small_files.make_dirs(layout.claims)
        made = small_files.create_file(layout.claims / _file(number), text.encode())
        if not made:
            # Read the file itself: on NFS a folder's listing may be stale.
            standing = _read(layout, number, _file(number))
            if standing.run != run:
                raise overtaken(layout, run, standing)
        check(layout, run)
        # This comes after the claim: a run that saw no higher claim may be about to move `current`
        # (`reveal.point`).
        dataset_folders.sweep_pointers(layout)
        for old in range(number - KEPT, 0, -1):
            if not _remove(layout, old):
                break
    except OSError as error:
        raise storage_error(error, "the dataset cannot be claimed", str(layout.claims)) from error
    return claim


def check(layout: DatasetLayout, run: str) -> None:
    """Raise LockedError if another run has claimed the dataset. Otherwise raises as `highest`."""
    standing = highest(layout)
    if standing is not None and standing.run != run:
        raise overtaken(layout, run, standing)


def number(layout: DatasetLayout) -> int:
    """Return the highest claim's number; 0 if the dataset has no claim."""
    standing = highest(layout)
    return standing.number if standing else 0


def last(layout: DatasetLayout, run: str) -> int:
    """Return the highest number of a claim that may have been the run's. Raises FailedError. Only the newest
    KEPT claims remain: if none of them is the run's, any lower number may have been."""
    standing = highest(layout)
    if standing is None:
        return 0
    for number in range(standing.number, 0, -1):
        name = _file(number)
        if not os.path.lexists(layout.claims / name) or _read(layout, number, name).run in (run, ""):
            return number
    return 0


def made_by(claim: ClaimFile) -> str:
    """Say by whom, where and when the claim was made."""
    by = holders.from_json(claim.by)
    if by is None:
        return "by somebody who does not say who"
    return f"by {by.user} on {by.host}, at {by.since}"


def overtaken(layout: DatasetLayout, run: str, standing: ClaimFile | None) -> OvertakenError:
    """Return the error for a run whose dataset another run has claimed."""
    other = (standing.run if standing else "") or "that cannot be read"
    return OvertakenError(
        f"run {run} of dataset {layout.dataset} was overtaken by run {other}",
        where=str(layout.claims),
        why=f"claimed {made_by(standing)}" if standing else "",
        hint=f"nothing more was changed; `penstock run {layout.dataset}` stages what the source holds now",
    )


def _file(number: int) -> str:
    return f"{number:08d}.json"


def _remove(layout: DatasetLayout, number: int) -> bool:
    try:
        os.unlink(layout.claims / _file(number))
    except FileNotFoundError:
        return False
    return True


def _read(layout: DatasetLayout, number: int, name: str) -> ClaimFile:
    claim = documents.find_whole(dataset_documents.CLAIM_FILE, layout.claims / name)
    if claim is None:
        return ClaimFile("", number, None, "")
    return claim._replace(number=number)


class HeldDataset:
    """A dataset locked for a step. `run`: the id of the step's run; "" if it has none yet, as in list."""

    def __init__(self, layout: DatasetLayout, lock: DatasetLock, run: str) -> None:
        self.layout, self.run = layout, run
        self._lock = lock
        # the highest claim when a step without a run began
        self.above = highest(layout) if not run else None
        # the number of the run's claim when the step began; 0 if it has no run
        self.number = number(layout) if run else 0

    def assert_held(self) -> None:
        """Raise LockedError if another run claimed the dataset or the lock was lost. Call it right before
        each change that readers or another run could see."""
        if self.run:
            check(self.layout, self.run)
        self._lock.assert_held()
