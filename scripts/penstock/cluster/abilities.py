"""What differs between the backends: callers ask for an ability here, never for a backend's name. Pure.

| backend | its elements end with the controller | it has nodes |
|---------|--------------------------------------|--------------|
| local   | yes                                  | no           |
| slurm   | no                                   | yes          |

How long a cluster remembers an element that ended is asked of the cluster itself (`Cluster.remembers`).
"""

from __future__ import annotations

from typing import NamedTuple


class Abilities(NamedTuple):
    """What the elements of one backend can and cannot do."""

    elements_end_with_controller: bool
    """The elements end with the process that submitted them: no other process can find, watch or cancel
    them, and a controller cannot itself be submitted."""
    has_nodes: bool
    """The elements run on other machines: what they write may be seen here some seconds late, and one
    machine may read what another wrote."""


_TABLE = {
    "local": Abilities(elements_end_with_controller=True, has_nodes=False),
    "slurm": Abilities(elements_end_with_controller=False, has_nodes=True),
}
_UNKNOWN = _TABLE["slurm"]
"""A backend of another version: its elements may still run somewhere."""


def abilities_of(backend: str) -> Abilities:
    """The abilities of the backend of this name, as `cluster.backend` and `arrays.jsonl` write it. A name
    that this version does not know counts as a cluster with nodes whose elements run on."""
    return _TABLE.get(backend, _UNKNOWN)
