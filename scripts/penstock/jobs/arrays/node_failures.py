"""Decide which nodes further submissions leave out: those on which elements keep failing.

Not every failure is its node's fault:

| it ended                                | its outcome                  | counts against its node      |
|-----------------------------------------|------------------------------|------------------------------|
| with the node (node failure, launch)    | any                          | yes                          |
| by a signal, or an exit status          | none                         | yes: it was killed, or could |
|                                         |                              | not begin                    |
| with the exit status of a full target   | none                         | no                           |
| by a signal, or an exit status          | written                      | no: it reached the target,   |
|                                         |                              | and names what was wrong     |
| at its time limit, out of memory,       | any                          | no                           |
| preempted, or otherwise by the cluster  |                              |                              |
| cancelled, or not known to the cluster  | any                          | no                           |

A node counts as bad after MOST such ends. An error that occurs everywhere makes every node look bad. So a
node is left out only while the cluster finds another one (`Cluster.spares`), and only for HOURS. Beyond
UNPROVEN nodes, only as many are left out as elements of the step ended well.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.cluster.port import Cause, State
from penstock.core.errors import NoSpaceError

if TYPE_CHECKING:
    from penstock.cluster.port import Status

MOST = 2  # ends of elements on a node after which it is left out
UNPROVEN = 3  # nodes left out even if no element of the step has ended well anywhere
HOURS = 12  # hours for which a node is left out of arrays


def against_node(status: Status, *, outcome: bool) -> bool:
    """Decide by the table above. `outcome`: whether the element wrote one."""
    if status.state is not State.FAILED or status.cause is Cause.TIME or status.out_of_memory:
        return False
    if status.cause in (Cause.NODE, Cause.LAUNCH):
        return True
    by_itself = status.exit_code is not None or status.signal is not None
    return by_itself and not outcome and status.exit_code != NoSpaceError.exit_code


@dataclass
class NodeFailures:
    """Ends of this step's elements that count against nodes."""

    _ends: dict[str, list[tuple[int, str]]] = field(default_factory=lambda: defaultdict(list))

    def add(self, node: str, index: int, why: str) -> bool:
        """Note an end of element `index` against the node; return whether the node counts as bad now. An
        unknown node ("") never counts as bad."""
        if not node:
            return False
        self._ends[node].append((index, why))
        return len(self._ends[node]) >= MOST

    def sentence(self, node: str) -> str:
        """Describe a bad node: `elements 3 (exit 1) and 7 (lost with its node) failed there`."""
        *others, last = [f"{index} ({why})" for index, why in self._ends[node]]
        return f"elements {', '.join(others)} and {last} failed there"
