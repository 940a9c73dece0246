"""The keys below a folder, sorted, cached, and made anew when the folder changed.

Guarantee: `keys(fresh=True)` holds every regular file that was there when it was called (and may
hold some that vanished since: a page stats each). Links are not followed, names that are not
UTF-8 are left out. Code point order of `str` is byte order of UTF-8, which is S3's order.
"""

from __future__ import annotations

import os
import threading
import time

RACY_NS = 100_000_000
"""A folder changed this shortly before it was read may change again within the same time stamp."""
RECHECK_SECONDS = 1.0


class Index:
    """One folder's sorted keys; safe for threads."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._keys: list[str] = []
        self._folders: dict[str, int] = {}
        self._racy = True
        self._checked = 0.0

    def keys(self, *, fresh: bool) -> list[str]:
        """The sorted keys; never changed in place, so a caller may slice without a lock."""
        with self._lock:
            if self._stale(fresh):
                self._build()
            return self._keys

    def _stale(self, fresh: bool) -> bool:
        if not self._folders:
            return True
        now = time.monotonic()
        if not fresh and now - self._checked < RECHECK_SECONDS:
            return False
        self._checked = now
        if self._racy:
            return True
        for folder, changed in self._folders.items():
            try:
                if os.stat(folder).st_mtime_ns != changed:
                    return True
            except OSError:
                return True
        return False

    def _build(self) -> None:
        begun = time.time_ns()
        keys: list[str] = []
        folders: dict[str, int] = {}
        left = [(self._root, "")]
        while left:
            folder, prefix = left.pop()
            try:
                folders[folder] = os.stat(folder).st_mtime_ns
                with os.scandir(folder) as found:
                    for entry in found:
                        name = entry.name
                        if not name.isascii() and not _is_utf8(name):
                            continue
                        if entry.is_dir(follow_symlinks=False):
                            left.append((entry.path, f"{prefix}{name}/"))
                        elif entry.is_file(follow_symlinks=False):
                            keys.append(prefix + name)
            except FileNotFoundError:
                continue
        keys.sort()
        self._keys, self._folders = keys, folders
        self._racy = any(changed > begun - RACY_NS for changed in folders.values())
        self._checked = time.monotonic()


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
