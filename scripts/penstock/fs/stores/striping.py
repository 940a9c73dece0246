"""Over how many targets new files must be striped, in which chunks: `target.striping`.

| `target.striping` | the folder has                         | what is set                                |
|-------------------|----------------------------------------|--------------------------------------------|
| `inherit`         | anything                               | nothing                                    |
| `auto`            | the number of the table below          | nothing                                    |
|                   | another number                         | that number, no more than there are        |
|                   |                                        | targets with room; chunk and pool stay     |
|                   | mirrored files, or a composite layout  | nothing                                    |
|                   | what is not known                      | nothing, and a warning                     |
| `targets=4,       | these                                  | nothing                                    |
| chunk=1MiB`       | others                                 | these, no more targets than there are with |
|                   |                                        | room; pool stays, and chunk without one    |
|                   | mirrored files, or a composite layout, | nothing, and a warning                     |
|                   | or what is not known                   |                                            |

For `auto`, the class of sizes that contains the middle of all bytes decides, since a single pattern holds for
all files of a folder.

| mean size of that class | targets |
|-------------------------|---------|
| below 16 MiB            | 1       |
| below 1 GiB             | 4       |
| from 1 GiB on           | 8       |
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.events import CheckResult
from penstock.core.human import printable
from penstock.core.human import size as _size
from penstock.fs.stores import placement

if TYPE_CHECKING:
    from penstock.fs.stores.facts import Pattern, StoreStatus
    from penstock.fs.stores.placement import SizeClasses
    from penstock.host.command import Answer

KEY = "target.striping"
INHERIT, AUTO = "inherit", "auto"
WIDTHS = ((16 << 20, 1), (1 << 30, 4))
WIDEST = 8  # the widest stripe that is set


class StripingChoice(NamedTuple):
    """What to set on a folder, and the results to show."""

    targets: int = 0  # targets of a new file; 0: nothing to set
    chunk: int = 0  # bytes; 0: as the folder has it
    results: tuple[CheckResult, ...] = ()


def choose(wish: str, status: StoreStatus, sizes: SizeClasses) -> StripingChoice:
    """Choose what to set on the folder of that status, for new files of these sizes. `wish` is
    `target.striping`."""
    if wish == INHERIT:
        return StripingChoice()
    pattern = status.pattern
    if pattern is None:
        text = "how the folder is striped is not known, so nothing is set"
        mend = f"see whether the vendor's commands answer, or set {KEY}: {INHERIT}"
        return StripingChoice(results=(CheckResult(KEY, text, "warning", mend=mend),))
    usable = len(placement.eligible(status.in_pool(), 1))
    if wish != AUTO:
        return _wished(wish, pattern, usable)
    if not sizes.bytes or pattern.kind != "raid0":
        return StripingChoice()
    typical = sizes.half_of_the_bytes()
    wanted = next((targets for below, targets in WIDTHS if typical < below), WIDEST)
    wanted = min(wanted, usable) if usable else wanted
    if wanted == pattern.targets:
        return StripingChoice()
    text = (
        f"files are striped over {wanted} targets in place of {pattern.targets}: half of all bytes lie in "
        f"files of up to {_size(typical)}"
    )
    return StripingChoice(wanted, results=(CheckResult(KEY, text),))


def parse(wish: str) -> tuple[int, int]:
    """Parse targets and chunk (bytes; 0: unchanged) of `targets=4, chunk=1MiB`, as checked by the
    configuration (`config.settings.STRIPING`)."""
    values = dict(part.strip().split("=") for part in wish.split(","))
    chunk = values.get("chunk", "0KiB")
    return int(values["targets"]), int(chunk[:-3]) * {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[chunk[-3]]


def _wished(wish: str, pattern: Pattern, usable: int) -> StripingChoice:
    targets, chunk = parse(wish)
    if pattern.kind != "raid0":
        text = f"the folder's pattern is {pattern.kind}, which is left as it is"
        mend = f"set {KEY}: {INHERIT}, or name a target whose folder has a plain pattern"
        return StripingChoice(results=(CheckResult(KEY, text, "warning", mend=mend),))
    wanted = min(targets, usable) if usable else targets
    results = []
    if wanted < targets:
        text = f"files are striped over {wanted} targets: no more of those that they can get have room"
        results.append(CheckResult(KEY, text, "warning", wish, f"set {KEY}: {INHERIT}, or fewer targets"))
    if holds(wanted, chunk, pattern):
        return StripingChoice(results=tuple(results))
    text = (
        f"files are striped over {wanted} targets in chunks of {_size(chunk or pattern.chunk_bytes)}, in "
        f"place of {pattern.targets} in chunks of {_size(pattern.chunk_bytes)}"
    )
    return StripingChoice(wanted, chunk, (*results, CheckResult(KEY, text)))


def holds(targets: int, chunk: int, pattern: Pattern | None) -> bool:
    """Return whether a folder of this pattern has so many targets, and the wished chunk, if any."""
    return pattern is not None and pattern.targets == targets and chunk in (0, pattern.chunk_bytes)


def compared(targets: int, chunk: int, pattern: Pattern | None, answer: Answer) -> CheckResult:
    """Judge whether a folder, read back, has the targets and the chunk that the command of `answer` set."""
    ended = f"`{printable(shlex.join(answer.argv))}` ended with exit status {answer.code}"
    if pattern is not None and holds(targets, chunk, pattern):
        pool = f", pool {pattern.pool} ({pattern.pool_name})" if pattern.pool else ""
        text = printable(f"{_shape(pattern, 'targets a file')}{pool}")
        return CheckResult(KEY, text if answer.ok else f"{text}; {ended}, and set it: {answer.words}")
    text = f"{ended}, and what is read back is {_shape(pattern)}"
    return CheckResult(KEY, text, "warning", mend=f"run `{shlex.join(answer.argv)}` by hand")


def failed(words: str, command: str, pattern: Pattern | None, *, refused: bool) -> CheckResult:
    """Warn that the command failed to set the pattern: files get what the folder gives, `pattern`."""
    why = "this account has not the right" if refused else "the command failed"
    text = f"not striped as wished: {why} ({printable(words)}); files are striped as the folder gives it"
    text += f": {_shape(pattern)}" if pattern else ""
    mend = f"have an administrator run `{command}`, or set {KEY}: {INHERIT}"
    return CheckResult(KEY, text, "warning", mend=mend)


def _shape(pattern: Pattern | None, noun: str = "targets") -> str:
    return f"{pattern.targets} {noun}, chunks of {_size(pattern.chunk_bytes)}" if pattern else "nothing"
