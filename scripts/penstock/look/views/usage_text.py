"""What the elements of a run waited for and used (`core.element_use.Usage`), in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.core import human

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.core.element_use import StepUse, Usage, Worst

_WORST: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "queue_wait": ("Longest in the queue", human.duration),
    "seconds": ("Ran longest", human.duration),
    "memory_peak": ("Most memory", human.size),
    "cpu_efficiency": ("Used its CPUs least", lambda fraction: f"{fraction:.0%} of them"),
}
_BY = {
    "slurmdbd": "SLURM's accounting",
    "controller": "the start times that the controller saw",
    "element": "the elements themselves",
}


class UsageRow(NamedTuple):
    """A line of the report's table, as text; "" is unknown."""

    step: str
    elements: str
    node_hours: str
    core_hours: str
    efficiency: str
    memory: str
    wait: str
    run: str


def rows(usage: Usage) -> list[UsageRow]:
    """Return a line for each step, and one for all."""
    return [
        UsageRow(
            step=line.step or "all",
            elements=human.count(line.elements),
            node_hours=hours(line.node_hours),
            core_hours=hours(line.core_hours),
            efficiency=_percent(line.cpu_efficiency),
            memory=human.size(line.memory_peak) if line.memory_peak else "",
            wait=_span(line.wait_median, line.wait_longest),
            run=_span(line.run_median, line.run_longest),
        )
        for line in usage.steps
    ]


def worst(usage: Usage) -> list[tuple[str, str]]:
    """Return [(what, which element and how much), ...]."""
    lines = []
    for extreme in usage.worst:
        if extreme.column in _WORST:
            what, shown = _WORST[extreme.column]
            lines.append((what, f"{element(extreme)}: {shown(extreme.value)}"))
    return lines


def sources(usage: Usage) -> list[str]:
    """Say where the figures come from, and what is missing."""
    said = [
        f"{title}: by {_counted(usage.sources[key])}."
        for title, key in (("Queue wait", "queue_wait"), ("Run time and hours", "hours"))
        if usage.sources.get(key)
    ]
    if usage.steps:
        said.append(
            "CPU efficiency and memory: by the elements themselves. "
            "Peak memory is the largest of one element, the sum of its processes' own peaks."
        )
    return [*said, *(f"{note[:1].upper()}{note[1:]}." for note in usage.notes)]


def summary_lines(usage: Usage | None) -> list[tuple[str, str]]:
    """Return [(title, text), ...] of the closing summary."""
    if usage is None or not usage.steps:
        return []
    line = usage.steps[-1]
    longest = line.wait_longest
    waited = _line(line.wait_median, longest, usage, "queue_wait")
    return [
        ("Resources", _resources(line)),
        ("Queue wait", waited if longest and longest >= 1 else ""),
        ("Run time", _line(line.run_median, line.run_longest, usage, "seconds")),
    ]


def hours(value: float | None) -> str:
    """Format `0.004`, `0.52`, `1,234`."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def element(extreme: Worst) -> str:
    where = f" on {extreme.node}" if extreme.node else ""
    return f"{extreme.step} {extreme.element}{where}"


def _resources(line: StepUse) -> str:
    phrases = []
    if line.node_hours is not None:
        phrases.append(f"{hours(line.node_hours)} node-hours")
    if line.core_hours is not None:
        phrases.append(f"{hours(line.core_hours)} core-hours")
    if line.cpu_efficiency is not None:
        phrases.append(f"CPU {_percent(line.cpu_efficiency)}")
    if line.memory_peak:
        phrases.append(f"memory {human.size(line.memory_peak)}")
    return ", ".join(phrases)


def _line(middle: float | None, most: float | None, usage: Usage, column: str) -> str:
    if middle is None or most is None:
        return ""
    named = [extreme for extreme in usage.worst if extreme.column == column]
    which = f" ({named[0].step} {named[0].element})" if named else ""
    return f"median {human.duration(middle)}, longest {human.duration(most)}{which}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def _span(middle: float | None, most: float | None) -> str:
    if middle is None or most is None:
        return ""
    return f"{human.duration(middle)}, {human.duration(most)}"


def _counted(by: Mapping[str, int]) -> str:
    sources_used = [(name, by[name]) for name in _BY if by.get(name)]
    if len(sources_used) == 1:
        return _BY[sources_used[0][0]]
    return ", ".join(f"{_BY[name]} ({human.count(number)})" for name, number in sources_used)
