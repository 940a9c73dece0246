"""What the elements of a run waited for and used, worked out of what they, the controller and SLURM's
accounting know of them. Pure: `jobs.arrays.element_accounts` gathers the facts."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Annotated, NamedTuple

from penstock.core.documents.typed_json import LEFT_OUT, NOTHING
from penstock.core.element_columns import ElementRow

SLURMDBD, CONTROLLER, ELEMENT = "slurmdbd", "controller", "element"
"""Who knows a figure: SLURM's accounting, the process that submitted the array, or the element itself."""
LONG_ENOUGH = 10.0
"""Seconds from which on an element's CPU efficiency says something: shorter ones mostly start and end."""


class Wait(NamedTuple):
    """The seconds in a queue, and who knew the start. None, "": not known."""

    seconds: float | None = None
    by: str = ""


def queue_wait(
    *,
    booked: float | None,
    submitted: float,
    start_time: float,
    began: float,
    ran_before: float = 0.0,
) -> Wait:
    """How long an element was in the queue of its last array, before its last start. `booked`: what slurmdbd
    says; `submitted`: by the controller's book; `start_time`: SLURM's StartTime, as the controller saw it;
    `began`: by the element itself; `ran_before`: seconds that it ran in that array before. 0: not known.
    Clocks of nodes differ: a wait is never less than 0.

    | slurmdbd | submitted | StartTime | element's start | wait                               | by         |
    |----------|-----------|-----------|-----------------|------------------------------------|------------|
    | knows it | any       | any       | any             | what it says                       | slurmdbd   |
    | no       | known     | known     | any             | StartTime - submitted - ran before | controller |
    | no       | known     | not known | known           | start - submitted - ran before     | element    |
    | no       | else      |           |                 | not known                          |            |
    """
    if booked is not None:
        return Wait(booked, SLURMDBD)
    start, by = (start_time, CONTROLLER) if start_time else (began, ELEMENT)
    if not submitted or not start:
        return Wait()
    return Wait(max(0.0, start - submitted - ran_before), by)


def whole_node(asked: bool | None, cpus: int, node_cpus: int, *, nodes: bool) -> bool | None:
    """Whether an element had its node for itself. `asked`: by --exclusive or core-spec, None: not noted;
    `nodes`: its cluster has nodes at all.

    | nodes | asked    | CPUs granted       | whole node |
    |-------|----------|--------------------|------------|
    | no    | any      | any                | no         |
    | yes   | yes      | any                | yes        |
    | yes   | no       | all that it has    | yes        |
    | yes   | no       | fewer, not known   | no         |
    | yes   | not noted| all that it has    | yes        |
    | yes   | not noted| fewer, not known   | not known  |
    """
    if not nodes or asked:
        return nodes
    if node_cpus and cpus >= node_cpus:
        return True
    return asked


class StepUse(NamedTuple):
    """The starts of one step's elements, or of all, together. Waits and runs are in seconds, memory in bytes,
    the efficiency is a fraction; None: not known of any of them."""

    step: str
    """"" of all steps."""
    elements: int
    node_hours: Annotated[float | None, LEFT_OUT] = None
    core_hours: Annotated[float | None, LEFT_OUT] = None
    cpu_seconds: Annotated[float | None, LEFT_OUT] = None
    cpu_efficiency: Annotated[float | None, LEFT_OUT] = None
    memory_peak: Annotated[int | None, LEFT_OUT] = None
    """The largest of one element."""
    wait_median: Annotated[float | None, LEFT_OUT] = None
    wait_longest: Annotated[float | None, LEFT_OUT] = None
    run_median: Annotated[float | None, LEFT_OUT] = None
    run_longest: Annotated[float | None, LEFT_OUT] = None


class Worst(NamedTuple):
    """The element with the highest (`cpu_efficiency`: lowest) value of a column."""

    column: str
    """Of `elements.parquet`."""
    step: str
    element: int
    """Its number, over all arrays of the step."""
    node: str
    value: float


class Usage(NamedTuple):
    """What the elements of a run waited for and used; `elements.parquet` has it for each."""

    steps: Sequence[StepUse] = ()
    """And one of all, where there are several."""
    worst: Sequence[Worst] = ()
    sources: Mapping[str, Mapping[str, int]] = NOTHING
    """How many elements' `queue_wait` and `hours` are known by whom."""
    notes: Sequence[str] = ()
    """What is missing, for people."""
    spans: Sequence[tuple[float, float, float]] = ()
    """When each element whose wait is known began to wait, began, and ended; seconds since the epoch."""
    file: Annotated[str, LEFT_OUT] = ""
    """The path of `elements.parquet`."""


def by_step(rows: Sequence[ElementRow]) -> list[StepUse]:
    """A line for each step in the order of the rows, and one for all where there are several."""
    steps = list(dict.fromkeys(row.step for row in rows))
    found = [_together(step, [row for row in rows if row.step == step]) for step in steps]
    return [*found, _together("", rows)] if len(found) > 1 else found


def _together(step: str, rows: Sequence[ElementRow]) -> StepUse:
    waits, runs = _known(row.queue_wait for row in rows), _known(row.seconds for row in rows)
    # Not by their efficiencies, which are rounded: of the idlest elements to 0.
    both = [
        (row.cpu_seconds, row.granted_seconds)
        for row in rows
        if row.cpu_seconds is not None and row.granted_seconds
    ]
    granted = sum(given for _, given in both)
    used = _known(row.cpu_seconds for row in rows)
    return StepUse(
        step=step,
        elements=len(rows),
        node_hours=total(row.node_hours for row in rows),
        core_hours=total(row.core_hours for row in rows),
        cpu_seconds=sum(used) if used else None,
        cpu_efficiency=sum(spent for spent, _ in both) / granted if granted else None,
        memory_peak=max((row.memory_peak for row in rows if row.memory_peak is not None), default=None),
        wait_median=median(waits) if waits else None,
        wait_longest=max(waits, default=None),
        run_median=median(runs) if runs else None,
        run_longest=max(runs, default=None),
    )


def spans(rows: Iterable[ElementRow]) -> list[tuple[float, float, float]]:
    """`Usage.spans`, ascending. Of an element that was started several times, all of its wait lies right
    before its last start."""
    return sorted(
        (round(row.started - row.queue_wait, 3), round(row.started, 3), round(row.ended, 3))
        for row in rows
        if row.queue_wait is not None and row.started and row.ended and row.ended >= row.started
    )


def worst(rows: Sequence[ElementRow]) -> list[Worst]:
    """The elements that waited and ran longest, held the most memory, and left most CPUs idle. Nothing where
    there is one row: it is what the table says already."""
    if len(rows) < 2:
        return []
    long = [row for row in rows if (row.seconds or 0) >= LONG_ENOUGH]
    candidates = [
        _highest("queue_wait", rows, lambda row: row.queue_wait),
        _highest("seconds", rows, lambda row: row.seconds),
        _highest("memory_peak", rows, lambda row: row.memory_peak),
        _highest("cpu_efficiency", long, lambda row: row.cpu_efficiency, sign=-1),
    ]
    return [one for one in candidates if one is not None]


def _highest(
    column: str, rows: Sequence[ElementRow], value: Callable[[ElementRow], float | None], sign: int = 1
) -> Worst | None:
    known = [(sign * found, row) for row in rows if (found := value(row)) is not None]
    if not known:
        return None
    most, row = max(known, key=lambda one: one[0])
    return Worst(column, row.step, row.element, row.node or "", sign * most)


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def total(values: Iterable[float | None]) -> float | None:
    """The sum of the values that are known; None where none is."""
    known = _known(values)
    return sum(known) if known else None
