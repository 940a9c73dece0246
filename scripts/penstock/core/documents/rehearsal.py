"""`rehearsal.json` in a dataset's state: what the last `penstock rehearse` measured."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
import datetime as dt
from collections.abc import Sequence
from typing import NamedTuple

from penstock.core.balance import FILE_COST
from penstock.core.documents.typed_json import Document

ENOUGH = 0.95  # fraction of the best rate that a sufficient number of streams reaches


class Leg(NamedTuple):
    """Files copied and read back with one number of streams. Sizes are bytes."""

    streams: int  # as given, else the most that were active at once
    files: int
    bytes: int
    seconds: float  # of copying
    read_seconds: float  # of reading back
    # Kolmogorov-Smirnov distance of the copied files' sizes from those of all files but giants
    distance: float

    @property
    def work(self) -> float:
        """Copied a second, as shards are balanced: bytes, plus FILE_COST for each file. It depends least on
        which files of the sample a leg got."""
        return (self.bytes + FILE_COST * self.files) / max(self.seconds, 1e-9)

    @property
    def rates(self) -> tuple[float, float, float]:
        """Files and bytes copied, and bytes read back, a second."""
        copying, reading = max(self.seconds, 1e-9), max(self.read_seconds, 1e-9)
        return self.files / copying, self.bytes / copying, self.bytes / reading


class Rehearsal(NamedTuple):
    """A sample of the dataset, copied and read back on one node."""

    dataset: str
    at: str  # its end: UTC, ISO 8601
    host: str
    files: int  # of the dataset, below `plan.giant_bytes`
    sample: int  # files drawn of these
    legs: Sequence[Leg]  # one for each number of streams
    knee: int  # the sufficient number of streams; 0: only one number was tried
    durability: str  # how files became durable: `fsync` or `syncfs`
    # error of the earlier plan: its seconds for the kept leg, divided by the real ones, less 1
    model_error: float = 0.0

    @property
    def leg(self) -> Leg:
        """The leg that plans use: the knee's, or the only one."""
        return next((leg for leg in self.legs if leg.streams == self.knee), self.legs[0])

    @property
    def day(self) -> str:
        """As `2 Nov`, in the reader's time zone."""
        moment = dt.datetime.fromisoformat(self.at).astimezone()
        return f"{moment.day} {moment:%b}"


def _check(document: Rehearsal) -> None:
    try:
        if not document.legs or not document.day or min(leg.seconds for leg in document.legs) <= 0:
            raise ValueError("nothing was measured")
    except OverflowError as error:
        raise ValueError("it ended at no time") from error


REHEARSAL = Document(Rehearsal, "what a rehearsal measured", check=_check)


def knee(legs: Sequence[Leg]) -> int:
    """Return the smallest number of streams with ENOUGH of the best rate; 0 for fewer than two legs."""
    if len(legs) < 2:
        return 0
    best = max(leg.work for leg in legs)
    return min(leg.streams for leg in legs if leg.work >= ENOUGH * best)
