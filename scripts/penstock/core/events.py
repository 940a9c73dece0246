"""Reports of the steps: events while they run, and the results of checks by preflight, plan and selftest.
Steps emit events; views, logs and tests are sinks that receive them. Pure.
"""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import ClassVar, Literal, NamedTuple

# The result of a check of preflight, plan or selftest.
#
# A check is a pure function from typed facts to results. Its caller decides what follows: preflight exits
# with 3 if a result stops the run. Audits have findings instead (`core.audit_documents`).

Verdict = Literal["ok", "note", "warning", "stop"]
VERDICTS: tuple[Verdict, ...] = ("ok", "note", "warning", "stop")  # from the lightest to the gravest
ADMINISTRATOR = "ask the file system's administrator"  # end of advice to people who lack the rights


class CheckResult(NamedTuple):
    """The result of a check. All texts are readable and safe on a terminal (`core.human.printable`)."""

    about: str  # the thing that was checked: `BeeGFS storage target 104`, `mount /mnt/weka`
    found: str  # what was seen, with units, or "not known"
    # `note`: good to know; `warning`: the run may suffer; `stop`: the run cannot be right
    verdict: Verdict = "ok"
    wanted: str = ""  # what would be in order; "" if there is nothing to compare with
    mend: str = ""  # who should do what, with a command or configuration key to paste; "" for `ok`


def gravest(results: Iterable[CheckResult]) -> Verdict:
    """Return the gravest verdict, or `ok` if there are no results."""
    return max((result.verdict for result in results), key=VERDICTS.index, default="ok")


def sentence(result: CheckResult) -> str:
    """Return a warning or a note as a sentence: the thing, what was seen, and what to do."""
    return f"{result.about}: {result.found}" + (f"; {result.mend}" if result.mend else "")


# Events that steps report while they run.
#
# A sink is a callable that takes an Event. It must not raise, and must return soon.

# ways in which a step ends early: because of an error, a signal, or `penstock cancel`
FAILED, STOPPED, CANCELLED = "FAILED", "stopped", "cancelled"


@dataclass(frozen=True)
class Event:
    """An event of one step of one dataset."""

    kind: ClassVar[str]  # the event's name in JSON lines and in the log

    dataset: str
    step: str
    # time of the event on this host's monotonic clock; None means now
    at: float | None = field(default=None, kw_only=True, compare=False, repr=False)

    @property
    def data(self) -> Mapping[str, object]:
        """The event's own fields as JSON, without those that are None."""
        own = {f.name: getattr(self, f.name) for f in fields(self)[3:]}
        return {name: value for name, value in own.items() if value is not None}


@dataclass(frozen=True)
class Started(Event):
    """The step began. Totals that are not known are None."""

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
    read_back_bytes: int | None = None  # copy only: bytes that elements read back so far, work of verify


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
    """The step succeeded with this result, which its receipt also contains."""

    kind = "end"
    result: Mapping[str, object] = field(default_factory=dict)

    @property
    def data(self) -> Mapping[str, object]:
        return self.result


def event_from_json(line: str) -> Event:
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
