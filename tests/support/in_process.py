"""A cluster for set-ups, and for tests that look at steps rather than at processes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cluster.abilities import abilities_of
from penstock.cluster.port import State, Status
from penstock.state.context import Stop
from penstock.steps.element import run_element

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.cluster.abilities import Abilities
    from penstock.cluster.port import Accounted, ArraySpec, Visit
    from penstock.core.checks import CheckResult
    from penstock.core.documents.node_cores import NodeCores


class InProcess:
    """A cluster whose elements are done by this process as soon as they are submitted, one by one."""

    kind = "local"
    way = ""

    def __init__(self) -> None:
        self._ended: dict[str, dict[int, Status]] = {}

    @property
    def abilities(self) -> Abilities:
        return abilities_of(self.kind)

    def name(self) -> str:
        return ""

    def remembers(self) -> float:
        return 0.0

    def check(self, steps: Sequence[str], visit: Visit | None = None, *, met: bool = False) -> Sequence[str]:
        return ()

    def start_results(self, steps: Sequence[str]) -> Sequence[CheckResult]:
        return ()

    def core_results(
        self, steps: Sequence[str], seen: Mapping[str, NodeCores | None]
    ) -> Mapping[str, Sequence[CheckResult]]:
        return {}

    def kept_out(self, steps: Sequence[str], arrays: Sequence[str] = ()) -> str:
        return ""

    def slots(self, step: str) -> int:
        return 1

    def asks(self, step: str) -> str:
        return ""

    def max_array(self) -> int:
        return 1000

    def max_elements(self) -> int:
        return 1000

    def submit(self, spec: ArraySpec) -> str:
        words = list(spec.command)
        folder = Path(words[words.index("--run") + 1])
        array = f"in-process-{len(self._ended)}"
        self._ended[array] = {}
        for index in spec.indices:
            began = time.time()
            code = run_element(folder, spec.step, index, "auto", Stop())
            state = State.FAILED if code else State.DONE
            self._ended[array][index] = Status(
                state, f"exit {code}", "here", began, time.time(), exit_code=code
            )
        return array

    def find(self, name: str) -> Sequence[str]:
        return ()

    def appears_within(self, *, ended: bool) -> float:
        return 0.0

    def recall(self, array: str, name: str, spec_cores: int | None = None) -> None:
        return

    def spec_cores(self, step: str) -> int | None:
        return None

    def states(self, array: str, indices: Sequence[int]) -> Mapping[int, Status]:
        return {i: self._ended.get(array, {}).get(i, Status(State.LOST)) for i in indices}

    def accounting(self, array: str) -> Sequence[Accounted]:
        return ()

    def states_of(self, arrays: Mapping[str, Sequence[int]]) -> Mapping[str, Mapping[int, Status]]:
        return {array: self.states(array, indices) for array, indices in arrays.items()}

    def cancel(self, array: str, indices: Sequence[int] | None = None) -> None:
        return

    def longest(self, step: str) -> float:
        return 0.0

    def longest_anywhere(self) -> float:
        return 0.0

    def spares(self, step: str, nodes: Sequence[str]) -> bool:
        return False

    def keep_off(self, array: str, step: str, nodes: Sequence[str]) -> None:
        return

    def interval(self, waited: float) -> float:
        return 0.001

    def close(self) -> None:
        return

    def holder_ended(self, job: str) -> bool:
        return False
