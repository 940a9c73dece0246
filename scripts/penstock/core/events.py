"""Events: what the steps report while they run. The steps emit them; views, logs and tests are sinks.

A sink is any callable of one Event. It must not raise and must return soon. Pure, but that `from_json` reads
the clocks.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import ClassVar

FAILED, STOPPED, CANCELLED = "FAILED", "stopped", "cancelled"
"""How a step ended that did not come to its end: by an error, by a signal, by `penstock cancel`."""


@dataclass(frozen=True)
class Event:
    """Of one step of one dataset."""

    kind: ClassVar[str]
    """The event's name in JSON lines and in the log."""

    dataset: str
    step: str
    at: float | None = field(default=None, kw_only=True, compare=False, repr=False)
    """When it happened, by this host's monotonic clock; None: now."""

    @property
    def data(self) -> Mapping[str, object]:
        """What the event says beside its kind, dataset and step, as JSON; without what it leaves open."""
        own = {f.name: getattr(self, f.name) for f in fields(self)[3:]}
        return {name: value for name, value in own.items() if value is not None}


@dataclass(frozen=True)
class Started(Event):
    """The step began: its totals, where they are known."""

    kind = "start"
    files: int | None = None
    bytes: int | None = None
    shards: int | None = None
    elements: int | None = None
    """How many elements (processes, or tasks of a job array) may work on the shards at once."""


@dataclass(frozen=True)
class Progressed(Event):
    """How far the step is, in all."""

    kind = "progress"
    files: int = 0
    bytes: int | None = None
    failed: int | None = None
    states: Mapping[str, int] | None = None
    """How many elements are in each state, by the state's name."""
    read_back_bytes: int | None = None
    """Of copy: what elements have read back so far, which is the work of verify."""


@dataclass(frozen=True)
class ElementChanged(Event):
    """An element of the step's array is in another state, on another node, or for another reason."""

    kind = "element"
    index: int
    state: str
    node: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Noted(Event):
    """One line for people."""

    kind = "note"
    text: str


@dataclass(frozen=True)
class Warned(Event):
    """One line for people, of something that they should look into."""

    kind = "warning"
    text: str


@dataclass(frozen=True)
class Ended(Event):
    """The step ended well, with this result: what its receipt holds."""

    kind = "end"
    result: Mapping[str, object] = field(default_factory=dict)

    @property
    def data(self) -> Mapping[str, object]:
        return self.result


def from_json(line: str) -> Event:
    """The event of one line of `--progress json`; its wall time becomes this host's monotonic time. Raises
    ValueError for what is none.

    >>> from_json('{"at": 1.5, "kind": "progress", "dataset": "d", "step": "copy", "data": {"files": 3}}')
    Progressed(dataset='d', step='copy', files=3, bytes=None, failed=None, states=None, read_back_bytes=None)
    """
    try:
        written = json.loads(line)
        kind, data = _KINDS[written["kind"]], written["data"]
        given = {"result": data} if kind is Ended else data
        at = written["at"] - time.time() + time.monotonic()
        return kind(written["dataset"], written["step"], at=at, **given)
    except (LookupError, TypeError) as error:
        raise ValueError("this line is no event") from error


_KINDS = {kind.kind: kind for kind in Event.__subclasses__()}

Sink = Callable[[Event], None]


def silent(event: Event) -> None:
    """The sink that shows nothing."""
