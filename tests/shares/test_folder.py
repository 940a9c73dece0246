from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

import pytest

from penstock.dataset.holder import this_process
from penstock.jobs import shares as share
from penstock.jobs.share_rule import NOBODY, PARTS, SharesFolder
from penstock.jobs.shares import look, sweep

if TYPE_CHECKING:
    from pathlib import Path

ID, OTHER = "0123456789abcdef", "fedcba9876543210"
HOLDER, BEAT = f"holder.{ID}.00000000.{PARTS}.1", f"beat.{ID}.00000000.7"


def test_the_operations(tmp_path: Path) -> None:
    shares = SharesFolder(tmp_path)
    shares.make(BEAT, b"me")
    shares.make(BEAT, b"you")
    assert (tmp_path / BEAT).read_bytes() == b"me"
    assert stat.S_IMODE((tmp_path / BEAT).stat().st_mode) == 0o644
    assert shares.rename(BEAT, "a") is True
    assert shares.rename(BEAT, "a") is False
    assert shares.state("a") == (os.geteuid(), (tmp_path / "a").stat().st_ctime)
    assert shares.names() == ["a"]
    for _ in range(2):
        shares.remove("a")
    assert shares.state("a") is None


@pytest.mark.parametrize("what", ["link", "folder", "two names", "huge", "fifo"])
def test_s25_what_no_process_of_penstock_made_is_nobodys(tmp_path: Path, what: str) -> None:
    path = tmp_path / HOLDER
    if what == "link":
        path.symlink_to("/etc/passwd")
    elif what == "folder":
        path.mkdir()
    elif what == "fifo":
        os.mkfifo(path)
    else:
        path.write_bytes(bytes(5000 if what == "huge" else 5))
        if what == "two names":
            (tmp_path / "other").hardlink_to(path)
    state = SharesFolder(tmp_path).state(HOLDER)
    assert state is not None
    assert state.uid == NOBODY
    assert look(tmp_path) == []


def test_s25_a_name_whose_content_cannot_be_written_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over a quota of blocks: an error would leave a name there that nobody holds."""
    monkeypatch.setattr(os, "write", _over_quota)
    SharesFolder(tmp_path).make(HOLDER, b"me")
    assert (tmp_path / HOLDER).read_bytes() == b""


def _over_quota(*_: object) -> int:
    raise OSError(errno.EDQUOT, "Disk quota exceeded")


def test_s25_a_look_shows_who_lives_and_with_which_part(tmp_path: Path) -> None:
    who = this_process("r1", "copy data")
    shares = SharesFolder(tmp_path)
    for name in (HOLDER, f"holder.{OTHER}.00000000.100.4", f"beat.{OTHER}.00000000.1"):
        shares.make(name, who.to_json())
    assert [share.part for share in look(tmp_path)] == [0.1]
    shares.make(BEAT, b"{")
    held = look(tmp_path)
    assert [round(share.part, 3) for share in held] == [0.9, 0.1]
    assert "copy data" in held[0].who
    assert look(tmp_path / "none") == []


def test_what_ended_processes_left_is_removed_after_an_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares = SharesFolder(tmp_path)
    names = [HOLDER, BEAT, f"begin.{OTHER}.00000000.1", "unknown"]
    for name in names:
        shares.make(name, b"")
    sweep(tmp_path)
    assert sorted(os.listdir(tmp_path)) == sorted(names)
    monkeypatch.setattr(share, "KEPT", -1.0)
    sweep(tmp_path)
    assert os.listdir(tmp_path) == ["unknown"]
