"""SLURM through its commands: builds the command lines, runs them (`client`) and reads their answers. Also
SLURM through pyslurm for calls that it does as well, if `cluster.slurm_api` asks for it; arguments of
`sbatch` become fields of pyslurm's `JobSubmitDescription`.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cluster.port import LiveJob, State
from penstock.cluster.slurm import client
from penstock.cluster.slurm.answers import (
    ASSOCIATION_FIELDS,
    QOS_FIELDS,
    SACCT_FIELDS,
    SQUEUE_FIELDS,
    STATES,
    USAGE_FIELDS,
    read_accounts,
    read_association,
    read_partitions,
    read_qos,
    read_sacct,
    read_squeue,
    read_usage,
    wait_status,
)
from penstock.cluster.slurm.client import CommandOutput, ask, call, problem, reading, require
from penstock.cluster.slurm.facts import (
    Facts,
    JobSeen,
    JobTrial,
    Node,
    Partition,
    QueuedJob,
    SlurmSettings,
    job_rows,
    read_nodes,
)
from penstock.cluster.slurm.submission import (
    array_arguments,
    compressed,
    exporting,
    handed_on,
    job_arguments,
    single_arguments,
    validated,
    without_file,
)
from penstock.core.errors import FailedError, PreflightError, QueueFullError, TransientError
from penstock.core.human import in_quotes
from penstock.core.range_lists import host_list, host_names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.cluster.port import Accounted, ArraySpec
    from penstock.cluster.slurm.answers import SlurmElement
    from penstock.cluster.slurm.facts import Association, Qos
    from penstock.cluster.slurm.submission import Export
    from penstock.config.settings import JobOptions


# SLURM through its commands: builds the command lines, runs them (`client`) and reads their answers.
#
# The scheduler's rules are in `cluster`, `site` and `element_times`. The subclass `SlurmBindings`
# sends submissions, cancels, throttles, and queries of nodes and partitions through pyslurm. The way to SLURM
# (commands or pyslurm) is recorded in receipts of steps; `arrays.jsonl` names only the scheduler.

EPOCH = {"SLURM_TIME_FORMAT": "%s"}
# Includes partitions that are hidden (`Hidden=YES`), or closed to this account. Without this option slurmctld
# leaves out these partitions, their nodes, and, if asked about several jobs, this account's jobs there.
ALL = "--all"
_JOB_FIELDS = "JobID:|,State:|,exit_code:|,NodeList:|,Reason:|"
# answer of `sbatch --parsable`: a job's number, and its cluster's name if there are several clusters
_ID = re.compile(r"^\s*([0-9]+)(?:;[\w.-]+)?\s*$", re.MULTILINE)
_TASKS = re.compile(r"(?:^|,)max_array_tasks=([0-9]+)")
_START = re.compile(r"\bto start at ([0-9]+)\s")
_UNKNOWN = "Invalid job id"
_DENIED = "Access/permission denied"


class SlurmCommands:
    """The SLURM of this machine, through sbatch, squeue, sacct, scontrol, scancel and sinfo. Every call
    raises TransientError while SLURM does not answer. A query also raises it for any other failure or an
    unreadable answer. Unless a method says otherwise, a refused order (submission, cancel, update) raises
    FailedError with SLURM's own words."""

    @property
    def way(self) -> str:
        """The name of this way to SLURM, for people and receipts."""
        return "commands"

    def require(self) -> None:
        """Raise PreflightError if this way to SLURM does not work on this machine."""
        require("sbatch", "squeue", "scontrol", "scancel", "sinfo")

    def facts(self) -> Facts:
        """Read the parts of the cluster's configuration that code needs."""
        values = _configuration()
        tasks = _TASKS.search(values.get("SchedulerParameters", ""))
        with reading("scontrol", values.get("MaxArraySize", "")):
            max_array = int(values.get("MaxArraySize", "1001"))
        return Facts(
            version=values.get("SLURM_VERSION", ""),
            max_array=max_array,
            max_tasks=int(tasks[1]) if tasks else None,
            allows_core_spec=values.get("AllowSpecResourcesUsage", "").lower() in ("yes", "1"),
            accounting=values.get("AccountingStorageType", "").endswith("slurmdbd"),
            cluster=values.get("ClusterName", ""),
            # With a MinJobAge of 0 slurmctld purges no job.
            min_job_age=_seconds(values.get("MinJobAge", ""), 300) or math.inf,
            message_timeout=_seconds(values.get("MessageTimeout", ""), 10),
            max_jobs=int(values["MaxJobCount"]) if values.get("MaxJobCount", "").isdecimal() else None,
            enforced=frozenset(values.get("AccountingStorageEnforce", "").lower().split(",")),
            tracks_wckeys=values.get("TrackWCKey", "").lower() in ("yes", "1"),
        )

    def settings(self) -> SlurmSettings:
        """Read the cluster's configuration, word by word."""
        values = _configuration()
        try:
            written = Path(values.get("SLURM_CONF", "")).read_text(encoding="utf-8", errors="replace")
        except OSError:
            written = ""
        return SlurmSettings(values, written)

    def nodes(self) -> list[Node]:
        """Read all nodes that this account may see; [] if PrivateData hides them."""
        text = _shown("scontrol", "show", "node", "--oneliner", ALL)
        with reading("scontrol", text):
            return read_nodes(text)

    def node_states(self, names: Sequence[str]) -> dict[str, str]:
        """Read SLURM's word for each node's state, in small letters. A star at its end means that the node
        does not answer."""
        text = _shown("sinfo", ALL, "-h", "-N", "-n", ",".join(names), "-o", "%N|%T") if names else ""
        lines = (line.partition("|") for line in text.splitlines())
        return {name: state for node, _, state in lines if (name := node.strip()) in names}

    def partitions(self) -> list[Partition]:
        """Read all partitions that this account may see; [] if PrivateData hides them."""
        return read_partitions(_shown("scontrol", "show", "partition", "--oneliner", ALL))

    def association(self, cluster: str, user: str, options: JobOptions) -> Association:
        """Read this user's association for jobs with these options; empty if accounting has none. Needs
        `Facts.accounting`."""
        return read_association(_associations(cluster, user), options.account, options.partition)

    def accounts(self, cluster: str, user: str) -> list[str]:
        """Read the accounts of this user, the default first. Needs `Facts.accounting`."""
        return read_accounts(_associations(cluster, user))

    def qos(self, name: str) -> Qos | None:
        """Read the QOS of this name; None if accounting has none. Needs `Facts.accounting`."""
        rows = read_qos(
            _shown("sacctmgr", "-nP", "show", "qos", f"name={name}", f"format={','.join(QOS_FIELDS)}")
        )
        return next((row for row in rows if row.name == name), None)

    def trial(self, options: JobOptions, exclude: Sequence[str] = ()) -> JobTrial:
        """Let SLURM judge a job with these options, off the nodes `exclude`, without submitting it. Raises
        QueueFullError if SLURM judges no job, since this account has too many."""
        asked = job_arguments(options, exclude=exclude)
        # No job is made, so no environment is needed. With --export-file sbatch would forget its own
        # environment, including EPOCH.
        words = ("sbatch", "--test-only", "--export=NONE", "--chdir=/", "--output=/dev/null", *asked)
        answer = call(*words, stdin="#!/bin/sh\nexit 0\n", extra=EPOCH)
        if answer.code == 0:
            start = _START.search(f"{answer.err}\n{answer.out}")
            return JobTrial(start=float(start[1]) if start else 0.0)
        error = problem("sbatch", answer)
        if isinstance(error, TransientError | QueueFullError):
            raise error
        return JobTrial(refusal=answer.words)

    def submit_array(self, spec: ArraySpec, at_once: int, options: JobOptions, script: str) -> str:
        """Submit once; return the array's id. After a TransientError the outcome is unknown. Raises
        QueueFullError if this account may have no more jobs now."""
        return self._sbatch(array_arguments(spec, at_once, options), script, spec.name)

    def submit_job(self, name: str, options: JobOptions, script: str, *, node: str = "") -> str:
        """Submit a single job without output, which is never started again; return its id. `node` is the only
        node that it may use; "" permits all that the options allow."""
        return self._sbatch(single_arguments(name, options, node), script, name)

    def _sbatch(self, command: Sequence[str], script: str, name: str) -> str:
        """Submit, and return the id in the last line that has the form of an id. If a site's wrapper swallows
        that line, return the newest job of this name: slurmctld knows it before sbatch ends with 0."""
        answer = _handed(command, script, name)
        if answer.code != 0:
            raise problem("sbatch", answer)
        if ids := _ID.findall(answer.out):
            return str(ids[-1])
        if jobs := self.find(name):
            return str(jobs[-1])
        raise TransientError(
            "sbatch gave no job id, and squeue has no job of that name", where=name, why=answer.words
        )

    def find(self, name: str) -> list[int]:
        """List the ids of this account's arrays of this name, sorted. They include ended arrays that the
        controller remembers."""
        mine = (f"--user={os.geteuid()}", f"--name={validated('name', name)}")
        text = ask("squeue", ALL, "-h", "--states=all", *mine, "-o", f"%F|{name}")
        with reading("squeue", text):
            return sorted({int(line.partition("|")[0]) for line in job_rows(text)})

    def elements_of(self, arrays: Sequence[str]) -> dict[str, list[SlurmElement]]:
        """Read all elements of these arrays by one query; [] for an array that the controller has forgotten.
        For a single array slurmctld sends only that array. For several arrays squeue fetches all jobs, so the
        query is limited to this account's jobs."""
        mine = [f"--user={os.geteuid()}"] if len(arrays) > 1 else []
        which = [ALL, "--array", "-h", "--states=all", *mine, "-j", ",".join(arrays), "-O", SQUEUE_FIELDS]
        text = ask("squeue", *which, extra=EPOCH, unless=_UNKNOWN)
        elements: dict[str, list[SlurmElement]] = {array: [] for array in arrays}
        with reading("squeue", text):
            for array, element in read_squeue(text):
                if array in elements:
                    elements[array].append(element)
        return elements

    def ended_elements(self, array: str) -> list[SlurmElement]:
        """Read all elements from accounting. Needs `Facts.accounting`."""
        text = ask("sacct", "-X", "-P", "-n", "-j", array, "-o", SACCT_FIELDS, extra=EPOCH)
        with reading("sacct", text):
            return list(read_sacct(text, array))

    def accounting(self, array: str) -> Sequence[Accounted]:
        """Read the accounting of the array's started elements. Needs `Facts.accounting`."""
        # Each start has its own row (--duplicates), and each step of a start has a further row.
        text = ask("sacct", "--duplicates", "-P", "-n", "-j", array, "-o", USAGE_FIELDS, extra=EPOCH)
        with reading("sacct", text):
            return read_usage(text, array)

    def job(self, job: str) -> JobSeen:
        """Read a job, or element, that the controller knows."""
        text = ask("squeue", ALL, "-h", "--states=all", "-j", job, "-O", _JOB_FIELDS, unless=_UNKNOWN)
        line = next(job_rows(text), "")
        _, state, code, node, reason = ([field.strip() for field in line.split("|")] + [""] * 5)[:5]
        return JobSeen(state, wait_status(code) >> 8, node, reason)

    def job_states(self, job: str) -> list[str] | None:
        """Read SLURM's words for the states of a job's elements; None if the controller does not know it."""
        answer = call("squeue", ALL, "--array", "-h", "--states=all", "-j", job, "-O", "JobID:|,State:|")
        words = [line.split("|")[1].strip() for line in job_rows(answer.out)] if answer.code == 0 else []
        return None if not words and _UNKNOWN in answer.words else words

    def live_jobs(self, job: str) -> list[LiveJob]:
        """List the elements, or components, of a job that have not ended and that this account may see."""
        which = [ALL, "-h", "--states=all", "-j", job, "-O", "JobID:|,UserID:|,State:|,Reason:|"]
        text = ask("squeue", *which, unless=_UNKNOWN)
        with reading("squeue", text):
            rows = [[cell.strip() for cell in line.split("|")] for line in job_rows(text)]
            states = [STATES.get(row[2], State.RUNNING) for row in rows]
            return [
                LiveJob(int(row[1]), row[3] if state is State.PENDING else "")
                for row, state in zip(rows, states, strict=True)
                if not state.ended
            ]

    def requeue(self, job: str) -> None:
        """Requeue a job of this account; it keeps its number."""
        answer = call("scontrol", "requeue", job)
        if answer.code != 0:
            raise problem("scontrol requeue", answer)

    def ended_states(self, job: str) -> list[str]:
        """Read SLURM's words for the states of a job's elements from accounting. Needs `Facts.accounting`."""
        listed = ask("sacct", "-X", "-P", "-n", "-j", job, "-o", "JobID,State")
        with reading("sacct", listed):
            return [line.split("|")[1].split()[0].rstrip("+") for line in job_rows(listed)]

    def jobs(self) -> list[QueuedJob]:
        """Read all waiting and running jobs that this account may see."""
        text = _shown("squeue", ALL, "-h", "--states=PD,R,S,CF,CG", "-o", "%A|%F|%t|%u|%a|%q|%N|%r|%j")
        return [_queued(line) for line in job_rows(text) if line.count("|") >= 8]

    def cancel(self, job: str, indices: Sequence[int] | None = None) -> None:
        """End a job, or these elements of an array. A job that has ended is no error."""
        answer = call("scancel", job if indices is None else f"{job}_[{compressed(indices)}]")
        if answer.code != 0 and not _gone(answer):
            raise problem("scancel", answer)

    def keep_off(self, array: str, nodes: Sequence[str]) -> None:
        """Keep unstarted elements off these nodes, in place of earlier exclusions. No error if all elements
        have started."""
        names = host_list(validated("node", name) for name in nodes)
        answer = call("scontrol", "update", f"JobId={array}", f"ExcNodeList={names}")
        if answer.code != 0 and not _gone(answer):
            raise problem("scontrol update", answer)

    def throttle(self, array: str, at_once: int) -> None:
        """Let at most `at_once` elements of an array run at once. An array that has ended is no error."""
        answer = call("scontrol", "update", f"JobId={array}", f"ArrayTaskThrottle={at_once}")
        # It is no error if all elements have started or ended: then none is left to hold back.
        if answer.code != 0 and not _gone(answer):
            raise problem("scontrol update", answer)


def _queued(line: str) -> QueuedJob:
    job, array, state, user, account, qos, nodes, reason, name = line.split("|", 8)
    try:
        names = frozenset(host_names(nodes))
    except ValueError:
        names = frozenset()  # `(null)`, or an unknown form: the job counts as using no node
    return QueuedJob(job, array, state != "PD", user, account, qos, names, reason, name)


def _handed(command: Sequence[str], script: str, name: str) -> CommandOutput:
    """Run sbatch so that the job of this name gets its environment (`exporting`)."""

    def run(export: Export) -> CommandOutput:
        # An sbatch that outlived its controller might sleep, retry, and submit an array without an owner.
        return call(*command, export.option, stdin=script, env=export.env, outlives=False)

    with exporting(name) as export:
        answer = run(export)
    if answer.code != 0 and export.unread(f"{answer.err}\n{answer.out}"):
        return run(without_file())
    return answer


def _shown(*command: str) -> str:
    """Return the answer as `ask` does; "" if only administrators may see it (PrivateData of slurm.conf)."""
    return ask(*command, unless=_DENIED)


def _associations(cluster: str, user: str) -> str:
    shown = f"format={','.join(ASSOCIATION_FIELDS)}"
    return _shown("sacctmgr", "-nP", "show", "user", "withassoc", f"name={user}", f"cluster={cluster}", shown)


def _configuration() -> dict[str, str]:
    text = ask("scontrol", "show", "config")
    values = dict(re.findall(r"^(\w+)[ \t]*=[ \t]*(.*?)[ \t]*$", text, re.MULTILINE))
    if "SLURM_VERSION" not in values:  # a line near the end of the answer
        raise TransientError("scontrol's answer cannot be read", why="it is cut off, or no configuration")
    return values


def _seconds(text: str, usual: float) -> float:
    """Parse a setting such as `30 sec`."""
    word = text.partition(" ")[0]
    return float(word) if word.isdecimal() else usual


def _gone(answer: CommandOutput) -> bool:
    gone = (_UNKNOWN, "already completing or completed", "already finished", "no longer pending")
    return any(words in answer.words for words in gone)


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
