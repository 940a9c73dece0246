"""Computes the waits and use of a run's elements (the tasks of its job arrays). The figures come from the
elements themselves, the controller and SLURM.
"""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Annotated, NamedTuple

from penstock.core.element_documents import ElementRow
from penstock.core.typed_json import LEFT_OUT, NOTHING

# origins of a figure: SLURM's accounting, the submitting process, or the element itself
SLURMDBD, CONTROLLER, ELEMENT = "slurmdbd", "controller", "element"
# least seconds for which an element's CPU efficiency is meaningful: shorter elements mostly start and end
LONG_ENOUGH = 10.0


class Wait(NamedTuple):
    """Seconds in a queue, and the origin of the element's start time. None and "" mean not known."""

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
    """Compute how long an element waited in its last array's queue before its last start. The result is never
    below 0, although nodes' clocks differ. An argument of 0 means unknown.

    `booked`: the wait according to slurmdbd. `submitted`: time noted by the controller. `start_time`: SLURM's
    StartTime, seen by the controller. `began`: start noted by the element. `ran_before`: seconds of its
    earlier runs in that array.

    | slurmdbd | submitted | StartTime | element's start | wait                               | by         |
    |----------|-----------|-----------|-----------------|------------------------------------|------------|
    | knows it | any       | any       | any             | what it says                       | slurmdbd   |
    | no       | known     | known     | any             | StartTime - submitted - ran before | controller |
    | no       | known     | not known | known           | start - submitted - ran before     | element    |
    | no       | otherwise | any       | any             | not known                          |            |
    """
    if booked is not None:
        return Wait(booked, SLURMDBD)
    start, by = (start_time, CONTROLLER) if start_time else (began, ELEMENT)
    if not submitted or not start:
        return Wait()
    return Wait(max(0.0, start - submitted - ran_before), by)


def whole_node(asked: bool | None, cpus: int, node_cpus: int, *, nodes: bool) -> bool | None:
    """Return whether an element had its node to itself. `asked`: whether it requested this, by --exclusive or
    core-spec; None: not recorded. `nodes`: whether the cluster has nodes at all.

    | nodes | asked    | CPUs granted       | whole node |
    |-------|----------|--------------------|------------|
    | no    | any      | any                | no         |
    | yes   | yes      | any                | yes        |
    | yes   | no       | all of the node    | yes        |
    | yes   | no       | fewer, not known   | no         |
    | yes   | not noted| all of the node    | yes        |
    | yes   | not noted| fewer, not known   | not known  |
    """
    if not nodes or asked:
        return nodes
    if node_cpus and cpus >= node_cpus:
        return True
    return asked


class StepUse(NamedTuple):
    """Use of the elements of a step, or of all steps. Waits and runs are in seconds, memory in bytes, and
    efficiency is a fraction. None: not known for any element."""

    step: str  # "" for all steps
    elements: int
    node_hours: Annotated[float | None, LEFT_OUT] = None
    core_hours: Annotated[float | None, LEFT_OUT] = None
    cpu_seconds: Annotated[float | None, LEFT_OUT] = None
    cpu_efficiency: Annotated[float | None, LEFT_OUT] = None
    memory_peak: Annotated[int | None, LEFT_OUT] = None  # largest peak of any element
    wait_median: Annotated[float | None, LEFT_OUT] = None
    wait_longest: Annotated[float | None, LEFT_OUT] = None
    run_median: Annotated[float | None, LEFT_OUT] = None
    run_longest: Annotated[float | None, LEFT_OUT] = None


class Worst(NamedTuple):
    """The element with a column's highest value, or with the lowest `cpu_efficiency`."""

    column: str  # a column of `elements.parquet`
    step: str
    element: int  # the element's number, counted over all arrays of the step
    node: str
    value: float


class Usage(NamedTuple):
    """The waits and the use of a run's elements. `elements.parquet` has the figures of each element."""

    steps: Sequence[StepUse] = ()  # each step's use, and a sum over all if there are several
    worst: Sequence[Worst] = ()
    # numbers of elements by the origin of their `queue_wait` and `hours`
    sources: Mapping[str, Mapping[str, int]] = NOTHING
    notes: Sequence[str] = ()  # sentences on missing figures
    # for each element with a known wait: when it began to wait, started and ended, in seconds since the epoch
    spans: Sequence[tuple[float, float, float]] = ()
    file: Annotated[str, LEFT_OUT] = ""  # path of `elements.parquet`


def by_step(rows: Sequence[ElementRow]) -> list[StepUse]:
    """Return the use of each step in the rows' order, and a sum if there are several steps."""
    steps = list(dict.fromkeys(row.step for row in rows))
    lines = [_together(step, [row for row in rows if row.step == step]) for step in steps]
    return [*lines, _together("", rows)] if len(lines) > 1 else lines


def _together(step: str, rows: Sequence[ElementRow]) -> StepUse:
    waits, runs = _known(row.queue_wait for row in rows), _known(row.seconds for row in rows)
    # The elements' efficiencies are not used here, since they are rounded (the lowest to 0).
    both = [
        (row.cpu_seconds, row.granted_seconds)
        for row in rows
        if row.cpu_seconds is not None and row.granted_seconds
    ]
    granted = sum(granted_seconds for _, granted_seconds in both)
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
    """Return `Usage.spans`, ascending. All waits of an element are put directly before its last start."""
    return sorted(
        (round(row.started - row.queue_wait, 3), round(row.started, 3), round(row.ended, 3))
        for row in rows
        if row.queue_wait is not None and row.started and row.ended and row.ended >= row.started
    )


def worst(rows: Sequence[ElementRow]) -> list[Worst]:
    """Return the elements with the longest wait, longest run, most memory and lowest CPU efficiency. A single
    row gives nothing, since the table shows it already."""
    if len(rows) < 2:
        return []
    long = [row for row in rows if (row.seconds or 0) >= LONG_ENOUGH]
    candidates = [
        _highest("queue_wait", rows, lambda row: row.queue_wait),
        _highest("seconds", rows, lambda row: row.seconds),
        _highest("memory_peak", rows, lambda row: row.memory_peak),
        _highest("cpu_efficiency", long, lambda row: row.cpu_efficiency, sign=-1),
    ]
    return [candidate for candidate in candidates if candidate is not None]


def _highest(
    column: str, rows: Sequence[ElementRow], value: Callable[[ElementRow], float | None], sign: int = 1
) -> Worst | None:
    valued = [(sign * amount, row) for row in rows if (amount := value(row)) is not None]
    if not valued:
        return None
    most, row = max(valued, key=lambda pair: pair[0])
    return Worst(column, row.step, row.element, row.node or "", sign * most)


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def total(values: Iterable[float | None]) -> float | None:
    """Return the sum of the known values, or None if no value is known."""
    summands = _known(values)
    return sum(summands) if summands else None
