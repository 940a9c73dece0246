"""Preflight and plan on a folder of a WEKA, by its command, which is a stand-in; and what its JSON says."""

from __future__ import annotations

import json
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.staging_runs import context_for, tree
from tests.vendors.beegfs_cluster import mounted
from tests.vendors.weka_cluster import GIB, STATUS, TIB, Weka, quota

from penstock.core.dataset_documents import StillToWrite
from penstock.core.errors import PreflightError
from penstock.core.run_steps import gravest
from penstock.doctor import preflight_step
from penstock.fs import store_checks, stores, weka
from penstock.fs.placement import SizeClasses
from penstock.fs.quotas import Quota
from penstock.fs.weka import ActiveCount, FileSystem, WekaCluster

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.core.run_steps import CheckResult

ALLOWED = [["weka", "status", "-J"], ["weka", "fs", "--format", "json", "-R"],
           ["weka", "fs", "quota", "list", "default", "--all", "-f", "json"]]  # fmt: skip


def checked(weka: Weka, folder: Path) -> list[CheckResult]:
    return store_checks.check_target(folder, named="wekafs", proc=weka.proc).results


def planned(
    weka: Weka, folder: Path, sizes: Sequence[int], others: Sequence[StillToWrite] = ()
) -> list[CheckResult]:
    classes = SizeClasses(sizes)
    checks = store_checks.check_plan(folder, classes, 10, named="wekafs", proc=weka.proc, others=others)
    return checks.results


def test_s15_a_weka_in_order_is_asked_and_never_changed(weka: Weka, tmp_path: Path) -> None:
    """S15: three questions, in the C locale; none sets a quota."""
    found = checked(weka, tmp_path)
    assert gravest(found) == "ok", found
    assert (found[0].about, found[0].found) == (
        "WEKA cluster weka-infra",
        "I/O is started; 36 of 36 drives, 24 of 24 I/O processes, 7 of 7 servers active",
    )
    assert [call["argv"] for call in weka.calls()] == ALLOWED
    assert {call["locale"] for call in weka.calls()} == {"C"}


@pytest.mark.parametrize(
    ("changes", "verdict", "words"),
    [
        ({"io_status": "STOPPED"}, "stop", "I/O is not started: STOPPED"),
        ({"rebuild": {"unavailablePercent": 3}}, "stop", "3 % of the data are not available"),
        ({"rebuild": {"protectionState": [{"MiB": 5, "numFailures": 1}]}}, "warning", "its redundancy"),
        ({"drives": {"active": 35, "total": 36}}, "warning", "35 of 36 drives active"),
        ({"servers": {"backends": {"active": 6, "total": 7}}}, "warning", "6 of 7 servers active"),
        ({"buckets_info": {"reportedRaidFillLevelSeverity": "Critical"}}, "warning", "Critical"),
        ({"licensing": {"io_start_eligibility": False, "mode": "Classic"}}, "warning", "licence (Classic)"),
        ({"licensing": {"io_start_eligibility": True, "mode": "Unlicensed"}}, "note", "Unlicensed"),
        ({"licensing": {}}, "ok", "I/O is started"),
    ],
)
def test_a2_rows_of_health(
    weka: Weka, tmp_path: Path, changes: dict[str, Any], verdict: str, words: str
) -> None:
    """A2, and licences: the rows of `vendors.weka.health`."""
    weka.status(**changes)
    found = checked(weka, tmp_path)
    assert gravest(found) == verdict, found
    assert words in " ".join(one.found for one in found)


def test_a_file_system_that_is_not_ready_stops() -> None:
    (stop,) = weka.judge_cluster(None, FileSystem("default", ready=False))
    assert (stop.verdict, stop.about) == ("stop", "WEKA file system default")
    assert weka.judge_cluster(None, None) == []


def test_a8_quotas_of_the_folder_and_of_those_above_it(weka: Weka, tmp_path: Path) -> None:
    """A8, S15: another folder's, and another file system's, are none of this run's."""
    folder = tmp_path / "target" / "data"
    folder.mkdir(parents=True)
    weka.write(
        quotas=[
            quota("/target", hard_limit_bytes=TIB + 5 * GIB),
            quota("/", soft_limit_bytes=TIB + GIB, hard_limit_bytes=None),
            quota("/tar", hard_limit_bytes=1),
            quota("/target/data/below", hard_limit_bytes=1),
            quota("/target", fsName="other", path="other:/target", hard_limit_bytes=1),
        ]
    )
    found = [one for one in checked(weka, folder) if "quota" in one.about]
    assert [(one.about, one.verdict) for one in found] == [("WEKA quota of folder /target", "ok")]
    found = planned(weka, folder, [2 * GIB])
    assert [(one.about, one.verdict) for one in found] == [
        ("WEKA quota of folder /target", "ok"),
        ("WEKA quota of folder /", "warning"),
    ]
    assert "the grace time begins then" in found[1].found
    (stop,) = [one for one in planned(weka, folder, [6 * GIB]) if one.verdict == "stop"]
    assert f"{GIB:,} bytes are missing" in stop.found
    other = StillToWrite(4 * GIB, 1, uid=1, gid=1)
    assert gravest(planned(weka, folder, [2 * GIB], [other])) == "stop"


def test_s15_quotas_by_a_bind_mount_are_those_of_the_folder_in_the_file_system(
    weka: Weka, tmp_path: Path
) -> None:
    """A8, S15: quotas have paths from the file system's root, and a bind mount of `/projects/lab` shows that
    folder as its own root."""
    folder = tmp_path / "lab" / "target"
    folder.mkdir(parents=True)
    weka.mounted(("/", tmp_path / "weka-root"), ("/projects/lab", tmp_path / "lab"))
    weka.write(
        quotas=[
            quota("/target", hard_limit_bytes=1),
            quota("/lab/target", hard_limit_bytes=1),
            quota("/projects/labs", hard_limit_bytes=1),
            quota("/projects", hard_limit_bytes=3 * TIB),
            quota("/projects/lab/target", hard_limit_bytes=TIB + GIB),
        ]
    )
    found = [one for one in checked(weka, folder) if "quota" in one.about]
    assert [(one.about, one.verdict) for one in found] == [
        ("WEKA quota of folder /projects", "ok"),
        ("WEKA quota of folder /projects/lab/target", "ok"),
    ]
    (stop,) = [one for one in planned(weka, folder, [2 * GIB]) if one.verdict == "stop"]
    assert stop.about == "WEKA quota of folder /projects/lab/target"
    assert f"{GIB:,} bytes are missing" in stop.found


@pytest.mark.parametrize(
    ("changes", "verdict", "words"),
    [
        ({"total_bytes": 2 * TIB}, "stop", "2.00 TiB used"),
        ({"soft_limit_bytes": TIB - GIB}, "warning", "what is left of its grace is not known"),
        ({"hard_limit_bytes": (1 << 64) - 4096}, "ok", "I/O is started"),
        ({"total_bytes": None}, "note", "what is used is not known"),
    ],
)
def test_a8_rows_of_quotas(
    weka: Weka, tmp_path: Path, changes: dict[str, Any], verdict: str, words: str
) -> None:
    """A8"""
    weka.write(quotas=[quota("/", **changes)])
    found = checked(weka, tmp_path)
    assert gravest(found) == verdict, found
    assert words in " ".join(one.found for one in found)


def test_a5_no_more_files_than_the_file_system_may_have(weka: Weka, tmp_path: Path) -> None:
    """A5: `max_files`, of this file system."""
    assert planned(weka, tmp_path, [1] * 2000) == []
    systems = weka.description["file_systems"]
    weka.write(file_systems=[systems[0], systems[1] | {"max_files": 2009}])
    (stop,) = planned(weka, tmp_path, [1] * 2000)
    assert (stop.verdict, stop.found) == (
        "stop",
        "2,000 files and 10 folders, and the file system may have 2,009",
    )


def test_an_account_that_may_not_ask_gets_notes(weka: Weka, tmp_path: Path) -> None:
    """S15: quotas are the administrator's; who is not logged in sees nothing, and the run goes on."""
    weka.write(may_list_quotas=False)
    found = checked(weka, tmp_path)
    assert [one.about for one in found if one.verdict == "note"] == ["WEKA quotas"]
    assert "OrgAdmin" in found[-1].found
    weka.write(logged_in=False)
    found = checked(weka, tmp_path)
    assert [one.about for one in found] == ["WEKA cluster", "WEKA file systems", "WEKA quotas"]
    assert gravest(found) == "note"


def test_without_weka_or_with_one_that_hangs_there_are_notes(
    weka: Weka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Show 4"""
    monkeypatch.setattr(stores, "BUDGET", 1.0)
    weka.write(hangs=True)
    started = time.monotonic()
    assert gravest(checked(weka, tmp_path)) == "note"
    assert time.monotonic() - started < 5
    (weka.bin / "weka").write_text("#!/bin/sh\necho 'no JSON'\n")
    assert "not the JSON" in checked(weka, tmp_path)[0].found
    monkeypatch.setenv("PATH", "")
    (note,) = checked(weka, tmp_path)
    assert (note.verdict, "not there: weka on PATH" in note.found) == ("note", True)


def test_nothing_is_striped_on_a_weka(weka: Weka, tmp_path: Path) -> None:
    checks = store_checks.check_plan(
        tmp_path, SizeClasses([1]), 1, named="wekafs", wish="auto", proc=weka.proc
    )
    assert [one.about for one in checks.results if one.verdict == "warning"] == ["target.striping"]


def test_preflight_stops_at_a_cluster_without_io(
    weka: Weka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A2: with 3."""
    mounted(monkeypatch, tmp_path, "weka")
    weka.status(io_status="STOPPED")
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"1"}))
    with pytest.raises(PreflightError, match="I/O is not started") as caught:
        preflight_step.run(context, "data")
    assert caught.value.exit_code == 3


def test_figures_and_keys_of_both_kinds_are_read() -> None:
    """Keys of the REST API and those of older releases; figures as numbers and as digits."""
    rows = [{"path": "/a", "totalBytes": "7", "hardLimitBytes": 9}, {"name": "no path"}, 5]
    assert weka.read_quotas(json.dumps(rows), "default", "/a/b") == [
        Quota("folder", 0, path="/a", used=7, limit=9)
    ]
    assert weka.read_quotas("nothing", "default", "/a") == []
    systems = [{"name": "a", "status": "CREATING", "max_files": "12", "available_total": "5 B"}]
    assert weka.read_file_systems(json.dumps(systems)) == [FileSystem("a", False, 5, 12)]
    seen = weka.read_status(json.dumps(STATUS))
    assert seen == WekaCluster(
        "weka-infra",
        "STARTED",
        (ActiveCount("drives", 36, 36), ActiveCount("I/O processes", 24, 24), ActiveCount("servers", 7, 7)),
        0.0,
        False,
        "Normal",
        "Classic",
        True,
    )
    assert weka.read_status("[]") is None
    assert weka.read_status("") is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fs", "quota", "set", "/mnt/a", "--hard", "1TB"], "not a command that reads"),
        (["fs", "quota", "list", "none", "--all", "-f", "json"], "does not exist"),
        (["fs", "--format", "yaml"], "invalid format"),
        (["fs", "--bytes"], "unknown option"),
    ],
)
def test_the_stand_in_refuses(weka: Weka, arguments: list[str], words: str) -> None:
    """Show 4, S15"""
    done = subprocess.run(["weka", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert words in done.stderr
    assert weka.calls()
