"""The walk's order, its completeness, and that it follows nothing; where calls wait and where not."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.forked import NOBODY, forked
from tests.target.conftest import need_root

from penstock.core.errors import FailedError, TransientError
from penstock.fs import readahead, readahead_process, tree
from penstock.fs.path_walk import Cursor, walk
from penstock.target import tree_removal

if TYPE_CHECKING:
    from collections.abc import Iterator

WAYS = pytest.mark.parametrize("way", ["at once", "threads", "scouts", "scouts with threads"])


def take(way: str, patch: pytest.MonkeyPatch) -> None:
    """Have trees walked that way, however small they are and fast the calls."""
    if "threads" in way:
        patch.setattr(tree, "WAITS", -1.0)
    if "scouts" in way:
        patch.setattr(tree, "LARGE", 0)
        patch.setattr(readahead, "MAX_SCOUTS", 2)
        patch.setattr(readahead, "spare_cpus", lambda: 2)


def helpers() -> set[int]:
    """Processes that this one started and did not collect."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        # A thread of the walk may end between its name and its children, of which it has none.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found |= set(map(int, (task / "children").read_text().split()))
    return found


@pytest.fixture(autouse=True)
def none_is_left() -> Iterator[None]:
    """No walk leaves a process or a descriptor behind."""
    before, held = helpers(), len(os.listdir("/proc/self/fd"))
    yield
    assert helpers() <= before
    assert len(os.listdir("/proc/self/fd")) <= held


_PARTS = st.lists(
    st.binary(min_size=1, max_size=3).filter(lambda b: not set(b) & {0, 47} and b not in (b".", b".."))
    | st.sampled_from([b"a", b"a!", b"a.", b"a-", b"a0", b"ab", b"\xff"]),
    min_size=1,
    max_size=4,
)


@WAYS
@settings(max_examples=40, deadline=None)
@given(paths=st.lists(_PARTS, max_size=12))
def test_files_come_in_byte_order_of_their_paths(way: str, paths: list[list[bytes]]) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, pytest.MonkeyPatch.context() as patch:
        take(way, patch)
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


def test_a_name_that_is_gone_by_its_lstat_is_a_file_where_listings_state_no_kinds(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose own lstat then says that it is gone."""
    os.mkfifo(folder / "pipe")

    def none_of_them(**_: bool) -> bool:
        return False

    def scandir(_: int) -> Any:
        answers = {"is_dir": none_of_them, "is_file": none_of_them, "is_symlink": none_of_them}
        return contextlib.nullcontext([SimpleNamespace(name=name, **answers) for name in ("gone", "pipe")])

    fd = os.open(folder, os.O_RDONLY)
    monkeypatch.setattr(os, "scandir", scandir)
    names, kinds, error = tree.names_of(fd)
    monkeypatch.undo()
    os.close(fd)
    assert (names, list(kinds), error) == (["gone", "pipe"], [tree.FILE, tree.OTHER], None)


@pytest.mark.parametrize(
    ("way", "levels"),
    # Deeper than Python's calls may be nested; more levels than descriptors are held.
    [("at once", 1100), ("threads", 300), ("scouts", 300), ("scouts with threads", 300)],
)
def test_deep_trees_need_few_descriptors(
    folder: Path, way: str, levels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert levels > tree.DEPTH + tree.OPENED + 100
    take(way, monkeypatch)
    fd = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=fd)
        os.mkdir("c", dir_fd=fd)
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
        if number % 10 == 0:
            most = max(most, len(os.listdir("/proc/self/fd")))
    assert kinds == ["dir"] * (2 * levels) + ["file"] * levels
    assert most <= before + tree.DEPTH + tree.OPENED
    tree_removal.remove_tree(folder / "d")
    assert [found.path for found in walk(folder)] == ["c", "e"]


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


@pytest.mark.parametrize("way", ["threads", "scouts"])
def test_a_walk_that_is_left_holds_nothing(folder: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    take(way, monkeypatch)
    for number in range(40):
        (folder / f"{number:02d}").mkdir()
    before, others = len(os.listdir("/proc/self/fd")), helpers()
    steps = walk(folder)
    next(steps)
    next(steps)
    assert len(os.listdir("/proc/self/fd")) > before
    assert len(helpers() - others) == (2 if way == "scouts" else 0)
    steps.close()  # type: ignore[attr-defined]
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("killed", [1, 2])
@pytest.mark.parametrize("way", ["scouts", "scouts with threads"])
def test_what_scouts_that_die_would_have_listed_is_listed_here(
    folder: Path, way: str, killed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(12):
        for below in range(12):
            (folder / f"{number:03d}/{below:02d}/sub").mkdir(parents=True)
            (folder / f"{number:03d}/{below:02d}/sub/a").touch()
    wanted = list(walk(folder))
    take(way, monkeypatch)
    for moment in (1, 2, 20, 37, 38, 39, 200):
        seen, others = [], helpers()
        for found in walk(folder):
            seen.append(found)
            if len(seen) == moment:
                for pid in sorted(helpers() - others)[:killed]:
                    os.kill(pid, signal.SIGKILL)
        assert seen == wanted


def test_a_folder_gone_when_its_scouts_are_is_never_told_as_another(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(40):
        (folder / f"a/p/{number:02d}").mkdir(parents=True)
        (folder / f"a/p/{number:02d}/only-{number:02d}").touch()
    (folder / "a/o").mkdir()
    take("scouts with threads", monkeypatch)
    others = helpers()
    seen: list[str] = []

    def disturbed() -> None:
        for found in walk(folder):
            seen.append(found.path)
            if found.path == "a/p/02":
                for pid in helpers() - others:
                    os.kill(pid, signal.SIGKILL)
                (folder / "a/p").rename(folder / "a/q")

    with pytest.raises(FailedError, match="cannot walk"):
        disturbed()
    files = [path.split("/") for path in seen if "only" in path]
    assert files
    assert all(parts[-1] == f"only-{parts[-2]}" for parts in files)


def test_paths_longer_than_the_kernel_takes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scouts are not asked for them: so many bytes of questions could fill the socket."""
    fd = os.open(folder, os.O_RDONLY)
    for _ in range(60):
        os.mkdir("d" * 250, dir_fd=fd)
        lower = os.open("d" * 250, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = lower
    for number in range(40):
        os.mkdir(f"{number:02d}", dir_fd=fd)
        lower = os.open(f"{number:02d}", os.O_RDONLY, dir_fd=fd)
        for file in range(60):
            os.close(os.open(f"{file:0200d}", os.O_CREAT | os.O_WRONLY, dir_fd=lower))
        os.close(lower)
    os.close(fd)
    take("scouts", monkeypatch)
    assert sum(found.kind == "file" for found in walk(folder)) == 40 * 60


def test_without_threads_to_be_had_it_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_root()
    take("threads", monkeypatch)
    for number in range(20):
        (folder / f"{number:02d}").touch()
    folder.chmod(0o755)

    def child() -> list[str]:
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
        return [found.path for found in walk(folder)]

    with pytest.raises(TransientError, match="cannot walk"):
        forked(child, uid=NOBODY)


def test_without_processes_to_be_had_it_is_walked_here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_root()
    take("scouts", monkeypatch)
    for number in range(20):
        (folder / f"{number:02d}/sub").mkdir(parents=True)
    folder.chmod(0o755)

    def child() -> list[str]:
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
        return [found.path for found in walk(folder)]

    assert len(forked(child, uid=NOBODY)) == 40


def test_a_folder_too_large_to_be_handed_over(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its names alone are told; its files are looked at here."""
    monkeypatch.setattr(readahead_process, "MANY", 1000)
    for name in ("a", "b"):
        (folder / name).mkdir()
        for number in range(readahead_process.MANY if name == "b" else 1):
            os.close(os.open(folder / name / f"{number:06d}", os.O_CREAT | os.O_WRONLY))
    take("scouts", monkeypatch)
    root = os.open(folder, os.O_RDONLY)
    try:
        assert readahead_process.answer(root, "a", 1)[2] is not None
        assert readahead_process.answer(root, "b", 1)[2] is None
    finally:
        os.close(root)
    found = [found for found in walk(folder) if found.kind == "file"]
    assert len(found) == readahead_process.MANY + 1
    assert {one.links for one in found} == {1}


@WAYS
def test_a_folder_that_may_not_be_read(folder: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    need_root()
    take(way, monkeypatch)
    folder.chmod(0o755)
    for number in range(5):
        (folder / f"{number}").mkdir()
        (folder / f"{number}/f").touch()
    (folder / "3").chmod(0o700)

    def child() -> list[tuple[str, str]]:
        seen: list[tuple[str, str]] = []
        steps = Cursor(folder, lambda path, error: seen.append((path, f"told {error.errno}"))).rest()
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
