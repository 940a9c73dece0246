"""The steps of a run, in their order, with their differences; and their reports: events while they run, and
the results of checks by preflight, plan and selftest. Pure.
"""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import ClassVar, Literal, NamedTuple

# Tests compare the workflow's rules with this table. `penstock.run.<name>_step` does the work.


class Step(NamedTuple):
    """A step. Each `bool` is a property of the step, if the table sets it."""

    name: str
    summary: str  # a line of the help
    of_run: bool = True  # part of staging a dataset; audit and repair work on a published release
    after_list: bool = False  # works on the run that list made (`--run`)
    # ends with a receipt in the run's state, from which status and report know of the end
    leaves_receipt: bool = False
    makes_change: bool = False  # writes to the dataset, under its lock
    in_elements: bool = False  # elements of a job array do its work, shard by shard
    # Its elements copy files. They record each file in a journal, change the target's metadata within
    # `target.ops`, and update the notice of how much their run will still write.
    copies: bool = False
    fetches: bool = False  # its elements read the source, within `bandwidth`
    # Its elements got their shares of a rate (`--limit`) when the step was planned. More elements at once
    # than `cluster.max_elements` would exceed that rate.
    shares_rate: bool = False
    moves_bytes: bool = False  # reads or writes the data itself, so that a rate in bytes has a meaning
    colour: str = "d"  # colour of its bars in the report, as a class of the style sheet


TABLE = (
    Step("preflight", "try target, source and cluster; change nothing"),
    Step(
        "list",
        "list the source and freeze what is to be staged",
        makes_change=True,
    ),
    Step(
        "plan",
        "check names, compare with the current release, balance shards",
        after_list=True,
        makes_change=True,
    ),
    Step(
        "copy",
        "copy all shards into staging, and read back what is copied",
        after_list=True,
        leaves_receipt=True,
        makes_change=True,
        in_elements=True,
        copies=True,
        fetches=True,
        moves_bytes=True,
        colour="a",
    ),
    Step(
        "permissions",
        "set and check group, modes and ACLs of folders, giants and adopted trees",
        after_list=True,
        leaves_receipt=True,
        makes_change=True,
        colour="c",
    ),
    Step(
        "verify",
        "read back what copy did not, past the caches, and compare",
        after_list=True,
        leaves_receipt=True,
        makes_change=True,
        in_elements=True,
        moves_bytes=True,
        colour="b",
    ),
    Step(
        "publish",
        "walk once more, seal, and reveal the release by one rename",
        after_list=True,
        leaves_receipt=True,
        makes_change=True,
    ),
    Step("report", "write the HTML report and the closing summary", after_list=True),
    Step(
        "audit",
        "read a published release back and compare it with its manifest",
        of_run=False,
        in_elements=True,
        shares_rate=True,
        moves_bytes=True,
        colour="c",
    ),
    Step(
        "adopt",
        "compare a tree that is there already with the dataset's source",
        of_run=False,
        in_elements=True,
        fetches=True,
        moves_bytes=True,
        colour="b",
    ),
    Step(
        "repair",
        "fetch anew what the last audit found damaged, and only that",
        of_run=False,
        makes_change=True,
        in_elements=True,
        copies=True,
        fetches=True,
        moves_bytes=True,
    ),
)

BY_NAME = {step.name: step for step in TABLE}
# The names of steps of a run, in the table's order. So are the names in the tuples below.
OF_RUN = tuple(step.name for step in TABLE if step.of_run)
# Steps that run as `penstock step NAME`; the other steps are commands of their own.
SINGLE = tuple(step.name for step in TABLE if step.of_run and step.makes_change)
# Steps with a rule in the workflow; their results are in `results/<dataset>/<run>/`.
AFTER_LIST = tuple(step.name for step in TABLE if step.after_list)
CHANGES_AFTER_LIST = frozenset(step.name for step in TABLE if step.after_list and step.makes_change)
WITH_RECEIPT = tuple(step.name for step in TABLE if step.leaves_receipt)
IN_ELEMENTS = tuple(step.name for step in TABLE if step.in_elements)
RUN_IN_ELEMENTS = tuple(step.name for step in TABLE if step.in_elements and step.of_run)
MOVES_BYTES = frozenset(step.name for step in TABLE if step.moves_bytes)


def typed(words: str) -> str:
    """Return the words to type after `penstock` for a step or another command."""
    return f"step {words}" if words.partition(" ")[0] in SINGLE else words


def colour(name: str) -> str:
    """Return the style sheet's class for a step's bars. Unknown steps get a class that exists."""
    step = BY_NAME.get(name)
    return step.colour if step is not None else "d"


# Steps emit events; views, logs and tests are sinks that receive them.

# The result of a check of preflight, plan or selftest.
#
# A check is a pure function from typed facts to results. Its caller decides what follows: preflight exits
# with 3 if a result stops the run. Audits have findings instead (`core.findings`).

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
