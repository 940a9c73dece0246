"""Nothing below a root escapes it, whoever swaps folders for links meanwhile."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from penstock.fs import safe_open

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=["openat2", "walk"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(safe_open, "_openat2_works", request.param == "openat2")
    return str(request.param)


@pytest.fixture
def root(folder: Path) -> Iterator[int]:
    (folder / "root").mkdir()
    (folder / "outside").mkdir()
    fd = os.open(folder / "root", os.O_RDONLY)
    yield fd
    os.close(fd)


@pytest.mark.parametrize("path", ["", "..", "a/..", "/a", "a//b", "./a", "a/", "a/../../outside/x"])
def test_paths_that_are_not_normalised(root: int, way: str, path: str) -> None:
    with pytest.raises(OSError):
        safe_open.open_beneath(root, path, os.O_WRONLY | os.O_CREAT, 0o600)


@pytest.mark.parametrize("link", ["../outside", "/", "."])
def test_links_anywhere_are_refused(folder: Path, root: int, way: str, link: str) -> None:
    (folder / "root/link").symlink_to(link)
    for path in ("link", "link/x"):
        with pytest.raises(OSError):
            safe_open.open_beneath(root, path, os.O_WRONLY | os.O_CREAT, 0o600)
        with pytest.raises(OSError):
            os.close(safe_open.make_dir(root, path, 0o700, None))
    assert os.listdir(folder / "outside") == []


def test_a_racer_that_swaps_folders_for_links(folder: Path, root: int, way: str) -> None:
    (folder / "root/real").mkdir()
    (folder / "root/evil").symlink_to(folder / "outside")
    pid = os.fork()
    if pid == 0:
        os.chdir(folder / "root")
        while True:
            os.rename("real", "d")
            os.rename("d", "real")
            os.rename("evil", "d")
            os.rename("d", "evil")
    written = refused = 0
    deadline = time.monotonic() + 60
    try:
        while (written < 200 or refused < 200) and time.monotonic() < deadline:
            try:
                os.close(safe_open.open_beneath(root, f"d/{written}", os.O_WRONLY | os.O_CREAT, 0o600))
                written += 1
            except OSError:
                refused += 1
            with contextlib.suppress(OSError):
                os.close(safe_open.open_dir(root, "d"))
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert os.listdir(folder / "outside") == []
    assert written >= 200
    assert refused >= 200


def test_kept_folders(folder: Path, root: int, way: str) -> None:
    folders = safe_open.Folders(root, cap=2)
    with pytest.raises(FileNotFoundError):
        folders.get("a")
    first = folders.make("a/b", 0o2750, None)
    assert folders.get("a/b") == first
    for name in ("c", "d", "e"):
        assert os.path.samestat(os.fstat(folders.make(name, 0o700, None)), os.stat(folder / "root" / name))
    assert os.path.samestat(os.fstat(folders.get("a/b")), os.stat(folder / "root/a/b"))
    assert os.stat(folder / "root/a").st_mode & 0o7777 == 0o2750
    folders.close()
