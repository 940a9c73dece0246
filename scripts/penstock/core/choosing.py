"""Which files an audit reads: all, a random sample, or the next slice of a rotation.

The unit is a file; of a giant, each part. Choices are a function of the path (and the part), so
that all elements agree, and a killed audit goes on with the same ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from hashlib import blake2b
from os import fsencode
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Choice:
    """`whole`, `sample` (`share` of all, drawn by `seed`) or `slice` (number `turn` of `turns`)."""

    kind: str = "whole"
    share: float = 1.0
    seed: str = ""
    turn: int = 0
    turns: int = 1

    def takes(self, path: str, part: int = -1) -> bool:
        """Whether this file (or this part of it) is read."""
        return bool(self.among([fsencode(path)], part))

    def among(self, paths: Sequence[bytes], part: int = -1) -> list[int]:
        """Which of these are read, by their place in `paths` (as `os.fsencode` gives them). A sample of a
        million files costs a second: each path is hashed."""
        if self.kind == "whole":
            return list(range(len(paths)))
        seed = self.seed if self.kind == "sample" else "rotation"
        head = b"%b\x00%d\x00" % (seed.encode(), part)
        if self.kind == "sample":
            if self.share >= 1:
                return list(range(len(paths)))
            limit = math.ceil(self.share * 2.0**64).to_bytes(8)
            # Digests are compared as bytes: most significant first, they have the order of the numbers.
            return [i for i, path in enumerate(paths) if blake2b(head + path, digest_size=8).digest() < limit]
        number, turn, turns = int.from_bytes, self.turn, self.turns
        return [
            i
            for i, path in enumerate(paths)
            if number(blake2b(head + path, digest_size=8).digest()) % turns == turn
        ]

    def detects(self, damaged: int) -> float:
        """The probability that at least one of `damaged` files, hit at random, is read."""
        share = 1.0 if self.kind == "whole" else self.share if self.kind == "sample" else 1 / self.turns
        return 1.0 - (1.0 - share) ** damaged

    def promise(self) -> str:
        """One sentence: what this audit can miss."""
        if self.kind == "whole":
            return "every byte is read: any damage is found"
        share = self.share if self.kind == "sample" else 1 / self.turns
        enough = 1 if share >= 1 else math.ceil(math.log(1 - CONFIDENCE) / math.log(1 - share))
        sentence = (
            f"one damaged file is found with a probability of {share:.2%}, "
            f"{enough} or more with at least {CONFIDENCE:.0%}"
        )
        if self.kind == "slice":
            sentence = (
                f"slice {self.turn + 1} of {self.turns}: all slices together read every byte; {sentence}"
            )
        return sentence


def parse_share(text: str) -> float:
    """`1%`, `0.5 %` or `0.01` as a share of 1. Raises ValueError outside (0, 1]."""
    text = text.strip()
    share = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    if not 0 < share <= 1:
        raise ValueError(text)
    return share


def parse_turns(text: str) -> int:
    """`1/30` as 30. Raises ValueError."""
    one, _, turns = text.partition("/")
    if one.strip() != "1" or not 1 <= int(turns) <= 10_000:
        raise ValueError(text)
    return int(turns)
