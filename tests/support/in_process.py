"""A cluster for set-ups, and for tests that look at steps rather than at processes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cluster.port import Cluster, State, Status
from penstock.dataset.context import Stop
from penstock.jobs.element import Limits
from penstock.jobs.worker import run_worker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.cluster.port import ArraySpec


class InProcess(Cluster):
    """A cluster whose workers are this process, as soon as they are submitted, one after another."""

    kind = "local"

    def __init__(self) -> None:
        self._ended: dict[str, dict[int, Status]] = {}

    def slots(self, step: str) -> int:
        return 1

    def max_array(self) -> int:
        return 1000

    def submit(self, spec: ArraySpec) -> str:
        words = list(spec.command)
        folder = Path(words[words.index("--run") + 1])
        name, retries = words[words.index("--array") + 1], int(words[words.index("--retries") + 1])
        array = f"in-process-{len(self._ended)}"
        self._ended[array] = {}
        for index in spec.indices:
            began = time.time()
            number = spec.base + index
            code = run_worker(folder, spec.step, number, name, Stop(), retries=retries, limits=Limits())
            state = State.FAILED if code else State.DONE
            self._ended[array][index] = Status(
                state, f"exit {code}", "here", began, time.time(), exit_code=code
            )
        return array

    def states(self, array: str, indices: Sequence[int]) -> Mapping[int, Status]:
        return {i: self._ended.get(array, {}).get(i, Status(State.LOST)) for i in indices}

    def cancel(self, array: str, indices: Sequence[int] | None = None) -> None:
        return

    def throttle(self, array: str, at_once: int) -> None:
        return

    def interval(self, waited: float) -> float:
        return 0.001

    def holder_ended(self, job: str) -> bool:
        return False

    def close(self) -> None:
        return
