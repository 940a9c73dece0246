"""On which cores the workers of an element run.

A worker reads from the network, hashes and writes: bytes that stay on one NUMA node pass no link between
sockets. So a worker is pinned to all of the element's cores on one node, first on that of the network device:
to a set, never to one core, since its threads use several at a time; within the set the kernel balances.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from penstock.runtime.job_environment import JobEnvironment


class Place(NamedTuple):
    """Where a worker runs."""

    node: int | None
    """The NUMA node; None: wherever the element may."""
    cores: frozenset[int]


def places(
    environment: JobEnvironment,
    cpus: int,
    allowed: Collection[int],
    nodes: Mapping[int, Collection[int]],
    near: Callable[[], int | None],
) -> Sequence[Place]:
    """A place for each core of the element; the n-th worker gets the n-th, and after the last one they begin
    anew. () where no worker is pinned. `cpus`: those that the element sized itself by; `allowed`: the cores
    that the kernel lets it run on; `near`: asked once, and only where workers are pinned, for the NUMA node
    of the device that leads to the source.

    | NUMA nodes of `allowed` | in a job | `allowed`        | workers                                    |
    |-------------------------|----------|------------------|--------------------------------------------|
    | one, or not known       | any      | any              | not pinned: they share that node anyway    |
    | several                 | no       | any              | not pinned: these cores are everybody's,   |
    |                         |          |                  | and the kernel sees where there is room    |
    | several                 | yes      | more than `cpus` | not pinned: other jobs have a share of     |
    |                         |          |                  | these cores, and would be crowded          |
    |                         |          |                  | together with this one on one node         |
    | several                 | yes      | no more          | pinned: to a node as many as it has cores, |
    |                         |          |                  | first to that of `near`, then to the       |
    |                         |          |                  | others by their numbers                    |

    Of a node with a single core of `allowed` the worker is left where the kernel puts it.
    """
    granted = frozenset(allowed)
    shares = {node: granted & frozenset(cores) for node, cores in nodes.items()}
    shares = {node: share for node, share in shares.items() if share}
    if len(shares) < 2 or not environment.job or len(granted) > cpus:
        return ()
    first = near()
    order = sorted(shares, key=lambda node: (node != first, node))
    free = Place(None, granted)
    return tuple(
        Place(node, shares[node]) if len(shares[node]) > 1 else free for node in order for _ in shares[node]
    )


def told(chosen: Sequence[Place], workers: int, refused: str = "") -> str:
    """Where so many workers run, in words; "" where none is to be pinned. `refused`: why one is not."""
    if not chosen:
        return ""
    if refused:
        return f"not all pinned: {refused}"
    counts = Counter(chosen[number % len(chosen)].node for number in range(workers))
    parts = [
        f"{number} on NUMA node {node}" if node is not None else f"{number} on any"
        for node, number in counts.items()
    ]
    return f"pinned: {', '.join(parts)}"
