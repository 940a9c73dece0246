"""The walk's order, its completeness, and that it follows nothing."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import FailedError
from penstock.storage import target
from penstock.storage.walk import walk

_PARTS = st.lists(
    st.binary(min_size=1, max_size=3).filter(lambda b: not set(b) & {0, 47} and b not in (b".", b".."))
    | st.sampled_from([b"a", b"a!", b"a.", b"a-", b"a0", b"ab", b"\xff"]),
    min_size=1,
    max_size=4,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(_PARTS, max_size=12))
def test_files_come_in_byte_order_of_their_paths(paths: list[list[bytes]]) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        made = set()
        for parts in paths:
            path = os.path.join(os.fsencode(folder), *parts)
            try:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "xb"):
                    made.add(b"/".join(parts))
            except (FileExistsError, NotADirectoryError, IsADirectoryError):
                continue
        found = list(walk(Path(folder)))
        assert [os.fsencode(f.path) for f in found if f.kind == "file"] == sorted(made)
        order = [os.fsencode(f.path) + (b"/" if f.kind == "dir" else b"") for f in found]
        assert order == sorted(order)


def test_kinds_and_figures(folder: Path) -> None:
    (folder / "d").mkdir(mode=0o2750)
    (folder / "d/file").write_bytes(b"12345")
    os.chmod(folder / "d/file", 0o640)
    os.link(folder / "d/file", folder / "twin")
    (folder / "up").symlink_to("..")
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "socket"))
    found = {f.path: f for f in walk(folder)}
    assert {p: f.kind for p, f in found.items()} == {
        "d": "dir", "d/file": "file", "twin": "file", "up": "link", "pipe": "other", "socket": "other",
    }  # fmt: skip
    seen, file = os.stat(folder / "twin"), found["d/file"]
    assert file[2:] == (
        5, seen.st_mtime_ns, seen.st_ctime_ns, 0o640, seen.st_uid, seen.st_gid, seen.st_ino, 2,
    )  # fmt: skip


def test_deep_trees_need_few_descriptors(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    for _ in range(2000):
        os.mkdir("d", dir_fd=fd)
        lower = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = lower
    os.close(fd)
    assert sum(1 for _ in walk(folder)) == 2000
    target.remove_tree(folder / "d")
    assert list(walk(folder)) == []


def test_a_folder_that_is_not_there(folder: Path) -> None:
    with pytest.raises(FailedError, match="cannot walk"):
        list(walk(folder / "none"))
