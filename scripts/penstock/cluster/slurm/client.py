"""Runs SLURM's commands as the user's own shell would, and sorts their errors.

For the modules of this package; starts processes, and touches nothing else.

A command gets the calling process's environment: a site's own wrapper reads it, and SLURM finds its
controller by it. What it does not get are variables that stand for options, of which an outer job or a
profile is full: they would change what a command means. What a job gets is not this: `submission.handed_on`
names it.
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

from penstock.core import timestamps
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
from penstock.host.parent_death import dies_with

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

OPTIONS = re.compile(
    r"_?(SLURM|SLURMD|SBATCH|SALLOC|SRUN|SQUEUE|SINFO|SACCT|SCANCEL|SCONTROL|SPRIO|SSTAT|SREPORT|SPANK)_"
)
"""How the names of variables begin that stand for an option, or describe an outer job."""
TOKEN = "SLURM_JWT"  # noqa: S105 (its name)
"""Stands for the user's password. It reaches a command by the environment alone."""
CONTROLLER = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", TOKEN})
"""Those of them that say which controller is asked, and who asks (sbatch(1), "INPUT ENVIRONMENT VARIABLES";
SLURM's "JSON Web Tokens (JWT) Authentication"). SBATCH_CLUSTERS is none: sbatch alone obeys it, and squeue
would look for the job elsewhere."""
ANSWER_WITHIN = 120.0
"""Seconds for one command: above SLURM's own MessageTimeout and its repeats."""
AFTER = 0.5
"""Seconds until a query that was killed, or failed in unknown words, is made once more."""
LOOK = 1.0
"""Seconds between two looks for a signal while a command is waited for."""
SIGNALLED = range(129, 160)
"""Exit statuses by which a shell, such as a site's wrapper, reports that a signal ended its command."""
SAID, AGAIN = 15.0, 45.0
"""Seconds after which, and between which, a person hears that a command has not answered."""

FINAL = re.compile(
    r"\binvalid [\w /-]*\b(specified|specification|name|request)\b|access/permission denied"
    r"|unknown (account|user|qos|wckey)",
    re.IGNORECASE,
)
"""Words of refusals: they go before those of `TRANSIENT` in the same answer."""
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
"""Words of SLURM's own messages that stand for something that may pass: slurmctld, slurmdbd or munged are
away, busy, or just starting."""
POLICY = re.compile(r"job violates accounting/qos policy", re.IGNORECASE)
"""slurmctld's one text for each job that a limit refuses: too many of them, or too large ones."""
REASON = re.compile(r"\b(?:Assoc|QOS)[A-Z]\w+")
"""The reason, which slurmctld names beside that text: `QOSMaxSubmitJobPerUserLimit`,
`QOSMaxWallDurationPerJobLimit`."""


OVERLOADED = re.compile(r"rate limit exceeded|please retry momentarily", re.IGNORECASE)
"""slurmctld's words, from 23.02 on, to a client that asks too often (`query_pace`)."""


_say: list[Callable[[str], None]] = [logging.getLogger("penstock").warning]


def warn_by(say: Callable[[str], None]) -> None:
    """From now on `say` is called, from any thread, with a line about a command that takes long; before, the
    line goes to the log."""
    _say[0] = say


def say(text: str) -> None:
    """Report a line by what `warn_by` set, else to the log."""
    _say[0](text)


OWN_WORDS = re.compile(
    r"(sbatch|squeue|scontrol|scancel|sinfo|sacct|sacctmgr|srun): |\w+ error: |allocation failure: "
)
"""How the lines begin in which SLURM's commands report an error or a trial."""


class CommandOutput(NamedTuple):
    """A command's output and exit status."""

    code: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """SLURM's own words, on one line."""
        lines = [line.strip() for line in (self.err.strip() or self.out.strip()).splitlines() if line.strip()]
        # Else of what a site's wrapper prints around them.
        own = [line for line in lines if OWN_WORDS.match(line)]
        return "; ".join(own or lines) or self.end

    @property
    def end(self) -> str:
        """How the command ended."""
        number = -self.code if self.code < 0 else self.code - 128 if self.code in SIGNALLED else 0
        return f"it was killed by {signal_name(number)}" if number else f"exit status {self.code}"

    @property
    def wordless(self) -> bool:
        """Whether it was killed, or said nothing: SLURM itself has refused nothing then."""
        return self.code < 0 or self.code in SIGNALLED or not (self.err.strip() or self.out.strip())


def environment() -> dict[str, str]:
    """What a command of SLURM gets of this process's environment. An empty token is none: a job has it that
    was submitted by a token (`submission.exporting`)."""
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
    """Run one command. Raises TransientError when it does not end in time or this machine cannot start it
    now, PreflightError when it is not installed, and InterruptedRunError; the caller judges every other
    outcome. `env`: its environment, in
    place of `environment`, and `extra` beside it. `outlives`: whether it may end after this
    process, where that one is killed. `program`: its name for people, where that is not its first word."""
    program = program or command[0]
    given: dict[str | bytes, str] = {}
    given.update(environment() if env is None else env)
    given.update(extra or {})
    try:
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            # A name that stands there twice is a str and bytes (`submission.exporting`).
            env=cast("Mapping[str, str]", given),
            # This thread waits for its end.
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
    """Its standard output and error. Says after SAID, then once in AGAIN, that it is waited for. Raises
    TransientError after ANSWER_WITHIN, and InterruptedRunError once a signal has come; a command that answers
    within LOOK is heard all the same: what a stop cleans up."""
    began, given, due = time.monotonic(), iter([stdin]), SAID
    within = waits.within(ANSWER_WITHIN)
    try:
        while (left := within - (time.monotonic() - began)) > 0:
            with contextlib.suppress(subprocess.TimeoutExpired):
                wait = min(LOOK, left, max(0.0, began + due - time.monotonic()))
                return process.communicate(next(given, None), timeout=wait)
            waits.signalled()
            waited = time.monotonic() - began
            if due <= waited < within:
                due += AGAIN
                say(
                    f"SLURM's {program} has not answered for {waited:.0f} s: it is waited for up to "
                    f"{within:.0f} s"
                )
    finally:
        process.kill()  # it has no effect on one that has ended
    raise TransientError(f"{program} gave no answer within {within:.0f} s")


def ask(*command: str, extra: Mapping[str, str] | None = None, unless: str = "") -> str:
    """The standard output of a query, also of one that fails with the words `unless`. Every other failure is
    a TransientError, whatever SLURM says of it: nothing was refused, and elements may live meanwhile. It is
    raised when the query fails again after AFTER, unless SLURM names what may pass: its commands have
    repeated that themselves."""
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
    """While inside, an answer that is not of the expected form is a TransientError: it may be cut off."""
    try:
        yield
    except (ValueError, LookupError) as error:
        raise TransientError(
            f"{program}'s answer cannot be read",
            why=CommandOutput(0, text, "").words,
            hint=f"look at what `{program}` prints here: a wrapper may have changed it",
        ) from error


def problem(program: str, answer: CommandOutput) -> PenstockError:
    """The error that an unsuccessful answer of an order stands for. Of one that was killed, or says nothing,
    nobody knows whether SLURM obeys: a TransientError."""
    kind = TransientError if answer.wordless else kind_of(answer.words)
    sentences: dict[type[PenstockError], str] = {
        OverloadedError: f"{program} has to back off",
        TransientError: f"{program} did not reach SLURM",
    }
    ended = _token_ended()
    return kind(
        sentences.get(kind, f"{program} failed"),
        why=answer.words + (f"; {TOKEN} ended at {timestamps.local(ended)}" if ended else ""),
        hint=f"`unset {TOKEN}`, or set a new token (`scontrol token` prints one)" if ended else "",
    )


def _token_ended() -> float:
    """When the token in SLURM_JWT ended, by its own claim, in seconds since the epoch: SLURM refuses whatever
    is asked by it, with no word of the token. 0: there is none, it is good still, or it does not say."""
    try:
        part = os.environ.get(TOKEN, "").split(".")[1]
        ends = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))["exp"]
        return float(ends) if 0 < ends < time.time() else 0.0
    except (LookupError, TypeError, ValueError):
        return 0.0


def kind_of(words: str) -> type[PenstockError]:
    """What these words of SLURM's stand for.

    | words                                      | limits that they name      | error                       |
    |--------------------------------------------|----------------------------|-----------------------------|
    | of OVERLOADED                              | any                        | OverloadedError             |
    | of POLICY                                  | one of submitted jobs      | QueueFullError              |
    | of POLICY                                  | none: pyslurm does not say | QueueFullError; who knows   |
    |                                            |                            | the limits judges           |
    | of POLICY                                  | others alone               | FailedError                 |
    | of FINAL                                   | any                        | FailedError                 |
    | of TRANSIENT                               | any                        | TransientError              |
    | others                                     | any                        | FailedError                 |
    """
    if OVERLOADED.search(words):
        return OverloadedError
    if POLICY.search(words):
        return QueueFullError if names_queue(words) or not REASON.search(words) else FailedError
    if FINAL.search(words):
        return FailedError
    return TransientError if TRANSIENT.search(words) else FailedError


def names_queue(words: str) -> bool:
    """Whether SLURM says that a limit of submitted jobs is reached."""
    return any("Sub" in reason for reason in REASON.findall(words))


def absent(program: str, error: OSError | None = None) -> PreflightError:
    """The error for a command of SLURM that cannot be run on this machine."""
    return PreflightError(
        f"SLURM's {program} cannot be run here",
        where="cluster.backend",
        why=str(error.strerror) if error is not None else "not on PATH",
        hint="run where SLURM's commands are (a login node), put them on PATH, or set cluster.backend: local",
    )


def require(*programs: str) -> None:
    """Raises PreflightError for the first program that is not on PATH."""
    for program in programs:
        if shutil.which(program) is None:
            raise absent(program)
