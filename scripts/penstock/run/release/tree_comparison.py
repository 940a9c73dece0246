"""Compare a staging's tree with verify's records and with the configured permissions.

One lstat of each file answers both. It is made here, after the last writer; earlier only by a file's writer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from stat import S_IFREG, S_ISREG
from typing import TYPE_CHECKING

from penstock.core.errors import NAMED_FILES
from penstock.core.human import in_quotes
from penstock.core.key_paths import TEMPORARY
from penstock.fs.path_walk import Cursor
from penstock.tables.empty_folders import Kept

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from penstock.core.model import Record
    from penstock.fs.path_walk import WalkedPath
    from penstock.fs.tree import Looked
    from penstock.tables.files import Files
    from penstock.target.modes import FilePermissions


@dataclass
class Deviations:
    """The closing walk's deviations; at most `NAMED_FILES` of each kind by name."""

    extra: list[str] = field(default_factory=list)
    leftover: list[str] = field(default_factory=list)  # temporary files of an unseen attempt of copy: swept
    missing: list[str] = field(default_factory=list)
    touched: list[str] = field(default_factory=list)  # other size, kind or times than verify saw
    permissions: list[str] = field(default_factory=list)  # other mode, group or ACL than configured
    contradicted: list[str] = field(default_factory=list)  # giants that contradict the source's checksum
    # Paths of contradicted giants, and the shards of their parts: to be copied again.
    wrong: dict[str, tuple[int, ...]] = field(default_factory=dict)
    # With less evidence than possible here: a page stayed cached.
    weak: list[str] = field(default_factory=list)
    overdue: list[str] = field(default_factory=list)  # carried over, but last read before `verify.linked`
    shards: set[int] = field(default_factory=set)  # of all deviations but extra and leftover
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, kind: str, text: str, shards: Iterable[int] = ()) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        named: list[str] = getattr(self, kind)
        if len(named) < NAMED_FILES:
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
    """The entries of the tree, in order, as far as they were compared."""

    def __init__(
        self, data: Path, deviations: Deviations, final: FilePermissions | None, folders: Iterable[str] = ()
    ) -> None:
        """`final`: None where permissions are not compared. `folders`: expected empty folders."""
        self._tree, self._deviations, self._folders = Cursor(data), deviations, Kept(folders)
        self._final = final

    def compare(self, files: Files, shards: tuple[int, ...]) -> None:
        paths = files["path"]
        for index, item, own in self._tree.against(paths, partial(self._as_expected, files)):
            if own:
                self._compared(item, files.record(index), shards)
            elif item is not None and not item.holds(paths[index]):
                self._extra(item)

    def _as_expected(self, files: Files, looked: Looked, start: int) -> bool:
        paths = files["path"][start : start + len(looked.mode)]
        return _as_seen(files, looked, start) and (
            self._final is None or self._final.held(paths, looked.mode, looked.gid)
        )

    def _compared(self, item: WalkedPath | None, record: Record, shards: tuple[int, ...]) -> None:
        if item is None:
            self._deviations.add("missing", in_quotes(record.path), shards)
            return
        if why := _touched(item, record):
            self._deviations.add("touched", f"{in_quotes(record.path)}: {why}", shards)
        if self._final is None or item.kind != "file":
            return
        if not self._final.held([item.path], [S_IFREG | item.mode], [item.gid]):
            why = f"it has mode {item.mode:04o} and group {item.gid}, or another ACL"
            self._deviations.add("permissions", f"{in_quotes(record.path)}: {why}", shards)

    def end(self) -> None:
        """End the comparison: entries left are extra, and expected empty folders not seen are missing."""
        for beside in self._tree.rest():
            self._extra(beside)
        for folder in self._folders.missing():
            self._deviations.add("missing", f"{in_quotes(folder)} (an empty folder)")

    def _extra(self, beside: WalkedPath) -> None:
        if beside.kind == "dir" and self._folders.meet(beside.path):
            return
        temporary = beside.kind == "file" and TEMPORARY.fullmatch(beside.path.rpartition("/")[2])
        self._deviations.add(
            "leftover" if temporary else "extra", f"{in_quotes(beside.path)} ({beside.kind})"
        )


def _as_seen(files: Files, looked: Looked, start: int) -> bool:
    stop = start + len(looked.mode)
    return (
        looked.size == files["size"][start:stop]
        and looked.mtime_ns == files["mtime_ns"][start:stop]
        and looked.ctime_ns == files["ctime_ns"][start:stop]
        and all(map(S_ISREG, set(looked.mode)))
    )


def _touched(item: WalkedPath, record: Record) -> str:
    if item.kind != "file":
        return f"it is a {item.kind} now"
    if item.size != record.size:
        return f"it has {item.size} bytes, not {record.size}"
    if (item.mtime_ns, item.ctime_ns) != (record.mtime_ns, record.ctime_ns):
        return "it was changed or touched after verify"
    return ""
