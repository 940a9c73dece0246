"""`slurm.port.Slurm` by pyslurm, and by the commands where pyslurm cannot or does not.

| asked of SLURM                  | by pyslurm                | by the commands, since                       |
|---------------------------------|---------------------------|----------------------------------------------|
| facts                           | Config                    | always first: pyslurm does not have all of   |
|                                 |                           | them, and must agree on the others           |
| partitions                      | Partitions                |                                              |
| nodes                           | Nodes                     | one reserves cores: pyslurm does not have    |
|                                 |                           | which (CpuSpecList)                          |
| submission                      | JobSubmitDescription      | an option has no row in `job_description`,   |
|                                 |                           | as core-spec 0                               |
| a single job's state            | Job.load                  | it failed: pyslurm takes 128 off exit        |
|                                 |                           | statuses from 128 on                         |
| cancel of a whole job, throttle | Job.cancel, Job.modify    |                                              |
| elements that ended (slurmdbd)  | db.Jobs.load              | one failed, as above                         |
| elements (slurmctld), find,     |                           | Jobs.load takes the whole cluster's table,   |
| states of a holder's job        |                           | Job.load one element's record                |
| cancel of single elements, and  |                           | pending ones have no id of their own         |
| which nodes these keep off      |                           |                                              |
| SLURM's judgement of a job      |                           | pyslurm has no `--test-only`                 |
| all settings, reservations,     |                           | these are read as the commands write them;   |
| accounts, QOS, what was used    |                           | pyslurm has other words, or none             |

So a submission is read back by the commands: what SLURM gives is seen by another way than the one that asked.

What becomes of a call:

| the helper                           | a query, cancel, throttle            | a submission             |
|--------------------------------------|--------------------------------------|--------------------------|
| answers                              | its answer                           | the id                   |
| says that SLURM does not answer      | TransientError                       | TransientError           |
| says that SLURM refuses              | FailedError; of a cancel, a throttle | FailedError              |
|                                      | and a job the commands judge         |                          |
| says that pyslurm raised another     | the commands, of such calls from     | TransientError, then the |
| exception                            | then on                              | commands                 |
| ends, hangs, answers something else  | the commands, of all from then on    | TransientError, then the |
|                                      |                                      | commands                 |

After a TransientError nothing is known of a submission: `find` says, by `squeue` and the array's unique name,
whether it is there.
"""

from __future__ import annotations

import logging
import math
import sys
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.cluster.slurm.bindings.helper import (
    Helper,
    HelperLostError,
    PyslurmRaisedError,
    release,
)
from penstock.cluster.slurm.bindings.job_description import attributes
from penstock.cluster.slurm.job_states import read_sacct
from penstock.cluster.slurm.nodes import MIB, Node
from penstock.cluster.slurm.port import Facts, JobSeen, Partition
from penstock.cluster.slurm.submission import array_arguments, single_arguments
from penstock.errors import FailedError, PreflightError, TransientError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.cluster.port import Accounted, ArraySpec
    from penstock.cluster.slurm.controller_room import QueuedJob
    from penstock.cluster.slurm.job_states import SlurmElement
    from penstock.cluster.slurm.port import Association, Qos, Settings, Slurm, Trial
    from penstock.config.settings import JobOptions

T = TypeVar("T")
COMMANDS = "commands"


class SlurmBindings:
    """`port.Slurm` over a helper that has pyslurm. The helper is started, and tried, by the first call that
    needs it: pyslurm must be of the cluster's release and say of the cluster what the commands say."""

    def __init__(
        self,
        commands: Slurm,
        python: str | None = None,
        *,
        wanted: bool,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        """`python`: the interpreter that has pyslurm; None: this one. `wanted`: the configuration demands
        pyslurm, so that not having it stops preflight, and is a warning elsewhere. `warn` is called, from any
        thread, with what a person should know; None: it goes to the log."""
        self._commands = commands
        self._python = python or sys.executable
        self._wanted = wanted
        self._warn = warn or logging.getLogger("penstock").warning
        self._lock = threading.Lock()
        self._helper: Helper | None = None
        self._why = ""
        """Why the commands have taken over; "" where they have not."""
        self._without: set[str] = set()
        """Calls at which pyslurm raised an exception."""

    # The helper ------------------------------------------------------------------------------

    @property
    def way(self) -> str:
        try:
            helper = self._opened()
        except (TransientError, PreflightError):
            return COMMANDS
        version = f"pyslurm {helper.greeting.pyslurm}" if helper else ""
        if not self._why:
            return version
        return f"{version}, then {COMMANDS}" if helper else COMMANDS

    def _opened(self) -> Helper | None:
        """The helper that was found in order, also when it has been lost since; None where there was none."""
        with self._lock:
            if self._helper is None and not self._why:
                self._open()
            return self._helper

    def _open(self) -> None:
        try:
            helper = Helper(self._python)
        except HelperLostError as error:
            self._why = str(error)
        else:
            try:
                self._why = _differs(helper.greeting.pyslurm, helper, self._commands.facts())
            except (HelperLostError, PyslurmRaisedError, FailedError) as error:
                self._why = str(error)
            except BaseException:
                # With a controller that is away nothing is known of pyslurm yet.
                helper.end()
                raise
            if not self._why:
                self._helper = helper
                return
            helper.end()
        if self._wanted:
            self._warn(f"pyslurm cannot be used ({self._why}): SLURM's commands are")

    def _lost(self, error: HelperLostError) -> None:
        with self._lock:
            if self._why:
                return
            self._why = str(error)
        self._warn(f"pyslurm's helper is lost ({error}): SLURM's commands are used from now on")

    def _raised(self, name: str, error: PyslurmRaisedError) -> None:
        with self._lock:
            if name in self._without:
                return
            self._without.add(name)
        self._warn(f"pyslurm raised an exception at {name} ({error}): SLURM's commands do that from now on")

    def _usable(self, name: str) -> Helper | None:
        helper = self._opened()
        return None if self._why or name in self._without else helper

    def _by(
        self, name: str, given: Mapping[str, object], read: Callable[[Any], T], instead: Callable[[], T]
    ) -> T:
        """A call that may be made twice: by pyslurm, or `instead` by the commands."""
        helper = self._usable(name)
        if helper is None:
            return instead()
        try:
            return _read(read, helper.call(name, given))
        except HelperLostError as error:
            self._lost(error)
        except PyslurmRaisedError as error:
            self._raised(name, error)
        return instead()

    def _submit(self, arguments: Sequence[str], script: str, instead: Callable[[], str]) -> str:
        helper = self._usable("submit")
        asked = None if helper is None else attributes(arguments, script)
        if helper is None or asked is None:
            return instead()
        try:
            return _read(_job_id, helper.call("submit", {"attributes": asked}))
        except HelperLostError as error:
            self._lost(error)
            raise _unknown(str(error)) from error
        except PyslurmRaisedError as error:
            self._raised("submit", error)
            raise _unknown(str(error)) from error

    # The port --------------------------------------------------------------------------------

    def require(self) -> None:
        self._commands.require()
        if self._wanted and self._opened() is None:
            raise PreflightError(
                "pyslurm cannot be used",
                where="cluster.slurm_api: pyslurm",
                why=self._why,
                hint="set cluster.pyslurm_python to an interpreter with the pyslurm of this cluster's "
                "release (docs/slurm.md says how to install it), or cluster.slurm_api: commands",
            )

    def facts(self) -> Facts:
        """What pyslurm does not give is the commands'."""
        theirs = self._commands.facts()
        return self._by("facts", {}, lambda told: theirs._replace(**_own(told)), lambda: theirs)

    def settings(self) -> Settings:
        return self._commands.settings()

    def nodes(self) -> list[Node]:
        nodes = self._by("nodes", {}, lambda told: [_node(one) for one in told], self._commands.nodes)
        return self._commands.nodes() if any(node.reserved for node in nodes) else nodes

    def node_states(self, names: Sequence[str]) -> dict[str, str]:
        wanted = set(names)
        if not wanted:
            return {}
        return self._by(
            "nodes",
            {},
            lambda told: {
                one["name"]: _starred(one["state"]).lower() for one in told if one["name"] in wanted
            },
            lambda: self._commands.node_states(names),
        )

    def default_partition(self) -> str | None:
        return self._by(
            "partitions",
            {},
            lambda told: next((str(one["name"]) for one in told if one["default"]), None),
            self._commands.default_partition,
        )

    def partitions(self) -> list[Partition]:
        return self._by(
            "partitions", {}, lambda told: [_partition(one) for one in told], self._commands.partitions
        )

    def association(self, cluster: str, user: str, options: JobOptions) -> Association:
        return self._commands.association(cluster, user, options)

    def qos(self, name: str) -> Qos | None:
        return self._commands.qos(name)

    def trial(self, options: JobOptions, exclude: Sequence[str] = ()) -> Trial:
        return self._commands.trial(options, exclude)

    def submit_array(self, spec: ArraySpec, at_once: int, options: JobOptions, script: str) -> str:
        return self._submit(
            array_arguments(spec, at_once, options),
            script,
            lambda: self._commands.submit_array(spec, at_once, options, script),
        )

    def submit_job(self, name: str, options: JobOptions, script: str, *, node: str = "") -> str:
        return self._submit(
            single_arguments(name, options, node),
            script,
            lambda: self._commands.submit_job(name, options, script, node=node),
        )

    def find(self, name: str) -> list[int]:
        return self._commands.find(name)

    def elements_of(self, arrays: Sequence[str]) -> dict[str, list[SlurmElement]]:
        return self._commands.elements_of(arrays)

    def ended_elements(self, array: str) -> list[SlurmElement]:
        def instead() -> list[SlurmElement]:
            return self._commands.ended_elements(array)

        if not array.isdecimal():
            return instead()
        found = self._by("ended", {"job": int(array)}, lambda told: _elements(told, array), instead)
        return instead() if any(one.word == "FAILED" for one in found) else found

    def accounting(self, array: str) -> Sequence[Accounted]:
        return self._commands.accounting(array)

    def job(self, job: str) -> JobSeen:
        if not job.isdecimal():
            return self._commands.job(job)
        try:
            seen = self._by("job", {"job": int(job)}, _job_seen, lambda: self._commands.job(job))
        except FailedError:
            return self._commands.job(job)
        return self._commands.job(job) if seen.state == "FAILED" else seen

    def job_states(self, job: str) -> list[str] | None:
        return self._commands.job_states(job)

    def ended_states(self, job: str) -> list[str]:
        def instead() -> list[str]:
            return self._commands.ended_states(job)

        if not job.isdecimal():
            return instead()
        return self._by(
            "ended", {"job": int(job)}, lambda told: [_state(one["state"]) for one in told], instead
        )

    def jobs(self) -> list[QueuedJob]:
        return self._commands.jobs()

    def cancel(self, job: str, indices: Sequence[int] | None = None) -> None:
        def instead() -> None:
            self._commands.cancel(job, indices)

        if indices is not None or not job.isdecimal():
            instead()
            return
        try:
            self._by("cancel", {"job": int(job)}, lambda _: None, instead)
        except (FailedError, TransientError):
            # pyslurm takes errno for the answer, also after a success that left an older number there.
            instead()

    def keep_off(self, array: str, nodes: Sequence[str]) -> None:
        self._commands.keep_off(array, nodes)

    def throttle(self, array: str, at_once: int) -> None:
        def instead() -> None:
            self._commands.throttle(array, at_once)

        if not array.isdecimal():
            instead()
            return
        given = {"job": int(array), "at_once": at_once}
        try:
            noted = self._by(
                "throttle", given, lambda told: told, lambda: self._commands.throttle(array, at_once)
            )
        except (FailedError, TransientError):
            noted = 0
        if noted not in (None, at_once):
            instead()


def _unknown(why: str) -> TransientError:
    return TransientError("nothing is known of a submission by pyslurm", why=why)


def _read(read: Callable[[Any], T], told: Any) -> T:
    """An answer of another form than the worker's is an exception of pyslurm's: an attribute has changed."""
    try:
        return read(told)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise PyslurmRaisedError(f"its answer cannot be read: {type(error).__name__}: {error}") from error


def _differs(version: str, helper: Helper, theirs: Facts) -> str:
    """Why this pyslurm is not for this cluster; "" where it is.

    | pyslurm's release | what it says of the cluster | then                |
    |-------------------|-----------------------------|---------------------|
    | another           | not asked                   | another release     |
    | the cluster's     | otherwise than the commands | what, in both words |
    | the cluster's     | as the commands             | ""                  |
    """
    if release(version) != release(theirs.version):
        return f"pyslurm {version} is not of this cluster's release, {theirs.version}"
    for name, value in _read(_own, helper.call("facts", {})).items():
        if (other := getattr(theirs, name)) != value:
            return f"pyslurm {version} says {name}={value!r} of the cluster, its commands {other!r}"
    return ""


def _own(told: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `Facts` that pyslurm gives."""
    return {
        "version": told["version"] or "",
        "max_array": int(told["max_array"] or 0),
        "allows_core_spec": bool(told["allows_core_spec"]),
        "accounting": (told["storage"] or "").endswith("slurmdbd"),
        "cluster": told["cluster"] or "",
        "min_job_age": float(told["min_job_age"] or math.inf),
    }


def _node(one: Mapping[str, Any]) -> Node:
    gres = ",".join(one["gres"])
    return Node(
        name=one["name"],
        cpus=int(one["cpus"]),
        cores=int(one["sockets"]) * int(one["cores"] or 1),
        reserved=int(one["reserved"] or 0),
        memory=int(one["memory"] or 0) * MIB,
        partitions=frozenset(one["partitions"] or [""]),
        features=frozenset(one["features"] or [""]),
        state=_starred(one["state"] or ""),
        reason=one["reason"] or "",
        gpus=gres if "gpu" in gres else "",
        sockets=int(one["sockets"]),
        threads=int(one["threads"] or 1),
        memory_spec=int(one["memory_reserved"] or 0) * MIB,
        gres=gres,
        tmp=int(one["tmp"] or 0) * MIB,
    )


def _starred(state: str) -> str:
    """`DOWN*+DRAIN`, as `scontrol` has it, of pyslurm's `DOWN+DRAIN+NOT_RESPONDING`."""
    base, *flags = state.split("+")
    kept = [flag for flag in flags if flag != "NOT_RESPONDING"]
    return "+".join([base + "*" * (kept != flags), *kept])


def _partition(one: Mapping[str, Any]) -> Partition:
    return Partition(
        name=one["name"],
        default=bool(one["default"]),
        max_time=_seconds(one["minutes"]),
        qos=one["qos"] or "",
    )


def _seconds(minutes: object) -> float | None:
    """None of no limit, for which pyslurm has None or a word."""
    return 60.0 * minutes if isinstance(minutes, int) else None


def _job_id(told: object) -> str:
    if not isinstance(told, int) or isinstance(told, bool) or told < 1:
        raise ValueError(f"no job id: {told!r}")
    return str(told)


def _state(word: str) -> str:
    return word.split(maxsplit=1)[0].rstrip("+")


def _job_seen(told: Mapping[str, Any]) -> JobSeen:
    return JobSeen(_state(told["state"]), 0, told["node"] or "", told["reason"] or "")


def _elements(told: Sequence[Mapping[str, Any]], array: str) -> list[SlurmElement]:
    """Records of accounting as sacct's lines. pyslurm has None for the index 0; a record of several elements
    that never began has their indices instead."""
    lines = []
    for one in told:
        if str(one["array"]) != array:
            continue
        task = one["waiting"] or one["task"] or 0
        times = f"{one['started'] or 'Unknown'}|{one['ended'] or 'Unknown'}"
        more = f"{one['nodes'] or ''}|{one['name'] or ''}"
        lines.append(f"{array}_{task}|{_state(one['state'])}|0:0|{times}|{more}")
    return list(read_sacct("\n".join(lines), array))
