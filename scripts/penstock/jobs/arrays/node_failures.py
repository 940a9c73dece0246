"""Which nodes are left out of further submissions: those on which elements keep failing.

Pure: `jobs.arrays.worker_ends` feeds it with the ends of a step's elements, and leaves nodes out by its
answers.

What an element fails by may be the node's fault or not:

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

A node counts as bad after MOST such ends. What fails everywhere makes every node look bad. So a node is left
out only while the cluster still finds another one (`Cluster.spares`); beyond UNPROVEN nodes only as many as
elements of the step ended well; and only for HOURS, after which the node may have been repaired.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.cluster.port import Cause, State
from penstock.core.errors import NoSpaceError

if TYPE_CHECKING:
    from penstock.cluster.port import Status

MOST = 2
"""Ends of elements on a node after which it is left out."""
UNPROVEN = 3
"""Nodes that are left out although no element of the step has ended well anywhere."""
HOURS = 12
"""Hours for which a node is left out of arrays."""


def against_node(status: Status, *, outcome: bool) -> bool:
    """By the table above. `outcome`: the element wrote one."""
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
        """Note an end that counts against the node, of the element `index` and for the reason `why`. Returns
        whether the node counts as bad now; never where `node` is "" (not known)."""
        if not node:
            return False
        self._ends[node].append((index, why))
        return len(self._ends[node]) >= MOST

    def sentence(self, node: str) -> str:
        """`elements 3 (exit 1) and 7 (lost with its node) failed there`. For a node that counts as bad."""
        *others, last = [f"{index} ({why})" for index, why in self._ends[node]]
        return f"elements {', '.join(others)} and {last} failed there"
