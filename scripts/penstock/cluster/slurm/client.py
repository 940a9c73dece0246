"""Runs SLURM's commands as the user's own shell would, sorts their errors, and advises which setting to
change when SLURM refuses a job.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import json
import logging
import os
import re
import shutil
import subprocess
import time
from typing import TYPE_CHECKING, NamedTuple, cast

from penstock.core import human
from penstock.core.errors import (
    FailedError,
    OverloadedError,
    PenstockError,
    PreflightError,
    QueueFullError,
    TransientError,
    signal_name,
)
from penstock.host import waits
from penstock.host.command import dies_with

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


# Phrases of SLURM in small letters, each with its hint. The first match counts, so longer phrases come before
# the words in them.
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
    """If a FailedError without a hint leaves the context, give it the hint of `advice`."""
    try:
        yield
    except FailedError as error:
        error.hint = error.hint or advice(error.why)
        raise


# A command gets this process's environment, since a site's wrapper reads it, and SLURM finds its controller
# by it. Variables that act as options are left out: an outer job or a profile sets many, and they would
# change the command's meaning. For a job's own environment see `submission.handed_on`.

# variables that act as an option, or describe an outer job
OPTIONS = re.compile(
    r"_?(SLURM|SLURMD|SBATCH|SALLOC|SRUN|SQUEUE|SINFO|SACCT|SCANCEL|SCONTROL|SPRIO|SSTAT|SREPORT|SPANK)_"
)
# the variable whose token replaces the user's password; commands take it only from the environment
TOKEN = "SLURM_JWT"  # noqa: S105 (its name)
# Variables that choose the controller and the user (sbatch(1), "INPUT ENVIRONMENT VARIABLES"; SLURM's "JSON
# Web Tokens (JWT) Authentication"). SBATCH_CLUSTERS is missing on purpose: only sbatch obeys it, so squeue
# would search for the job on another cluster.
CONTROLLER = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", TOKEN})
ANSWER_WITHIN = 120.0  # seconds that a command may take; above SLURM's own MessageTimeout and its repeats
AFTER = 0.5  # seconds until a query is repeated once, if it was killed or failed with unknown words
LOOK = 1.0  # seconds between two checks for a signal while waiting for a command
# exit statuses by which a shell, such as a site's wrapper, reports a command ended by a signal
SIGNALLED = range(129, 160)
# seconds until the first line about a command that has not answered, and between further lines
SAID, AGAIN = 15.0, 45.0

# words of refusals; they take precedence over words of `TRANSIENT` in the same answer
FINAL = re.compile(
    r"\binvalid [\w /-]*\b(specified|specification|name|request)\b|access/permission denied"
    r"|unknown (account|user|qos|wckey)",
    re.IGNORECASE,
)
# SLURM's messages while slurmctld, slurmdbd or munged is away, busy, or starting.
TRANSIENT = re.compile(
    r"unable to contact slurm|socket timed out|connection refused|connection reset|connection timed out"
    r"|zero bytes were transmitted|transport endpoint|temporarily unable|resource temporarily unavailable"
    r"|communication connection failure|in standby mode|unable to connect|try again|timed out"
    r"|(controller|slurmdbd) (is )?not (running|responding|up|available)|slurmdbd (is )?(down|unavailable)"
    r"|unable to (contact|reach) slurmdbd|persistent connection|persistinit|problem talking to the database"
    r"|munged.*(respond|running)|no route to host|name or service not known|failed to access .*munge"
    r"|protocol authentication error|munge (en|de)code failed|unexpected message received"
    r"|message (send|receive) failure|could not establish a configuration source",
    re.IGNORECASE,
)
# slurmctld's only text for every job over a limit: too many jobs, or a job that is too large
POLICY = re.compile(r"job violates accounting/qos policy", re.IGNORECASE)
# The reason that slurmctld adds to that text: `QOSMaxSubmitJobPerUserLimit`, `QOSMaxWallDurationPerJobLimit`.
REASON = re.compile(r"\b(?:Assoc|QOS)[A-Z]\w+")


# SLURM's words, from 23.02 on, to a client that queries too often (`element_times`)
OVERLOADED = re.compile(r"rate limit exceeded|please retry momentarily", re.IGNORECASE)


_say: list[Callable[[str], None]] = [logging.getLogger("penstock").warning]


def warn_by(say: Callable[[str], None]) -> None:
    """Send lines about slow commands to `say`, from any thread, instead of to the log."""
    _say[0] = say


def say(text: str) -> None:
    """Report a line through the function that `warn_by` set, else to the log."""
    _say[0](text)


# lines in which SLURM's commands report an error or a trial
OWN_WORDS = re.compile(
    r"(sbatch|squeue|scontrol|scancel|sinfo|sacct|sacctmgr|srun): |\w+ error: |allocation failure: "
)


class CommandOutput(NamedTuple):
    """A command's output and exit status."""

    code: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """SLURM's own words, on one line."""
        lines = [line.strip() for line in (self.err.strip() or self.out.strip()).splitlines() if line.strip()]
        # If no line has SLURM's prefix, take all that a site's wrapper prints.
        own = [line for line in lines if OWN_WORDS.match(line)]
        return "; ".join(own or lines) or self.end

    @property
    def end(self) -> str:
        """How the command ended."""
        number = -self.code if self.code < 0 else self.code - 128 if self.code in SIGNALLED else 0
        return f"it was killed by {signal_name(number)}" if number else f"exit status {self.code}"

    @property
    def wordless(self) -> bool:
        """Whether the command was killed, or printed nothing. SLURM itself has then refused nothing."""
        return self.code < 0 or self.code in SIGNALLED or not (self.err.strip() or self.out.strip())


def environment() -> dict[str, str]:
    """Return the environment of SLURM's commands. It leaves out an empty token, such as a job has that was
    submitted with a token (`submission.exporting`)."""
    kept = {
        name: value for name, value in os.environ.items() if name in CONTROLLER or not OPTIONS.match(name)
    }
    if not kept.get(TOKEN):
        kept.pop(TOKEN, None)
    return {"PATH": os.defpath, **kept}


def call(
    *command: str,
    stdin: str = "",
    extra: Mapping[str, str] | None = None,
    env: Mapping[str | bytes, str] | None = None,
    outlives: bool = True,
    program: str = "",
) -> CommandOutput:
    """Run a command; the caller judges its exit status. Raises TransientError if it does not end in time or
    cannot be started now, PreflightError if it is not installed, and InterruptedRunError. `env` replaces
    `environment`; `extra` adds to it. If `outlives`, the command may continue when this process is killed.
    `program` is its name for people ("": its first word)."""
    program = program or command[0]
    variables: dict[str | bytes, str] = {}
    variables.update(environment() if env is None else env)
    variables.update(extra or {})
    try:
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            # To occur twice, a name is once a str and once bytes (`submission.exporting`).
            env=cast("Mapping[str, str]", variables),
            # This thread waits until the command ends, as `dies_with` requires.
            preexec_fn=None if outlives else dies_with(os.getpid()),  # noqa: PLW1509
        ) as process:
            out, err = _answer(process, program, stdin)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ENOEXEC):
            raise absent(program, error) from error
        raise TransientError(f"{program} could not be started", why=error.strerror or "") from error
    if process.returncode < 0:
        waits.signalled()  # Ctrl-C reaches both
    return CommandOutput(process.returncode, out, err)


def _answer(process: subprocess.Popen[str], program: str, stdin: str) -> tuple[str, str]:
    """Return the process's standard output and error. Warns after SAID, then every AGAIN. Raises
    TransientError after ANSWER_WITHIN, and InterruptedRunError after a signal. Even then it reads a command
    that answers within LOOK, so that cleanup after a stop can run commands."""
    began, input_once, due = time.monotonic(), iter([stdin]), SAID
    within = waits.within(ANSWER_WITHIN)
    try:
        while (left := within - (time.monotonic() - began)) > 0:
            with contextlib.suppress(subprocess.TimeoutExpired):
                wait = min(LOOK, left, max(0.0, began + due - time.monotonic()))
                return process.communicate(next(input_once, None), timeout=wait)
            waits.signalled()
            waited = time.monotonic() - began
            if due <= waited < within:
                due += AGAIN
                say(
                    f"SLURM's {program} has not answered for {waited:.0f} s: it is waited for up to "
                    f"{within:.0f} s"
                )
    finally:
        process.kill()  # no effect on a process that has ended
    raise TransientError(f"{program} gave no answer within {within:.0f} s")


def ask(*command: str, extra: Mapping[str, str] | None = None, unless: str = "") -> str:
    """Return the standard output of a query, even if it fails with the words `unless`. Any other failure is a
    TransientError, whatever SLURM says, since nothing was refused and elements may still be running. The
    query is repeated once after AFTER, unless SLURM names a transient cause: its commands have then retried
    already."""
    for last in (False, True):
        answer = call(*command, extra=extra)
        if answer.code == 0 or (unless and unless in answer.words):
            return answer.out
        error = problem(command[0], answer)
        if last or (isinstance(error, TransientError) and not answer.wordless):
            break
        waits.pause(AFTER)
    if not isinstance(error, TransientError):
        error = TransientError(error.what, why=error.why, hint=error.hint)
    raise error


@contextlib.contextmanager
def reading(program: str, text: str) -> Iterator[None]:
    """Turn errors from a malformed answer inside the context into TransientError: it may be cut off."""
    try:
        yield
    except (ValueError, LookupError) as error:
        raise TransientError(
            f"{program}'s answer cannot be read",
            why=CommandOutput(0, text, "").words,
            hint=f"look at what `{program}` prints here: a wrapper may have changed it",
        ) from error


def problem(program: str, answer: CommandOutput) -> PenstockError:
    """Make the error of a failed order. If the command was killed, or printed nothing, SLURM may still obey,
    so the error is a TransientError."""
    kind = TransientError if answer.wordless else kind_of(answer.words)
    sentences: dict[type[PenstockError], str] = {
        OverloadedError: f"{program} has to back off",
        TransientError: f"{program} did not reach SLURM",
    }
    ended = _token_ended()
    return kind(
        sentences.get(kind, f"{program} failed"),
        why=answer.words + (f"; {TOKEN} ended at {human.local(ended)}" if ended else ""),
        hint=f"`unset {TOKEN}`, or set a new token (`scontrol token` prints one)" if ended else "",
    )


def _token_ended() -> float:
    """Return when the token in SLURM_JWT expired, in seconds since the epoch; 0 if there is no token, or it
    is still valid or states no end. SLURM refuses requests with an expired token without mentioning it."""
    try:
        part = os.environ.get(TOKEN, "").split(".")[1]
        ends = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))["exp"]
        return float(ends) if 0 < ends < time.time() else 0.0
    except (LookupError, TypeError, ValueError):
        return 0.0


def kind_of(words: str) -> type[PenstockError]:
    """Sort SLURM's words into an error.

    | words                                      | limits that they name      | error                       |
    |--------------------------------------------|----------------------------|-----------------------------|
    | of OVERLOADED                              | any                        | OverloadedError             |
    | of POLICY                                  | one of submitted jobs      | QueueFullError              |
    | of POLICY                                  | none, as from pyslurm      | QueueFullError; a caller    |
    |                                            |                            | who knows the limits judges |
    | of POLICY                                  | only limits of other kinds | FailedError                 |
    | of FINAL                                   | any                        | FailedError                 |
    | of TRANSIENT                               | any                        | TransientError              |
    | any other                                  | any                        | FailedError                 |
    """
    if OVERLOADED.search(words):
        return OverloadedError
    if POLICY.search(words):
        return QueueFullError if names_queue(words) or not REASON.search(words) else FailedError
    if FINAL.search(words):
        return FailedError
    return TransientError if TRANSIENT.search(words) else FailedError


def names_queue(words: str) -> bool:
    """Return whether SLURM names a limit of submitted jobs."""
    return any("Sub" in reason for reason in REASON.findall(words))


def absent(program: str, error: OSError | None = None) -> PreflightError:
    """Make the error for a SLURM command that cannot be run on this machine."""
    return PreflightError(
        f"SLURM's {program} cannot be run here",
        where="cluster.backend",
        why=str(error.strerror) if error is not None else "not on PATH",
        hint="run where SLURM's commands are (a login node), put them on PATH, or set cluster.backend: local",
    )


def require(*programs: str) -> None:
    """Raise PreflightError for the first program that is not on PATH."""
    for program in programs:
        if shutil.which(program) is None:
            raise absent(program)
