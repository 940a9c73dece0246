"""What every step gets: the configuration, the cluster, the sink of events, the stop flag.

The command line makes one `Context` for a command and one `Stop` for its process. `Stop.check` reads whether
a PAUSE stands at the root, `operations` the kind of its file system; touches nothing else.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from penstock.core.errors import ConfigError
from penstock.core.events import Event, Noted, Sink, silent
from penstock.core.layout import DatasetLayout, SigningKeys
from penstock.core.text import in_quotes
from penstock.dataset.wait_messages import Waiting
from penstock.host import waits
from penstock.target import pause
from penstock.target.operation_budget import unlimited

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.cluster.port import Cluster
    from penstock.config.settings import Config, DatasetConfig, TargetConfig
    from penstock.dataset.held_dataset import HeldDataset

HELD = 0.5
"""Seconds between two looks of a step that waits for the end of a PAUSE; `target.pause` looks at the root
less often."""


class Stop(waits.Stop):
    """The stop flag of this process. Long loops call `check`: it raises once a signal came, and waits while a
    file PAUSE of the administrator stands at the root (`target.pause`)."""

    def check(self) -> None:
        """Return once no PAUSE stands. Raises InterruptedRunError once a signal has come."""
        self.signalled()
        self.hold()
        self.signalled()

    def hold(self) -> None:
        """Return once no PAUSE stands, or a signal has come. From any thread."""
        while pause.standing() is not None and not self.event.wait(HELD):
            pass


def layout_of(target: TargetConfig, name: str) -> DatasetLayout:
    """The paths of a dataset, and the keys that sign and verify its seals."""
    return DatasetLayout(target.root, name, target.state_root, SigningKeys(target.sign_with, target.signers))


def operations(target: TargetConfig) -> int:
    """Metadata operations a second that all runs below this root may make together: `target.ops`, or what the
    table of file systems says; 0: there is no budget. Raises OSError."""
    if target.ops is not None:
        return target.ops
    from penstock.fs.capabilities import facts
    from penstock.fs.kinds import rules_of

    return rules_of(facts(target.root).traits, target.filesystem).ops


class OpsHold(Protocol):
    """A share that a step holds: `jobs.shares.share.Hold`, which stands above this room."""

    @property
    def holder(self) -> str: ...

    def begin(self, processes: int, wait: Callable[[float], object], *, first: bool = False) -> None: ...

    def now(self) -> float: ...


@dataclass
class Context:
    """Made by the command line for one command, handed to every step of it."""

    config: Config
    cluster: Cluster
    sink: Sink = silent
    stop: Stop = field(default_factory=Stop)
    run: str = ""
    """The id of the run that the steps work on; "": the one that list made or met last."""
    program: str = "penstock"
    """How this program was called, up to the command: what hints for people begin with."""
    new_release: bool = False
    """List is to make a new run of what a release holds already (`--new-release`)."""
    copy_unchanged: bool = False
    """Plan may have unchanged files copied on the target where they cannot be linked (`--copy-unchanged`)."""
    controller: str = ""
    """The workflow above this step, `<pid>.<start time in ticks>`; "" for a step by hand."""
    clock: Callable[[], float] = time.time
    """Seconds since the epoch, by which the age of readings is counted."""
    hold: HeldDataset | None = None
    """The lock and the run's claim that the step under way has (`jobs.ownership.dataset_hold`), or None."""
    spend: Callable[[int], None] = unlimited
    """What the step that is under way calls before n metadata operations on the target
    (`target.operation_budget`)."""

    ops_hold: OpsHold | None = None
    """What the step under way holds of `target.ops`, for its elements too (`jobs.ownership.ops_share`)."""

    @cached_property
    def ops(self) -> int:
        """`operations` of this target, found out once. Raises OSError."""
        return operations(self.config.target)

    def dataset(self, name: str) -> DatasetConfig:
        """The configuration of this dataset. Raises ConfigError for a name that the configuration has not."""
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
        """The paths of this dataset. Raises as `dataset`."""
        target = self.config.target
        return layout_of(target, self.dataset(name).name)

    def assert_held(self) -> None:
        """Raises LockedError where the step under way lost the dataset to another run; a step without a lock
        passes."""
        if self.hold is not None:
            self.hold.assert_held()

    def waiting(self, dataset: str, step: str, what: str) -> Waiting:
        """A context manager for a block that waits for `what`: events say so while it lasts long."""
        return Waiting(lambda text: self.emit(Noted(dataset, step, text)), what)

    def emit(self, event: Event) -> None:
        """Hand an event to the views of this command."""
        self.sink(event)
