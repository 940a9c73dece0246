"""Claims: which run a dataset is being staged for. The lock belongs to a step and lasts as long; a claim
belongs to a run, and lasts from step to step. Touches the folder of claims; `make` also removes temporary
links that an overtaken run left.

    <state>/claims/00000007.json   run R was claimed as the seventh; made by O_EXCL, durable, never changed

`list` claims the dataset for the run that it made or found. Each step of another run then ends with exit
status 7 at its next check of the claim, and publish checks right before each rename. So a run that was frozen
(in a step, or between two steps, where no lock is held) and wakes after another run claimed the dataset
changes nothing that readers see.

| the claim that stands is | its run lives (`liveness.of_claim`) | list            | a step of run R        |
|--------------------------|-----------------------------------|-----------------|------------------------|
| none                     |                                   | claims          | goes on                |
| run R's                  | any                               | claims again    | goes on                |
| another run's            | yes                               | LockedError (7) | LockedError: overtaken |
| another run's            | no                                | claims          | LockedError: overtaken |
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict
from typing import TYPE_CHECKING

from penstock.core.documents import marks
from penstock.core.documents.marks import ClaimFile
from penstock.core.errors import STATE_ANEW, FailedError, OvertakenError
from penstock.dataset import documents, history
from penstock.dataset import holder as holders
from penstock.fs import durable
from penstock.fs.errno_map import storage_error
from penstock.target import dataset_folders

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.core.layout import DatasetLayout

KEPT = 8
"""Claims that stay for people to see; only the highest one counts."""
_NAME = re.compile(r"(\d{8,})\.json")


def highest(layout: DatasetLayout) -> ClaimFile | None:
    """The claim that stands; None where nothing was listed yet. Raises FailedError, NewerFormatError."""
    return next(kept(layout), None)


def kept(layout: DatasetLayout) -> Iterator[ClaimFile]:
    """The claims that are there, the one that stands first. Raises, while it is iterated, as `highest`."""
    try:
        names = os.listdir(layout.claims)
    except FileNotFoundError:
        names = []
    except OSError as error:
        raise FailedError(
            "the claims cannot be read", where=str(layout.claims), why=str(error), hint=STATE_ANEW
        ) from error
    found = [(int(match[1]), match[0]) for name in names if (match := _NAME.fullmatch(name))]
    yield from (_read(layout, number, name) for number, name in sorted(found, reverse=True))


def make(layout: DatasetLayout, run: str, above: ClaimFile | None, controller: str) -> ClaimFile:
    """Claim the dataset for `run`, one above the claim that the caller found when it took the lock (`above`,
    None: none). `controller` is the workflow's process, as in `Context`. Raises LockedError when another run
    was faster, and by `errno_map.storage_error`. Durable on return."""
    try:
        # Also above the history's: where somebody removed the claims by hand, the numbers still rise.
        number = 1 + max(above.number if above else 0, history.last_claim(layout))
        claim = ClaimFile(run, number, asdict(holders.this_process(run, "list")), controller)
        text = json.dumps(marks.CLAIM_FILE.to_json(claim), sort_keys=True, ensure_ascii=True, indent=1) + "\n"
        durable.make_dirs(layout.claims)
        made = durable.create_file(layout.claims / _file(number), text.encode())
        if not made:
            # Reads the file itself: on NFS a listing of the folder may be a moment old.
            standing = _read(layout, number, _file(number))
            if standing.run != run:
                raise overtaken(layout, run, standing)
        check(layout, run)
        # Only now: a run that saw no higher claim may be about to move `current` (`reveal.point`).
        dataset_folders.sweep_pointers(layout)
        for old in range(number - KEPT, 0, -1):
            if not _remove(layout, old):
                break
    except OSError as error:
        raise storage_error(error, "the dataset cannot be claimed", str(layout.claims)) from error
    return claim


def check(layout: DatasetLayout, run: str) -> None:
    """Raises LockedError where another run has claimed the dataset since; and as `highest`."""
    standing = highest(layout)
    if standing is not None and standing.run != run:
        raise overtaken(layout, run, standing)


def number(layout: DatasetLayout) -> int:
    """The number of the claim that stands; 0 without one."""
    standing = highest(layout)
    return standing.number if standing else 0


def last(layout: DatasetLayout, run: str) -> int:
    """The highest number under which the dataset may have been claimed for `run`. Only the newest KEPT claims
    stay: where none of them is the run's, any number below them may have been. Raises FailedError."""
    standing = highest(layout)
    if standing is None:
        return 0
    for number in range(standing.number, 0, -1):
        name = _file(number)
        if not os.path.lexists(layout.claims / name) or _read(layout, number, name).run in (run, ""):
            return number
    return 0


def made_by(claim: ClaimFile) -> str:
    """By whom, where and when, in words."""
    by = holders.from_json(claim.by)
    if by is None:
        return "by somebody who does not say who"
    return f"by {by.user} on {by.host}, at {by.since}"


def overtaken(layout: DatasetLayout, run: str, standing: ClaimFile | None) -> OvertakenError:
    """The error of a run that is no longer the one that the dataset is staged for."""
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
    claim = documents.find_whole(marks.CLAIM_FILE, layout.claims / name)
    if claim is None:
        return ClaimFile("", number, None, "")
    return claim._replace(number=number)
