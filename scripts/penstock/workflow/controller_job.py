"""Submits `penstock run`, the controller, or `penstock gate --mend` as a SLURM job (`--submit`), for sites
without long processes on login nodes. SLURM requeues the job when its node is lost; the controller then
resumes the arrays.

A working directory has one controller at a time. `results/.workflow/submitted.json` notes the work of each
job. A live job is used again only if its work includes all that is wanted. Otherwise a new job follows it. If
a note is lost, the only harm is a superfluous job that finds everything staged.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.cluster.port import ArraySpec, State
from penstock.core.errors import ConfigError, FailedError, LockedError, PreflightError, TransientError
from penstock.core.layout import DatasetLayout
from penstock.core.run_steps import RUN_IN_ELEMENTS
from penstock.dataset import rights, submitted_arrays
from penstock.fs import small_files
from penstock.host import interpreter, kernel_facts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from penstock.cluster.port import Cluster, Status
    from penstock.config.settings import Config, JobOptions
    from penstock.workflow.controller import Left

STEP = "submit"
NOTES = Path("results", ".workflow", "submitted.json")
FORMAT = 1
KEPT = 100  # most noted jobs: more than a working directory ever has waiting
NAMED = 10  # most datasets in the job's comment
# Environment variable of a submitted controller. Other jobs may wait for its end (afterok), and nobody is
# present to repeat the command.
SUBMITTED = "PENSTOCK_SUBMITTED"
CHANGES = 5  # how often a submitted controller lists a source again that changed during the copy
# Seconds before the first new listing, the factor for each further listing, and seconds between two tries
# while another run holds a dataset.
PAUSE, GROWTH, BUSY = 15.0, 4, 30.0
# Arguments: the working directory, the command line, the element's index. Snakemake keeps a cache in
# the user's home, which a node need not have.
PROGRAM = """\
import os, sys
os.chdir(sys.argv[1])
os.environ["PENSTOCK_SUBMITTED"] = "1"
os.environ["XDG_CACHE_HOME"] = os.path.join(sys.argv[1], "results", ".workflow", "cache")
os.execv(sys.argv[2], sys.argv[2:-1])
"""


def options(config: Config, memory: int) -> JobOptions:
    """Return the resources of the controller's job: one core and `memory` bytes, unless configured otherwise
    (`cluster.steps.submit`)."""
    chosen = config.cluster.of(STEP)
    own = STEP in config.cluster.steps
    return dataclasses.replace(
        chosen,
        core_spec=None,
        licenses=(),
        cpus=chosen.cpus if own and chosen.cpus is not None else 1,
        memory=chosen.memory if own and chosen.memory is not None else memory,
        max_elements=1,
    )


def with_options(config: Config, memory: int) -> Config:
    """Return the configuration with `options` for the step `submit`."""
    steps = {**config.cluster.steps, STEP: options(config, memory)}
    return dataclasses.replace(config, cluster=dataclasses.replace(config.cluster, steps=steps))


class Work(NamedTuple):
    """The work of a submitted job."""

    file: str  # absolute path of the configuration
    content: str  # the configuration's digest at the submission
    datasets: Sequence[str]  # names of the datasets, even if all of the configuration were meant
    task: Sequence[str]  # the words of the job's command without the datasets
    at: float = 0.0  # the time of submission, in seconds since the epoch

    def does(self, wanted: Work) -> bool:
        """Return whether this work includes all that is wanted, with the same configuration."""
        same = (self.file, self.content, list(self.task)) == (wanted.file, wanted.content, list(wanted.task))
        return same and {*self.datasets} >= {*wanted.datasets}

    @property
    def kind(self) -> str:
        """The dataset of a `gate --mend`, since each dataset has jobs of its own; "" for a run."""
        return "" if self.task[0] == "run" else self.datasets[0]


class Submitted(NamedTuple):
    """The job that does the work."""

    job: str
    met: bool  # whether the job existed already
    after: Sequence[str] = ()  # jobs of this working directory for which the job waits


def run(
    cluster: Cluster,
    config: Config,
    file: Path,
    datasets: Sequence[str],
    task: Sequence[str],
    may_begin: Callable[[], None] = lambda: None,
) -> Submitted:
    """Submit `task`, the words of `penstock run` or `penstock gate --mend` without the datasets, for the
    working directory. `datasets` are those to work on; none means all.

    | a job of this working directory, not ended                   | then                                   |
    |--------------------------------------------------------------|----------------------------------------|
    | none                                                         | call `may_begin`, and submit a job     |
    | waits or runs; same configuration (path and content) and     | return that job                        |
    | options; its datasets include these; no later `cancel`       |                                        |
    | any other, including COMPLETING jobs (their processes end)   | submit a job that starts after them    |

    Raises ConfigError if the backend is not SLURM. Raises PreflightError if the working directory cannot be
    written, or the job would keep its elements from ever starting. Raises LockedError if another submission
    is at work in the directory.
    """
    if cluster.abilities.elements_end_with_controller:
        raise ConfigError(
            "only SLURM takes a command as a job",
            where="cluster.backend",
            hint="give --backend slurm with --submit",
        )
    folder = Path.cwd()
    runs = task[0] == "run"
    name = _name("" if runs else datasets[0])
    wanted = Work(*_configuration(file), list(datasets or config.datasets), list(task), time.time())
    logs = folder / "results" / "logs"
    with _alone(logs):
        living = _living(cluster, name, wanted.kind)
        for job, (status, work) in living.items():
            if work and work.does(wanted) and not status.completing and not _cancelled(config, work):
                return Submitted(job, met=True)
        if not living:
            may_begin()
        if runs:
            _refuse_alone(cluster, RUN_IN_ELEMENTS)
        # The job begins in `/`, which every node has; PROGRAM then changes to this working directory.
        python = config.cluster.python
        words = [*interpreter.command("penstock", python), "--config", wanted.file]
        words += ["--backend", cluster.kind, *rights.handed_on(), task[0], *datasets, *task[1:]]
        command = [*interpreter.isolated(python), "-c", PROGRAM, str(folder), *words]
        labels = {"dataset": _named(wanted.datasets), "step": task[0]}
        mail = config.cluster.mail or ""
        spec = ArraySpec(name, STEP, (0,), command, logs, labels, mail=mail, after=tuple(living))
        job = cluster.submit(spec)
        _note(cluster, job, wanted, living)
    return Submitted(job, met=False, after=spec.after)


def next_try(left: Sequence[Left], changes: int) -> float | None:
    """Return the seconds until a submitted controller retries, decided by its failed steps; None if this was
    the last try. `changes` counts earlier tries in which a source had changed.

    | how the steps ended                                  | changes | then                    |
    |------------------------------------------------------|---------|-------------------------|
    | none failed                                          | any     | the last try            |
    | any with another status than 5 and 7, or whose       | any     | the last try            |
    | dataset another run took over                        |         |                         |
    | some with 5 (the source changed), others with 7      | < 5     | list again in 15 s,     |
    |                                                      |         | 1, 4, 16, 64 min        |
    | some with 5, others with 7                           | 5       | the last try            |
    | all with 7: another live run holds the dataset       | any     | in 30 s                 |
    """
    statuses = {step.exit for step in left}
    if not left or statuses - {5, 7} or any(step.overtaken for step in left):
        return None
    if 5 not in statuses:
        return BUSY
    return PAUSE * float(GROWTH**changes) if changes < CHANGES else None


def own_job() -> str:
    """Return the number of this process's job, for which others wait; in an array's element, the array's."""
    own = kernel_facts.current_job()
    return own.array or own.job


def uncancelled(config: Config, names: Sequence[str]) -> list[str]:
    """Return the datasets not cancelled since this controller was submitted; all if that is unknown."""
    key = f"{kernel_facts.current_job().cluster}:{own_job()}"
    work = _notes().get(key)
    return [name for name in names if work is None or not _cancelled(config, work._replace(datasets=[name]))]


def _named(datasets: Sequence[str]) -> str:
    """Return the names for the job's comment: the first NAMED, and how many more there are."""
    more = len(datasets) - NAMED
    return ",".join([*datasets[:NAMED], *([f"{more}-more"] if more > 0 else [])])


def _refuse_alone(cluster: Cluster, steps: Sequence[str]) -> None:
    """Raise PreflightError if the controller's job would leave no node to elements of these steps. If that is
    not known yet, preflight in that job finds out."""
    why = ""
    with contextlib.suppress(TransientError, FailedError, PreflightError):
        why = cluster.kept_out(steps)
    if why:
        raise PreflightError(
            "the controller's own job would keep its elements from starting",
            where="cluster",
            why=why,
            hint="run `penstock run` where it takes no node of theirs (a login node), or give the controller "
            "another partition: cluster.steps.submit.partition",
        )


class Waiting(NamedTuple):
    """A submitted controller that has not begun."""

    datasets: Sequence[str]  # () if not known
    reason: str  # the reason for its wait in SLURM's own words, or ""


def waiting(cluster: Cluster, file: Path) -> Mapping[str, Waiting]:
    """Return this working directory's and configuration's submitted controllers that have not begun."""
    if cluster.abilities.elements_end_with_controller:
        return {}
    path = str(file.absolute())
    return {
        job: Waiting(work.datasets if work else (), status.reason)
        for job, (status, work) in _living(cluster, _name(), "").items()
        if (work is None or work.file == path) and status.state is State.PENDING
    }


def _living(cluster: Cluster, name: str, kind: str) -> dict[str, tuple[Status, Work | None]]:
    """Return the live jobs of this `Work.kind` and their work, None if unknown. Jobs are found by their ids
    in the notes, since a site's plugin may rename them, or by `name` if their note was lost."""
    of_cluster = f"{cluster.name()}:"
    noted = {
        key.removeprefix(of_cluster): work
        for key, work in _notes().items()
        if key.startswith(of_cluster) and work.kind == kind
    }
    jobs: dict[str, Work | None] = {**dict.fromkeys(cluster.find(name)), **noted}
    statuses = cluster.states_of(dict.fromkeys(jobs, (0,))) if jobs else {}
    return {job: (states[0], jobs[job]) for job, states in statuses.items() if not states[0].state.ended}


def _cancelled(config: Config, work: Work) -> bool:
    """Return whether a dataset of this work was cancelled since its submission."""
    target = config.target
    layouts = [DatasetLayout(target.root, name, target.state_root) for name in work.datasets]
    return any(submitted_arrays.cancel_ordered_at(layout) > work.at for layout in layouts)


@contextlib.contextmanager
def _alone(logs: Path) -> Iterator[None]:
    """Exclude other submissions in this working directory."""
    try:
        logs.mkdir(parents=True, exist_ok=True)
        NOTES.parent.mkdir(exist_ok=True)
        lock = os.open(NOTES.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except PermissionError as error:
        raise PreflightError(
            "the controller's log and notes cannot be written",
            where=str(logs.parent),
            why=str(error.strerror),
            hint="submit it in a working directory of your own, with `--config` for the configuration",
        ) from None
    with open(lock):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LockedError(
                "another submission is at work in this working directory",
                where=os.getcwd(),
                hint="wait for it: it ends when SLURM has answered",
            ) from None
        yield


def _configuration(file: Path) -> tuple[str, str]:
    return str(file.absolute()), f"sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}"


def _notes() -> dict[str, Work]:
    """Return the notes by cluster and job. Empty if unreadable: all jobs then count as other work."""
    try:
        raw = json.loads(NOTES.read_bytes())
        return {key: Work(**work) for key, work in raw["jobs"].items()} if raw["format"] == FORMAT else {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def _note(cluster: Cluster, job: str, work: Work, living: Iterable[str]) -> None:
    """Note the job, and forget ended jobs of its kind."""
    mine = f"{cluster.name()}:"
    kept = {mine + alive for alive in living}
    notes = {
        key: noted
        for key, noted in _notes().items()
        if key in kept or not key.startswith(mine) or noted.kind != work.kind
    } | {mine + job: work}
    latest = sorted(notes.items(), key=lambda item: item[1].at)[-KEPT:]
    jobs = {key: noted._asdict() for key, noted in latest}
    small_files.write_json(NOTES, {"format": FORMAT, "jobs": jobs})


def _name(dataset: str = "") -> str:
    """Return the job name of this working directory's controllers, or of the looks at `dataset`."""
    origin = f"{Path.cwd()}" + (f"\0{dataset}" if dataset else "")
    place = hashlib.sha256(origin.encode()).hexdigest()[:16]
    return f"penstock-{'look' if dataset else 'submit'}-{place}"
