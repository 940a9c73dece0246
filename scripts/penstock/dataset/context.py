"""The context of every step: configuration, cluster, sink of events and stop flag. It also has the messages
about long waits.
"""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from penstock.core.errors import ConfigError
from penstock.core.human import in_quotes
from penstock.core.layout import DatasetLayout, SigningKeys
from penstock.core.run_steps import (
    Event,
    Noted,
    Sink,
    silent,
)
from penstock.host import waits
from penstock.host.pacing import unlimited
from penstock.sources.backoff import pauses
from penstock.target import notices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.cluster.port import Cluster
    from penstock.config.settings import Config, DatasetConfig, TargetConfig
    from penstock.dataset.dataset_lock import HeldDataset


T = TypeVar("T")

# Seconds between checks of a wait. A wait that has lasted half of this is reported: within a minute.
WORD = 25.0


class Waiting:
    """`with Waiting(say, "s3://bucket/"):` calls `say` from a thread if the block lasts longer than WORD
    seconds. With `each`, only the wait for the next item counts. A signal ends the wait (`host.waits`)."""

    def __init__(self, say: Callable[[str], None], what: str) -> None:
        self._say, self._what = say, what
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="waiting", daemon=True)
        self._since: float | None = None
        self._left = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._left.enter_context(waits.interruptible())
        self._since = time.monotonic()
        self._left.callback(self._end)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.close()

    def _end(self) -> None:
        self._ended.set()
        self._thread.join()

    def each(self, items: Iterable[T]) -> Iterator[T]:
        """Yield `items`, and time the wait for each item."""
        for item in items:
            self._since = None
            with waits.whole():
                yield item
            self._since = time.monotonic()

    def _watch(self) -> None:
        while not self._ended.wait(WORD):
            since = self._since
            if since is None:
                continue
            lasts = time.monotonic() - max(since, pauses.answered)
            if words := pauses.words():
                self._say(f"waiting for {self._what}: {words}")
            elif lasts >= max(WORD / 2, 1.0):
                self._say(f"waiting for {self._what}: no answer for {lasts:.0f} s")


HELD = 0.5  # seconds between checks for the end of a PAUSE; `target.notices` reads the root less often


class Stop(waits.Stop):
    """The stop flag of this process, which long loops `check`. It also waits while the administrator's PAUSE
    file exists at the root (`target.notices`)."""

    def check(self) -> None:
        """Return once no PAUSE file exists. Raises InterruptedRunError after a signal."""
        self.signalled()
        self.hold()
        self.signalled()

    def hold(self) -> None:
        """Return once no PAUSE file exists or a signal came. Any thread may call it."""
        while notices.standing_pause() is not None and not self.event.wait(HELD):
            pass


def layout_of(target: TargetConfig, name: str) -> DatasetLayout:
    """Return the paths of a dataset, and the keys that sign and verify its seals."""
    return DatasetLayout(target.root, name, target.state_root, SigningKeys(target.sign_with, target.signers))


def operations(target: TargetConfig) -> int:
    """Return the metadata operations per second that all runs below this root share; 0: no limit. The figure
    is `target.ops`, or else it comes from the table of file systems. Raises OSError."""
    if target.ops is not None:
        return target.ops
    from penstock.fs.capabilities import facts
    from penstock.fs.kinds import rules_of

    return rules_of(facts(target.root).traits, target.filesystem).ops


class OpsHold(Protocol):
    """A share that a step holds: `jobs.shares.Hold`, which this package may not import."""

    @property
    def holder(self) -> str: ...

    def begin(self, processes: int, wait: Callable[[float], object], *, first: bool = False) -> None: ...

    def now(self) -> float: ...


@dataclass
class Context:
    """The context of one command: the command line makes it and hands it to every step."""

    config: Config
    cluster: Cluster
    sink: Sink = silent
    stop: Stop = field(default_factory=Stop)
    run: str = ""  # id of the run that the steps work on; "": the run that list made or found last
    program: str = "penstock"  # how this program was called, up to the command, for hints
    new_release: bool = False  # whether list makes a new run for a content already released (`--new-release`)
    # whether plan may copy unchanged files on the target that cannot be linked (`--copy-unchanged`)
    copy_unchanged: bool = False
    controller: str = ""  # process of this step's workflow, `<pid>.<start time in ticks>`; "" if run by hand
    clock: Callable[[], float] = time.time  # seconds since the epoch, for the age of readings
    hold: HeldDataset | None = None  # the present step's lock and claim (`jobs.dataset_state`)
    # function that the present step calls before n metadata operations on the target
    # (`host.pacing`)
    spend: Callable[[int], None] = unlimited

    # the share of `target.ops` for the step and its elements (`jobs.shares`)
    ops_hold: OpsHold | None = None

    @cached_property
    def ops(self) -> int:
        """The result of `operations` for this target, determined once. Raises OSError."""
        return operations(self.config.target)

    def dataset(self, name: str) -> DatasetConfig:
        """Return this dataset's configuration. Raises ConfigError for an unknown name."""
        try:
            return self.config.datasets[name]
        except KeyError:
            names = ", ".join(sorted(self.config.datasets))
            raise ConfigError(
                f"no dataset named {in_quotes(name)}",
                where="datasets",
                hint=f"the configuration has: {names}",
            ) from None

    def layout(self, name: str) -> DatasetLayout:
        """Return the paths of this dataset. Raises as `dataset`."""
        target = self.config.target
        return layout_of(target, self.dataset(name).name)

    def assert_held(self) -> None:
        """Raise LockedError if the step lost the dataset to another run; a step without a lock passes."""
        if self.hold is not None:
            self.hold.assert_held()

    def waiting(self, dataset: str, step: str, what: str) -> Waiting:
        """Return a context manager that emits events if its block waits long. `what`: the object of the
        wait."""
        return Waiting(lambda text: self.emit(Noted(dataset, step, text)), what)

    def emit(self, event: Event) -> None:
        """Hand an event to the views of this command."""
        self.sink(event)
