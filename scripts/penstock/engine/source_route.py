"""The NUMA node of the network device through which a dataset's sources are reached from this node."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.runtime.network_route import numa_node_toward
from penstock.runtime.numa_nodes import SYS
from penstock.runtime.proc import PROC, Root

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.config.settings import DatasetConfig


def numa_node_of_sources(
    dataset: DatasetConfig, secrets: Sequence[object | None], proc: Root = PROC, sys: Root = SYS
) -> int | None:
    """None where it is not known, and where the ways to several addresses or sources leave on different
    nodes. `secrets`: of each source. Looks the hosts' addresses up."""
    # With the network's libraries: loaded where somebody asks.
    from penstock.sources.server_host import server_host

    found: set[int | None] = set()
    for source, secret in zip(dataset.sources, secrets, strict=True):
        try:
            host = server_host(source, secret, proc)
            addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM) if host else []
        except (OSError, ValueError, PenstockError):
            return None
        found |= {numa_node_toward(str(one[4][0]), proc, sys) for one in addresses} or {None}
    return found.pop() if len(found) == 1 else None
