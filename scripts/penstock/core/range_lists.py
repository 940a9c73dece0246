"""Converts lists with ranges from text to numbers and names, and back: CPUs (`3-4,19`) as the kernel, SLURM
and WEKA write them, and SLURM's hosts (`n[01-12,20],login1`). Pure.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

from penstock.core.human import in_quotes

if TYPE_CHECKING:
    from collections.abc import Iterable


_DIGITS = re.compile("[0-9]{1,6}", re.ASCII)


def cpus(text: str) -> tuple[int, ...]:
    """Return the CPUs of a list, sorted, each only once. The kernel's lists may have strides (`0-10:2/4`).
    Raises ValueError."""
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
    """Return these CPUs as a list with ranges, or "" if there are none."""
    runs: list[list[int]] = []
    for cpu in sorted(set(numbers)):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


# Converts SLURM's lists of hosts, such as `n[01-12,20],login1`, to names and back.
#
# | text           | names                                                   |
# |----------------|---------------------------------------------------------|
# | n1,n2          | n1 n2                                                   |
# | n[1-3,7]       | n1 n2 n3 n7                                             |
# | n[08-11]       | n08 n09 n10 n11                                         |
# | r[1-2]c[1-2]   | r1c1 r1c2 r2c1 r2c2                                     |
# | n[1-2]-ib      | none: SLURM 22.05 takes no text behind the last bracket |
#
# `scontrol show hostnames` does the same; a test compares the two.

_RANGES = r"\[[0-9]+(?:-[0-9]+)?(?:,[0-9]+(?:-[0-9]+)?)*\]"
_HOST = rf"[A-Za-z0-9][A-Za-z0-9._-]*(?:(?:{_RANGES}[A-Za-z0-9._-]+)*{_RANGES})?"
# Texts that `host_names` accepts. They have no slash: SLURM would take such a text for the name of a file.
FORM = re.compile(rf"{_HOST}(?:,{_HOST})*")
MOST = 1 << 20  # largest number of names in a list


def host_names(text: str) -> list[str]:
    """Return the names, in order, each only once. Raises ValueError, also for more than `MOST` names."""
    if not text:
        return []
    if not FORM.fullmatch(text):
        raise ValueError(f"{in_quotes(text)} is no list of hosts")
    names: dict[str, None] = {}
    for host in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        words = re.findall(r"\[[^\]]*\]|[^\[]+", host)
        alternatives = [_numbers(word) if word[0] == "[" else [word] for word in words]
        count = 1
        for expanded in alternatives:
            count *= len(expanded)
        if len(names) + count > MOST:
            raise ValueError(f"{in_quotes(text[:80])} stands for more than {MOST} hosts")
        names.update(dict.fromkeys(map("".join, itertools.product(*alternatives))))
    return list(names)


def _numbers(text: str) -> list[str]:
    numbers: list[str] = []
    for run in text.strip("[]").split(","):
        first, _, last = run.partition("-")
        low, high = int(first), int(last or first)
        if high - low > MOST or high < low:
            raise ValueError(f"{in_quotes(run)} is no range of hosts")
        numbers += [f"{number:0{len(first)}}" for number in range(low, high + 1)]
    return numbers


def host_list(names: Iterable[str]) -> str:
    """Return these names as a list. A range replaces names that differ only in their last number."""
    groups: dict[tuple[str, int], list[int]] = {}
    plain: list[str] = []
    for name in sorted(set(names)):
        match = re.fullmatch(r"(.*?)([0-9]{1,9})", name)
        if match is None:
            plain.append(name)
            continue
        # The width of a number with leading zeros is its length; other numbers have width 0.
        width = len(match[2]) if match[2][0] == "0" and len(match[2]) > 1 else 0
        groups.setdefault((match[1], width), []).append(int(match[2]))
    return ",".join([*plain, *(_word(*key, numbers) for key, numbers in groups.items())])


def _word(before: str, width: int, numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    texts = [f"{a:0{width}}" if a == b else f"{a:0{width}}-{b:0{width}}" for a, b in runs]
    if texts == [f"{numbers[0]:0{width}}"]:
        return f"{before}{texts[0]}"
    return f"{before}[{','.join(texts)}]"
