"""The walk's order, its completeness, and that it follows nothing; where calls wait and where not."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.storage.conftest import need_root
from tests.support.forked import NOBODY, forked

from penstock.errors import FailedError
from penstock.storage import clearing, tree, waiting
from penstock.storage.walk import walk

CALLS = pytest.mark.parametrize("waits", [waiting.WAITS, -1.0], ids=["at once", "waiting"])
"""With -1.0 each call counts as one that waits: threads make them."""
_PARTS = st.lists(
    st.binary(min_size=1, max_size=3).filter(lambda b: not set(b) & {0, 47} and b not in (b".", b".."))
    | st.sampled_from([b"a", b"a!", b"a.", b"a-", b"a0", b"ab", b"\xff"]),
    min_size=1,
    max_size=4,
)


@CALLS
@settings(max_examples=60, deadline=None)
@given(paths=st.lists(_PARTS, max_size=12))
def test_files_come_in_byte_order_of_their_paths(waits: float, paths: list[list[bytes]]) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(waiting, "WAITS", waits)
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


@CALLS
def test_deep_trees_need_few_descriptors(folder: Path, waits: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "WAITS", waits)
    fd = os.open(folder, os.O_RDONLY)
    for _ in range(2000):
        os.mkdir("d", dir_fd=fd)
        # Beside the way down, so that each level goes on where it was left.
        os.close(os.open("e", os.O_WRONLY | os.O_CREAT, dir_fd=fd))
        lower = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = lower
    os.close(fd)
    before, most = len(os.listdir("/proc/self/fd")), 0
    kinds: list[str] = []
    for number, found in enumerate(walk(folder)):
        kinds.append(found.kind)
        if number % 100 == 0:
            most = max(most, len(os.listdir("/proc/self/fd")))
    assert kinds == ["dir"] * 2000 + ["file"] * 2000
    assert most <= before + tree.DEPTH + 2
    assert len(os.listdir("/proc/self/fd")) == before
    clearing.remove_tree(folder / "d")
    assert [found.path for found in walk(folder)] == ["e"]


def test_a_level_that_vanished_while_the_walk_was_deep_below(folder: Path) -> None:
    deep = folder / "d"
    for _ in range(tree.DEPTH + 2):
        deep /= "d"
    deep.mkdir(parents=True)
    (folder / "d/e").touch()
    steps = walk(folder)
    while next(steps).path != str(deep.relative_to(folder)):
        pass
    (folder / "d").rename(folder / "x")
    with pytest.raises(FailedError, match="cannot walk") as caught:
        list(steps)
    assert caught.value.where.startswith(f"{folder}/d/")


def test_a_walk_that_is_left_holds_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "WAITS", -1.0)
    for number in range(40):
        (folder / f"{number:02d}").mkdir()
    before = len(os.listdir("/proc/self/fd"))
    steps = walk(folder)
    next(steps)
    next(steps)
    assert len(os.listdir("/proc/self/fd")) > before
    steps.close()  # type: ignore[attr-defined]
    assert len(os.listdir("/proc/self/fd")) == before


@CALLS
def test_a_folder_that_may_not_be_read(folder: Path, waits: float, monkeypatch: pytest.MonkeyPatch) -> None:
    need_root()
    monkeypatch.setattr(waiting, "WAITS", waits)
    folder.chmod(0o755)
    for number in range(5):
        (folder / f"{number}").mkdir()
        (folder / f"{number}/f").touch()
    (folder / "3").chmod(0o700)

    def child() -> list[tuple[str, str]]:
        seen: list[tuple[str, str]] = []
        steps = walk(folder, lambda path, error: seen.append((path, f"told {error.errno}")))
        while found := next(steps, None):
            seen.append((found.path, found.kind))
        return seen

    found = [item for n in "0124" for item in ((n, "dir"), (f"{n}/f", "file"))]
    assert forked(child, uid=NOBODY) == [*found[:6], ("3", "dir"), ("3", "told 13"), *found[6:]]
    with pytest.raises(FailedError, match="Permission denied"):
        forked(lambda: list(walk(folder)), uid=NOBODY)


def test_a_folder_that_is_not_there(folder: Path) -> None:
    with pytest.raises(FailedError, match="cannot walk"):
        list(walk(folder / "none"))
