"""Preflight and plan on a folder of a Lustre, by its command, which is a stand-in; and what that refuses."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.staging_runs import context_for, tree
from tests.vendors.beegfs_cluster import mounted
from tests.vendors.lustre_cluster import GIB, Lustre, layout

from penstock.core.errors import NoSpaceError
from penstock.core.run_steps import gravest
from penstock.fs import lustre as commands
from penstock.fs import quotas, store_checks, stores
from penstock.fs.placement import AUTO, INHERIT, SizeClasses
from penstock.run import list_step, plan_step

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.core.run_steps import CheckResult
    from penstock.fs.store_checks import PlanChecks

MIB = 1 << 20


@pytest.fixture(autouse=True)
def _its_owner_is_no_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quotas of id 0 are not asked."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "getegid", lambda: 2000)


def checked(folder: Path) -> list[CheckResult]:
    return store_checks.check_target(folder, gid=2000, named="lustre").results


def planned(folder: Path, sizes: Sequence[int], wish: str = INHERIT) -> PlanChecks:
    return store_checks.check_plan(folder, SizeClasses(sizes), 10, named="lustre", wish=wish)


def test_a1_a_lustre_in_order(lustre: Lustre, tmp_path: Path) -> None:
    """A1: targets of both kinds; each command in the C locale, and none that changes anything."""
    found = checked(tmp_path)
    assert gravest(found) == "ok", found
    assert "10 storage targets, 1 metadata targets" in found[0].found
    assert {call["locale"] for call in lustre.calls()} == {"C"}
    assert not [call for call in lustre.calls() if "setstripe" in call["argv"]]


@pytest.mark.parametrize(
    ("changes", "verdict", "words"),
    [
        ({"state": "inactive"}, "warning", "inactive"),
        ({"state": "away"}, "warning", "gave no figures"),
        ({"flags": "S"}, "warning", "takes no new files"),
        ({"flags": "RD"}, "warning", "takes no new files"),
        ({"flags": "f"}, "ok", "in order"),
    ],
)
def test_a1_states_of_a_target(
    lustre: Lustre, tmp_path: Path, changes: dict[str, Any], verdict: str, words: str
) -> None:
    """A1: by name; new files go to others."""
    lustre.change("demo-OST0003", **changes)
    found = checked(tmp_path)
    assert gravest(found) == verdict
    about = [one for one in found if words in one.found]
    assert about
    assert verdict == "ok" or about[0].about == "Lustre storage target demo-OST0003"


def test_a1_what_does_not_fit_on_a_target_is_refused_with_its_name(lustre: Lustre, tmp_path: Path) -> None:
    """A1: one stripe a file; a giant can fall on the full target, and does not where that takes no files."""
    lustre.change("demo-OST0003", free=10 * GIB)
    (stop,) = [one for one in planned(tmp_path, [30 * GIB]).results if one.verdict == "stop"]
    assert stop.about == "Lustre storage target demo-OST0003"
    assert f"{20 * GIB:,} bytes are missing" in stop.found
    assert "it takes 10.0 GiB until it is full" in stop.found
    lustre.change("demo-OST0003", flags="S")
    assert gravest(planned(tmp_path, [30 * GIB]).results) == "ok"


def test_a1_a_pool_is_judged_by_its_own_targets(lustre: Lustre, tmp_path: Path) -> None:
    """A1: targets in several pools count in each."""
    pools = lustre.description["pools"]
    lustre.write(
        layout=layout((None, 1, MIB), pool="flash"), pools=pools | {"all": [*pools["disk"], *pools["flash"]]}
    )
    lustre.change("demo-OST0001", free=0)
    found = planned(tmp_path, [GIB]).results
    assert gravest(found) == "ok", found
    assert "a file lies on up to 1 of 2 targets" in found[0].found
    lustre.write(layout=layout((None, 1, MIB), pool="all"))
    assert "Lustre storage target demo-OST0001" in {
        one.about for one in planned(tmp_path, [GIB]).results if one.verdict == "stop"
    }


def test_a5_inodes_of_the_metadata_targets(lustre: Lustre, tmp_path: Path) -> None:
    """A5: a file or folder is one inode; an object is one on its storage target, however small the file."""
    (found,) = [one for one in planned(tmp_path, [1] * 90).results if "metadata" in one.about]
    assert found.found == "90 files and 10 folders need 100 inodes; 500,000,000 are free"
    lustre.change("demo-MDT0000", ifree=99)
    (stop,) = [one for one in planned(tmp_path, [1] * 90).results if one.verdict == "stop"]
    assert "90 files and 10 folders need 100 inodes; 99 are free" in stop.found
    lustre.change("demo-MDT0000", ifree=1000)
    lustre.write(layout=layout((None, -1, MIB)))
    lustre.change("demo-OST0002", ifree=89)
    (stop,) = [one for one in planned(tmp_path, [0] * 90).results if one.verdict == "stop"]
    assert (stop.about, "about 90 objects come to it" in stop.found) == (
        "Lustre storage target demo-OST0002",
        True,
    )


def quota(scope: str, number: int, **changes: Any) -> dict[str, Any]:
    made = {
        "scope": scope,
        "id": number,
        "space": {"used": 4 * GIB, "hard": 8 * GIB},
        "files": {"used": 5, "hard": 20},
    }
    return made | changes


def test_a8_quotas_of_user_group_and_project(
    lustre: Lustre, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A8: each is asked by its number; files and folders count."""
    monkeypatch.setattr(commands, "project_of", lambda fd: 7)
    lustre.write(quotas=[quota("usr", 1000), quota("grp", 2000), quota("prj", 7)])
    found = [one.about for one in checked(tmp_path) if "quota" in one.about]
    assert found == [
        f"Lustre quota of {one}" for one in ("user 1000", "group 2000", "project 7") for _ in (1, 2)
    ]
    assert gravest(planned(tmp_path, [GIB] * 4).results) == "ok"
    stops = [one for one in planned(tmp_path, [GIB] * 5).results if one.verdict == "stop"]
    assert len(stops) == 3
    assert all(f"{GIB:,} bytes are missing" in one.found for one in stops)
    assert [one for one in planned(tmp_path, [1] * 6).results if "1 files are missing" in one.found]


@pytest.mark.parametrize(
    ("changes", "verdict", "words"),
    [
        ({"space": {"used": 8 * GIB, "hard": 8 * GIB}}, "stop", "8.00 GiB used"),
        (
            {"space": {"used": 4 * GIB, "soft": GIB, "grace": "6d2h"}},
            "warning",
            "525,600 s of grace are left",
        ),
        ({"space": {"used": 4 * GIB, "soft": GIB, "grace": "expired"}}, "stop", "its grace is over"),
        ({"inexact": True}, "note", "what is used is not known"),
    ],
)
def test_a8_rows_of_quotas(
    lustre: Lustre, tmp_path: Path, changes: dict[str, Any], verdict: str, words: str
) -> None:
    """A8"""
    lustre.write(quotas=[quota("grp", 2000, **changes)])
    found = checked(tmp_path)
    assert gravest(found) == verdict, found
    assert words in " ".join(one.found for one in found)


def test_a8_quotas_that_are_not_enabled_are_none(lustre: Lustre, tmp_path: Path) -> None:
    """A8: nothing to say; another account's are a note."""
    lustre.write(enforced=[])
    assert [one.about for one in checked(tmp_path)] == ["Lustre"]
    lustre.write(enforced=["usr"], root=False, uid=1234)
    (note,) = [one for one in checked(tmp_path) if one.verdict == "note"]
    assert (note.about, "Permission denied" in note.found) == ("Lustre quota of user 1000", True)


def test_s13_auto_leaves_a_composite_layout_and_its_widest_component_counts(
    lustre: Lustre, tmp_path: Path
) -> None:
    """S13: space is judged by the component on four targets; a small file is one object."""
    lustre.write(layout=layout((16 * MIB, 1, MIB), (None, 4, 4 * MIB), pool="disk"))
    checks = planned(tmp_path, [MIB] * 1000 + [40 * GIB], AUTO)
    assert (checks.targets, checks.pool) == (0, "disk")
    assert (
        "a file lies on up to 4 of 8 targets, in chunks of 4.00 MiB; about 10.0 GiB"
        in checks.results[0].found
    )
    assert checks.chunk_files == 1000 + 4


def test_o1_what_is_not_set_stays(lustre: Lustre, tmp_path: Path) -> None:
    """O1: `setstripe` replaces all of a layout, so all of it is given."""
    lustre.write(layout=layout((None, 2, 4 * MIB), pool="flash"))
    checks = planned(tmp_path, [MIB] * 10, AUTO)
    (done,) = store_checks.stripe(tmp_path, checks.targets, named="lustre")
    assert done.verdict == "ok", done
    assert lustre.layouts()[str(tmp_path)] == layout((None, 1, 4 * MIB), pool="flash")


def test_o1_lacking_rights_is_a_warning_with_the_command(lustre: Lustre, tmp_path: Path) -> None:
    """O1"""
    lustre.write(root=False, users_may_stripe=False)
    (warning,) = store_checks.stripe(tmp_path, 4, named="lustre")
    assert warning.verdict == "warning"
    assert "this account has not the right" in warning.found
    assert f"`lfs setstripe -c 4 -S 1M {tmp_path.parent}`" in warning.mend
    lustre.write(root=True, forgets=True)
    (warning,) = store_checks.stripe(tmp_path, 4, named="lustre")
    assert "what is read back is 1 targets" in warning.found


def test_o1_the_staging_folder_is_striped_before_its_first_file(
    lustre: Lustre, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O1, A8: by list and plan; a quota that the plan would pass ends it with 6."""
    monkeypatch.undo()
    monkeypatch.setenv("PATH", f"{lustre.bin}:{os.environ['PATH']}")
    mounted(monkeypatch, tmp_path, "lustre")
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"1" * 100, "b/c": b"2"}))
    lustre.write(layout=layout((None, 2, MIB)))
    context.config = replace(context.config, target=replace(context.config.target, striping=AUTO))
    list_step.run(context, "data")
    monkeypatch.setattr(quotas, "owner_of_new", lambda *_: (1000, 2000))
    monkeypatch.setattr(store_checks, "owner_of_new", lambda *_: (1000, 2000))
    lustre.write(quotas=[quota("grp", 2000, files={"used": 19, "hard": 20})])
    with pytest.raises(NoSpaceError, match="quota of group 2000: 19 files used, 3 files more") as caught:
        plan_step.run(context, "data")
    assert caught.value.exit_code == 6
    lustre.write(quotas=[])
    receipt = plan_step.run(context, "data")
    data = context.layout("data").staging(receipt["release"]) / "data"
    (call,) = [call for call in lustre.calls() if "setstripe" in call["argv"]]
    assert call["argv"] == ["lfs", "setstripe", "-c", "1", "-S", "1M", str(data)]
    assert call["entries"] == []
    assert "target.striping: 1 targets a file, chunks of 1.00 MiB" in "\n".join(receipt["why"])


@pytest.mark.parametrize(
    ("wish", "options", "targets", "chunk"),
    [
        ("targets=4, chunk=1MiB", ["-S", "1M"], 4, "1.00 MiB"),
        ("targets=3,chunk=4MiB", ["-S", "4M"], 3, "4.00 MiB"),
    ],
)
def test_o1_targets_and_chunk_as_the_configuration_names_them(
    lustre: Lustre, tmp_path: Path, wish: str, options: list[str], targets: int, chunk: str
) -> None:
    lustre.write(layout=layout((None, 2, 512 << 10)))
    checks = store_checks.check_plan(tmp_path, SizeClasses([10]), 1, named="lustre", wish=wish)
    (result,) = store_checks.stripe(tmp_path, checks.targets, checks.chunk, named="lustre")
    assert result.verdict == "ok", result
    assert f"{targets} targets a file, chunks of {chunk}" in result.found
    (call,) = [call for call in lustre.calls() if "setstripe" in call["argv"]]
    assert call["argv"] == ["lfs", "setstripe", "-c", str(targets), *options, str(tmp_path)]


def test_without_lfs_there_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    (note,) = checked(tmp_path)
    assert (note.verdict, "not there: lfs on PATH" in note.found) == ("note", True)


def test_an_lfs_that_hangs_or_fails_is_a_note(
    lustre: Lustre, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "BUDGET", 1.0)
    lustre.write(hangs=True)
    started = time.monotonic()
    found = checked(tmp_path)
    assert time.monotonic() - started < 5
    assert gravest(found) == "note"
    (lustre.bin / "lfs").write_text("#!/bin/sh\necho 'no such thing' >&2\nexit 5\n")
    found = checked(tmp_path)
    assert gravest(found) == "note"
    assert "no such thing" in found[0].found


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["-c", "2001"], "invalid stripe count"),
        (["-c", "many"], "invalid stripe count"),
        (["-S", "100K"], "invalid stripe size"),
        (["-S", "1MiB"], "bad stripe size"),
        (["-S", "4G"], "invalid stripe size"),
        (["-p", "tape"], "does not exist"),
        (["--num-targets=4"], "unrecognized option"),
    ],
)
def test_the_stand_in_refuses(lustre: Lustre, tmp_path: Path, flags: list[str], words: str) -> None:
    """Show 4: what `lfs` would, and sets nothing then."""
    done = subprocess.run(["lfs", "setstripe", *flags, tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert words in done.stderr
    assert lustre.layouts() == {}


def test_the_stand_in_asks_for_one_scope(lustre: Lustre, tmp_path: Path) -> None:
    for flags in ([], ["-u", "1", "-g", "1"]):
        done = subprocess.run(["lfs", "quota", *flags, tmp_path], capture_output=True, text=True, check=False)
        assert "only one of -u, -g or -p" in done.stderr
