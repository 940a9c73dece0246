"""What differs between the backends: callers check an ability here, never a backend's name.

| backend | its elements end with the controller | it has nodes |
|---------|--------------------------------------|--------------|
| local   | yes                                  | no           |
| slurm   | no                                   | yes          |

How long a cluster remembers an ended element, the cluster itself says (`Cluster.remembers`).
"""

from __future__ import annotations

from typing import NamedTuple


class Abilities(NamedTuple):
    """What the elements of a backend can and cannot do."""

    # Elements end with the process that submitted them. No other process can find, watch or cancel them, and
    # a controller cannot be submitted itself.
    elements_end_with_controller: bool
    # Elements run on other machines: their writes may appear here some seconds late, and one machine may read
    # what another wrote.
    has_nodes: bool


_TABLE = {
    "local": Abilities(elements_end_with_controller=True, has_nodes=False),
    "slurm": Abilities(elements_end_with_controller=False, has_nodes=True),
}
_UNKNOWN = _TABLE["slurm"]  # a backend of another version: its elements may still run somewhere


def abilities_of(backend: str) -> Abilities:
    """Return the abilities of a backend, by its name in `cluster.backend` and `arrays.jsonl`. An unknown name
    counts as a cluster with nodes whose elements run on."""
    return _TABLE.get(backend, _UNKNOWN)
