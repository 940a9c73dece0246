"""What stands in a staging's tree, compared with the records of what verify saw, and what deviates."""

from __future__ import annotations

from dataclasses import dataclass, field
from os import fsencode
from stat import S_ISREG
from typing import TYPE_CHECKING

from penstock.storage.looking import part
from penstock.storage.walk import Found, Neighbours, found, walk_together

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from penstock.core.model import Record
    from penstock.formats.columns import Files

SHOWN = 20


@dataclass
class Deviations:
    """What the closing walk found, `SHOWN` of each kind by name."""

    extra: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    touched: list[str] = field(default_factory=list)
    """Size, kind or times are not those that verify saw."""
    contradicted: list[str] = field(default_factory=list)
    """Giants whose parts contradict the source's own checksum."""
    wrong: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Their paths, and the shards that hold their parts: to be copied again."""
    weak: list[str] = field(default_factory=list)
    """Read back, but with less evidence than this file system can give: a page stayed in a cache."""
    shards: set[int] = field(default_factory=set)
    """Shards of what is missing, touched, contradicted or weak."""
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, kind: str, text: str, shards: Iterable[int] = ()) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        named: list[str] = getattr(self, kind)
        if len(named) < SHOWN:
            named.append(text)
        self.shards.update(shards)

    def __bool__(self) -> bool:
        return bool(self.counts)

    def lines(self) -> list[str]:
        out = []
        for kind, count in sorted(self.counts.items()):
            named: list[str] = getattr(self, kind)
            out += [f"{kind}: {text}" for text in named]
            if count > len(named):
                out.append(f"{kind}: and {count - len(named)} more")
        return out


class Standing:
    """What stands in the tree, in order, as far as it was compared."""

    def __init__(self, data: Path, deviations: Deviations) -> None:
        self._deviations = deviations
        self._walk = walk_together(data)
        self._run: Found | Neighbours | None = None
        self._at = 0
        self._size = 0
        self._go_on(0)

    def compare(self, files: Files, shards: tuple[int, ...]) -> None:
        """Whatever is not as verify saw it becomes a deviation."""
        start = 0
        while start < len(files):
            count = self._alike(files, start)
            if not count:
                self._one(files.record(start), shards)
                count = 1
            start += count

    def _alike(self, files: Files, start: int) -> int:
        """How many of the next ones stand here just as they should; 0 where the next few have to be looked
        at one by one."""
        path = files["path"][start]
        while isinstance(self._run, Found) and self._run.kind == "dir" and _holds(self._run, path):
            self._go_on(1)
        run, at = self._run, self._at
        if not isinstance(run, Neighbours):
            return 0
        count = min(len(files) - start, self._size - at)
        stop, end = start + count, at + count
        seen = run.looked
        same = (
            run.paths[at:end] == files["path"][start:stop]
            and seen.size[at:end] == files["size"][start:stop]
            and seen.mtime_ns[at:end] == files["mtime_ns"][start:stop]
            and seen.ctime_ns[at:end] == files["ctime_ns"][start:stop]
            and all(map(S_ISREG, set(seen.mode[at:end])))
        )
        if same:
            self._go_on(count)
        return count if same else 0

    def _one(self, record: Record, shards: tuple[int, ...]) -> None:
        name = fsencode(record.path)
        here = self._here()
        while here is not None and (_order(here) < name):
            if here.kind != "dir" or not _holds(here, record.path):
                self._deviations.add("extra", _named(here))
            self._go_on(1)
            here = self._here()
        if here is None or here.path != record.path or here.kind == "dir":
            self._deviations.add("missing", repr(record.path), shards)
            return
        why = _touched(here, record)
        if why:
            self._deviations.add("touched", f"{record.path!r}: {why}", shards)
        self._go_on(1)

    def _here(self) -> Found | None:
        run = self._run
        if not isinstance(run, Neighbours):
            return run
        one = part(run.looked, self._at, self._at + 1)
        return found(run.paths[self._at], next(zip(*one[:9], strict=True)))

    def _go_on(self, count: int) -> None:
        self._at += count
        if self._at >= self._size:
            self._run, self._at = next(self._walk, None), 0
            self._size = len(self._run.paths) if isinstance(self._run, Neighbours) else 1

    def end(self) -> None:
        """What is left was never listed."""
        while (here := self._here()) is not None:
            self._deviations.add("extra", _named(here))
            self._go_on(1)


def _order(found: Found) -> bytes:
    name = fsencode(found.path)
    return name + b"/" if found.kind == "dir" else name


def _holds(folder: Found, path: str) -> bool:
    return path.startswith(f"{folder.path}/")


def _named(found: Found) -> str:
    return f"{found.path!r} ({found.kind})"


def _touched(found: Found, record: Record) -> str:
    if found.kind != "file":
        return f"it is a {found.kind} now"
    if found.size != record.size:
        return f"it has {found.size} bytes, not {record.size}"
    if (found.mtime_ns, found.ctime_ns) != (record.mtime_ns, record.ctime_ns):
        return "it was changed or touched after verify"
    return ""
