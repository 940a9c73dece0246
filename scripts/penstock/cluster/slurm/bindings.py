"""SLURM by pyslurm where that is as good as the commands, and by these for all else. For `SlurmCluster`,
where `cluster.slurm_api` asks for it; arguments of `sbatch` become fields of pyslurm's
`JobSubmitDescription`.
"""

from __future__ import annotations

import json
import logging
import re
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cluster.slurm import client
from penstock.cluster.slurm.command_line import SlurmCommands
from penstock.cluster.slurm.facts import Node, Partition
from penstock.cluster.slurm.submission import handed_on
from penstock.core.errors import FailedError, PreflightError, TransientError
from penstock.core.human import in_quotes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.cluster.slurm.facts import Facts


# Translates the arguments of `sbatch` into the fields of pyslurm's `JobSubmitDescription`.
#
# Only `submission` defines a job, as sbatch's options: so both ways submit the same. A job with an option
# that has no row here goes through `sbatch`: pyslurm does not carry the option, or it was not tried.

_WARNING = re.compile(r"B:([A-Z0-9]+)@([0-9]+)")


def attributes(arguments: Sequence[str], script: str) -> dict[str, object] | None:
    """Translate these arguments of sbatch, `sbatch` first; None where pyslurm does not carry an option."""
    asked: dict[str, object] = {"script": script, "environment": handed_on()}
    for word in arguments[1:]:
        option, _, value = word.partition("=")
        row = _OPTIONS[option](value) if option in _OPTIONS else None
        if row is None:
            return None
        asked.update(row)
    return asked


def _text(name: str) -> Callable[[str], Mapping[str, object]]:
    return lambda value: {name: value}


def _number(name: str) -> Callable[[str], Mapping[str, object] | None]:
    # A text of digits raises TypeError for a time limit, and 0 is never sent.
    return lambda value: {name: int(value)} if value.isdecimal() and int(value) > 0 else None


def _several(name: str) -> Callable[[str], Mapping[str, object]]:
    return lambda value: {name: value.split(",")}


def _fixed(**row: object) -> Callable[[str], Mapping[str, object]]:
    return lambda _: row


def _warned(value: str) -> Mapping[str, object] | None:
    """Translate `B:USR1@120`: a signal for the batch script alone, so many seconds before the end of its
    time."""
    if (match := _WARNING.fullmatch(value)) is None:
        return None
    number = int(signal.Signals[f"SIG{match[1]}"])
    return {"signal": {"signal": number, "time": int(match[2]), "batch_only": True}}


_OPTIONS: Mapping[str, Callable[[str], Mapping[str, object] | None]] = {
    "--parsable": _fixed(),
    "--job-name": _text("name"),
    "--comment": _text("comment"),
    "--array": _text("array"),
    "--requeue": _fixed(is_requeueable=True),
    "--no-requeue": _fixed(is_requeueable=False),
    "--signal": _warned,
    "--open-mode": _text("log_files_open_mode"),
    "--input": _text("standard_in"),
    "--output": _text("standard_output"),
    "--chdir": _text("working_directory"),
    "--nodes": _number("nodes"),
    "--ntasks": _number("ntasks"),
    "--cpus-per-task": _number("cpus_per_task"),
    "--partition": _several("partitions"),
    "--account": _text("account"),
    "--qos": _text("qos"),
    "--reservation": _several("reservations"),
    "--constraint": _text("constraints"),
    "--licenses": _several("licenses"),
    "--time": _number("time_limit"),
    "--mem": _text("memory_per_node"),
    "--core-spec": _number("cores_reserved_for_system"),
    "--exclusive": _fixed(resource_sharing="exclusive"),
    "--nodelist": _several("required_nodes"),
    "--exclude": _several("excluded_nodes"),
    "--wckey": _text("wckey"),
}


# SLURM by pyslurm where that is as good as the commands, and by the commands for all else.
#
# | asked of SLURM                  | by pyslurm           | by the commands, where                          |
# | ------------------------------- | -------------------- | ----------------------------------------------- |
# | submission                      | JobSubmitDescription | an option has no row in the table above, as     |
# |                                 |                      | core-spec 0                                     |
# | cancel of a whole job           | Job.cancel           | pyslurm reports an error: it takes errno for    |
# |                                 |                      | the answer, also after a success                |
# | throttle                        | Job.modify           | SLURM did not note the number                   |
# | nodes                           | Nodes                | one reserves cores: pyslurm does not have which |
# |                                 |                      | (CpuSpecList)                                   |
# | partitions                      | Partitions           |                                                 |
# | all else: what runs, accounting | nothing              | always                                          |
#
# So the commands read a submission back: another way than the one that submitted. Each call is a process of
# its own (`helper`), which ends with this one, as `sbatch` does:
#
# | the helper                           | a query, cancel, throttle            | a submission             |
# |--------------------------------------|--------------------------------------|--------------------------|
# | answers                              | its answer                           | the id                   |
# | says that SLURM does not answer      | the commands judge                   | TransientError           |
# | says that SLURM refuses              | the commands judge                   | FailedError              |
# | ends, hangs, answers something else  | the commands, of all from then on    | TransientError, then the |
# |                                      |                                      | commands                 |
#
# After a TransientError a submission's outcome is unknown: `find` looks for it by `squeue` and its unique
# name.

HELPER = Path(__file__).with_name("pyslurm_helper.py")


class HelperLostError(Exception):
    """The helper could not be started, ended, hung, or answered nonsense: the outcome of its call is
    unknown."""


class SlurmBindings(SlurmCommands):
    """SLURM by pyslurm, which must be of the cluster's release, and of this cluster. The first call checks
    that."""

    def __init__(
        self, python: str | None = None, *, wanted: bool, warn: Callable[[str], None] | None = None
    ) -> None:
        """`python`: the interpreter that has pyslurm; None: this one. `wanted`: the configuration demands
        pyslurm, so a missing one stops preflight, and is a warning elsewhere. `warn` is called from any
        thread; None: warnings go to the log."""
        self._python = python or sys.executable
        self._wanted = wanted
        self._warn = warn or logging.getLogger("penstock").warning
        self._lock = threading.Lock()
        # pyslurm's version, once it proved to fit this cluster
        self._version = ""
        # why the commands have taken over; "": they have not
        self._why = ""

    @property
    def way(self) -> str:
        try:
            self._usable()
        except (TransientError, PreflightError):
            return super().way
        if not self._version:
            return super().way
        return f"pyslurm {self._version}" + f", then {super().way}" * bool(self._why)

    def require(self) -> None:
        super().require()
        if not self._usable() and self._wanted:
            raise PreflightError(
                "pyslurm cannot be used",
                where="cluster.slurm_api: pyslurm",
                why=self._why,
                hint="set cluster.pyslurm_python to an interpreter with the pyslurm of this cluster's "
                "release, or cluster.slurm_api: commands",
            )

    def nodes(self) -> list[Node]:
        listed = self._asked("nodes", {}, lambda result: [_node(fields) for fields in result])
        return super().nodes() if listed is None or any(node.reserved for node in listed) else listed

    def partitions(self) -> list[Partition]:
        listed = self._asked("partitions", {}, lambda result: [Partition(**fields) for fields in result])
        return super().partitions() if listed is None else listed

    def cancel(self, job: str, indices: Sequence[int] | None = None) -> None:
        # Waiting elements have no id of their own.
        if indices is not None or not self._asked("cancel", {"job": job}, lambda _: True):
            super().cancel(job, indices)

    def throttle(self, array: str, at_once: int) -> None:
        # For an array that has ended, pyslurm has None.
        arguments = {"job": array, "at_once": at_once}
        if not self._asked("throttle", arguments, lambda noted: noted in (None, at_once)):
            super().throttle(array, at_once)

    def _sbatch(self, command: Sequence[str], script: str, name: str) -> str:
        asked = attributes(command, script) if self._usable() else None
        if asked is None:
            return super()._sbatch(command, script, name)
        try:
            return str(self._call("submit", asked, _job_id))
        except HelperLostError as error:
            self._lost(error)
            raise TransientError("nothing is known of a submission by pyslurm", why=str(error)) from error

    def _asked(self, name: str, arguments: Mapping[str, object], read: Callable[[Any], Any]) -> Any:
        """Call the helper, and read its answer; None where the commands must decide."""
        if not self._usable():
            return None
        try:
            return self._call(name, arguments, read)
        except HelperLostError as error:
            self._lost(error)
        except (TransientError, FailedError):
            pass
        return None

    def _usable(self) -> bool:
        """Return whether pyslurm fits this cluster and has not been lost. Raises TransientError while SLURM
        does not answer: then pyslurm cannot be judged."""
        with self._lock:
            if not (self._version or self._why):
                try:
                    theirs = self.facts()
                    own = self._call("cluster", {}, lambda result: (result["pyslurm"], result["cluster"]))
                    self._why = _differs(own[0], own[1], theirs)
                    self._version = "" if self._why else own[0]
                except (HelperLostError, FailedError) as error:
                    self._why = str(error)
                if self._why and self._wanted:
                    self._warn(f"pyslurm cannot be used ({self._why}): SLURM's commands are")
            return not self._why

    def _lost(self, error: HelperLostError) -> None:
        with self._lock:
            if not self._why:
                self._why = str(error)
                self._warn(f"pyslurm's helper is lost ({error}): SLURM's commands are used from now on")

    def _call(self, name: str, arguments: Mapping[str, object], read: Callable[[Any], Any]) -> Any:
        """Call pyslurm once, and read its result. Raises FailedError with SLURM's own words for a refusal,
        TransientError while SLURM does not answer, and HelperLostError."""
        command = (self._python, str(HELPER), str(int(client.ANSWER_WITHIN)), name)
        outlives = name != "submit"  # a submission that outlives its controller has nobody to take it
        try:
            answer = client.call(*command, stdin=json.dumps(arguments), outlives=outlives, program="pyslurm")
        except PreflightError as error:
            raise HelperLostError(f"{self._python} cannot be run: {error.why}") from error
        except TransientError as error:
            raise HelperLostError(error.what) from error
        if answer.code != 0:
            ended = f"signal {-answer.code}" if answer.code < 0 else f"status {answer.code}"
            last = answer.err.strip().rpartition("\n")[2]
            raise HelperLostError(f"it ended with {ended}" + f": {last}" * bool(last))
        try:
            # The interpreter may be a site's script that prints something itself.
            begin, end = answer.out.index("{"), answer.out.rindex("}") + 1
            fields = json.loads(answer.out[begin:end])
            if "refused" not in fields:
                return read(fields["result"])
            words = str(fields["refused"])
        except (LookupError, TypeError, ValueError) as error:
            raise HelperLostError(f"its answer cannot be read: {type(error).__name__}: {error}") from error
        # libslurm calls an error `Success` if it did not keep the number.
        kind = TransientError if words in ("", "Success") else client.kind_of(words)
        what = "did not reach SLURM" if issubclass(kind, TransientError) else "was refused by SLURM"
        raise kind(f"pyslurm {what}", why=words or "no reason given")


def _differs(version: str, cluster: str, theirs: Facts) -> str:
    """Explain why this pyslurm does not fit the cluster of the commands; "" where it does."""
    if release(version) != release(theirs.version):
        return f"pyslurm {version} is not of this cluster's release, {theirs.version}"
    if cluster != theirs.cluster:
        return f"pyslurm {version} speaks to the cluster {cluster}, the commands to {theirs.cluster}"
    return ""


def release(version: str) -> tuple[int, ...]:
    """Parse `25.11.2` and `25.11.2-1` to (25, 11), `26.05.5` and `26.5.0` to (26, 5); () for other forms."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return (int(numbers[1]), int(numbers[2])) if numbers else ()


def _node(fields: Mapping[str, Any]) -> Node:
    sets = {name: frozenset(fields[name]) for name in ("partitions", "features")}
    return Node(**{**fields, **sets})


def _job_id(result: object) -> str:
    if not isinstance(result, int) or isinstance(result, bool) or result < 1:
        raise ValueError(f"no job id: {in_quotes(result)}")
    return str(result)
