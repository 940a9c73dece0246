"""Which nodes an element may run on, by partition, constraint and `exclude`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstock.core.range_lists import host_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.cluster.slurm.facts import Partition
    from penstock.cluster.slurm.nodes import Node
    from penstock.config.settings import JobOptions

PLAIN = re.compile(r"[\w.-]+")  # a constraint of a single feature


def default(partitions: Sequence[Partition]) -> str | None:
    """Return the partition of jobs that name none; None where the cluster has no default."""
    return next((partition.name for partition in partitions if partition.default), None)


def asked(options: JobOptions) -> str:
    """Describe what each element takes of a node, from settled options.

    | core_spec | cpus  | an element takes                           |
    |-----------|-------|--------------------------------------------|
    | a number  | any   | a whole node, less so many of its cores    |
    | none      | null  | a whole node (--exclusive)                 |
    | none      | given | so many CPUs of a node, shared with others |
    """
    if options.spec_cores is not None:
        return f"a whole node, less {options.spec_cores} of its cores (--core-spec={options.spec_cores})"
    if options.whole_nodes:
        return "a whole node (--exclusive; `cluster.cpus` asks for less)"
    return f"{options.cpus} CPUs of a node that it shares (--cpus-per-task={options.cpus})"


def able(options: JobOptions, nodes: Sequence[Node], partition: str | None) -> list[Node]:
    """Return the nodes that such a job may use, by these options and a plain constraint. `partition`: that of
    jobs that name none."""
    partition = options.partition or partition
    chosen = [node for node in nodes if partition is None or node.partitions & set(partition.split(","))]
    if options.constraint is not None and PLAIN.fullmatch(options.constraint):
        chosen = [node for node in chosen if options.constraint in node.features]
    excluded = frozenset(host_names(options.exclude or ""))
    return [node for node in chosen if node.name not in excluded]
