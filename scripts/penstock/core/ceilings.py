"""What bounds a copy: the ceilings of network, target, source and nodes side by side, and which one binds.

Pure. `penstock plan` shows it before a copy, and the report compares the rate that was reached with it. Each
ceiling is a rate that is known from somewhere, with the words for that, or is not known; then it bounds
nothing here, and the plan says that it does not know it.
"""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from penstock.core import human

OPERATIONS_A_FILE = 3
"""Metadata operations on the target for a file that is copied: it is created, gets its time and its name
(`target.staging_folder`); one more for each folder."""
ASSUMED = "assumed"
"""The origin of a rate that nobody measured, configured or gave."""
LOSSES = 1.07
"""A copy takes up to so many times as long as the ceiling that binds it would take alone: protocols, retries,
and the first and last seconds. Zettar's figures for 20 PB over 70 Gbit/s, 635 and 680 hours, differ by it."""
ASSUMED_SPREAD = 2.0
"""How many times as long it may take where the rate that binds is an assumed one."""


Unit = Literal["bytes", "files", "operations"]
"""What a ceiling counts; operations are those of the target's metadata."""
Scope = Literal["all", "node"]


class Work(NamedTuple):
    """What is to be copied."""

    files: int
    bytes: int | None
    """None: the source gives no sizes."""


class Rate(NamedTuple):
    """A rate, a second, and where it comes from, in words such as `configured` or `rehearsed 2 Nov`."""

    value: float
    origin: str


class Ceiling(NamedTuple):
    """One of them. Rates are in its `unit` a second."""

    name: str
    unit: Unit
    rate: float | None
    """Of all nodes together; None: it is not known."""
    each: float | None
    """Of one node: its own, or its part of the whole; None: it is not known."""
    seconds: float | None
    """The time that the copy would take if nothing else bounded it; None: it is not known."""
    origin: str
    """"" where the rate is not known."""


class Forecast(NamedTuple):
    """What is expected of a copy. `seconds` and `most` are None where no ceiling is known."""

    ceilings: Sequence[Ceiling]
    """The one that takes longest first, those that are not known last."""
    seconds: float | None
    most: float | None
    """Seconds that it takes at most, by what ceilings are seen to lose, or rates that are only assumed."""

    @property
    def binding(self) -> Ceiling | None:
        """The ceiling that takes longest; None: none is known."""
        return self.ceilings[0] if self.seconds is not None else None


class Known(NamedTuple):
    """A ceiling before the work is known."""

    name: str
    scope: Scope
    """"node": the rate is of one node, and nodes add up."""
    rate: Rate | None
    unit: Unit = "bytes"


def forecast(work: Work, nodes: int, known: Iterable[Known]) -> Forecast:
    """The ceilings in the order in which they bind. A rate of 0 or less is none: it is not known."""
    ceilings = [_ceiling(work, max(1, nodes), ceiling) for ceiling in known]
    ceilings.sort(key=lambda ceiling: -1.0 if ceiling.seconds is None else ceiling.seconds, reverse=True)
    if not ceilings or ceilings[0].seconds is None:
        return Forecast(ceilings, None, None)
    seconds = ceilings[0].seconds
    times = ASSUMED_SPREAD if ceilings[0].origin == ASSUMED else LOSSES
    return Forecast(ceilings, seconds, seconds * times)


def sentence(outlook: Forecast, at_once: int, before: float = 0.0) -> str:
    """What is expected of a copy by so many elements at once: its time, with `before` seconds for what comes
    first, and what binds it.

    >>> sentence(forecast(Work(10, 1000), 2, [Known("network link", "all", Rate(10, "cap"))]), 2)
    'copy takes about 1 min 40 s to 1 min 47 s with 2 elements at once, bound by network link: 10 B/s (cap)'
    """
    elements = "1 element" if at_once == 1 else f"{at_once} elements at once"
    if outlook.binding is None or outlook.seconds is None or outlook.most is None:
        return f"how long copy takes with {elements} is not known: no ceiling is"
    times = human.time_span(max(1.0, before + outlook.seconds), max(1.0, before + outlook.most))
    bound = outlook.binding
    rate = in_unit(bound.rate, bound.unit)
    return f"copy takes about {times} with {elements}, bound by {bound.name}: {rate} ({bound.origin})"


_SHORT = {"operations": "ops"}


def in_unit(rate: float | None, unit: Unit) -> str:
    """A rate for people; "" where it is not known."""
    if rate is None:
        return ""
    return human.rate(rate) if unit == "bytes" else f"{rate:,.0f} {_SHORT.get(unit, unit)}/s"


class Reached(NamedTuple):
    """How near a copy came to the ceiling that bound it."""

    name: str
    share: float
    """Of the ceiling: 1 is all of it."""
    rate: float
    """The ceiling's own, in its `unit` a second."""
    unit: Unit


def reached(work: Work, seconds: float, nodes: int, known: Iterable[Known]) -> Reached | None:
    """The share of the ceiling that binds `work` which a copy of it in `seconds` made use of; None where no
    ceiling is known, nothing was copied, or no time passed."""
    binding = forecast(work, nodes, known).binding
    if binding is None or not binding.seconds or seconds <= 0:
        return None
    assert binding.rate is not None
    return Reached(binding.name, binding.seconds / seconds, binding.rate, binding.unit)


def pebibyte_miles_an_hour(size: int, miles: float, seconds: float) -> float:
    """How much went how far in which time: the figure by which transfers over long distances are compared.

    >>> pebibyte_miles_an_hour(1 << 50, 5000, 34 * 3600)
    147.05882352941177
    """
    return size / (1 << 50) * miles / (seconds / 3600)


def _ceiling(work: Work, nodes: int, known: Known) -> Ceiling:
    if known.rate is None or known.rate.value <= 0:
        return Ceiling(known.name, known.unit, None, None, None, "")
    amounts = {"bytes": work.bytes, "files": work.files, "operations": work.files * OPERATIONS_A_FILE}
    amount = amounts[known.unit]
    each = known.rate.value if known.scope == "node" else known.rate.value / nodes
    rate = each * nodes
    return Ceiling(
        known.name, known.unit, rate, each, None if amount is None else amount / rate, known.rate.origin
    )
