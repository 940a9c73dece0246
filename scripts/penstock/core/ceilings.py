"""The ceilings of a copy (network, target, source, nodes) side by side, and which one binds.

`penstock plan` shows them before a copy; the report compares the reached rate with them. An unknown ceiling
bounds nothing, and the plan says that it is unknown.
"""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from penstock.core import human

# Metadata operations on the target for a copied file: create, set its time, rename (`target.staging_folder`).
# A folder is one more.
OPERATIONS_A_FILE = 3
ASSUMED = "assumed"  # origin of a rate that was not measured or configured
# Times as long as the binding ceiling alone would take: protocols, retries, first and last seconds. By
# Zettar's figures for 20 PB over 70 Gbit/s: 635 and 680 hours.
LOSSES = 1.07
ASSUMED_SPREAD = 2.0  # the same where the binding rate is assumed


# What a ceiling counts; operations are the target's, on metadata.
Unit = Literal["bytes", "files", "operations"]
Scope = Literal["all", "node"]


class Work(NamedTuple):
    """The files and bytes to copy."""

    files: int
    bytes: int | None  # None: the source states no sizes


class Rate(NamedTuple):
    """A rate a second, and its origin in words: `configured`, `rehearsed 2 Nov`."""

    value: float
    origin: str


class Ceiling(NamedTuple):
    """A ceiling of the copy. Rates are in its `unit` a second. None: not known."""

    name: str
    unit: Unit
    rate: float | None  # of all nodes together
    each: float | None  # of one node: its own, or its part of the whole
    seconds: float | None  # the copy's time if nothing else bounded it
    origin: str  # "": the rate is not known


class Forecast(NamedTuple):
    """The expected time of a copy. `seconds` and `most` are None if no ceiling is known."""

    ceilings: Sequence[Ceiling]  # the slowest first, unknown ones last
    seconds: float | None
    most: float | None  # longest time, by usual losses, or the spread of an assumed rate

    @property
    def binding(self) -> Ceiling | None:
        """The slowest ceiling; None: none is known."""
        return self.ceilings[0] if self.seconds is not None else None


class Known(NamedTuple):
    """A ceiling before the work is known."""

    name: str
    scope: Scope  # "node": the rate is of a single node, and nodes add up
    rate: Rate | None
    unit: Unit = "bytes"


def forecast(work: Work, nodes: int, limits: Iterable[Known]) -> Forecast:
    """Return the ceilings in the order in which they bind. A rate of 0 or less counts as unknown."""
    ceilings = [_ceiling(work, max(1, nodes), ceiling) for ceiling in limits]
    ceilings.sort(key=lambda ceiling: -1.0 if ceiling.seconds is None else ceiling.seconds, reverse=True)
    if not ceilings or ceilings[0].seconds is None:
        return Forecast(ceilings, None, None)
    seconds = ceilings[0].seconds
    times = ASSUMED_SPREAD if ceilings[0].origin == ASSUMED else LOSSES
    return Forecast(ceilings, seconds, seconds * times)


def sentence(outlook: Forecast, at_once: int, before: float = 0.0) -> str:
    """Describe the expected time of a copy and its binding ceiling. `before`: seconds before the copy begins.

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
    """Return a rate for people; "": not known."""
    if rate is None:
        return ""
    return human.rate(rate) if unit == "bytes" else f"{rate:,.0f} {_SHORT.get(unit, unit)}/s"


class Reached(NamedTuple):
    """How close a copy came to the ceiling that bound it."""

    name: str
    share: float  # of the ceiling: 1 is all of it
    rate: float  # the ceiling's own, in its `unit` a second
    unit: Unit


def reached(work: Work, seconds: float, nodes: int, limits: Iterable[Known]) -> Reached | None:
    """Return the share of the ceiling that binds `work` which a copy reached that took `seconds`. None: no
    ceiling is known, nothing was copied, or no time passed."""
    binding = forecast(work, nodes, limits).binding
    if binding is None or not binding.seconds or seconds <= 0:
        return None
    assert binding.rate is not None
    return Reached(binding.name, binding.seconds / seconds, binding.rate, binding.unit)


def pebibyte_miles_an_hour(size: int, miles: float, seconds: float) -> float:
    """Return the figure by which transfers over long distances are compared.

    >>> pebibyte_miles_an_hour(1 << 50, 5000, 34 * 3600)
    147.05882352941177
    """
    return size / (1 << 50) * miles / (seconds / 3600)


def _ceiling(work: Work, nodes: int, limit: Known) -> Ceiling:
    if limit.rate is None or limit.rate.value <= 0:
        return Ceiling(limit.name, limit.unit, None, None, None, "")
    amounts = {"bytes": work.bytes, "files": work.files, "operations": work.files * OPERATIONS_A_FILE}
    amount = amounts[limit.unit]
    each = limit.rate.value if limit.scope == "node" else limit.rate.value / nodes
    rate = each * nodes
    return Ceiling(
        limit.name, limit.unit, rate, each, None if amount is None else amount / rate, limit.rate.origin
    )
