"""What a node granted an element (the process that does one shard): a part of its receipt. Pure;
`host.cgroups` finds it out."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from typing import NamedTuple


class Granted(NamedTuple):
    """What the kernel lets the processes of an element use, by their cgroup and CPU affinity."""

    cores: str = ""
    """The CPUs, by the kernel's numbers: `0-3,8`. "": not known."""
    memory: int | None = None
    """Bytes that its cgroup, or one above it, limits it to. None: no limit below the node's own memory, or
    not known."""


NOT_KNOWN = Granted()
"""What there is to say where the kernel says nothing."""
