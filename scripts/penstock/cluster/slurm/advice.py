"""What to change in the configuration when SLURM refuses a job: hints by SLURM's words."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from penstock.core.errors import FailedError

if TYPE_CHECKING:
    from collections.abc import Iterator

# SLURM's words in small letters, and their hint. The first match counts, so a phrase stands above a word in
# it.
ADVICE = (
    (
        "access/permission denied",
        "cluster.reservation, or another cluster.partition: `scontrol show partition` says ReqResv, RootOnly",
    ),
    ("partition", "cluster.partition: `sinfo -s` lists the partitions"),
    ("account", "cluster.account: `sacctmgr show associations user=$USER` lists the accounts"),
    ("qos", "cluster.qos: `sacctmgr show qos` lists them"),
    ("license", "cluster.licenses: `scontrol show licenses` lists them"),
    ("feature", "cluster.constraint: `sinfo -o '%n %f'` lists the nodes' features"),
    ("wckey", "cluster.wckey: `sacctmgr show wckey` lists them"),
    ("node name", "cluster.exclude: `sinfo -N` lists the nodes"),
    ("reservation", "cluster.reservation: `scontrol show reservation` lists them"),
    (
        "node configuration",
        "no node that is left has that: cluster.memory, cpus, core_spec, constraint, exclude",
    ),
    (
        "invalid time specified",
        "cluster.reservation: `scontrol show reservation` has when it begins and ends",
    ),
    ("array", "MaxArraySize: plan it anew, for the arrays of this cluster: `penstock run --new-release`"),
    ("memory", "cluster.memory: what one element may use"),
    ("time", "cluster.time: `sinfo -o '%P %l'` shows the partitions' limits"),
)


def advice(words: str) -> str:
    """Return what to change in the configuration when SLURM says this; "" when nothing fits."""
    lowered = words.lower()
    return next((hint for word, hint in ADVICE if word in lowered), "")


@contextlib.contextmanager
def advised() -> Iterator[None]:
    """Give the hint of `advice` to a FailedError without a hint that leaves the context."""
    try:
        yield
    except FailedError as error:
        error.hint = error.hint or advice(error.why)
        raise
