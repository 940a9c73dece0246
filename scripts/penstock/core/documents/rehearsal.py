"""`rehearsal.json` in a dataset's state: what the last `penstock rehearse` measured. Pure; `run.rehearsal`
writes the file, `jobs.forecast` reads it."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
import datetime as dt
from collections.abc import Sequence
from typing import NamedTuple

from penstock.core.balance import FILE_COST
from penstock.core.documents.typed_json import Document

ENOUGH = 0.95
"""A number of streams that reaches this fraction of the best rate is enough."""


class Leg(NamedTuple):
    """Files that were copied and read back with one number of streams. Sizes are bytes."""

    streams: int
    """As given; where none was, the most that were active at once."""
    files: int
    bytes: int
    seconds: float
    """Of copying."""
    read_seconds: float
    """Of reading back."""
    distance: float
    """Kolmogorov-Smirnov distance of the copied files' sizes from those of all that are no giants."""

    @property
    def work(self) -> float:
        """Copied a second, as shards are balanced: bytes, and FILE_COST more for each file. It depends least
        on which files of the sample a leg got."""
        return (self.bytes + FILE_COST * self.files) / max(self.seconds, 1e-9)

    @property
    def rates(self) -> tuple[float, float, float]:
        """Files and bytes that were copied, and bytes that were read back, a second."""
        copying, reading = max(self.seconds, 1e-9), max(self.read_seconds, 1e-9)
        return self.files / copying, self.bytes / copying, self.bytes / reading


class Rehearsal(NamedTuple):
    """A sample of the dataset, copied and read back on one node."""

    dataset: str
    at: str
    """When it ended: UTC, ISO 8601."""
    host: str
    files: int
    """Of the dataset, below `plan.giant_bytes`."""
    sample: int
    """Files that were drawn of them."""
    legs: Sequence[Leg]
    """One for each number of streams."""
    knee: int
    """The number of streams that is enough; 0: only one number was tried."""
    durability: str
    """How files became durable: `fsync` or `syncfs`."""
    model_error: float = 0.0
    """By how much the plan's figures before it were wrong: the seconds that they give for the kept leg, as a
    fraction of those that it took, less 1."""

    @property
    def leg(self) -> Leg:
        """The one by which plans reckon: the knee's, or the only one."""
        return next((leg for leg in self.legs if leg.streams == self.knee), self.legs[0])

    @property
    def day(self) -> str:
        """As `2 Nov`, in the zone of who reads."""
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
    """The smallest number of streams that reaches ENOUGH of the best rate; 0 of fewer than two legs."""
    if len(legs) < 2:
        return 0
    best = max(leg.work for leg in legs)
    return min(leg.streams for leg in legs if leg.work >= ENOUGH * best)
