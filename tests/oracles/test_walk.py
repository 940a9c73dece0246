"""The walk of a tree against os.walk and os.lstat, on random trees, however it is walked."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.target.test_walk import WAYS, take

from penstock.fs.path_walk import WalkedPath, kind_of, walk

NAMES = st.binary(min_size=1, max_size=3).filter(
    lambda name: not set(name) & {0, 47} and name not in (b".", b"..")
) | st.sampled_from([b"a", b"a!", b"a.", b"a0", b"ab", b"\xff", b"\xc3\xa9", b"n\nl"])
KINDS = st.sampled_from(
    ["file"] * 4 + ["folder", "link", "link to a folder", "broken link", "fifo", "hard link"]
)
TREES = st.lists(st.tuples(st.lists(NAMES, min_size=1, max_size=4), KINDS), max_size=14)


def make(root: bytes, things: list[tuple[list[bytes], str]]) -> None:
    """As many of these things as can be there together."""
    for number, (parts, kind) in enumerate(things):
        path = os.path.join(root, *parts)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if kind == "file":
                with open(path, "xb") as file:
                    file.write(b"x" * number)
                os.utime(path, ns=(number, 10**18 + number))
                os.chmod(path, 0o600 + number)
            elif kind == "folder":
                os.mkdir(path)
            elif kind == "fifo":
                os.mkfifo(path)
            elif kind == "hard link":
                files = [os.path.join(root, name) for name in os.listdir(root)]
                os.link(next(one for one in files if stat.S_ISREG(os.lstat(one).st_mode)), path)
            else:
                os.symlink({"link": b"a", "link to a folder": root, "broken link": b"no/where"}[kind], path)
        except (OSError, StopIteration):  # in the way of another, or of a link
            continue


def by_the_library(root: str) -> list[WalkedPath]:
    """By os.walk and os.lstat: a folder is sorted as its name with a slash after it."""
    found = []
    for above, folders, files in os.walk(root, followlinks=False):
        for name in (*folders, *files):
            path = os.path.join(above, name)
            seen = os.lstat(path)
            found.append(
                WalkedPath(
                    os.path.relpath(path, root),
                    kind_of(seen.st_mode),
                    seen.st_size,
                    seen.st_mtime_ns,
                    seen.st_ctime_ns,
                    seen.st_mode & 0o7777,
                    seen.st_uid,
                    seen.st_gid,
                    seen.st_ino,
                    seen.st_nlink,
                )
            )
    return sorted(found, key=lambda one: os.fsencode(one.path) + b"/" * (one.kind == "dir"))


@WAYS
@settings(max_examples=25, deadline=None)
@given(things=TREES)
def test_agrees_with_os_walk(way: str, things: list[tuple[list[bytes], str]]) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        take(way, patch)
        make(os.fsencode(folder), things)
        assert list(walk(Path(folder))) == by_the_library(folder)
