"""What the elements of a run waited for and used (`views.keys.Usage`), in words: lines of the closing
summary, rows of the report's table."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.core import human

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.views.keys import Usage, UsageLine, WorstElement

_WORST: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "queue_wait": ("Longest in the queue", human.duration),
    "seconds": ("Ran longest", human.duration),
    "memory_peak": ("Most memory", human.size),
    "cpu_efficiency": ("Used its CPUs least", lambda share: f"{share:.0%} of them"),
}
_BY = {
    "slurmdbd": "SLURM's accounting",
    "controller": "the start times that the controller saw",
    "element": "the elements themselves",
}


class UsageRow(NamedTuple):
    """A line of the report's table, as text; what is not known is ""."""

    step: str
    elements: str
    node_hours: str
    core_hours: str
    efficiency: str
    memory: str
    wait: str
    run: str


def rows(usage: Usage) -> list[UsageRow]:
    """The table: a line a step, and one of all."""
    return [
        UsageRow(
            step=line.get("step") or "all",
            elements=human.count(line.get("elements", 0)),
            node_hours=hours(line.get("node_hours")),
            core_hours=hours(line.get("core_hours")),
            efficiency=_share(line.get("cpu_efficiency")),
            memory=human.size(line["memory_peak"]) if line.get("memory_peak") else "",
            wait=_span(line.get("wait_median"), line.get("wait_longest")),
            run=_span(line.get("run_median"), line.get("run_longest")),
        )
        for line in usage.get("steps") or ()
    ]


def worst(usage: Usage) -> list[tuple[str, str]]:
    """[(what, which element and how much), ...]."""
    found = []
    for one in usage.get("worst") or ():
        if one["column"] in _WORST:
            what, shown = _WORST[one["column"]]
            found.append((what, f"{element(one)}: {shown(one['value'])}"))
    return found


def sources(usage: Usage) -> list[str]:
    """Who knew the figures, and what is missing."""
    known = usage.get("sources") or {}
    said = [
        f"{title}: by {_counted(known[key])}."
        for title, key in (("Queue wait", "queue_wait"), ("Run time and hours", "hours"))
        if known.get(key)
    ]
    if usage.get("steps"):
        said.append(
            "CPU efficiency and memory: by the elements themselves. "
            "Peak memory is the largest of one element, the sum of its processes' own peaks."
        )
    return [*said, *(f"{note[:1].upper()}{note[1:]}." for note in usage.get("notes") or ())]


def summary_lines(usage: Usage | None) -> list[tuple[str, str]]:
    """[(title, text), ...] of the closing summary."""
    if usage is None or not usage.get("steps"):
        return []
    line = usage["steps"][-1]
    longest = line.get("wait_longest")
    waited = _line(line.get("wait_median"), longest, usage, "queue_wait")
    return [
        ("Resources", _resources(line)),
        ("Queue wait", waited if longest and longest >= 1 else ""),
        ("Run time", _line(line.get("run_median"), line.get("run_longest"), usage, "seconds")),
    ]


def hours(value: float | None) -> str:
    """`0.004`, `0.52`, `1,234`."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def element(one: WorstElement) -> str:
    where = f" on {one['node']}" if one.get("node") else ""
    return f"{one['step']} {one['element']}{where}"


def _resources(line: UsageLine) -> str:
    parts = []
    if line.get("node_hours") is not None:
        parts.append(f"{hours(line['node_hours'])} node-hours")
    if line.get("core_hours") is not None:
        parts.append(f"{hours(line['core_hours'])} core-hours")
    if line.get("cpu_efficiency") is not None:
        parts.append(f"CPU {_share(line['cpu_efficiency'])}")
    if line.get("memory_peak"):
        parts.append(f"memory {human.size(line['memory_peak'])}")
    return ", ".join(parts)


def _line(middle: float | None, most: float | None, usage: Usage, column: str) -> str:
    if middle is None or most is None:
        return ""
    named = [one for one in usage.get("worst") or () if one["column"] == column]
    which = f" ({named[0]['step']} {named[0]['element']})" if named else ""
    return f"median {human.duration(middle)}, longest {human.duration(most)}{which}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def _span(middle: float | None, most: float | None) -> str:
    if middle is None or most is None:
        return ""
    return f"{human.duration(middle)}, {human.duration(most)}"


def _counted(by: Mapping[str, int]) -> str:
    known = [(name, by[name]) for name in _BY if by.get(name)]
    if len(known) == 1:
        return _BY[known[0][0]]
    return ", ".join(f"{_BY[name]} ({human.count(number)})" for name, number in known)
