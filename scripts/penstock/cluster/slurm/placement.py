"""Which nodes an element may run on, by partition and constraint, and in what they differ."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from penstock.core.amounts import size
from penstock.core.checks import CheckResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.cluster.slurm.nodes import Node
    from penstock.config.settings import JobOptions

PLAIN = re.compile(r"[\w.-]+")
"""A constraint that is one feature."""


def able(options: JobOptions, nodes: Sequence[Node], partition: str | None) -> list[Node]:
    """The nodes that such a job may run on, as far as partition and a plain constraint say. `partition`:
    that of jobs that name none."""
    partition = options.partition or partition
    chosen = [node for node in nodes if partition is None or node.partitions & set(partition.split(","))]
    if options.constraint is not None and PLAIN.fullmatch(options.constraint):
        chosen = [node for node in chosen if options.constraint in node.features]
    return chosen


def differences(options: JobOptions, candidates: Sequence[Node]) -> list[CheckResult]:
    """In what the nodes differ, where an element gets what its node has.

    | the nodes' CPUs and memory | elements get            | verdict                             |
    |----------------------------|-------------------------|-------------------------------------|
    | all alike                  | any                     | none                                |
    | differ                     | what the node has       | note, with what the smallest gives  |
    | differ                     | `cpus` and `memory`     | none: all elements get the same     |
    """
    whole = options.spec_cores is not None or options.whole_nodes
    shapes = Counter(
        (node.cpus if whole else 0, node.memory if options.memory is None else 0) for node in candidates
    )
    if len(shapes) < 2:
        return []

    def told(shape: tuple[int, int]) -> str:
        cpus, memory = shape
        return " and ".join([*([f"{cpus} CPUs"] if cpus else []), *([size(memory)] if memory else [])])

    shown = [f"{shapes[shape]} of {told(shape)}" for shape in sorted(shapes, reverse=True)]
    more = f" and {len(shown) - 8} more kinds" if len(shown) > 8 else ""
    smallest = min(candidates, key=lambda node: (node.cpus, node.memory))
    taken = (options.spec_cores or 0) * (smallest.cpus // max(1, smallest.cores))
    gives = []
    if whole:
        gives.append(f"{smallest.cpus - taken} CPUs")
    if options.memory is None:
        gives.append(f"at most {size(smallest.memory)}")
    return [
        CheckResult(
            "nodes",
            f"they differ: {', '.join(shown[:8])}{more}; the smallest, {smallest.name}, gives an element "
            f"{' and '.join(gives)}",
            "note",
            "",
            "each element sizes itself by what it gets; cluster.partition or constraint chooses nodes "
            "that are alike",
        )
    ]
