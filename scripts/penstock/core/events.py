"""Events that steps report while they run. Views, logs and tests are sinks.

A sink is a callable that takes an Event. It must not raise, and must return soon.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import ClassVar

# how a step ended early: by an error, a signal, or `penstock cancel`
FAILED, STOPPED, CANCELLED = "FAILED", "stopped", "cancelled"


@dataclass(frozen=True)
class Event:
    """An event of one step of one dataset."""

    kind: ClassVar[str]  # the event's name in JSON lines and in the log

    dataset: str
    step: str
    # when it happened, by this host's monotonic clock; None: now
    at: float | None = field(default=None, kw_only=True, compare=False, repr=False)

    @property
    def data(self) -> Mapping[str, object]:
        """The event's own fields as JSON, without those that are None."""
        own = {f.name: getattr(self, f.name) for f in fields(self)[3:]}
        return {name: value for name, value in own.items() if value is not None}


@dataclass(frozen=True)
class Started(Event):
    """The step began; totals where they are known."""

    kind = "start"
    files: int | None = None
    bytes: int | None = None
    shards: int | None = None
    # elements (processes, or tasks of a job array) that may work on the shards at once
    elements: int | None = None


@dataclass(frozen=True)
class Progressed(Event):
    """The step's progress, in total."""

    kind = "progress"
    files: int = 0
    bytes: int | None = None
    failed: int | None = None
    states: Mapping[str, int] | None = None  # number of elements in each state
    read_back_bytes: int | None = None  # of copy: read back by elements so far, which is the work of verify


@dataclass(frozen=True)
class ElementChanged(Event):
    """An element's state, node or reason changed."""

    kind = "element"
    index: int
    state: str
    node: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Noted(Event):
    """A line for people."""

    kind = "note"
    text: str


@dataclass(frozen=True)
class Warned(Event):
    """A line for people about a possible problem."""

    kind = "warning"
    text: str


@dataclass(frozen=True)
class Ended(Event):
    """The step succeeded with this result, which its receipt holds, too."""

    kind = "end"
    result: Mapping[str, object] = field(default_factory=dict)

    @property
    def data(self) -> Mapping[str, object]:
        return self.result


def from_json(line: str) -> Event:
    """Parse a line of `--progress json`; its wall time becomes this host's monotonic time. Raises ValueError.

    >>> from_json('{"at": 1.5, "kind": "progress", "dataset": "d", "step": "copy", "data": {"files": 3}}')
    Progressed(dataset='d', step='copy', files=3, bytes=None, failed=None, states=None, read_back_bytes=None)
    """
    try:
        written = json.loads(line)
        kind, data = _KINDS[written["kind"]], written["data"]
        fields_read = {"result": data} if kind is Ended else data
        at = written["at"] - time.time() + time.monotonic()
        return kind(written["dataset"], written["step"], at=at, **fields_read)
    except (LookupError, TypeError) as error:
        raise ValueError("this line is no event") from error


_KINDS = {kind.kind: kind for kind in Event.__subclasses__()}

Sink = Callable[[Event], None]


def silent(event: Event) -> None:
    """Ignore the event."""
