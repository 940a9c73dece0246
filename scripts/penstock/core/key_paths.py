"""Uses keys as paths unchanged, or rejects them with a reason. List checks all keys before a copy begins.

Keys are never URL-decoded or normalised: `%2e%2e`, blanks, newlines, quotes and bytes that are not UTF-8 are
legal. Rejected are names that no POSIX folder can have, that would leave the release, or that penstock gives
to its temporary files.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from itertools import pairwise
from operator import lt
from typing import TYPE_CHECKING

from penstock.core.errors import FailedError
from penstock.core.human import in_quotes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

SEGMENT_BYTES = 255  # most bytes of a name in a path: NAME_MAX of Linux
PATH_BYTES = 4000  # most bytes of a key; the rest of PATH_MAX, 4096, is for the target's root and release
SHOWN = 1000  # most offenders that are shown; all are counted
TEMPORARY = re.compile(r"\.p\.[0-9a-f]{16}")  # names of unfinished files in a release


def check_key(key: str, kept: Collection[str] = ()) -> str | None:
    """Return why `key` cannot be a path below a release, or None if it can. `kept`: names that the target's
    file system reserves.

    | key                        | answer                        |
    |----------------------------|-------------------------------|
    | `a b/%2e%2e/-x\\n`          | None                          |
    | `` or `a//b` or `a/`       | empty segment                 |
    | `/a`                       | leading slash                 |
    | `a/./b`, `../b`            | `.` or `..` segment           |
    | NUL anywhere               | NUL                           |
    | a segment of 256 bytes     | segment too long              |
    | more than 4,000 bytes      | path too long                 |
    | `.p.` and 16 hex digits    | reserved for temporary files  |
    | a segment among `kept`     | the file system's own         |
    """
    if "\0" in key:
        return "has a NUL byte"
    if key.startswith("/"):
        return "begins with a slash"
    encoded = os.fsencode(key)
    if len(encoded) > PATH_BYTES:
        return f"is {len(encoded)} bytes long; a path may have {PATH_BYTES}"
    for segment in key.split("/"):
        if not segment:
            return "has an empty segment"
        if segment in {".", ".."}:
            return f"has a segment {in_quotes(segment)}"
        if len(segment) > SEGMENT_BYTES // 4 and len(os.fsencode(segment)) > SEGMENT_BYTES:
            return f"has a segment of {len(os.fsencode(segment))} bytes; a name may have {SEGMENT_BYTES}"
        if segment.startswith(".p.") and TEMPORARY.fullmatch(segment):
            return "has a segment of the form that names temporary files"
        if segment in kept:
            return (
                f"has a segment {in_quotes(segment)}, a name that the target's file system keeps for itself"
            )
    return None


def all_good(keys: Sequence[str], kept: Collection[str] = ()) -> bool:
    """Return whether `check_key` certainly passes a whole batch. If not, each key must be checked. The batch
    is joined by a NUL segment and searched at the speed of memory."""
    if not keys:
        return True
    text = os.fsencode("/" + "/\0/".join(keys) + "/")
    if b"//" in text or b"/./" in text or b"/../" in text or b"/.p." in text:
        return False
    if any(os.fsencode(f"/{name}/") in text for name in kept):
        return False
    if text.count(b"\0") != len(keys) - 1:
        return False
    if max(map(len, text.split(b"/"))) > SEGMENT_BYTES:
        return False
    return max(map(len, keys)) <= PATH_BYTES // 4 or max(map(len, map(os.fsencode, keys))) <= PATH_BYTES


@dataclass
class Offenders:
    """Rejected keys. All are counted, and the first ones are kept to be shown."""

    total: int = 0
    shown: list[tuple[str, str]] = field(default_factory=list)

    def add(self, key: str, reason: str) -> None:
        self.total += 1
        if len(self.shown) < SHOWN:
            self.shown.append((key, reason))

    def lines(self) -> list[str]:
        """Return one line for each offender, escaped for a terminal."""
        lines = [f"{in_quotes(key)} {reason}" for key, reason in self.shown]
        if self.total > len(self.shown):
            lines.append(f"and {self.total - len(self.shown)} more")
        return lines


class Conflicts:
    """Finds collisions in a stream of paths in byte order.

    A path that appears twice collides. So does a file that is a folder of another path (`a` beside `a/b`,
    even with `a-c` between them). Only the prefixes of the newest path are in memory. Raises FailedError if
    the stream is out of order, since then no result is certain.
    """

    def __init__(self) -> None:
        self.files: dict[str, None] = {}  # the first SHOWN files that are also folders of other paths
        self._open: list[str] = []
        self._last = b""
        self._started = False

    def add(self, paths: Sequence[str]) -> Iterable[tuple[str, str]]:
        """Add the next paths; return (path, reason) for each collision."""
        if not paths:
            return []
        encoded = [os.fsencode(path) for path in paths]
        rising = all(map(lt, encoded[:-1], encoded[1:])) and (not self._started or self._last < encoded[0])
        collisions: list[tuple[str, str]] = []
        if not rising:
            collisions.extend(self._doubled(paths, encoded))
        self._started, self._last = True, encoded[-1]
        stack = self._open
        for path in paths:
            while stack and not path.startswith(stack[-1]):
                stack.pop()
            if stack:
                files = [file for file in stack if len(path) > len(file) and path[len(file)] == "/"]
                collisions.extend(
                    (path, f"needs a folder where {in_quotes(file)} is a file") for file in files
                )
                if files and len(self.files) < SHOWN:
                    self.files.update(dict.fromkeys(files))
                if stack[-1] == path:
                    continue
            stack.append(path)
        return collisions

    def _doubled(self, paths: Sequence[str], encoded: Sequence[bytes]) -> Iterable[tuple[str, str]]:
        ordered = [self._last, *encoded] if self._started else list(encoded)
        named = ["", *paths] if self._started else list(paths)
        for (first, second), name in zip(pairwise(ordered), named[1:], strict=True):
            if first == second:
                yield name, "is listed twice"
            elif first > second:
                raise FailedError(
                    "the listing is not in ascending order",
                    why=f"{in_quotes(name)} came after {in_quotes(os.fsdecode(first))}",
                    hint="the source changed its order while it was listed, or does not keep one: list again",
                )
