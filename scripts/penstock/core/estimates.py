"""How long a copy takes and what bounds it: rates that were measured or are assumed, the ceilings of network,
target, source and nodes, the time limit that a worker asks for, and the remaining time of a step. Pure.
"""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import mul
from types import MappingProxyType
from typing import Literal, NamedTuple

from penstock.core import human

ASSUMED_BYTES = 1_000_000_000  # a second and element, while nothing was measured: 8 Gbit/s
ASSUMED_FILES = 1000  # likewise
ASSUMED_LINKS = 10_000  # likewise
LONG_ENOUGH = 0.5  # element seconds of a copy that gives a rate: shorter ones measure only the start
MANY_LINKS = 1000  # links of a run that gives a rate


@dataclass(frozen=True)
class Rates:
    """What an element copies a second."""

    bytes_per_second: float = ASSUMED_BYTES
    files_per_second: float = ASSUMED_FILES
    measured: str = ""  # the release whose copy was measured; "": assumed rates
    links_per_second: float = ASSUMED_LINKS
    links_measured: str = ""  # as `measured`, of the links
    tried: bool = False  # rates that no release gave were measured on the target just now
    rehearsed: bool = False  # `measured` is the day of a rehearsal, such as `2 Nov`

    @property
    def origin(self) -> str:
        """`release 20261101-1f2e3d4c` or `rehearsed 2 Nov`; "": assumed rates."""
        return f"{'rehearsed' if self.rehearsed else 'release'} {self.measured}" if self.measured else ""


@dataclass(frozen=True)
class MeasuredCopy:
    """The work of a release's copy."""

    release: str
    files: int
    bytes: int
    element_seconds: float  # sum over the elements, without `link_seconds`
    links: int = 0
    link_seconds: float = 0.0  # of linking, likewise
    rehearsed: bool = False  # a sample was copied, not a release; `release` is the day, such as `2 Nov`


def rates(history: Iterable[MeasuredCopy], tried: Mapping[str, float] = MappingProxyType({})) -> Rates:
    """Return the rates of the last copy in `history` (oldest first) that took LONG_ENOUGH or was a rehearsal,
    and of the last with MANY_LINKS. Another mix of sizes takes another time.

    Without such a copy: `files` and `links` a second as `tried` on the target, else assumed.
    """
    estimate = Rates(
        files_per_second=max(tried.get("files", ASSUMED_FILES), 1.0),
        links_per_second=max(tried.get("links", ASSUMED_LINKS), 1.0),
        tried=bool(tried),
    )
    for copy in history:
        if copy.files > 0 and copy.element_seconds >= (0 if copy.rehearsed else LONG_ENOUGH):
            estimate = replace(
                estimate,
                bytes_per_second=max(copy.bytes / copy.element_seconds, 1.0),
                files_per_second=max(copy.files / copy.element_seconds, 1.0),
                measured=copy.release or "earlier",
                rehearsed=copy.rehearsed,
            )
        if copy.link_seconds > 0 and copy.links >= MANY_LINKS:
            estimate = replace(
                estimate,
                links_per_second=copy.links / copy.link_seconds,
                links_measured=copy.release or "earlier",
            )
    return estimate


def seconds(files: int, size: int, slots: int, rates: Rates, links: int = 0) -> float:
    """Return the seconds for making `links`, then copying `files` of `size` bytes in all, with `slots`
    elements. Measured rates hold for their mix: the larger of the two times counts. Assumed rates are
    added."""
    by_bytes, by_files = size / rates.bytes_per_second, files / rates.files_per_second
    together = max(by_bytes, by_files) if rates.measured else by_bytes + by_files
    return (together + links / rates.links_per_second) / max(1, slots)


# Computes the time limit that a worker requests, from estimates of the open shards.
#
# A scheduler backfills only jobs with a known limit. A limit above the need costs waiting, one below it a
# second job; a job without a limit (UNLIMITED) is never backfilled.

# seconds beyond any estimate: the node's prolog, an interpreter on a shared file system, a busy file system
BEFORE = 15 * 60
MARGIN = 1.5  # factor on an estimate
SHORTEST = 30 * 60
UNKNOWN = 4 * 3600  # seconds without an estimate, and at most: a limit of days is not backfilled
LONGEST = 7 * 86_400  # seconds requested at most, if the cluster sets no limit
MINUTE = 60  # seconds
# Seconds by which the clocks of two nodes may differ: munge refuses older messages (its TTL), so SLURM works
# on no nodes that differ by more.
CLOCKS = 300.0


class Estimate(NamedTuple):
    """How long an element takes."""

    seconds: float
    measured: bool  # by measured rates


def asked_for(estimates: Sequence[Estimate], shards: int, workers: int, longest: float) -> int:
    """Return the seconds that a worker requests, in whole minutes, for its part of these shards: another
    worker continues what it does not finish. `longest`: the cluster's limit, 0: none.

    | the estimates                       | asked for                                                   |
    |-------------------------------------|-------------------------------------------------------------|
    | of all shards                       | BEFORE, and MARGIN times the work by the number of workers; |
    |                                     | at least SHORTEST, at most UNKNOWN                          |
    | of some, or none                    | UNKNOWN                                                     |
    | any                                 | never more than the cluster allows                          |
    """
    if not shards or len(estimates) < shards:
        return _bounded(UNKNOWN, longest)
    work = sum(estimate.seconds for estimate in estimates) / max(1, workers)
    return _bounded(min(UNKNOWN, max(SHORTEST, BEFORE + MARGIN * work)), longest)


def unestimated(longest: float) -> int:
    """Return the seconds for a job that lasts as long as a whole run: all that the cluster allows."""
    return _bounded(LONGEST, longest)


def _bounded(seconds: float, longest: float) -> int:
    """Round up to whole minutes, within `longest` rounded down to them."""
    most = int(longest or LONGEST) // MINUTE * MINUTE
    return max(MINUTE, min(-int(-seconds // MINUTE) * MINUTE, most))


# The ceilings of a copy (network, target, source, nodes) side by side, and which one binds.
#
# `penstock plan` shows them before a copy; the report compares the reached rate with them. An unknown ceiling
# bounds nothing, and the plan says that it is unknown.

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


# Rates and remaining time, by how files and bytes of a step grew.
#
# The problem: a link makes a stream steady in bytes, requests make it steady in files, and fixed costs of
# files a mixture. The files left may have other sizes than those done. The obvious way, the later of bytes
# and files at their own rates, is several times too long where small or large files come last.
#
# The way taken: both counts are scaled to curves from 0 to 1. Work is the mixture `share * bytes + (1 -
# share)
# * files` with the straightest curve over time (least squares); bytes or files alone if as straight. The time
# left is the work left at its recent rate.
#
# Limits: while all files are alike both curves coincide, and nothing shows which is steady; then bytes count.

WINDOW_SECONDS = 30.0  # that a rate covers
PACE_SECONDS = 60.0  # whose pace gives the remaining time: elements report in waves
SPACING = 0.5
SAMPLES = 480  # newest samples that are kept: four minutes or more
# A curve counts as steady if its distance from a straight line (root mean square, both rise from 0 to 1)
# exceeds the best by no more than this, after this factor. Late reports bend all curves.
ALIKE, NOISE = 0.001, 1.25


class Sample(NamedTuple):
    """The work done, and when, in seconds of any clock."""

    at: float
    files: int
    bytes: int


class ProgressCurve:
    """The growth of a step's counts, over the attempts of all elements. Work done before the first sample, by
    an earlier command, is not counted."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=SAMPLES)
        self._last: Sample | None = None

    def add(self, at: float, files: int, size: int) -> None:
        """Record files and bytes done by now; neither falls."""
        self._last = Sample(at, files, size)
        if not self._samples or at - self._samples[-1].at >= SPACING:
            self._samples.append(self._last)

    def rates(self, now: float) -> tuple[float, float]:
        """Return recent (bytes, files) a second; (0, 0): not known."""
        begin, last = self._since(now - WINDOW_SECONDS), self._last
        if begin is None or last is None or now - begin.at < 0.2:
            return 0.0, 0.0
        seconds = now - begin.at
        return (last.bytes - begin.bytes) / seconds, (last.files - begin.files) / seconds

    def seconds_left(self, now: float, files: int, size: int) -> float | None:
        """Return the seconds for the files and bytes left; None: nothing moves, or nothing is left."""
        begin, last = self._since(now - PACE_SECONDS), self._last
        if begin is None or last is None or now - begin.at < 0.2 or (files <= 0 and size <= 0):
            return None
        first = self._samples[0]
        all_files, all_bytes = last.files - first.files, last.bytes - first.bytes
        share = self._share(all_files, all_bytes)

        def work(files: int, size: int) -> float:
            return share * size / (all_bytes or 1) + (1 - share) * files / (all_files or 1)

        pace = work(last.files - begin.files, last.bytes - begin.bytes) / (now - begin.at)
        left = work(max(0, files), max(0, size))
        return left / pace if pace > 0 and left > 0 else None

    def _share(self, all_files: int, all_bytes: int) -> float:
        """Return the share of bytes in the steadiest mixture; 1, else 0, if that is as steady."""
        first, last = self._samples[0], self._last
        if not all_files or not all_bytes or last is None:
            return float(bool(all_bytes))
        # Distances of the curve of files from the straight line, and from the curve of bytes.
        from_line, apart = [], []
        for at, files, size in self._samples:
            by_files = (files - first.files) / all_files
            from_line.append(by_files - (at - first.at) / (last.at - first.at))
            apart.append(by_files - (size - first.bytes) / all_bytes)

        def bend(share: float) -> float:
            return math.dist(from_line, [share * gap for gap in apart]) / math.sqrt(len(apart))

        fit = sum(map(mul, from_line, apart)) / (sum(map(mul, apart, apart)) or 1.0)
        mixed = min(1.0, max(0.0, fit))
        return next(share for share in (1.0, 0.0, mixed) if bend(share) <= NOISE * bend(mixed) + ALIKE)

    def _since(self, moment: float) -> Sample | None:
        """Return the last sample before the moment, or the first."""
        if not self._samples:
            return None
        after = bisect_left(self._samples, moment, key=lambda sample: sample.at)
        return self._samples[max(0, after - 1)]
