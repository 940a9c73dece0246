from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

import pytest

from penstock.core.errors import PreflightError
from penstock.jobs.bandwidth import folder
from penstock.jobs.bandwidth.folder import SlotFolder, has_mark, looked_at, marked, prepared
from penstock.jobs.bandwidth.holder import ListFolder, LookForCap, Make, ReadFile, Remove, Rename, Tidy
from penstock.jobs.bandwidth.slots import parse

if TYPE_CHECKING:
    from pathlib import Path

ID, OTHER = "0123456789abcdef", "fedcba9876543210"


def test_the_operations(tmp_path: Path) -> None:
    looked: list[int] = []
    slots = SlotFolder(tmp_path, lambda: looked.append(1))
    assert slots.carry_out(Make("00.1", b"me")) is True
    assert slots.carry_out(Make("00.1", b"you")) is False
    assert slots.carry_out(ReadFile("00.1")) == b"me"
    assert slots.carry_out(ReadFile("00.2")) == b""
    assert stat.S_IMODE((tmp_path / "00.1").stat().st_mode) == 0o644
    beat = f"beat.{ID}.0.0.60"
    slots.carry_out(Make(beat))
    assert slots.carry_out(Rename(beat, f"beat.{ID}.1.1.60")) is True
    assert slots.carry_out(Rename(beat, f"beat.{ID}.1.1.60")) is False
    assert sorted(slots.carry_out(ListFolder())) == ["00.1", f"beat.{ID}.1.1.60"]  # type: ignore[call-overload]
    for _ in range(2):
        assert slots.carry_out(Remove(f"beat.{ID}.1.1.60")) is None
    slots.carry_out(LookForCap())
    assert looked == [1]
    (tmp_path / "00.2").symlink_to("/etc/passwd")
    with pytest.raises(OSError):
        slots.carry_out(ReadFile("00.2"))


def test_s25_a_name_whose_content_cannot_be_written_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over a quota of blocks: an error would leave a name there that nobody holds."""
    slots = SlotFolder(tmp_path, lambda: None)
    monkeypatch.setattr(os, "write", _over_quota)
    assert slots.carry_out(Make("00.1", b"me")) is True
    assert slots.carry_out(ReadFile("00.1")) == b""


def _over_quota(*_: object) -> int:
    raise OSError(errno.EDQUOT, "Disk quota exceeded")


def test_s25_generations_stay_for_an_hour_after_a_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A late listing that does not show the later one would else find the slot free."""
    slots = SlotFolder(tmp_path, lambda: None)
    beat, still = f"beat.{ID}.0.0.60", f"beat.{OTHER}.7.1.60"
    made = ["00.1", "00.1.free", "00.2", "01.1", "01.1.free", still, beat, "unknown"]
    for name in made:
        slots.carry_out(Make(name))
    slots.carry_out(Tidy(os.listdir(tmp_path), beat, 100))
    assert sorted(os.listdir(tmp_path)) == sorted(made)
    monkeypatch.setattr(folder, "KEPT", -1.0)
    slots.carry_out(Tidy(os.listdir(tmp_path), beat, 100))
    # The last generation of a slot is never removed: its number is what the next one counts from.
    assert sorted(os.listdir(tmp_path)) == sorted(["00.2", "01.1", "01.1.free", beat, "unknown"])
    for generation in range(3, 9):
        slots.carry_out(Make(f"00.{generation}"))
    slots.carry_out(Tidy(os.listdir(tmp_path), beat, 4))
    assert len(os.listdir(tmp_path)) == 4 + 3


def test_the_slots_are_open_to_every_account_and_each_keeps_its_own(tmp_path: Path) -> None:
    slots = prepared(tmp_path)
    assert slots == tmp_path / "slots"
    assert stat.S_IMODE(slots.stat().st_mode) == 0o1777
    slots.chmod(0o2770)
    assert prepared(tmp_path) == slots
    assert stat.S_IMODE(slots.stat().st_mode) == 0o2770


def test_a_folder_that_cannot_be_used_is_named_with_what_to_do(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    with pytest.raises(PreflightError) as raised:
        looked_at(gone)
    assert str(raised.value) == (
        f"the bandwidth folder cannot be used [{gone}]: there is no such folder\n  the link's administrator"
        " makes it by `penstock limit RATE`; each account that stages must be able to list and write its "
        "folder `slots`, on each node"
    )
    tmp_path.chmod(0o777)
    with pytest.raises(PreflightError, match="others than its owner may replace the cap file in it"):
        prepared(tmp_path)
    tmp_path.chmod(0o1777)
    prepared(tmp_path)


def test_a_folder_that_this_account_may_not_see_is_named(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden" / "link"
    hidden.mkdir(parents=True)
    hidden.parent.chmod(0)
    own = os.geteuid()
    try:
        if own == 0:
            tmp_path.chmod(0o755)
            os.seteuid(65534)
        for look in (looked_at, prepared):
            with pytest.raises(PreflightError, match="Permission denied"):
                look(hidden)
    finally:
        if own == 0:
            os.seteuid(own)
        hidden.parent.chmod(0o700)


def test_preflight_looks_at_the_folders_mode_before_slots_is_there(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(PreflightError, match="others than its owner may replace the cap file in it"):
        looked_at(tmp_path)


def test_s25_a_mark_is_there_as_long_and_in_this_folder_alone(tmp_path: Path) -> None:
    here, other = tmp_path / "here", tmp_path / "other"
    for link in (here, other):
        (link / "slots").mkdir(parents=True)
    with marked(here) as mark:
        assert (has_mark(here, mark), has_mark(other, mark)) == (True, False)
        assert parse(os.listdir(here / "slots")) == parse([])
    assert os.listdir(here / "slots") == []
    with marked(tmp_path / "none") as mark:
        assert mark == ""


def test_a_mark_that_was_left_is_removed_as_generations_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slots, beat, left = SlotFolder(tmp_path, lambda: None), f"beat.{ID}.0.0.60", f"mark.{ID}"
    for name in (beat, left):
        slots.carry_out(Make(name))
    slots.carry_out(Tidy(os.listdir(tmp_path), beat, 100))
    assert sorted(os.listdir(tmp_path)) == [beat, left]
    monkeypatch.setattr(folder, "KEPT", -1.0)
    slots.carry_out(Tidy(os.listdir(tmp_path), beat, 100))
    assert os.listdir(tmp_path) == [beat]


def test_preflight_makes_nothing(tmp_path: Path) -> None:
    looked_at(tmp_path)
    assert os.listdir(tmp_path) == []
    (tmp_path / "slots").write_text("no folder")
    with pytest.raises(PreflightError, match="Not a directory"):
        looked_at(tmp_path)
