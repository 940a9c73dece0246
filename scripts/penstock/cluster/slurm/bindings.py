"""SLURM through pyslurm for calls that it does as well as the commands, and through the commands for all
others. `SlurmCluster` uses this if `cluster.slurm_api` asks for it. Arguments of `sbatch` become fields of
pyslurm's `JobSubmitDescription`.
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
# Only `submission` defines a job, as sbatch's options, so both ways submit the same job. If the table has no
# row for an option, the job goes through `sbatch`: pyslurm lacks the option, or nobody has tested it.

_WARNING = re.compile(r"B:([A-Z0-9]+)@([0-9]+)")


def attributes(arguments: Sequence[str], script: str) -> dict[str, object] | None:
    """Translate these arguments, which begin with `sbatch`; None if pyslurm does not carry an option."""
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
    # pyslurm raises TypeError for a time limit given as text, and never sends 0.
    return lambda value: {name: int(value)} if value.isdecimal() and int(value) > 0 else None


def _several(name: str) -> Callable[[str], Mapping[str, object]]:
    return lambda value: {name: value.split(",")}


def _fixed(**row: object) -> Callable[[str], Mapping[str, object]]:
    return lambda _: row


def _warned(value: str) -> Mapping[str, object] | None:
    """Translate `B:USR1@120`, a signal for the batch script alone, 120 seconds before the end of its time."""
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


# | call                            | through pyslurm      | through the commands, if                        |
# | ------------------------------- | -------------------- | ----------------------------------------------- |
# | submission                      | JobSubmitDescription | the table above has no row for an option, such  |
# |                                 |                      | as core-spec 0                                  |
# | cancel of a whole job           | Job.cancel           | pyslurm reports an error: it takes errno for    |
# |                                 |                      | the answer, even after a success                |
# | throttle                        | Job.modify           | SLURM did not note the number                   |
# | nodes                           | Nodes                | a node reserves cores, since pyslurm lacks      |
# |                                 |                      | CpuSpecList                                     |
# | partitions                      | Partitions           | pyslurm cannot be used                          |
# | others (queue, accounting)      | never                | always                                          |
#
# So a submission through pyslurm is always read back through the commands. Each call of pyslurm is a process
# of its own (`pyslurm_helper`), which ends with this process, as `sbatch` does:
#
# | the helper                           | a query, cancel, throttle            | a submission             |
# |--------------------------------------|--------------------------------------|--------------------------|
# | answers                              | returns the answer                   | returns the id           |
# | says that SLURM does not answer      | uses the commands                    | TransientError           |
# | says that SLURM refuses              | uses the commands                    | FailedError              |
# | ends, hangs, or answers nonsense     | uses the commands from now on        | TransientError, and the  |
# |                                      |                                      | commands from now on     |
#
# After a TransientError the outcome of a submission is unknown. `find` then searches squeue for its unique
# name.

HELPER = Path(__file__).with_name("pyslurm_helper.py")


class HelperLostError(Exception):
    """The helper could not be started, ended, hung, or answered nonsense: the outcome of its call is
    unknown."""


class SlurmBindings(SlurmCommands):
    """SLURM through pyslurm, which must fit the cluster's release and be configured for this cluster. The
    first call checks that."""

    def __init__(
        self, python: str | None = None, *, wanted: bool, warn: Callable[[str], None] | None = None
    ) -> None:
        """`python` is the interpreter that has pyslurm (None: this one). If `wanted`, the configuration
        demands pyslurm: without it preflight stops, and other commands warn. `warn` may be called from any
        thread; if it is None, warnings go to the log."""
        self._python = python or sys.executable
        self._wanted = wanted
        self._warn = warn or logging.getLogger("penstock").warning
        self._lock = threading.Lock()
        # pyslurm's version; "" until it proves to fit this cluster
        self._version = ""
        # why the commands have replaced pyslurm; "" if they have not
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
        # pyslurm returns None for an array that has ended.
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
        """Call the helper, and read its answer; None if the commands must be used."""
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
        """Return whether pyslurm fits this cluster and the commands have not replaced it. Raises
        TransientError while SLURM does not answer, since pyslurm then cannot be checked."""
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
        outlives = name != "submit"  # nobody would watch an array submitted after its controller's death
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
        # libslurm reports the words `Success` for an error whose number it lost.
        kind = TransientError if words in ("", "Success") else client.kind_of(words)
        what = "did not reach SLURM" if issubclass(kind, TransientError) else "was refused by SLURM"
        raise kind(f"pyslurm {what}", why=words or "no reason given")


def _differs(version: str, cluster: str, theirs: Facts) -> str:
    """Explain why this pyslurm does not fit the cluster of the commands; "" if it does."""
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
