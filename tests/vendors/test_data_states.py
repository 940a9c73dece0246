"""Where files' data is, by the vendors' commands, of many files at once, and by blocks. No vendor's file
system is behind it: texts are fixtures, commands stand-ins."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
from tests.vendors.tiers import RELEASED, Tiers

from penstock.fs import beegfs as beegfs_states
from penstock.fs import lustre as lustre_states
from penstock.fs import store_checks, stores
from penstock.fs import weka as weka_states
from penstock.fs.capabilities import facts
from penstock.fs.stores import DataState, DataStates, Said

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.vendors.beegfs_cluster import Cluster

ODD = "odd 'name'\n%\t\"\\é"
LOCAL = DataState("local")


def files(folder: Path, *names: str) -> list[str]:
    for name in names:
        (folder / name).write_bytes(b"x" * 5000)
    return [*names]


# BeeGFS ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("access", "state", "place", "why"),
    [
        ("unlocked", "available", "local", ""),
        ("Unlocked", "Available", "local", ""),
        ("Unlocked", "0", "local", ""),
        ("locked-write", "available", "local", ""),
        ("Locked (write)", "0", "local", ""),
        ("unlocked", "manual-restore", "offline", "manual"),
        ("Locked (read+write)", "AutoRestore", "offline", "auto"),
        ("locked-read-write", "delayed-restore", "offline", "delayed"),
        ("Unlocked", "1", "offline", "manual"),
        ("Unlocked", "2", "offline", "auto"),
        ("Unlocked", "3", "offline", "delayed"),
        ("unlocked", "unavailable", "offline", "unavailable"),
        ("unlocked", "unknown(6)", "offline", "unknown6"),
        ("locked-read", "available", "offline", "locked"),
        ("Locked (read+write)", "0", "offline", "locked"),
        ("0", "0", "local", ""),
        ("1", "0", "offline", "locked"),
        ("2", "0", "local", ""),
        ("3", "0", "offline", "locked"),
    ],
)
def test_s16_beegfs_states_in_the_words_of_each_release(
    access: str, state: str, place: str, why: str
) -> None:
    found = beegfs_states.state_of(access, state)
    assert found is not None
    assert found.place == place
    assert why in found.why


@pytest.mark.parametrize("state", ["(n/a)", ""])
def test_s16_beegfs_says_nothing_of_folders(state: str) -> None:
    assert beegfs_states.state_of("(n/a)", state) is None


@pytest.mark.parametrize("form", ["numbers", "capitals", "dashes"])
def test_s16_beegfs_is_asked_of_many_files_by_one_command(
    beegfs8: Cluster, tmp_path: Path, form: str
) -> None:
    names = files(tmp_path, *(f"f{number}" for number in range(600)), ODD)
    stub = os.path.realpath(tmp_path / ODD)
    beegfs8.write(states={stub: ("unlocked", "delayed-restore")}, state_form=form)
    asked = store_checks.data_states(tmp_path, "beegfs")
    assert asked is not None
    found = asked.away([*names, "none", "."])
    asked.close()
    assert found == {ODD: DataState("offline", "a stub (BeeGFS restores it: delayed)")}
    assert [call["argv"][:3] for call in beegfs8.calls()] == [["beegfs", "entry", "info"]] * 2


def test_s16_beegfs_prints_paths_below_its_mount() -> None:
    out = '{"path": "/a/b", "type": "file", "access": "unlocked", "state": "auto-restore"}\n'
    paths = ["/mnt/beegfs/a/b", "/mnt/beegfs/a/c"]
    assert [*beegfs_states.read_states(out, paths, "/mnt/beegfs")] == paths[:1]
    assert beegfs_states.read_states(out, ["/mnt/other/a/b"], "/mnt/beegfs") == {}


def test_s16_beegfs_7_has_no_stubs_and_is_not_asked(beegfs7: Cluster, tmp_path: Path) -> None:
    asked = store_checks.data_states(tmp_path, "beegfs")
    assert asked is not None
    assert asked.away(files(tmp_path, "f")) == {}
    asked.close()
    assert beegfs7.calls() == []


# Lustre ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "place"),
    [(0, "local"), (0x9, "local"), (0xB, "local"), (0xD, "offline"), (0x4D, "offline")],
)
def test_s16_lustre_flags(flags: int, place: str) -> None:
    assert lustre_states.state_of(flags).place == place


def test_s16_lustre_lines_as_lfs_prints_them() -> None:
    out = (
        "/mnt/a: (0x00000000)\n/mnt/b\n: (0x0000000d) released exists archived, archive_id:1\n"
        "/mnt/c: (0x00000009) exists archived, archive_id:2\n"
    )
    found = lustre_states.read_states(out, ["/mnt/a", "/mnt/b\n", "/mnt/c", "/mnt/d"])
    assert found == {
        "/mnt/a": LOCAL,
        "/mnt/b\n": DataState("offline", "released to the archive"),
        "/mnt/c": LOCAL,
    }
    assert lustre_states.read_states("lfs: not found\n", ["/mnt/a"]) == {}


def test_s16_lustre_is_asked_of_many_files_by_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lfs = Tiers(tmp_path / "bin", "lfs", monkeypatch)
    data = tmp_path / "data"
    data.mkdir()
    names = files(data, "a", ODD, "b")
    lfs.write({data / ODD: RELEASED, data / "b": 0x9})
    asked = store_checks.data_states(data, "lustre")
    assert asked is not None
    assert asked.away(names) == {ODD: DataState("offline", "released to the archive")}
    asked.close()
    assert len(lfs.calls()) == 1


# WEKA --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "written", "cached", "stored", "place"),
    [
        (100, 4096, 0, 0, "local"),
        (100, 0, 4096, 100, "local"),
        (8192, 4096, 4096, 8192, "local"),
        (8192, 0, 4096, 8192, "tiered"),
        (8192, 0, 0, 8192, "tiered"),
        (1 << 30, 4096, 0, 0, "local"),
    ],
)
def test_s16_weka_tiers(size: int, written: int, cached: int, stored: int, place: str) -> None:
    assert weka_states.state_of(size, written, cached, stored).place == place


def test_s16_weka_rows_with_the_names_of_the_reference_and_of_the_table() -> None:
    reference = {
        "path": "/w/a", "file_type": "regular", "file_size": 100, "ssd_write_cache_bytes": 0,
        "ssd_read_cache_bytes": 0, "object_storage_bytes": 100, "remote_storage_bytes": 0,
    }  # fmt: skip
    table = {
        "PATH": "/w/b", "FILE TYPE": "regular", "FILE SIZE": "100 B",
        "CAPACITY IN SSD (WRITE-CACHE)": "4096 B",
        "CAPACITY IN SSD (READ-CACHE)": "0 B", "CAPACITY IN OBJECT STORAGE": "0 B",
    }  # fmt: skip
    unsized = reference | {"path": "/w/c", "object_storage_bytes": "0.1 GB"}
    found = weka_states.read_location(json.dumps([reference, table, unsized]), ["/w/a", "/w/b", "/w/c"])
    assert found == {"/w/a": DataState("tiered", "in the object store"), "/w/b": LOCAL}
    assert weka_states.read_location("error: not a WEKA mount", ["/w/a"]) == {}


# All of them -------------------------------------------------------------------------------------


class Fake:
    """A command that ends at files of some names, or hangs."""

    def __init__(self, *ends_at: str, ended: bool = True) -> None:
        self.ends_at, self.ended, self.calls = frozenset(ends_at), ended, 0

    def ask(self, paths: Sequence[str]) -> Said:
        self.calls += 1
        found: dict[str, DataState] = {}
        for path in paths:
            name = os.path.basename(path)
            if name in self.ends_at or not self.ended:
                return Said(found, "it failed", self.ended)
            found[path] = DataState("offline", "a stub") if name.startswith("stub") else LOCAL
        return Said(found)


def test_s16_a_file_that_makes_the_command_end_hides_no_other(tmp_path: Path) -> None:
    names = files(tmp_path, *(f"f{number}" for number in range(300)), "stub1", "bad", "stub2")
    command = Fake("bad", "f7")
    asked = DataStates(tmp_path, command.ask, stubs=False)
    assert asked.away(names) == dict.fromkeys(("stub1", "stub2"), DataState("offline", "a stub"))
    asked.close()
    assert asked.silence == ""
    assert command.calls < 30


@pytest.mark.parametrize(("ended", "calls"), [(True, 3), (False, 1)])
def test_s16_a_command_that_says_nothing_is_given_up(tmp_path: Path, *, ended: bool, calls: int) -> None:
    names = files(tmp_path, *(f"f{number}" for number in range(600)))
    command = Fake(*names, ended=ended)
    asked = DataStates(tmp_path, command.ask, stubs=True)
    assert asked.away(names) == {}
    assert asked.away(names) == {}
    asked.close()
    assert asked.silence == "it failed"
    assert command.calls == calls


def test_s16_the_hint_of_a_size_without_blocks(tmp_path: Path) -> None:
    for name, size in (("hole", 5000), ("in the inode", stores.INODE)):
        with (tmp_path / name).open("wb") as stream:
            stream.truncate(size)
    names = [*files(tmp_path, "file"), "hole", "in the inode"]
    for stubs, hints, found in (
        (True, True, {"hole": stores.HINT}),
        (True, False, {}),
        (False, True, {}),
    ):
        asked = DataStates(tmp_path, None, stubs=stubs)
        assert asked.away(names, hints=hints) == found
        asked.close()
    assert stores.HINT.hinted


def test_s16_the_command_goes_before_the_hint(tmp_path: Path) -> None:
    with (tmp_path / "hole").open("wb") as stream:
        stream.truncate(5000)
    asked = DataStates(tmp_path, Fake().ask, stubs=True)
    assert asked.away(["hole"]) == {}
    asked.close()


def test_s16_the_file_systems_of_this_machine_are_not_asked(tmp_path: Path) -> None:
    assert facts(tmp_path).traits.local
    assert store_checks.data_states(tmp_path) is None
    for named in ("gpfs", "nfs"):
        asked = store_checks.data_states(tmp_path, named)
        assert asked is not None, named
        asked.close()
