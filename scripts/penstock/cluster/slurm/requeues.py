"""Which elements SLURM requeued since the last query, and why, as far as that shows."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

from penstock.cluster.slurm.job_states import PASSING
from penstock.cluster.slurm.nodes import is_lost
from penstock.core.errors import FailedError, PreflightError, TransientError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.cluster.slurm.command_line import SlurmCommands
    from penstock.cluster.slurm.job_states import SlurmElement


class _Last(NamedTuple):
    restarts: int
    node: str
    word: str  # PREEMPTED or NODE_FAIL, if a query came at that moment


class Requeue(NamedTuple):
    """Why an element was started again."""

    why: str  # such as `preempted on n2`
    node: str  # where it ran before; "": no query showed it
    lost: bool  # that node failed


class Requeues:
    """Remembers restarts and nodes of elements between two queries."""

    def __init__(self, slurm: SlurmCommands) -> None:
        self._slurm = slurm
        self._last: dict[tuple[str, int], _Last] = {}

    def new(self, array: str, elements: Mapping[int, SlurmElement]) -> dict[int, Requeue]:
        """Return this array's elements that were requeued since the last call, by number. Errors of SLURM are
        not raised."""
        again: dict[int, _Last] = {}
        for index, element in elements.items():
            key = (array, index)
            old = self._last.get(key)
            node = element.status.node or (old.node if old else "")
            word = element.word if element.word in PASSING else ""
            if old is not None and element.status.restarts > old.restarts:
                again[index] = old
            elif old is not None and element.word == "PENDING":
                word = old.word
            self._last[key] = _Last(element.status.restarts, node, word)
        if not again:
            return {}
        down = self._down(sorted({old.node for old in again.values() if old.node}))
        return {index: _cause(old, down) for index, old in again.items()}

    def _down(self, nodes: Sequence[str]) -> list[str]:
        """Return the nodes that do not answer now; [] where SLURM does not answer."""
        with contextlib.suppress(TransientError, FailedError, PreflightError):
            states = self._slurm.node_states(nodes)
            return [node for node, state in states.items() if is_lost(state)]
        return []


def _cause(old: _Last, down: Sequence[str]) -> Requeue:
    if old.word == "PREEMPTED":
        return Requeue(f"preempted on {old.node}", old.node, lost=False)
    if old.node in down or old.word in ("NODE_FAIL", "BOOT_FAIL"):
        return Requeue(f"lost with node {old.node}", old.node, lost=True)
    why = f"taken off {old.node or 'its node'} (preempted, or requeued by hand)"
    return Requeue(why, old.node, lost=False)
