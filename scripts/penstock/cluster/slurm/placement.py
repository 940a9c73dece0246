"""Which nodes an element may run on, by partition, constraint, `exclude`, `nodelist`, `gres` and `tmp`, and
in what they differ.

sbatch's own `--nodelist` names nodes that a job gets ALL of: 22.05 refuses a job of one node with
`--nodelist=n1,n2` ("invalid number of nodes"). Hence `cluster.nodelist`, the only nodes that
elements may run on, is said to SLURM as `--exclude` of the other ones.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.cluster.slurm.nodes import has_gres
from penstock.core.host_lists import host_list, host_names
from penstock.errors import PreflightError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.cluster.slurm.nodes import Node
    from penstock.config.settings import JobOptions

PLAIN = re.compile(r"[\w.-]+")
"""A constraint that is one feature."""


def able(options: JobOptions, nodes: Sequence[Node], partition: str | None) -> list[Node]:
    """The nodes that such a job may run on, as far as these options and a plain constraint say. `partition`:
    that of jobs that name none."""
    partition = options.partition or partition
    chosen = [node for node in nodes if partition is None or node.partitions & set(partition.split(","))]
    if options.constraint is not None and PLAIN.fullmatch(options.constraint):
        chosen = [node for node in chosen if options.constraint in node.features]
    if options.nodelist is not None:
        wanted = frozenset(host_names(options.nodelist))
        chosen = [node for node in chosen if node.name in wanted]
    if options.exclude is not None:
        excluded = frozenset(host_names(options.exclude))
        chosen = [node for node in chosen if node.name not in excluded]
    return [
        node
        for node in chosen
        if (options.tmp or 0) <= node.tmp and all(has_gres(node.gres, one) for one in options.gres)
    ]


def confined(options: JobOptions, nodes: Sequence[Node]) -> JobOptions:
    """The same options, where `nodelist` of several nodes has become `exclude` of all others. Raises
    PreflightError for a name that no node has."""
    wanted = host_names(options.nodelist or "")
    known = {node.name for node in nodes}
    if unknown := [name for name in wanted if name not in known]:
        raise PreflightError(
            f"no node is named {', '.join(unknown[:8])}{', ...' if len(unknown) > 8 else ''}",
            where="cluster.nodelist",
            hint="`sinfo -N` lists the nodes",
        )
    if len(wanted) < 2:
        return options
    others = known.difference(wanted) | set(host_names(options.exclude or ""))
    return replace(options, nodelist=None, exclude=host_list(others) or None)
