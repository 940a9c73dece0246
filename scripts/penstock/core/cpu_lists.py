"""Lists of CPUs as the kernel, SLURM and WEKA write them: `3-4,19`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def cpus(text: str) -> tuple[int, ...]:
    """The CPUs of a list, sorted, each once; of the kernel's lists with strides (`0-10:2/4`) those that it
    names. () of an empty text. Raises ValueError for what is no such list."""
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        span, _, stride = part.strip().partition(":")
        first, _, last = span.partition("-")
        run = range(int(first), int(last or first) + 1)
        used, _, size = stride.partition("/")
        found.update(cpu for cpu in run if not stride or (cpu - run.start) % int(size) < int(used))
    return tuple(sorted(found))


def listed(numbers: Iterable[int]) -> str:
    """The list of these CPUs; "" of none."""
    runs: list[list[int]] = []
    for cpu in sorted(set(numbers)):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
