"""Starts a command of penstock on several nodes at once, by srun, and stays connected while it runs.

srun's standard input goes to every task; its standard output is that of all tasks.
"""

from __future__ import annotations

import dataclasses
import subprocess
from typing import TYPE_CHECKING

from penstock.cluster.slurm.client import TOKEN, absent, environment
from penstock.cluster.slurm.submission import together_arguments
from penstock.host import interpreter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.config.settings import ClusterConfig

MEMORY = 512 << 20  # bytes that the job asks for on each node


def start(config: ClusterConfig, words: Sequence[str], nodes: int, seconds: int) -> subprocess.Popen[bytes]:
    """Start srun, which runs `penstock <words>` on each of so many nodes, for at most so many seconds, when
    they are free. A SIGTERM to srun ends the job, waiting or running. Raises PreflightError without srun."""
    options = dataclasses.replace(
        config.options, core_spec=None, memory=MEMORY, cpus=1, licenses=(), time=seconds
    )
    command = [*together_arguments("penstock-selftest", options, nodes)]
    try:
        return subprocess.Popen(
            [*command, *interpreter.command("penstock", config.python), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # srun passes on all SLURM_*, and refuses to work with a token.
            env={name: value for name, value in environment().items() if name != TOKEN},
            start_new_session=True,
        )
    except OSError as error:
        raise absent("srun", error) from error
