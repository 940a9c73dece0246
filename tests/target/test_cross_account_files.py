"""What several accounts read and write: names are had by one, and what is no posting is counted."""

from __future__ import annotations

import errno
import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from tests.support.forked import NOBODY, forked
from tests.target.conftest import need_root

from penstock.core.errors import FailedError
from penstock.target import notices

if TYPE_CHECKING:
    from pathlib import Path


def test_a_notice_is_readable_and_its_owners(place: Path) -> None:
    path = place / "audits" / "r1.json"
    with pytest.raises(FileNotFoundError):
        notices.read_notice(path)
    for number in (1, 2):
        notices.write_notice(path, {"n": number})
        assert json.loads(notices.read_notice(path)) == {"n": number}
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o755
    notices.forget_notice(path)
    notices.forget_notice(path)
    assert not os.listdir(path.parent)


def test_a_notice_is_read_whichever_account_wrote_it(place: Path) -> None:
    """Of a dataset that changed hands, or that root restored."""
    need_root()
    path = place / "audits" / "r1.json"
    notices.write_notice(path, {"n": 1})
    os.chown(path, 12345, -1)
    assert json.loads(notices.read_notice(path)) == {"n": 1}
    notices.write_notice(path, {"n": 2})
    assert json.loads(notices.read_notice(path)) == {"n": 2}


def test_a_notice_that_is_no_file_is_refused(place: Path) -> None:
    os.mkfifo(place / "fifo")
    with pytest.raises(FailedError, match="no plain file"):
        notices.read_notice(place / "fifo")
    (place / "folder").mkdir()
    with pytest.raises(FailedError, match="no plain file"):
        notices.read_notice(place / "folder")


def test_of_many_one_has_a_name(place: Path) -> None:
    folder = place / "slots"
    folder.mkdir()
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda n: notices.post(folder, "0", {"n": n}), range(32)))
    assert won.count(True) == 1
    seen = notices.postings(folder)
    assert [(one.name, one.uid, one.value) for one in seen.posted] == [
        ("0", os.geteuid(), {"n": won.index(True)})
    ]
    assert seen.others == 0
    notices.withdraw(folder, "0")
    notices.withdraw(folder, "0")
    assert notices.postings(folder) == ([], 0)
    assert notices.post(folder, "0", {})


def test_another_account_posts_and_removes_only_its_own(place: Path) -> None:
    need_root()
    folder = place / "pins"
    folder.mkdir()
    folder.chmod(0o1777)
    assert notices.post(folder, "owners", {"a": 1})

    def as_reader() -> None:
        assert notices.post(folder, "readers", {"b": 2})
        assert not notices.post(folder, "owners", {})
        with pytest.raises(PermissionError):
            notices.withdraw(folder, "owners")

    forked(as_reader, uid=NOBODY)
    seen = notices.postings(folder)
    assert [(one.name, one.uid) for one in seen.posted] == [("owners", 0), ("readers", NOBODY)]
    forked(lambda: notices.withdraw(folder, "readers"), uid=NOBODY)
    assert [one.name for one in notices.postings(folder).posted] == ["owners"]


def test_what_is_no_posting_is_counted(place: Path) -> None:
    assert notices.postings(place / "none") == ([], 0)
    os.mkfifo(place / "fifo")
    (place / "folder").mkdir()
    (place / "long").write_bytes(b" " * (notices.LONGEST + 1))
    (place / "twice").write_text("{}")
    os.link(place / "twice", place / "again")
    os.symlink("twice", place / "link")
    (place / ".hidden").write_text("{}")
    posted, others = notices.postings(place)
    assert ([posting.name for posting in posted], others) == (["again"], 5)


@pytest.mark.parametrize(
    ("number", "raised"), [(errno.EIO, True), (errno.ESTALE, True), (errno.EACCES, False)]
)
def test_a_posting_for_which_the_file_system_did_not_answer_is_not_taken_for_none(
    place: Path, monkeypatch: pytest.MonkeyPatch, number: int, raised: bool
) -> None:
    (place / "one").write_text("{}")
    really = os.open

    def broken(path: Path, *args: int, **more: int) -> int:
        if os.path.basename(path) == "one":
            raise OSError(number, os.strerror(number), str(path))
        return really(path, *args, **more)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", broken)
        if raised:
            with pytest.raises(OSError, match="one"):
                notices.postings(place)
        else:
            assert notices.postings(place) == ([], 1)


def test_a_posting_that_is_nested_without_end_is_not_whole(place: Path) -> None:
    (place / "deep").write_text("[" * 60_000)
    seen = notices.postings(place)
    assert [(one.name, one.value) for one in seen.posted] == [("deep", None)]


@pytest.mark.parametrize("what", ["fifo", "folder", "long"])
def test_a_notice_that_is_no_document_is_refused_and_waited_for_by_nobody(place: Path, what: str) -> None:
    path = place / "notice"
    if what == "fifo":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    else:
        with path.open("wb") as file:
            file.truncate(1 << 40)
    with pytest.raises((FailedError, IsADirectoryError)):
        notices.read_notice(path)


def test_a_posting_that_is_not_whole_still_holds_its_name(place: Path) -> None:
    (place / "torn").write_text('{"a"')
    seen = notices.postings(place)
    assert [(one.name, one.value) for one in seen.posted] == [("torn", None)]
    assert not notices.post(place, "torn", {})


def test_a_folder_that_others_may_empty_is_refused(place: Path) -> None:
    (place / "open").mkdir()
    (place / "open").chmod(0o777)
    with pytest.raises(FailedError, match="0777"):
        notices.make_folder_as_above(place / "open")


def test_a_folder_below_one_that_all_may_write_is_sticky(place: Path) -> None:
    place.chmod(0o1777)
    notices.make_folder_as_above(place / "shares")
    assert stat.S_IMODE((place / "shares").stat().st_mode) == 0o1777
    (place / "own").mkdir(mode=0o755)
    notices.make_folder_as_above(place / "own/shares")
    assert stat.S_IMODE((place / "own/shares").stat().st_mode) == 0o755
