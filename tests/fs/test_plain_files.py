"""The one reader of files that another account may have made: nothing waits, no link is followed."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest

from penstock.fs import small_files
from penstock.fs.small_files import NotPlainError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        os.chdir(path.parent)
        made.bind(path.name)


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


HOSTILE = {
    "fifo": os.mkfifo,
    "folder": os.mkdir,
    "socket": a_socket,
    "device": lambda path: os.mknod(path, 0o20666, os.makedev(1, 5)),
    "endless": lambda path: path.symlink_to("/dev/zero"),
    "loop": lambda path: path.symlink_to(path.name),
    "link": lambda path: path.symlink_to("file"),
    "sparse": sparse,
}


@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE)
def test_what_is_no_plain_file_of_a_bounded_size_is_refused_at_once(
    make: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_bytes(b"x")
    before = len(os.listdir("/proc/self/fd"))
    try:
        make(tmp_path / "document")
    except PermissionError:
        pytest.skip("only root makes devices")
    with pytest.raises(NotPlainError) as told:
        small_files.read(tmp_path / "document")
    assert "no plain file" in str(told.value) or "too many" in str(told.value)
    assert told.value.filename == str(tmp_path / "document")
    assert isinstance(told.value, OSError)
    assert isinstance(told.value, ValueError)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_plain_file_is_read_whole_up_to_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "document"
    path.write_bytes(b"x" * 10)
    assert small_files.read(path, 10) == b"x" * 10
    with pytest.raises(NotPlainError, match="it has 10 bytes, too many"):
        small_files.read(path, 9)
    with pytest.raises(FileNotFoundError):
        small_files.read(tmp_path / "nothing")


def test_a_file_that_grows_is_read_to_its_end_within_the_bound() -> None:
    """The kernel says of /proc that its files are empty."""
    assert small_files.read("/proc/self/cmdline")
    with pytest.raises(NotPlainError, match="too many"):
        small_files.read("/proc/self/status", 8)


def test_a_link_to_the_unfinished_document_beside_it_is_followed(tmp_path: Path) -> None:
    """BeeGFS makes it of a hard link, where it is set so."""
    unfinished = tmp_path / ".0123456789abcdef.tmp"
    unfinished.write_bytes(b"{}")
    (tmp_path / "document").symlink_to(unfinished)
    assert small_files.read(tmp_path / "document") == b"{}"
    unfinished.unlink()
    unfinished.symlink_to("/dev/zero")
    with pytest.raises(NotPlainError):
        small_files.read(tmp_path / "document")


@pytest.mark.parametrize("text", [b"", b"\n", b"a", b"a\n", b"\n\na\n\nb\n\n", b"a\nb"])
def test_lines_backwards_are_those_forwards_without_the_empty_ones(text: bytes) -> None:
    assert list(small_files.backwards(text)) == [line for line in reversed(text.split(b"\n")) if line]


def test_a_line_without_an_end_comes_in_pieces(tmp_path: Path) -> None:
    sparse(tmp_path / "lines")
    with small_files.opened(tmp_path / "lines") as file:
        assert len(next(small_files.lines(file))) == small_files.LINE
