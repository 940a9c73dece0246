"""Opens the configured cluster, and reads the job environment of this process. The local cluster stands here:
without a scheduler, elements are processes of this machine.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.cluster.port import Cluster, State, Status
from penstock.cluster.slurm import environment as slurm
from penstock.core.errors import IMPOSSIBLE, FailedError
from penstock.host.command import dies_with
from penstock.host.kernel_facts import GIVEN_CPUS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from penstock.cluster.port import ArraySpec
    from penstock.cluster.slurm.site import NewOptions
    from penstock.config.settings import ClusterConfig
    from penstock.core.node_answer import FileValue
    from penstock.host.kernel_facts import JobEnvironment


# The port of clusters without a scheduler: elements are processes of this machine.
#
# At most `ArraySpec.at_once` elements of an array run at once (`slots(step)` if that is 0). Each element has
# its own process group and log file. All elements die with the process that submitted them, even if it is
# killed. So no array outlives its controller, and `find` never finds one.

GRACE = 20.0  # seconds from SIGTERM to SIGKILL, in which an element ends its blocks and closes its journal


@dataclass
class _Element:
    status: Status
    process: subprocess.Popen[bytes] | None = None
    pidfd: int = -1
    cancelled: bool = False


@dataclass
class _Array:
    spec: ArraySpec
    slots: int
    waiting: deque[int]
    elements: dict[int, _Element] = field(default_factory=dict)

    def running(self) -> list[_Element]:
        return [e for e in self.elements.values() if e.process is not None]


class LocalCluster(Cluster):
    """The Cluster port on this machine; must be closed. One thread starts and reaps all elements. The thread
    lives as long as this process, since the kernel kills a child when the thread that forked it ends."""

    kind = "local"

    def __init__(
        self, config: ClusterConfig, *, cpus: int | None = None, grace: float = GRACE,
        changed: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        self._config = config
        self._cpus = cpus or len(os.sched_getaffinity(0))
        self._grace = grace
        self._tell = changed or (lambda: None)
        self._arrays: dict[str, _Array] = {}
        self._changed = threading.Condition()
        self._wake_read, self._wake_write = -1, -1
        self._thread: threading.Thread | None = None

    def slots(self, step: str) -> int:
        return min(self._config.of(step).max_elements, max(1, self._cpus // 2))

    def max_array(self) -> int:
        return 10_000

    def submit(self, spec: ArraySpec) -> str:
        spec.logs.mkdir(parents=True, exist_ok=True)
        identity = f"local-{os.getpid()}-{len(self._arrays) + 1}"
        slots = spec.at_once or self.slots(spec.step)
        array = _Array(spec, min(slots, len(spec.indices)), deque(spec.indices))
        array.elements = {i: _Element(Status(State.PENDING)) for i in spec.indices}
        with self._changed:
            self._arrays[identity] = array
            if self._thread is None:
                self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
                self._thread = threading.Thread(target=self._supervise, name="elements", daemon=True)
                self._thread.start()
        self._wake()
        return identity

    def states(self, array: str, indices: Sequence[int]) -> Mapping[int, Status]:
        with self._changed:
            elements = self._arrays[array].elements if array in self._arrays else {}
            lost = Status(State.LOST, "its controller has ended")
            return {i: elements[i].status if i in elements else lost for i in indices}

    def cancel(self, array: str, indices: Sequence[int] | None = None) -> None:
        """Send SIGTERM, and SIGKILL after GRACE, to the elements' groups; return when all have ended."""
        with self._changed:
            if array not in self._arrays:
                return
            elements = self._arrays[array].elements
            chosen = [
                elements[i]
                for i in (indices if indices is not None else elements)
                if i in elements and not elements[i].status.state.ended
            ]
            for element in chosen:
                element.cancelled = True
                _signal(element, signal.SIGTERM)
        self._wake()
        if not self._await(chosen, self._grace):
            with self._changed:
                for element in chosen:
                    _signal(element, signal.SIGKILL)
            self._await(chosen, None)

    def throttle(self, array: str, at_once: int) -> None:
        with self._changed:
            if array not in self._arrays:
                return
            self._arrays[array].slots = at_once
        self._wake()

    def interval(self, waited: float) -> float:
        """Return a twentieth of `waited`: a caller without `changed` notices an end at most 5 % late."""
        return min(0.5, max(0.02, waited / 20))

    def close(self) -> None:
        """End every element and the supervising thread."""
        for identity in list(self._arrays):
            self.cancel(identity)
        thread, self._thread = self._thread, None
        if thread is not None:
            self._wake(b"q")
            thread.join()
            os.close(self._wake_read)
            os.close(self._wake_write)

    def _await(self, elements: Sequence[_Element], seconds: float | None) -> bool:
        ended: Callable[[], bool] = lambda: all(e.status.state.ended for e in elements)  # noqa: E731
        with self._changed:
            return self._changed.wait_for(ended, seconds)

    def _wake(self, word: bytes = b"w") -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_write, word)

    def _supervise(self) -> None:
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        while True:
            with self._changed:
                for array in self._arrays.values():
                    self._fill(array, poll)
                self._changed.notify_all()
            self._tell()
            ready = {fd for fd, _ in poll.poll()}
            if self._wake_read in ready and b"q" in os.read(self._wake_read, 4096):
                return
            with self._changed:
                for array in self._arrays.values():
                    for element in array.running():
                        if element.pidfd in ready:
                            poll.unregister(element.pidfd)
                            _reap(element)

    def _fill(self, array: _Array, poll: select.poll) -> None:
        while array.waiting and (
            len(array.running()) < array.slots or array.elements[array.waiting[0]].cancelled
        ):
            index = array.waiting.popleft()
            element = array.elements[index]
            if element.cancelled:
                element.status = Status(State.CANCELLED)
                continue
            try:
                self._start(array, index, element)
            except OSError as error:
                element.status = Status(State.FAILED, f"cannot start: {error}")
                continue
            poll.register(element.pidfd, select.POLLIN)

    def _start(self, array: _Array, index: int, element: _Element) -> None:
        index += array.spec.base
        log = array.spec.logs / f"{array.spec.step}-{index}.log"
        fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            process = subprocess.Popen(
                [*array.spec.command, str(index)],
                stdin=subprocess.DEVNULL,
                stdout=fd,
                stderr=fd,
                process_group=0,
                env={**os.environ, GIVEN_CPUS: str(max(1, self._cpus // array.slots))},
                preexec_fn=dies_with(os.getpid()),  # noqa: PLW1509 - it takes no lock
            )
        finally:
            os.close(fd)
        element.process = process
        element.pidfd = os.pidfd_open(process.pid)
        element.status = Status(State.RUNNING, node=os.uname().nodename, started=time.time())


def _signal(element: _Element, number: int) -> None:
    if element.process is not None and not element.status.state.ended:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(element.process.pid, number)


def _reap(element: _Element) -> None:
    process = element.process
    if process is None:
        raise FailedError("an element ended that never started", hint=IMPOSSIBLE)
    # Kill leftover processes of the group before the group's number is free again.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    code = process.wait()
    os.close(element.pidfd)
    element.process, element.pidfd = None, -1
    state = State.DONE if code == 0 else State.CANCELLED if element.cancelled else State.FAILED
    element.status = Status(
        state,
        "" if code == 0 else _reason(code),
        element.status.node,
        element.status.started,
        time.time(),
        exit_code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
    )


def _reason(code: int) -> str:
    if code >= 0:
        return f"exit {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


# SLURM's modules are imported only here, when needed.


def read_job_environment(environment: Mapping[str, str] = os.environ) -> JobEnvironment:
    """Read the job environment of this process. No variable names the backend that started it, and a local
    element may run inside a SLURM job. So SLURM's variables are always read. If they give no number of CPUs,
    `PENSTOCK_CPUS` is used."""
    job = slurm.read(environment)
    cpus = environment.get(GIVEN_CPUS, "")
    if job.cpus is None and cpus.isdecimal() and int(cpus) > 0:
        job = job._replace(cpus=int(cpus), cpus_from=GIVEN_CPUS)
    return job


def constrained_cores(environment: Mapping[str, str], root: str | os.PathLike[str] = "/") -> FileValue | None:
    """Read from the scheduler's own file on this machine whether jobs are confined to their cores; None if
    the file does not exist."""
    from penstock.cluster.slurm.environment import constrained_cores as constrained

    return constrained(environment, root)


def open_cluster(
    config: ClusterConfig,
    target: Path | None = None,
    *,
    changed: Callable[[], None] | None = None,
    warn: Callable[[str], None] | None = None,
) -> Cluster:
    """Open the cluster of `config.backend`, without a query. `target` is the folder that preflight checks on
    a node. The local cluster calls `changed`, from any thread, when an element's state has changed; SLURM
    reports no changes. `warn` gets warnings about the way to SLURM, from any thread; if it is None, the log
    gets them."""
    if config.backend == "slurm":
        from penstock.cluster.slurm import open_slurm

        return open_slurm(config, target, warn)

    return LocalCluster(config, changed=changed)


def new_options(config: ClusterConfig, steps: Sequence[str], allowed: Sequence[str]) -> NewOptions | None:
    """Choose options of SLURM for a new configuration, which add to those of `config`; None without SLURM on
    this machine. `allowed` are the partitions of the site's file; () allows any. Raises PreflightError if
    SLURM does not answer."""
    from penstock.cluster.slurm import site

    return site.find(config, steps, allowed) if site.is_here() else None


def start_together(
    config: ClusterConfig, words: Sequence[str], nodes: int, seconds: int
) -> subprocess.Popen[bytes] | None:
    """Start `penstock <words>` on each of `nodes` nodes, for at most `seconds`, and return one process that
    stands for all. Its standard input goes to all nodes, and its standard output has the output of all. None
    if the backend has no other nodes. Raises PreflightError."""
    if config.backend == "slurm":
        from penstock.cluster.slurm.submission import start

        return start(config, words, nodes, seconds)
    return None
