"""What every step gets: the configuration, the cluster, the sink of events, the stop flag."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.core.events import Event, Sink, silent
from penstock.core.layout import DatasetLayout
from penstock.errors import ConfigError, InterruptedRunError

if TYPE_CHECKING:
    from penstock.cluster.port import Cluster
    from penstock.config.model import Config, DatasetConfig


@dataclass
class Stop:
    """Set by a signal; long loops look at it and leave tidily by `check`."""

    event: threading.Event = field(default_factory=threading.Event)
    signal_number: int = 0

    def set(self, signal_number: int) -> None:
        self.signal_number = signal_number
        self.event.set()

    def check(self) -> None:
        """Raises InterruptedRunError once a signal has come."""
        if self.event.is_set():
            raise InterruptedRunError(self.signal_number)

    def wait(self, seconds: float) -> None:
        """Wait that long, or leave by InterruptedRunError as soon as a signal comes."""
        self.event.wait(seconds)
        self.check()


@dataclass
class Context:
    """Made by the command line, handed to every step."""

    config: Config
    cluster: Cluster
    sink: Sink = silent
    stop: Stop = field(default_factory=Stop)
    run: str = ""
    """The run that the steps work on; "": the one that list made or met last."""

    def dataset(self, name: str) -> DatasetConfig:
        try:
            return self.config.datasets[name]
        except KeyError:
            names = ", ".join(sorted(self.config.datasets))
            raise ConfigError(
                f"no dataset named {name!r}", where="datasets", hint=f"the configuration has: {names}"
            ) from None

    def layout(self, name: str) -> DatasetLayout:
        target = self.config.target
        return DatasetLayout(target.root, self.dataset(name).name, target.state_root)

    def emit(self, kind: str, dataset: str, step: str, /, **data: object) -> None:
        self.sink(Event(kind, dataset, step, data))
