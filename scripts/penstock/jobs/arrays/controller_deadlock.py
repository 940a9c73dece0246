"""End a controller whose own job keeps all of its elements from starting: they would wait for each other."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from penstock.cluster.port import State
from penstock.core import human
from penstock.core.errors import FailedError, PreflightError, TransientError
from penstock.host import resources

if TYPE_CHECKING:
    from penstock.jobs.arrays.array_watch import Watch

ASKED = 60.0  # seconds for which all elements wait before each such query
# Seconds from the cluster's first yes to the controller's end: other jobs may end meanwhile and make room.
BOUND = 300.0
HINT = (
    "run `penstock run` outside a job that takes a node of its elements (on a login node), or give the "
    "controller another partition or QOS: cluster.steps.submit"
)


class KeptOut:
    """The deadlock check for one step's arrays, with the times of its earlier answers."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._asked: float | None = None
        self._since: float | None = None

    def check(self) -> None:
        """Raise PreflightError once the cluster has found the elements kept out for BOUND seconds.

        | this process is a job | its elements     | the cluster finds it kept out | then                 |
        |-----------------------|------------------|-------------------------------|----------------------|
        | no                    | any              | not asked                     | nothing              |
        | yes                   | one runs or none | not asked                     | it begins anew       |
        | yes                   | all wait         | no, or it does not answer     | it begins anew       |
        | yes                   | all wait         | yes                           | a warning; the error |
        """
        now = time.monotonic()
        if not self._all_wait():
            self._asked = self._since = None
            return
        if self._asked is None:
            self._asked = now
        if now - self._asked < ASKED:
            return
        self._asked = now
        watch = self._watch
        try:
            why = watch.context.cluster.kept_out([watch.step], [live.array for live in watch.live])
        except (TransientError, FailedError):
            why = ""
        if not why:
            self._since = None
        elif self._since is None:
            self._since = now
            watch.note(f"elements cannot start: {why}; {human.duration(BOUND)} on, this controller ends")
        elif now - self._since >= BOUND:
            raise PreflightError(
                "the controller's own job keeps its elements from starting",
                where=watch.dataset,
                why=why,
                hint=HINT,
            )

    def _all_wait(self) -> bool:
        if not resources.current_job().proven or self._watch.asked_in_vain is not None:
            return False
        left = [s for live in self._watch.live for s in live.statuses.values() if not s.state.ended]
        return bool(left) and all(s.state is State.PENDING and not s.held for s in left)
