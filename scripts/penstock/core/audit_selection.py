"""Selects the files that an audit reads: all, a random sample, or the next slice of a rotation. The unit is a
file, or a part of a giant."""

# Annotations are read at run time (`core.documents.typed_json`): no `from __future__ import annotations`.
import math
from dataclasses import dataclass
from typing import NamedTuple

CONFIDENCE = 0.95  # probability with which `promise` says how many damaged files are found
_MEMORY = "the memory of {} may have answered, and damage on the disks below it shows later"


class SoonFirst(NamedTuple):
    """How a rotation first reads files that were read back soon after their writing (`core.grades.is_soon`).
    The slices of a rotation together read everything only if all have the same values."""

    share: float = 0.0  # fraction of all files that were, below 1; 0: slices ignore it
    start: float = 0.0  # where in the order of the other files the first slice begins, as a fraction


NONE_FIRST = SoonFirst()


@dataclass(frozen=True)
class AuditSelection:
    """`whole`, `sample` (a fraction `share`, drawn by `seed`) or `slice` (`turn`, from 0, of `turns`)."""

    kind: str = "whole"
    share: float = 1.0
    seed: str = ""
    turn: int = 0
    turns: int = 1
    soon_first: SoonFirst = NONE_FIRST

    @property
    def end(self) -> float:
        """Where a slice ends in the order of the files that do not come first; above 1 it wrapped around."""
        end, (share, start) = (self.turn + 1) / self.turns, self.soon_first
        return start + max(0.0, end - share) / (1 - share) if share else end

    def detects(self, damaged: int) -> float:
        """Return the probability that at least one of `damaged` files, hit at random, is read."""
        fraction = 1.0 if self.kind == "whole" else self.share if self.kind == "sample" else 1 / self.turns
        return 1.0 - (1.0 - fraction) ** damaged

    def promise(self, memory: str = "") -> str:
        """Say in a sentence what this audit can miss. `memory`: whose memory may have answered in place of
        the disks (`core.grades.answered_by`)."""
        if self.kind == "whole":
            return f"every byte is read: {_MEMORY.format(memory) if memory else 'any damage is found'}"
        fraction = self.share if self.kind == "sample" else 1 / self.turns
        enough = 1 if fraction >= 1 else math.ceil(math.log(1 - CONFIDENCE) / math.log(1 - fraction))
        sentence = (
            f"one damaged file is found with a probability of {fraction:.2%}, "
            f"{enough} or more with at least {CONFIDENCE:.0%}"
        )
        if self.kind == "slice":
            first = ", first what was read back soon after its writing" if self.soon_first.share else ""
            together = f"slice {self.turn + 1} of {self.turns}{first}: all slices together read every byte"
            sentence = f"{together}; {sentence}"
        return f"{sentence}; {_MEMORY.format(memory)}" if memory else sentence


WHOLE = AuditSelection()  # every file


def parse_fraction(text: str) -> float:
    """Return `1%`, `0.5 %` or `0.01` as a fraction. Raises ValueError outside (0, 1]."""
    text = text.strip()
    fraction = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    if not 0 < fraction <= 1:
        raise ValueError(text)
    return fraction


def parse_turns(text: str) -> int:
    """Return `1/30` as 30. Raises ValueError for anything but 1/1 to 1/10000."""
    numerator, _, turns = text.partition("/")
    if numerator.strip() != "1" or not 1 <= int(turns) <= 10_000:
        raise ValueError(text)
    return int(turns)
