"""How long a copy takes, and what bounds it: measured or assumed rates; the ceilings (highest rates) of
network, target, source and nodes; a worker's time limit; and the remaining time of a step. Pure.
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

ASSUMED_BYTES = 1_000_000_000  # bytes a second for each element, while nothing was measured: 8 Gbit/s
ASSUMED_FILES = 1000  # files a second for each element, while nothing was measured
ASSUMED_LINKS = 10_000  # links a second for each element, while nothing was measured
LONG_ENOUGH = 0.5  # least element seconds of a copy that gives a rate: a shorter copy is mostly start-up
MANY_LINKS = 1000  # least number of links in a run that gives a rate of links


@dataclass(frozen=True)
class Rates:
    """The rates at which an element copies and links."""

    bytes_per_second: float = ASSUMED_BYTES
    files_per_second: float = ASSUMED_FILES
    measured: str = ""  # the release whose copy was measured; "": assumed rates
    links_per_second: float = ASSUMED_LINKS
    links_measured: str = ""  # the release whose links were measured; "": assumed rates
    tried: bool = False  # whether a trial on the target just now gave the rates that no release has shown
    rehearsed: bool = False  # whether `measured` is the day of a rehearsal, such as `2 Nov`

    @property
    def origin(self) -> str:
        """`release 20261101-1f2e3d4c` or `rehearsed 2 Nov`; "" if the rates are assumed."""
        return f"{'rehearsed' if self.rehearsed else 'release'} {self.measured}" if self.measured else ""


@dataclass(frozen=True)
class MeasuredCopy:
    """The work of a release's copy."""

    release: str
    files: int
    bytes: int
    element_seconds: float  # sum over the elements, without `link_seconds`
    links: int = 0
    link_seconds: float = 0.0  # seconds of linking, also a sum over the elements
    rehearsed: bool = False  # whether a rehearsal copied a sample; then `release` is its day, such as `2 Nov`


def rates(history: Iterable[MeasuredCopy], tried: Mapping[str, float] = MappingProxyType({})) -> Rates:
    """Return rates from `history` (oldest first): those of the last copy that took LONG_ENOUGH or was a
    rehearsal, and the rate of links of the last copy with MANY_LINKS. Another mix of sizes has other rates.

    Without such a copy, the rates of `tried` (a trial on the target) are used, or else assumed rates.
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
    """Return the seconds in which `slots` elements make `links`, then copy `files` with `size` bytes in all.
    Measured rates hold for their mix of sizes, so the longer of the times for bytes and for files counts.
    For assumed rates, both times are added."""
    by_bytes, by_files = size / rates.bytes_per_second, files / rates.files_per_second
    together = max(by_bytes, by_files) if rates.measured else by_bytes + by_files
    return (together + links / rates.links_per_second) / max(1, slots)


# Computes the time limit that a worker requests, from estimates of the open shards.
#
# A scheduler backfills only jobs with a known limit, never a job without a limit (UNLIMITED). A limit above
# the need makes the job wait longer, and a limit below the need requires a second job.

# Seconds added to any estimate, for the node's prolog, an interpreter on a shared file system, and a busy
# file system.
BEFORE = 15 * 60
MARGIN = 1.5  # factor on an estimate
SHORTEST = 30 * 60
UNKNOWN = 4 * 3600  # seconds requested without an estimate, and at most: days would not be backfilled
LONGEST = 7 * 86_400  # seconds requested at most, if the cluster sets no limit
MINUTE = 60  # seconds
# Seconds by which the clocks of two nodes may differ. Munge rejects messages that are older (its TTL), so
# SLURM does not work on nodes whose clocks differ by more.
CLOCKS = 300.0


class Estimate(NamedTuple):
    """How long an element takes."""

    seconds: float
    measured: bool  # whether the estimate used measured rates


def asked_for(estimates: Sequence[Estimate], shards: int, workers: int, longest: float) -> int:
    """Return the seconds, in whole minutes, that a worker requests for its part of these shards. Another
    worker continues work that it does not finish. `longest`: the cluster's limit, or 0 for no limit.

    | the estimates                       | asked for                                                   |
    |-------------------------------------|-------------------------------------------------------------|
    | of all shards                       | BEFORE, and MARGIN times the work by the number of workers; |
    |                                     | at least SHORTEST, at most UNKNOWN                          |
    | of only some shards, or of none     | UNKNOWN                                                     |
    | any                                 | never more than the cluster allows                          |
    """
    if not shards or len(estimates) < shards:
        return _bounded(UNKNOWN, longest)
    work = sum(estimate.seconds for estimate in estimates) / max(1, workers)
    return _bounded(min(UNKNOWN, max(SHORTEST, BEFORE + MARGIN * work)), longest)


def unestimated(longest: float) -> int:
    """Return the seconds that a job requests to last a whole run: as many as the cluster allows."""
    return _bounded(LONGEST, longest)


def _bounded(seconds: float, longest: float) -> int:
    """Round up to whole minutes, but not above `longest`, which is rounded down to whole minutes."""
    most = int(longest or LONGEST) // MINUTE * MINUTE
    return max(MINUTE, min(-int(-seconds // MINUTE) * MINUTE, most))


# The ceilings of a copy (network, target, source, nodes) side by side. The binding ceiling is the one that
# makes the copy slowest.
#
# `penstock plan` shows the ceilings before a copy, and the report compares the reached rate with them. An
# unknown ceiling bounds nothing, and the plan says that it is unknown.

# Metadata operations on the target for a copied file: create, set its time, rename (`target.staging_folder`).
# A folder is one more.
OPERATIONS_A_FILE = 3
ASSUMED = "assumed"  # origin of a rate that was not measured or configured
# Factor on the time that the binding ceiling alone would take, for protocols, retries, and the first and last
# seconds. From Zettar's figures for 20 PB over 70 Gbit/s: 635 and 680 hours.
LOSSES = 1.07
ASSUMED_SPREAD = 2.0  # factor in place of LOSSES if the binding rate is assumed


# The unit that a ceiling limits. `operations` are metadata operations on the target.
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
    """A ceiling of the copy. Rates are in its `unit` a second. A field is None if it is not known."""

    name: str
    unit: Unit
    rate: float | None  # rate of all nodes together
    each: float | None  # rate of a single node: its own ceiling, or its part of the whole
    seconds: float | None  # the copy's time if only this ceiling bounded it
    origin: str  # origin of the rate; "" if the rate is not known


class Forecast(NamedTuple):
    """The expected time of a copy. `seconds` and `most` are None if no ceiling is known."""

    ceilings: Sequence[Ceiling]  # the slowest first, unknown ones last
    seconds: float | None
    most: float | None  # longest time, with usual losses, or with the spread of an assumed rate

    @property
    def binding(self) -> Ceiling | None:
        """The slowest ceiling, or None if no ceiling is known."""
        return self.ceilings[0] if self.seconds is not None else None


class Known(NamedTuple):
    """A ceiling as known before the amount of work is."""

    name: str
    scope: Scope  # "node": the rate holds for a single node, and the nodes' rates add up
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
    """Return a readable rate, or "" if it is not known."""
    if rate is None:
        return ""
    return human.rate(rate) if unit == "bytes" else f"{rate:,.0f} {_SHORT.get(unit, unit)}/s"


class Reached(NamedTuple):
    """How close a copy came to its binding ceiling."""

    name: str
    share: float  # reached fraction of the ceiling
    rate: float  # the ceiling's own rate, in its `unit` a second
    unit: Unit


def reached(work: Work, seconds: float, nodes: int, limits: Iterable[Known]) -> Reached | None:
    """Return what share of the binding ceiling a copy of `work` reached that took `seconds`. None if no
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


# Rates and remaining time of a step, from the growth of its finished files and bytes.
#
# The problem: bytes grow steadily if a network link bounds the copy, files if requests do, and a mixture if
# files have fixed costs. The files left may differ in size from the finished files. The obvious estimate is
# the longer of the times for bytes and for files, each at its own rate. It is several times too long if small
# or large files come last.
#
# The solution: both counts are scaled to curves from 0 to 1. Work is the mixture `share * bytes +
# (1 - share) * files` with the straightest curve over time (least squares), or bytes or files alone if they
# are as straight. The time left is the work left at its recent rate.
#
# Limits: while all files are alike, both curves coincide, and nothing shows which is steady. Then bytes
# count.

WINDOW_SECONDS = 30.0  # seconds that a shown rate covers
PACE_SECONDS = 60.0  # seconds whose rate gives the remaining time; long, since elements report in waves
SPACING = 0.5
SAMPLES = 480  # newest samples that are kept: four minutes or more
# A curve counts as steady if its distance from a straight line is at most NOISE times the best distance, plus
# ALIKE. The distance is a root mean square; both lines rise from 0 to 1. Late reports bend all curves.
ALIKE, NOISE = 0.001, 1.25


class Sample(NamedTuple):
    """The work done up to a moment, which is in seconds of any clock."""

    at: float
    files: int
    bytes: int


class ProgressCurve:
    """The growth of a step's counts, over the attempts of all elements. Work that an earlier command did,
    before the first sample, is not counted."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=SAMPLES)
        self._last: Sample | None = None

    def add(self, at: float, files: int, size: int) -> None:
        """Record the files and bytes finished by the moment `at`. Neither may decrease."""
        self._last = Sample(at, files, size)
        if not self._samples or at - self._samples[-1].at >= SPACING:
            self._samples.append(self._last)

    def rates(self, now: float) -> tuple[float, float]:
        """Return the recent rates (bytes, files) a second, or (0, 0) if they are not known."""
        begin, last = self._since(now - WINDOW_SECONDS), self._last
        if begin is None or last is None or now - begin.at < 0.2:
            return 0.0, 0.0
        seconds = now - begin.at
        return (last.bytes - begin.bytes) / seconds, (last.files - begin.files) / seconds

    def seconds_left(self, now: float, files: int, size: int) -> float | None:
        """Return the seconds for the files and bytes left, or None if nothing moves or nothing is left."""
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
        """Return the share of bytes in the steadiest mixture. A share of 1 is preferred if it is as steady,
        and then a share of 0."""
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
        """Return the last sample before the moment, or else the first sample."""
        if not self._samples:
            return None
        after = bisect_left(self._samples, moment, key=lambda sample: sample.at)
        return self._samples[max(0, after - 1)]
