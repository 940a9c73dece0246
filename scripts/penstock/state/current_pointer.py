"""Decides where `current` shall lead: to the release that was staged last, unless a person moved it by hand
since.

The history distinguishes the two: its last line about `current` is a publication (or a rollback, of older
versions) by penstock. While the source holds what that line published, `current` stays where a person put it;
a run of other content moves it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.documents.history_line import Publication, Rollback
from penstock.state import history
from penstock.storage.registry import open_storage

if TYPE_CHECKING:
    from penstock.core.layout import DatasetLayout
    from penstock.state.run import Run

Move = Publication | Rollback
"""Events of the history that say where `current` belongs."""


def last_move(layout: DatasetLayout) -> Move | None:
    """The history's last word about `current`: of several claims that of the highest, since a run that was
    overtaken may have written its line late. None where there is none."""
    found: Move | None = None
    highest = 0
    for line in reversed(list(history.lines(layout))):
        if not isinstance(line, Publication | Rollback):
            continue
        claim = highest if line.claim is None else line.claim
        if claim >= highest:
            found, highest = line, claim
    return found


def settled(run: Run) -> bool:
    """Whether `current` is where it belongs as far as this run goes: nothing is to be moved or noted.

    | `current` leads | the history's last word          | publish's receipt, | settled                      |
    |                 |                                  | or never planned   |                              |
    |-----------------|----------------------------------|--------------------|------------------------------|
    | nowhere         | any                              | any                | no: readers have nothing     |
    | to a release    | none (removed)                   | yes                | yes                          |
    | to a release    | none                             | no                 | no: stopped before `current` |
    | to a release    | publish of this run              | any                | yes, also where somebody     |
    |                 |                                  |                    | moved it by hand since       |
    | to a release    | rollback from this release       | any                | yes                          |
    | to a release    | anything else: the source holds  | any                | no                           |
    |                 | again what this run published    |                    |                              |

    Raises FailedError when `current` is anything but a link into `releases/`.
    """
    if not open_storage().leads(run.layout):
        return False
    last = last_move(run.layout)
    if last is None:
        return run.folder.receipt("publish").exists() or not run.folder.plan.exists()
    return _about(last, run)


def kept(run: Run) -> str:
    """In words, that `current` is left where somebody put it, "" where it names this run's release. For a
    run that is settled."""
    current = open_storage().current(run.layout)
    if current in (None, run.release):
        return ""
    return (
        f"release {run.release} is published, and `current` was set to {current} since: it stays there "
        "until the source changes"
    )


def _about(last: Move, run: Run) -> bool:
    if isinstance(last, Rollback):
        return last.left == run.release
    return last.run == run.id and last.release == run.release
