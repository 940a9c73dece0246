"""submit: runs `penstock run`, the controller, or `penstock gate --mend` as a small SLURM job, for sites that
allow no long process on a login node. SLURM requeues the job when its node is lost; the controller then goes
on with the arrays that run.
"""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cluster.port import ArraySpec, Mail, State
from penstock.errors import ConfigError, LockedError
from penstock.policy import rights
from penstock.runtime import interpreter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.cluster.port import Cluster
    from penstock.config.settings import Config, JobOptions, MailConfig

STEP = "submit"
MEMORY = 1 << 30
# Arguments: the working directory, the command line, the element's index. Snakemake keeps a cache in
# the user's home, which a node need not have.
PROGRAM = """\
import os, sys
os.chdir(sys.argv[1])
os.environ["XDG_CACHE_HOME"] = os.path.join(sys.argv[1], "results", ".workflow", "cache")
os.execv(sys.argv[2], sys.argv[2:-1])
"""


def options(config: Config) -> JobOptions:
    """The resources of the controller's job: one core and 1 GiB, not a whole node, and none of what elements
    need of one; the rest as configured (`cluster.steps.submit`)."""
    chosen = config.cluster.of(STEP)
    own = STEP in config.cluster.steps
    memory = chosen.memory if own and chosen.memory is not None else MEMORY
    return dataclasses.replace(
        chosen,
        core_spec=None,
        licenses=(),
        gres=chosen.gres if own and chosen.gres != config.cluster.options.gres else (),
        tmp=chosen.tmp if own and chosen.tmp != config.cluster.options.tmp else None,
        cpus=chosen.cpus if own and chosen.cpus is not None else 1,
        exclusive=False,
        memory=memory,
        max_elements=1,
    )


def with_options(config: Config) -> Config:
    """The configuration, with `options` as those of the step `submit`."""
    steps = {**config.cluster.steps, STEP: options(config)}
    return dataclasses.replace(config, cluster=dataclasses.replace(config.cluster, steps=steps))


def run(
    cluster: Cluster,
    file: Path,
    datasets: Sequence[str],
    python: str | None,
    mail: MailConfig,
    *,
    look: bool = False,
    further: Sequence[str] = (),
) -> tuple[str, bool]:
    """Submit `penstock run` with these `further` options for the working directory, with `look` `penstock
    gate --mend` of the one dataset; returns the job's id, and whether it was there already. Raises
    ConfigError where the backend is not SLURM, LockedError where options come too late for a job that is
    there."""
    if cluster.abilities.elements_end_with_controller:
        raise ConfigError(
            "only SLURM takes a controller as a job", where="cluster.backend", hint="give --backend slurm"
        )
    here = Path.cwd()
    name = _name(file, datasets[0]) if look else _name(file)
    if found := cluster.find(name):
        if further:
            raise LockedError(
                f"the controller is a job already, which does not hear of {' and '.join(further)}",
                where=f"job {found[0]}",
                hint="give them when it has ended, or end it by `penstock cancel`",
            )
        return found[0], True
    logs = here / "results" / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    # The job begins in `/`, which every node has; PROGRAM then changes to this working directory.
    task = ["gate", *datasets, "--mend"] if look else ["run", *datasets, *further]
    words = [*interpreter.command("penstock", python), "--config", str(file.absolute())]
    words += ["--backend", cluster.kind, *rights.handed_on(), *task]
    command = [*interpreter.isolated(python), "-c", PROGRAM, str(here), *words]
    told = None if mail.to is None else Mail(mail.to, mail.when)
    return cluster.submit(ArraySpec(name, STEP, (0,), command, logs, mail=told)), False


def queued(cluster: Cluster, file: Path) -> str | None:
    """The job of a submitted controller that has not begun; None where there is none."""
    found = () if cluster.abilities.elements_end_with_controller else cluster.find(_name(file))
    waits = found and cluster.states(found[0], (0,))[0].state is State.PENDING
    return found[0] if waits else None


def _name(file: Path, dataset: str = "") -> str:
    """One controller for each working directory and configuration; and one look for each dataset."""
    told = f"{Path.cwd()}\0{file.absolute()}" + (f"\0{dataset}" if dataset else "")
    place = hashlib.sha256(told.encode()).hexdigest()[:16]
    return f"penstock-{'look' if dataset else 'submit'}-{place}"
