from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from penstock.core.errors import PreflightError
from penstock.jobs import share_rule
from penstock.jobs.bandwidth import (
    has_mark,
    looked_at,
    marked,
    prepared,
    swept,
)
from penstock.jobs.share_rule import parse

if TYPE_CHECKING:
    from pathlib import Path


def test_the_holders_are_open_to_every_account_and_each_keeps_its_own(tmp_path: Path) -> None:
    holders = prepared(tmp_path)
    assert holders == tmp_path / "holders"
    assert stat.S_IMODE(holders.stat().st_mode) == 0o1777
    holders.chmod(0o2770)
    assert prepared(tmp_path) == holders
    assert stat.S_IMODE(holders.stat().st_mode) == 0o2770


def test_a_folder_that_cannot_be_used_is_named_with_what_to_do(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    with pytest.raises(PreflightError) as raised:
        looked_at(gone)
    assert str(raised.value) == (
        f"the bandwidth folder cannot be used [{gone}]: No such file or directory\n"
        "  the link's administrator makes it by `penstock limit RATE`, in a folder that is there; each "
        "account that stages must be able to list and write its folder `holders`, on each node"
    )
    tmp_path.chmod(0o777)
    with pytest.raises(PreflightError, match="others than its owner may replace the cap file"):
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


def test_preflight_looks_at_the_folders_mode_before_holders_is_there(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(PreflightError, match="others than its owner may replace the cap file"):
        looked_at(tmp_path)


def test_s25_a_mark_is_there_as_long_and_in_this_folder_alone(tmp_path: Path) -> None:
    here, other = tmp_path / "here", tmp_path / "other"
    for link in (here, other):
        (link / "holders").mkdir(parents=True)
    with marked(here) as mark:
        assert (has_mark(here, mark), has_mark(other, mark)) == (True, False)
        assert not parse(os.listdir(here / "holders")).holders
    assert os.listdir(here / "holders") == []
    with marked(tmp_path / "none") as mark:
        assert mark == ""


def test_preflight_makes_nothing(tmp_path: Path) -> None:
    looked_at(tmp_path)
    assert os.listdir(tmp_path) == []
    (tmp_path / "holders").write_text("no folder")
    with pytest.raises(PreflightError, match="Not a directory"):
        looked_at(tmp_path)


def _older(link: Path) -> None:
    """A beat of the protocol by slots, and a slot that it took."""
    (link / "slots").mkdir()
    for name in ("beat.0123456789abcdef.7.3f.60", "00.1"):
        (link / "slots" / name).write_text("{}")


def test_s25_an_element_of_an_older_penstock_that_lives_is_named(tmp_path: Path) -> None:
    _older(tmp_path)
    for look in (prepared, looked_at):
        with pytest.raises(PreflightError) as raised:
            look(tmp_path)
        assert "an older penstock is at work" in str(raised.value)
    swept(tmp_path)
    assert len(os.listdir(tmp_path / "slots")) == 2


def test_s25_what_an_older_penstock_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _older(tmp_path)
    monkeypatch.setattr(share_rule, "OLDER_LIVES", -1.0)
    prepared(tmp_path)
    swept(tmp_path)
    assert os.listdir(tmp_path) == ["holders"]


def test_s25_an_old_slot_of_an_older_penstock_stays_beside_its_young_beat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process beats again and again; the slot that it took is as old as it."""
    slots = tmp_path / "slots"
    slots.mkdir()
    slot, beat = slots / "00.1", slots / "beat.0123456789abcdef.7.3f.60"
    slot.write_text("{}")
    taken = slot.stat().st_ctime
    while beat.write_text("{}") and beat.stat().st_ctime == taken:
        pass
    age = beat.stat().st_ctime - taken
    monkeypatch.setattr(share_rule, "OLDER_LIVES", 60.0)
    now = taken + 60.0 + age / 2
    monkeypatch.setattr(share_rule.capabilities, "now", lambda _: now)
    share_rule.remove_dead_older(slots)
    assert {path.name for path in slots.iterdir()} == {slot.name, beat.name}
    now += age
    share_rule.remove_dead_older(slots)
    assert not slots.exists()
