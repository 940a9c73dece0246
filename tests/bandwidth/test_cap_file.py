from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from penstock.jobs import bandwidth
from penstock.jobs.bandwidth import (
    Cap,
    CapFile,
    judged,
    parse,
    render,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "cap"),
    [
        ("limit: 40Gbit/s\n", Cap(5_000_000_000)),
        ("# by the network group\n\n  limit:5GB/s  \nrequests: 2000\n", Cap(5_000_000_000, 2000)),
        ("limit: none\nrequests: 7\n", Cap(None, 7)),
        ("limit: none\nrequests: none\n", Cap()),
    ],
)
def test_what_an_administrator_may_write(text: str, cap: Cap) -> None:
    assert parse(text.encode()) == cap


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it has no line `limit: RATE`"),
        ("requests: 5\n", "it has no line `limit: RATE`"),
        ("limit: 40\n", 'limit: "40" must be a rate with its unit, such as 1GiB/s or 20Gbit/s'),
        ("limit: 0GB/s\n", 'limit: "0GB/s" must be more than nothing'),
        ("40Gbit/s\n", '"40Gbit/s" is not `limit: RATE` or `requests: NUMBER`'),
        ("limit: 1GB/s\nlimit: 2GB/s\n", '"limit: 2GB/s" is not `limit: RATE` or `requests: NUMBER`'),
        ("limit: 1GB/s\nrequests: 0\n", 'requests: "0" must be a number a second, or none'),
        ("limit: 1GB/s\nrequests: many\n", 'requests: "many" must be a number a second, or none'),
    ],
)
def test_what_makes_no_sense_is_said(text: str, why: str) -> None:
    with pytest.raises(ValueError) as raised:
        parse(text.encode())
    assert str(raised.value) == why


def test_the_lower_cap_holds() -> None:
    assert Cap(5, None).lower(Cap(7, 3)) == Cap(5, 3)
    assert Cap(None, 9).lower(Cap(7, 10)) == Cap(7, 9)
    assert Cap().lower(Cap()) == Cap()


def test_what_is_written_is_read(tmp_path: Path) -> None:
    file = CapFile(tmp_path)
    file.look()
    assert (file.cap, file.wrong) == (Cap(), "")
    bandwidth.write(tmp_path, render("40Gbit/s", 2000))
    file.look()
    assert file.cap == Cap(5_000_000_000, 2000)
    assert stat.S_IMODE((tmp_path / "cap").stat().st_mode) == 0o644
    (tmp_path / "cap").write_text("# a longer file\n" * 20 + "limit: 1GB/s\n")
    file.look()
    assert file.cap == Cap(1_000_000_000)
    bandwidth.write(tmp_path, render("none", None))
    assert len((tmp_path / "cap").read_bytes()) == len(render("none", None))
    file.look()
    assert file.cap == Cap()
    # A file that replaced it.
    (tmp_path / "new").write_text("limit: 3GB/s\n")
    os.replace(tmp_path / "new", tmp_path / "cap")
    file.look()
    assert file.cap == Cap(3_000_000_000)


def test_half_of_a_file_and_a_file_that_is_gone_leave_the_cap_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "cap").write_text("limit: 3GB/s\n")
    file = CapFile(tmp_path)
    file.look()
    (tmp_path / "cap").write_text("limit: 3G")
    file.look()
    assert file.cap == Cap(3_000_000_000)
    assert file.wrong.startswith(f'{tmp_path}/cap: limit: "3G" must be a rate')
    os.unlink(tmp_path / "cap")
    file.look()
    assert file.cap == Cap(3_000_000_000)
    assert file.wrong == f"{tmp_path}/cap is gone: what it said last still holds"
    (tmp_path / "cap").write_text("limit: 4GB/s\n")
    file.look()
    assert (file.cap, file.wrong) == (Cap(4_000_000_000), "")


def test_s25_only_the_administrators_cap_file_counts(tmp_path: Path) -> None:
    """The truth table of `judged`."""
    path = tmp_path / "cap"
    path.write_text("limit: 3GB/s\n")
    path.chmod(0o644)
    own = os.geteuid()

    def said() -> str:
        return "; ".join(judged(path, path.lstat(), own))

    assert said() == "; "
    path.chmod(0o664)
    assert said() == (
        f"{path} has mode 0664: others than its owner may write it; chmod 644 {path}, as its owner"
    )
    path.chmod(0o646)
    assert "has mode 0646" in said()
    path.chmod(0o644)
    assert judged(path, path.lstat(), own + 1) == ("", "") or own != 0
    os.link(path, tmp_path / "second")
    assert "is no plain file of one name" in said()
    (tmp_path / "second").unlink()
    assert judged(path, os.stat_result((0o100644, 1, 1, 1, 4711, 0, 13, 0, 0, 0)), 17) == (
        f"{path} belongs to uid 4711; the folder's owner is uid 17",
        f"chown 17 {path}, as root",
    )


def test_s25_a_cap_file_that_others_may_write_changes_nothing_while_elements_run(tmp_path: Path) -> None:
    bandwidth.write(tmp_path, render("3GB/s", None))
    file = CapFile(tmp_path)
    file.look()
    (tmp_path / "cap").unlink()
    (tmp_path / "cap").write_text("limit: 100GB/s\n")
    (tmp_path / "cap").chmod(0o666)
    file.look()
    assert file.cap == Cap(3_000_000_000)
    assert "has mode 0666" in file.wrong


def test_a_fifo_or_a_link_is_no_cap_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "cap")
    file = CapFile(tmp_path)
    file.look()
    assert "is no plain file of one name" in file.wrong
    (tmp_path / "cap").unlink()
    (tmp_path / "cap").symlink_to("/etc/passwd")
    file.look()
    assert file.wrong == f"{tmp_path}/cap is a symbolic link, whose target others may choose"
    assert not file.known
