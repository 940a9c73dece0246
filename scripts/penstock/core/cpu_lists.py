"""Converts lists of CPUs of the kernel, SLURM and WEKA, such as `3-4,19`, to numbers and back."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstock.core.text import in_quotes

if TYPE_CHECKING:
    from collections.abc import Iterable

_DIGITS = re.compile("[0-9]{1,6}", re.ASCII)


def cpus(text: str) -> tuple[int, ...]:
    """Return the CPUs of a list, sorted, each once; the kernel's may have strides (`0-10:2/4`). Raises
    ValueError."""
    numbers: set[int] = set()
    for range_text in filter(None, text.strip().split(",")):
        span, _, stride = range_text.strip().partition(":")
        first, dash, last = span.partition("-")
        run = range(_number(first), _number(last if dash else first) + 1)
        if not run:
            raise ValueError(f"{span} ends before it begins")
        used, _, size = stride.partition("/")
        of = _number(size) if stride else 1
        if not of:
            raise ValueError(f"{range_text.strip()} has a stride of 0")
        numbers.update(cpu for cpu in run if not stride or (cpu - run.start) % of < _number(used))
    return tuple(sorted(numbers))


def _number(text: str) -> int:
    if not _DIGITS.fullmatch(text):
        raise ValueError(f"{in_quotes(text)} is no number of a CPU")
    return int(text)


def listed(numbers: Iterable[int]) -> str:
    """Return the list of these CPUs; "": none."""
    runs: list[list[int]] = []
    for cpu in sorted(set(numbers)):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
