"""Small files are replaced whole: at every line that a writer may die."""

from __future__ import annotations

import functools
import os
import re
import stat
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.forked import killed_at_line

from penstock.core.errors import ConfigError
from penstock.fs import small_files
from penstock.tables.manifest import ManifestWriter
from penstock.target import tree_removal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_old_or_new_whenever_it_dies(place: Path) -> None:
    path = place / "state.json"
    small_files.write_json(path, {"old": True})
    for line in range(1, 200):
        killed = killed_at_line(
            functools.partial(small_files.write_json, path, {"new": line}), ("fs/small_files.py",), line
        )
        assert small_files.read_json(path) in ({"old": True}, {"new": line})
        small_files.write_json(path, {"old": True})
        if not killed:
            break
    assert not killed
    assert line > 10


def _table(path: Path) -> None:
    with ManifestWriter(path) as manifest:
        manifest.finish()


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (lambda path: small_files.write_file(path, b"x"), "sync TEMPORARY, name f, sync ."),
        (_table, "sync TEMPORARY, name f, sync ."),
        (lambda path: small_files.append_line(path, {}), "sync f, sync ."),
        (
            lambda path: small_files.create_file(path, b"x"),
            "sync TEMPORARY, name f, sync .",
        ),
        (lambda path: small_files.make_dirs(path / "g"), "name f, sync ., name f/g, sync f"),
    ],
)
def test_bytes_are_synced_before_their_name_and_its_folder_after(
    place: Path, write: Callable[[Path], object], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut at a random moment (`tests/faults/test_power_cut.py`) rarely shows one that is left out."""
    calls: list[str] = []
    fsync = os.fsync

    def note(word: str, path: str) -> None:
        below = os.path.relpath(path, os.path.realpath(place))
        calls.append(f"{word} {re.sub(r'[.][0-9a-f]{16}[.]tmp', 'TEMPORARY', below)}")

    def synced(fd: int) -> None:
        note("sync", os.readlink(f"/proc/self/fd/{fd}"))
        fsync(fd)

    def named(call: Callable[..., None], place_of_name: int) -> Callable[..., None]:
        def make(*arguments: Any, **options: object) -> None:
            call(*arguments, **options)
            note("name", os.path.realpath(arguments[place_of_name]))

        return make

    monkeypatch.setattr(os, "fsync", synced)
    for call, place_of_name in ((os.rename, 1), (os.link, 1), (os.mkdir, 0)):
        monkeypatch.setattr(os, call.__name__, named(call, place_of_name))
    write(place / "f")
    assert ", ".join(calls) == expected


def test_names_that_are_swept_stay_away_after_a_power_cut(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else one could stand in a published tree again: each folder is synced once it is swept."""
    for name in ("a/.p.0123456789abcdef", "a/.p.0123456789abcde0", "a/kept", "b/kept"):
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).touch()
    synced: list[tuple[str, list[str]]] = []
    fsync = os.fsync

    def noted(fd: int) -> None:
        synced.append((os.path.basename(os.readlink(f"/proc/self/fd/{fd}")), os.listdir(fd)))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", noted)
    assert tree_removal.sweep_temporaries(place) == 2
    assert synced == [("a", ["kept"])]


def test_modes_whatever_the_umask(place: Path) -> None:
    os.umask(0o077)
    small_files.write_file(place / "f", b"x", mode=0o444)
    small_files.make_dirs(place / "a/b", 0o755)
    assert stat.S_IMODE((place / "f").stat().st_mode) == 0o444
    assert stat.S_IMODE((place / "a/b").stat().st_mode) == 0o755


def test_lines_are_appended(place: Path) -> None:
    for number in range(3):
        small_files.append_line(place / "history.jsonl", {"n": number})
    assert (place / "history.jsonl").read_text().splitlines() == ['{"n": 0}', '{"n": 1}', '{"n": 2}']
    (place / "link").symlink_to(place / "history.jsonl")
    with pytest.raises(OSError):
        small_files.append_line(place / "link", {})


def test_renames_stay_in_one_folder(place: Path) -> None:
    (place / "d").mkdir()
    (place / "f").write_text("x")
    with pytest.raises(ValueError, match="across folders"):
        small_files.rename(place / "f", place / "d/f")


def test_a_result_goes_into_a_fifo_that_stays_one(place: Path) -> None:
    """As into a device: a rename would put a file in its place, and `/dev/null` is everybody's."""
    fifo = place / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        small_files.write_result(fifo, {"a": 1})
        assert os.read(reader, 100) == b'{\n "a": 1\n}\n'
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(fifo.lstat().st_mode)
    assert os.listdir(place) == ["fifo"]


def test_a_result_goes_into_a_stream_of_the_process_and_its_name_stays_a_link(place: Path) -> None:
    with open(place / "printed", "wb") as printed:
        link = place / "stdout"
        link.symlink_to(f"/proc/self/fd/{printed.fileno()}")
        small_files.write_result(link, {"a": 1})
    assert link.is_symlink()
    assert (place / "printed").read_bytes() == b'{\n "a": 1\n}\n'


def test_a_result_replaces_a_file_whole_and_a_link_to_one(place: Path) -> None:
    (place / "other").write_text(OURS)
    (place / "result").symlink_to("other")
    for _ in range(2):
        small_files.write_result(place / "result", {"a": 1})
        assert stat.S_ISREG((place / "result").lstat().st_mode)
        assert small_files.read_json(place / "result") == {"a": 1}
    assert (place / "other").read_text() == OURS


OURS = '{\n "b": 2\n}\n'
MINE = "export PATH=/usr/bin\n"


def not_ours(path: Path) -> None:
    path.write_text(MINE)


def link_to_it(path: Path) -> None:
    not_ours(path.with_name("bashrc"))
    path.symlink_to("bashrc")


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (not_ours, "it is there, and is not a receipt of penstock"),
        (link_to_it, "it is there, and is not a receipt of penstock"),
        (lambda path: path.write_bytes(b"\x00{\n"), "it is there, and is not a receipt of penstock"),
        (lambda path: path.symlink_to("nowhere"), "it is a link that leads nowhere"),
    ],
)  # fmt: skip
def test_a_file_of_another_kind_is_not_replaced(place: Path, make: Callable[[Path], None], why: str) -> None:
    make(place / "result")
    before = sorted(os.listdir(place))
    with pytest.raises(ConfigError, match="did not write stays as it is") as refused:
        small_files.write_result(place / "result", {"a": 1})
    assert refused.value.why == why
    assert sorted(os.listdir(place)) == before
    if make in (not_ours, link_to_it):
        assert (place / "result").read_text() == MINE


def test_an_empty_file_is_replaced(place: Path) -> None:
    """As mktemp makes one."""
    (place / "result").touch()
    small_files.write_result(place / "result", {"a": 1})
    assert small_files.read_json(place / "result") == {"a": 1}


def test_a_line_is_not_appended_to_what_is_no_plain_file(place: Path) -> None:
    for number, make in enumerate((os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/null"))):
        path = place / str(number)
        make(path)
        with pytest.raises(small_files.NotPlainError, match="no plain file"):
            small_files.append_line(path, {"a": 1})
