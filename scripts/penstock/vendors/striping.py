"""How new files are to be striped: what is wished, and what follows for a folder. Pure.

| `target.striping`                | the folder has             | what is set                              |
|----------------------------------|----------------------------|------------------------------------------|
| `inherit`                        | anything                   | nothing                                  |
| `auto`                           | another number of targets  | the number of the table below, no more   |
|                                  |                            | than there are targets with room; chunk, |
|                                  |                            | pool and kind stay                       |
|                                  | another layout; two rows   | a component for each row, where the file |
|                                  | below hold 10 % each       | system has progressive layouts           |
|                                  | mirrored files             | nothing                                  |
| chunk, targets                   | others                     | what differs                             |
| a pool                           | it already                 | nothing                                  |
|                                  | another, this is root      | the pool                                 |
|                                  | another, this is not root  | stop, with the command for root          |
| a pool that is not there         |                            | stop                                     |

For `auto` that class of sizes decides up to which half of all bytes lie, where one pattern holds for all of a
file. A component on the metadata targets is never set.

| mean size of that class | targets |
|-------------------------|---------|
| below 16 MiB            | 1       |
| below 1 GiB             | 4       |
| from 1 GiB on           | 8       |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.core.amounts import size as _size
from penstock.core.checks import CheckResult
from penstock.core.text import printable
from penstock.vendors import placement
from penstock.vendors.facts import Component

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.config.settings import StripingConfig
    from penstock.core.checks import Verdict
    from penstock.vendors.facts import Pattern, Survey
    from penstock.vendors.placement import SizeClasses

KEY = "target.striping"
WIDTHS = ((16 << 20, 1), (1 << 30, 4))
WIDEST = 8
"""The widest stripe that is set or proposed unasked."""
MIXED = 0.1
"""Of all bytes: from there on a class of sizes gets a component of its own."""


class Setting(NamedTuple):
    """What new files of a folder shall get. None and "" stay as they are."""

    chunk_bytes: int | None = None
    targets: int | None = None
    pool: str = ""
    """By its number."""
    layout: tuple[Component, ...] = ()
    """Of a progressive layout, in place of `targets`."""

    def on(self, pattern: Pattern) -> Pattern:
        """The pattern, changed so."""
        changed = pattern._replace(
            chunk_bytes=self.chunk_bytes or pattern.chunk_bytes, targets=self.targets or pattern.targets
        )
        if self.layout:
            changed = changed._replace(layout=self.layout, targets=max(one.targets for one in self.layout))
        elif self.targets:
            changed = changed._replace(layout=())
        return changed._replace(pool=self.pool, pool_name="") if self.pool else changed

    def differs(self, pattern: Pattern) -> Setting:
        """What of it the pattern does not have yet."""
        return Setting(
            self.chunk_bytes if self.chunk_bytes != pattern.chunk_bytes else None,
            self.targets if self.targets != pattern.targets or pattern.layout else None,
            self.pool if self.pool != pattern.pool else "",
            self.layout if self.layout != pattern.layout else (),
        )


NOTHING = Setting()


class Choice(NamedTuple):
    """What is to be set on a folder, and what is to be said of it."""

    setting: Setting = NOTHING
    results: tuple[CheckResult, ...] = ()


def choose(
    wish: StripingConfig, survey: Survey, sizes: SizeClasses, *, root: bool, command: Callable[[Setting], str]
) -> Choice:
    """What to set so that new files of the surveyed folder are striped as wished; `sizes` are those files.
    `command` gives the command that sets it."""
    if wish.inherited:
        return Choice()
    pattern = survey.pattern
    if pattern is None:
        text = "how the folder is striped is not known, so nothing is set"
        verdict: Verdict = "stop" if wish.pool else "warning"
        mend = f"see whether the vendor's commands answer, or set {KEY}: inherit"
        return Choice(results=(CheckResult(KEY, text, verdict, mend=mend),))
    if wish.auto:
        return _auto(survey, pattern, sizes)
    setting = Setting(wish.chunk, wish.targets).differs(pattern)
    if wish.pool is None or wish.pool in (pattern.pool, pattern.pool_name):
        return Choice(setting)
    return _other_pool(setting, wish.pool, survey, pattern, root=root, command=command)


def _auto(survey: Survey, pattern: Pattern, sizes: SizeClasses) -> Choice:
    if not sizes.bytes or pattern.kind != "raid0":
        return Choice()
    there = len(placement.eligible(survey.in_pool(), 1))
    if survey.progressive:
        layout = _components(sizes, pattern.chunk_bytes, there or WIDEST)
        if len(layout) > 1:
            return _progressive(layout, pattern)
    typical = sizes.half_of_the_bytes()
    wanted = next((targets for below, targets in WIDTHS if typical < below), WIDEST)
    setting = Setting(targets=min(wanted, there) if there else wanted).differs(pattern)
    if not setting.targets:
        return Choice()
    text = (
        f"files are striped over {setting.targets} targets in place of {pattern.targets}: half of all bytes "
        f"lie in files of up to {_size(typical)}"
    )
    return Choice(setting, (CheckResult(KEY, text),))


def _components(sizes: SizeClasses, chunk: int, there: int) -> tuple[Component, ...]:
    """A component for each row of the table that holds enough of the bytes, no wider than so many targets;
    what is not wider than the one before is one with it."""
    bounds = [*WIDTHS, (0, WIDEST)]
    held = [0.0] * len(bounds)
    for count, size in sizes:
        held[next((at for at, (below, _) in enumerate(WIDTHS) if size < below), len(WIDTHS))] += count * size
    kept = [at for at, bytes_ in enumerate(held) if bytes_ >= MIXED * sizes.bytes]
    found: list[Component] = []
    for at in kept:
        end, targets = bounds[at][0] or None, min(bounds[at][1], there)
        if found and found[-1].targets == targets:
            found.pop()
        found.append(Component(end, targets, chunk))
    return (*found[:-1], found[-1]._replace(end=None)) if found else ()


def _progressive(layout: tuple[Component, ...], pattern: Pattern) -> Choice:
    setting = Setting(layout=layout).differs(pattern)
    if setting == NOTHING:
        return Choice()
    parts = ", ".join(
        f"{one.targets} up to {_size(one.end)}" if one.end else f"{one.targets} from there on"
        for one in layout
    )
    text = f"files are striped by a progressive layout, over targets: {parts}; sizes are mixed"
    return Choice(setting, (CheckResult(KEY, text),))


def _other_pool(
    setting: Setting,
    wished: str,
    survey: Survey,
    pattern: Pattern,
    *,
    root: bool,
    command: Callable[[Setting], str],
) -> Choice:
    about = f"{KEY}.pool"
    number = next((number for number, name in survey.pools if wished in (number, name)), wished)
    now = printable(f"the folder is in pool {pattern.pool} ({pattern.pool_name})")
    there = {pool for one in survey.of_role("storage") for pool in (one.pool, *one.further_pools)}
    if number not in there:
        text = f"{now}; no storage target is in a pool {printable(wished)}"
        mend = "give a pool that has targets, by its number"
        return Choice(results=(CheckResult(about, text, "stop", mend=mend),))
    setting = setting._replace(pool=number)
    if root:
        return Choice(setting)
    return Choice(
        results=(
            CheckResult(
                about,
                f"{now}, and only root may change that",
                "stop",
                f"pool {printable(wished)}",
                f"have an administrator run `{command(setting)}`, or leave {about} out",
            ),
        )
    )


def compared(wanted: Setting, pattern: Pattern | None, command: str) -> CheckResult:
    """Whether a folder has, when it is read back, what was set on it."""
    if pattern is not None and wanted.differs(pattern) == NOTHING:
        found = f"{pattern.targets} targets a file, chunks of {_size(pattern.chunk_bytes)}"
        if pattern.layout:
            found = f"a progressive layout of {len(pattern.layout)} components, up to {found}"
        pool = f", pool {pattern.pool} ({pattern.pool_name})" if pattern.pool else ""
        return CheckResult(KEY, printable(found + pool))
    seen = (
        "nothing" if pattern is None else f"{pattern.targets} targets, chunks of {_size(pattern.chunk_bytes)}"
    )
    text = f"`{command}` ended well, and what is read back is {seen}"
    return CheckResult(KEY, text, "stop" if wanted.pool else "warning", mend=f"run `{command}` by hand")


def failed(wanted: Setting, words: str, command: str, *, refused: bool) -> CheckResult:
    """The command that sets the pattern did not do it: files get what the folder gives. That stops the run
    where a pool was required."""
    why = "this account has not the right" if refused else "the command failed"
    text = f"not striped as wished: {why} ({printable(words)}); files are striped as the folder gives it"
    mend = f"have an administrator run `{command}`, or set {KEY}: inherit"
    return CheckResult(KEY, text, "stop" if wanted.pool else "warning", mend=mend)
