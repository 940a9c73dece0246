"""Builds sbatch's arguments and batch scripts from validated options; and starts a command of penstock on
several nodes at once through srun, for selftest.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pwd
import re
import resource
import shlex
import shutil
import socket
import subprocess
import tempfile
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from penstock.cluster.port import log_stem
from penstock.cluster.slurm.client import CONTROLLER, TOKEN, absent, environment
from penstock.cluster.slurm.environment import STOP_AT
from penstock.core.errors import ConfigError
from penstock.core.human import in_quotes
from penstock.core.range_lists import FORM, host_list, host_names
from penstock.host import interpreter, kernel_facts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from penstock.cluster.port import ArraySpec
    from penstock.config.settings import ClusterConfig, JobOptions


# Every value of the configuration becomes exactly one argument `--option=value`, after it has matched that
# option's pattern. No argument is free text, and no shell reads any of them.

_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
PATTERNS = {
    "partition": re.compile(rf"{_NAME}(,{_NAME})*"),
    "account": re.compile(_NAME),
    "qos": re.compile(_NAME),
    "reservation": re.compile(rf"{_NAME}(,{_NAME})*"),
    "constraint": re.compile(r"[A-Za-z0-9_(\[][A-Za-z0-9_.&|*,()\[\]-]*"),
    "licenses": re.compile(rf"{_NAME}(@{_NAME})?([:=][0-9]+)?"),
    "node": re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*"),
    "exclude": FORM,
    "wckey": re.compile(_NAME),
    "mail": re.compile(r"[A-Za-z0-9][A-Za-z0-9._+%@-]{0,199}"),
    "name": re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}"),
    "job": re.compile(r"[0-9]+"),
}
# The variables of the submitting process that a job gets. `--export=ALL` would carry every secret of the
# submitting shell into the job. `--export=NONE`, `NIL` and a list of names also fetch a login environment
# (22.05 sets SLURM_GET_USER_ENV for each), which fails on many sites.
HANDED_ON = ("PATH", "SLURM_CONF", "TZ")
_LIMITS = ("CPU", "FSIZE", "DATA", "STACK", "CORE", "RSS", "NPROC", "NOFILE", "MEMLOCK", "AS")
_UNLIMITED = (1 << 64) - 1
LEAD = 120  # most seconds that an element has for a tidy stop; a quarter of the time limit if that is less


def validated(key: str, value: str) -> str:
    """Return the value. Raises ConfigError if it does not suit this option."""
    if not PATTERNS[key].fullmatch(value):
        raise ConfigError(
            f"{in_quotes(value)} cannot be a SLURM {key}",
            where=f"cluster.{key}",
            why=f"it must match {PATTERNS[key].pattern}",
            hint="correct the key",
        )
    return value


def handed_on() -> dict[str, str]:
    """Return the environment that a job gets beside SLURM's own additions: the variables of HANDED_ON, and
    variables that slurmd reads to set the umask and limits of the job's processes."""
    handed = {
        "SUBMIT_DIR": "/",
        "SUBMIT_HOST": socket.gethostname(),
        "PRIO_PROCESS": str(os.getpriority(os.PRIO_PROCESS, 0)),
    }
    if (umask := kernel_facts.umask()) is not None:
        handed["UMASK"] = f"{umask:04o}"
    for name in _LIMITS:
        soft = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[0]
        handed[f"RLIMIT_{name}"] = str(_UNLIMITED if soft == resource.RLIM_INFINITY else soft)
    kept = {name: os.environ[name] for name in HANDED_ON if name in os.environ}
    return {"PATH": os.defpath, **kept, **{f"SLURM_{name}": text for name, text in handed.items()}}


class Export(NamedTuple):
    """How sbatch passes a job its environment."""

    option: str
    env: Mapping[str | bytes, str] | None  # sbatch's own environment; None: that of all SLURM commands
    file: str = ""  # the file named by the option, if any

    def unread(self, words: str) -> bool:
        """Return whether these words of sbatch say that it could not open the file. It then sent slurmctld no
        request."""
        return bool(self.file) and self.file in words


@contextlib.contextmanager
def exporting(name: str) -> Iterator[Export]:
    """Within the context, sbatch can give the job of this name the variables that `handed_on` returns.

    | a token (SLURM_JWT) | sbatch is a script | sbatch's environment    | the job gets the variables by |
    |---------------------|--------------------|-------------------------|-------------------------------|
    | no                  | any                | the user's              | a file                        |
    | yes                 | no                 | the job's variables and | sbatch's environment, with an |
    |                     |                    | the token               | empty token                   |
    | yes                 | yes                | the user's              | a file; sbatch must then work |
    |                     |                    |                         | without the token             |

    If no file can be made, or sbatch cannot open it, `without_file` is used instead. sbatch cannot open it if
    a script runs sbatch on another machine (`Export.unread`).

    With `--export-file` sbatch forgets its environment, and so the token, before its first request to
    slurmctld. With every other option, SLURM_* goes into the job, and so into slurmctld's files. Therefore
    the environment contains the token twice. getenv(3) returns the first entry, but the job gets the last
    (`env_array_merge` of SLURM's env.c), which is empty. A script would pass on only one entry.
    """
    token = environment().get(TOKEN)
    if token and not _is_script("sbatch"):
        bare = without_file()
        yield bare._replace(env={**(bare.env or {}), TOKEN: token, TOKEN.encode(): ""})
        return
    # sbatch itself sets the job's name only in the environment that it then forgets.
    variables = {**handed_on(), "SLURM_JOB_NAME": name}
    with contextlib.ExitStack() as stack:
        try:
            # It has a path, since a site's wrapper passes on no open file. No other machine has its name.
            stream = stack.enter_context(tempfile.NamedTemporaryFile(prefix="penstock-environment-"))
            stream.write(os.fsencode("".join(f"{key}={value}\0" for key, value in variables.items())))
            stream.flush()
            export = Export(f"--export-file={stream.name}", None, stream.name)
        except OSError:
            export = without_file()
        yield export


def without_file() -> Export:
    """Export for an sbatch that cannot read this machine's files. The job gets sbatch's own environment."""
    names = {*HANDED_ON, *CONTROLLER} - {TOKEN}
    own: dict[str | bytes, str] = {name: os.environ[name] for name in names if name in os.environ}
    own.setdefault("PATH", os.defpath)
    return Export("--export=ALL", own)


def _is_script(program: str) -> bool:
    path = shutil.which(program)
    if path is None:
        return False
    try:
        with open(path, "rb") as stream:
            return stream.read(4) != b"\x7fELF"
    except OSError:
        return True


def job_arguments(options: JobOptions, nodes: int = 1, exclude: Sequence[str] = ()) -> list[str]:
    """Return the options that choose a job's nodes and resources. Memory is rounded up to MiB, time to
    minutes. With several nodes, each gets one task. `exclude` adds to the options' excluded nodes."""
    if exclude:
        names = {*host_names(options.exclude or ""), *exclude}
        options = replace(options, exclude=host_list(names))
    arguments = [f"--nodes={nodes}", f"--ntasks={nodes}"]
    if nodes > 1:
        arguments.append("--ntasks-per-node=1")
    for key in ("partition", "account", "qos", "reservation", "constraint", "exclude", "wckey"):
        value = getattr(options, key)
        if value is not None:
            arguments.append(f"--{key}={validated(key, value)}")
    if options.licenses:
        arguments.append(
            "--licenses=" + ",".join(validated("licenses", licence) for licence in options.licenses)
        )
    if options.time:
        arguments.append(f"--time={_minutes(options.time)}")
    if options.memory is not None:
        arguments.append(f"--mem={-(-options.memory // (1 << 20))}M")
    if options.spec_cores is not None:
        arguments.append(f"--core-spec={options.spec_cores}")
    if options.whole_nodes:
        arguments.append("--exclusive")
    if options.cpus is not None:
        arguments.append(f"--cpus-per-task={options.cpus}")
    return arguments


def single_arguments(name: str, options: JobOptions, node: str = "") -> list[str]:
    """Return all of sbatch's arguments for a job that has no output and is never started again. `node` is the
    only node that it may use, if given."""
    return [
        "sbatch", "--parsable", f"--job-name={validated('name', name)}", "--chdir=/",
        "--input=/dev/null", "--output=/dev/null", "--no-requeue", *job_arguments(options),
        *([f"--nodelist={validated('node', node)}"] if node else []),
    ]  # fmt: skip


def together_arguments(name: str, options: JobOptions, nodes: int) -> list[str]:
    """Return all of srun's arguments for a job with one task on each of `nodes` nodes. Every task gets a copy
    of srun's standard input."""
    return [
        "srun", f"--job-name={validated('name', name)}", f"--export={','.join(HANDED_ON)}", "--chdir=/",
        "--quiet", "--kill-on-bad-exit=1", *job_arguments(options, nodes),
    ]  # fmt: skip


def array_arguments(spec: ArraySpec, at_once: int, options: JobOptions) -> list[str]:
    """Return all of sbatch's arguments for an array. SIGUSR1 announces the approaching time limit
    (`cli/time_limit`), so that SIGTERM always means that somebody stops the element."""
    return [
        "sbatch",
        "--parsable",
        f"--job-name={validated('name', spec.name)}",
        f"--comment={comment(spec)}",
        *([f"--mail-user={validated('mail', spec.mail)}", "--mail-type=END,FAIL"] if spec.mail else []),
        *(
            [f"--dependency=afterany:{':'.join(validated('job', job) for job in spec.after)}"]
            * bool(spec.after)
        ),
        f"--array={compressed(spec.indices)}%{at_once}",
        "--requeue",
        f"--signal=B:USR1@{_lead(options)}",
        "--open-mode=append",
        "--input=/dev/null",
        f"--output={pattern(spec.logs)}/{validated('name', log_stem(spec.step, spec.base))}-%A_%a.log",
        "--chdir=/",
        *job_arguments(options, exclude=spec.exclude),
    ]


def comment(spec: ArraySpec) -> str:
    """Return `penstock dataset=d step=copy release=r`. A label may hold several names, separated by
    commas."""
    labels = (
        f"{validated('name', key)}={','.join(validated('name', name) for name in text.split(','))}"
        for key, text in spec.labels.items()
    )
    return " ".join(["penstock", *labels])


def pattern(folder: Path) -> str:
    """Escape a folder's path for `--output`, in which SLURM interprets `%` and backslashes."""
    text = str(folder)
    if "\\" in text or "\n" in text or not text.startswith("/"):
        raise ConfigError(
            "SLURM cannot write logs into this folder",
            where=in_quotes(text),
            why="a backslash, a newline or a relative path cannot be given to --output",
            hint="move the dataset's state to another folder: `target.state_root`",
        )
    return text.replace("%", "%%")


def script(command: Sequence[str], options: JobOptions, account: Account, base: int = 0) -> str:
    """Return a batch script that runs the command with the element's index (its number in the array plus
    `base`) as last argument. The script `exec`s, so `--signal=B:` reaches the element itself; if the
    interpreter is missing, it names the node. HOME and USER are the account's, unless the node sets them:
    SLURM sets them only along with the submitting shell's whole environment, and HOME has credentials."""
    interpreter = shlex.quote(command[0])
    lines = ["#!/bin/sh", *account.exports()]
    if options.time:
        until = 60 * _minutes(options.time) - _lead(options)
        lines.append(f"{STOP_AT}=$(($(date +%s) + {until})); export {STOP_AT}")
    index = f"$((SLURM_ARRAY_TASK_ID + {base}))" if base else "$SLURM_ARRAY_TASK_ID"
    lines += [
        f"if ! [ -x {interpreter} ]; then",
        f'  printf "penstock: no interpreter %s on node %s\\n" {interpreter} "$SLURMD_NODENAME" >&2',
        "  exit 127",
        "fi",
        f'exec {shlex.join(command)} "{index}"',
    ]
    return "".join(f"{line}\n" for line in lines)


@dataclass(frozen=True)
class Account:
    """The parts of the submitting account that its elements need."""

    name: str
    home: str

    @classmethod
    def own(cls) -> Account:
        """Return this process's account from the system's table; empty where it has none."""
        try:
            entry = pwd.getpwuid(os.geteuid())
        except KeyError:
            return cls("", "")
        return cls(entry.pw_name, entry.pw_dir)

    def exports(self) -> list[str]:
        """Return lines of a shell script that set these variables, unless the node has set them."""
        variables = {"USER": self.name, "LOGNAME": self.name, "HOME": self.home}
        return [
            f'[ -n "${{{name}:-}}" ] || {{ {name}={shlex.quote(text)}; export {name}; }}'
            for name, text in variables.items()
            if text
        ]


def _minutes(seconds: int) -> int:
    """Round up to minutes, since SLURM counts time limits in whole minutes."""
    return -(-seconds // 60)


def _lead(options: JobOptions) -> int:
    return LEAD if not options.time else max(1, min(LEAD, 60 * _minutes(options.time) // 4))


def compressed(indices: Iterable[int]) -> str:
    """Return `0-3,7,9-10` for any indices."""
    ordered = sorted(set(indices))
    if not ordered:
        raise ValueError("an array needs at least one element")
    runs: list[list[int]] = []
    for index in ordered:
        if runs and runs[-1][1] == index - 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def expanded(text: str) -> list[int]:
    """Invert `compressed`; also read `[3-9%2]` and `0-10:5`, as SLURM prints them. Raises ValueError."""
    indices: list[int] = []
    for run in text.strip("[]").partition("%")[0].split(","):
        span, _, step = run.partition(":")
        first, _, last = span.partition("-")
        indices.extend(range(int(first), int(last or first) + 1, int(step or 1)))
    return indices


# Starts a command of penstock on several nodes at once, through srun, and stays connected while it runs.
#
# srun's standard input goes to every task, and the output of all tasks comes out of srun.

MEMORY = 512 << 20  # bytes that the job asks for on each node


def start(config: ClusterConfig, words: Sequence[str], nodes: int, seconds: int) -> subprocess.Popen[bytes]:
    """Start srun, which runs `penstock <words>` on each of `nodes` nodes, once they are free, for at most
    `seconds`. A SIGTERM to srun ends the job, waiting or running. Raises PreflightError without srun."""
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
            # srun refuses to work with a token, and would pass it on like all SLURM_* variables.
            env={name: value for name, value in environment().items() if name != TOKEN},
            start_new_session=True,
        )
    except OSError as error:
        raise absent("srun", error) from error
