"""Preflight and plan on a folder whose vendor's commands are there, as stand-ins."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.staging_runs import context_for, events_of, tree
from tests.vendors.beegfs_cluster import GIB, TIB, Cluster, mounted, target

from penstock.cli import step_runner
from penstock.core.errors import NoSpaceError, PreflightError, TargetAwayError
from penstock.core.run_steps import gravest
from penstock.doctor import preflight_step
from penstock.fs import beegfs as commands
from penstock.fs import store_checks, stores
from penstock.fs.placement import SizeClasses
from penstock.run import list_step, plan_step

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.run_steps import CheckResult

FILES = {"a/one": b"1" * 10, "a/two": b"2" * 20, "b": b""}


def test_a1_a2_a8_a_cluster_in_order(beegfs: Cluster, target_folder: Path) -> None:
    """A1, A2, A8: targets, servers and quotas of each version; each command in the C locale."""
    quota = {"scope": "user", "id": os.geteuid(), "pool": 1, "used": GIB, "limit": TIB}
    beegfs.write(quotas=[quota | {"files": 5, "file_limit": None}])
    found = store_checks.check_target(target_folder).results
    assert gravest(found) == "ok", found
    assert f"BeeGFS {beegfs.version}" in found[0].about
    assert "8 storage targets, 1 metadata targets, 6 servers reached" in found[0].found
    assert "1.00 GiB of 1.00 TiB used" in found[1].found
    calls = beegfs.calls()
    assert {call["locale"] for call in calls} == {"C"}
    assert not [call for call in calls if "set" in call["argv"] or "--setpattern" in call["argv"]]


@pytest.mark.parametrize(("chunk", "verdict"), [(512 << 10, "ok"), (1 << 20, "warning")])
def test_o2_the_chunks_of_the_folder_fit_into_the_rdma_buffers(
    beegfs: Cluster, tmp_path: Path, chunk: int, verdict: str
) -> None:
    """O2: 70 buffers of 8 KiB, the defaults, hold no chunk of 1 MiB."""
    beegfs.write(pattern={"kind": "raid0", "chunk": chunk, "targets": 4, "pool": 1})
    proc = tmp_path / "proc"
    (proc / "fs/beegfs/client").mkdir(parents=True)
    live = "connUseRDMA = 1\nconnRDMABufSize = 8192\nconnRDMABufNum = 70\n"
    (proc / "fs/beegfs/client/config").write_text(live)

    def judged() -> list[CheckResult]:
        found = store_checks.check_target(tmp_path, named="beegfs", proc=proc).results
        return [one for one in found if "RDMA" in one.found]

    (seen,) = judged()
    assert seen.verdict == verdict
    assert seen.found.startswith("70 x 8192 = 573440 bytes of RDMA buffers a connection, ")
    assert f"chunks of {chunk} bytes" in seen.found
    (proc / "fs/beegfs/client/config").write_text(live.replace("connUseRDMA = 1", "connUseRDMA = 0"))
    assert judged() == []


def test_a_pool_that_no_target_is_in_is_a_warning(beegfs: Cluster, target_folder: Path) -> None:
    """It was removed, and the folder's pattern still names it: all targets are judged."""
    pattern = {"kind": "raid0", "chunk": 512 << 10, "targets": 4, "pool": 9}
    beegfs.write(pattern=pattern, pools={**beegfs.description["pools"], "9": "gone"})
    results = store_checks.check_target(target_folder).results
    (warning,) = [result for result in results if result.verdict == "warning"]
    assert warning.about == f"BeeGFS {beegfs.version} pool gone"
    assert "no target is known to be in it: it was removed" in warning.found


def test_after_the_management_service_no_command_is_asked_any_more(
    beegfs: Cluster, target_folder: Path
) -> None:
    """Each would wait for it: 3.2 s on 7.4.7."""
    beegfs.write(management=False)
    (result,) = store_checks.check_target(target_folder).results
    assert (result.verdict, result.about) == ("warning", f"BeeGFS {beegfs.version} management server")
    assert len(beegfs.calls()) == 1
    beegfs.write(management=True)
    assert gravest(store_checks.check_target(target_folder).results) == "ok"


def test_a1_a2_what_is_not_in_order_stops_preflight(
    beegfs: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A1, A2: by name, with 3; nothing of another pool."""
    mounted(monkeypatch, tmp_path)
    beegfs.server_down("stor02")
    beegfs.change(102, reachability="Offline", answers=False)
    beegfs.change(201, capacity="emergency")
    beegfs.change(202, consistency="Resyncing")
    beegfs.change(301, reachability="Offline")
    context = context_for(tmp_path, tree(tmp_path / "source", FILES))
    with pytest.raises(PreflightError) as caught:
        preflight_step.run(context, "data")
    text = str(caught.value)
    for part in (
        "storage server stor02",
        "storage target 102",
        "storage target 201",
        "capacity pool emergency",
    ):
        assert part in text
    assert "301" not in text
    assert caught.value.exit_code == 3


def test_a_server_that_is_away_stops_preflight_before_it_makes_a_file(
    beegfs: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call there would wait for ten minutes: the dataset's lock is not tried out, and how the step ended is
    not noted."""
    mounted(monkeypatch, tmp_path)
    context = context_for(tmp_path, tree(tmp_path / "source", FILES))
    list_step.run(context, "data")
    folders = [path for path in (tmp_path / "target").rglob("*") if path.is_dir()]
    beegfs.server_down("stor02")
    before = [path.stat().st_mtime_ns for path in folders]
    with pytest.raises(TargetAwayError, match="storage server stor02") as caught:
        step_runner.run_step("preflight", context, "data")
    assert caught.value.exit_code == 3
    assert "a server or a target of the file system is away" in str(caught.value)
    assert [path.stat().st_mtime_ns for path in folders] == before
    beegfs.write(servers=[one | {"reachable": True} for one in beegfs.description["servers"]])
    preflight_step.run(context, "data")
    assert [path.stat().st_mtime_ns for path in folders] != before


def test_a7_management_away(beegfs: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A7: a warning with its deadline; the run goes on."""
    mounted(monkeypatch, tmp_path)
    beegfs.write(management=False)
    context = context_for(tmp_path, tree(tmp_path / "source", FILES))
    receipt = preflight_step.run(context, "data")
    assert [text for text in receipt["warnings"] if "sysTargetOfflineTimeoutSecs=900" in text]
    beegfs.write(management=True)
    beegfs.server_down("mgmt")
    receipt = preflight_step.run(context, "data")
    assert [text for text in receipt["warnings"] if "management server mgmt" in text]


def test_without_any_command_there_are_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Show 4: no crash, and less than 3 s."""
    mounted(monkeypatch, tmp_path)
    monkeypatch.setenv("PATH", "")
    (note,) = store_checks.check_target(tmp_path).results
    assert note.verdict == "note"
    assert "not there: beegfs or beegfs-ctl on PATH" in note.found
    (note,) = store_checks.check_plan(tmp_path, SizeClasses([1]), 1).results
    assert note.verdict == "note"
    context = context_for(tmp_path, tree(tmp_path / "source", FILES))
    started = time.monotonic()
    receipt = preflight_step.run(context, "data")
    assert time.monotonic() - started < 3
    assert [text for text in receipt["checked"] if "not there" in text]


def test_a_kind_without_tools_asks_nothing(beegfs: Cluster, tmp_path: Path) -> None:
    assert store_checks.check_target(tmp_path).results == []
    assert store_checks.check_plan(tmp_path, SizeClasses([1]), 1).results == []
    assert not store_checks.has_tools(tmp_path)
    assert beegfs.calls() == []


def test_commands_that_fail_are_notes(beegfs: Cluster, target_folder: Path) -> None:
    program = beegfs.bin / ("beegfs-ctl" if beegfs.version == 7 else "beegfs")
    program.write_text("#!/bin/sh\necho 'segmentation fault, or so' >&2\nexit 139\n")
    found = store_checks.check_target(target_folder).results
    assert gravest(found) == "note"
    assert "segmentation fault, or so" in " ".join(one.found for one in found)


def test_a_command_that_hangs_is_a_note(
    beegfs8: Cluster, target_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "BUDGET", 1.0)
    beegfs8.write(hangs="beegfs")
    started = time.monotonic()
    found = store_checks.check_target(target_folder).results
    assert time.monotonic() - started < 5
    assert gravest(found) == "note"
    assert "no answer within 1 s" in found[0].found
    assert "took all of the time" in found[-1].found


@pytest.mark.parametrize(
    ("client", "used"), [("7.4.2\n", 7), ("8.1.0\n", 8), ("", 8)], ids=["client 7", "client 8", "not known"]
)
def test_both_commands_are_there(beegfs7: Cluster, tmp_path: Path, client: str, used: int) -> None:
    """The rows of `commands.find`."""
    beegfs7.install(["beegfs"])
    module = tmp_path / "sys" / "module" / "beegfs"
    module.mkdir(parents=True)
    if client:
        (module / "version").write_text(client)
    found = commands.find_tools(sys=str(tmp_path / "sys"))
    assert found is not None
    assert found.version == used


def test_several_mounts_are_told_apart(beegfs: Cluster, tmp_path: Path) -> None:
    (tmp_path / "proc" / "self").mkdir(parents=True)
    lines = [
        f"{at} 1 0:{at} / {point} rw - beegfs beegfs_nodev rw\n" for at, point in ((40, "/a"), (41, "/b"))
    ]
    (tmp_path / "proc" / "self" / "mountinfo").write_text("".join(lines))
    found = commands.find_tools(tmp_path / "proc", point="/b")
    assert found is not None
    assert found.mount == ("/b",)
    argv = found.set_pattern("/b/d", 4, 0, None)
    assert any("/b" in one and "mount" in "".join(argv) for one in argv[:-1])
    (tmp_path / "proc" / "self" / "mountinfo").write_text(lines[0])
    found = commands.find_tools(tmp_path / "proc", point="/a")
    assert found is not None
    assert found.mount == ()


def show_3(cluster: Cluster, wide: int) -> None:
    """64 targets, of which 117 is nearly full."""
    made = [target(1, role="metadata", total=2 * TIB, free=TIB)]
    made += [target(number) for number in range(101, 165)]
    made[17].update(free=30 * GIB, capacity="low")
    cluster.write(targets=made, pattern={"kind": "raid0", "chunk": 1 << 20, "targets": wide, "pool": 1})


def test_show_3_by_the_commands(beegfs: Cluster, target_folder: Path) -> None:
    """Show 3, A1: refused with the target's number and the bytes that are missing; over fewer targets none
    comes to it."""
    show_3(beegfs, 64)
    sizes = SizeClasses([3 << 20] * 100_000 + [4 * TIB] * 4)
    found = store_checks.check_plan(target_folder, sizes, 1000).results
    (stop,) = [one for one in found if one.verdict == "stop"]
    assert f"BeeGFS {beegfs.version} storage target 117" in stop.about
    assert "bytes are missing" in stop.found
    show_3(beegfs, 8)
    assert gravest(store_checks.check_plan(target_folder, sizes, 1000).results) == "ok"


def test_plan_refuses_what_does_not_fit(
    beegfs: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A1, A8: with 6, before anything is made; what fits stands in the plan."""
    mounted(monkeypatch, tmp_path)
    context = context_for(tmp_path, tree(tmp_path / "source", FILES))
    list_step.run(context, "data")
    quota = {
        "scope": "group",
        "id": os.getegid(),
        "pool": 1,
        "used": 100,
        "limit": 110,
        "files": 1,
        "file_limit": None,
    }
    beegfs.write(quotas=[quota])
    with pytest.raises(NoSpaceError, match="20 bytes are missing") as caught:
        plan_step.run(context, "data")
    assert caught.value.exit_code == 6
    releases = context.layout("data").releases
    assert not releases.exists() or os.listdir(releases) == []
    beegfs.write(quotas=[quota | {"limit": 1000}])
    receipt = plan_step.run(context, "data")
    why = "\n".join(receipt["why"])
    assert "a file lies on up to 4 of 4 targets, in chunks of 512 KiB" in why
    assert "3 files and 1 folders need about" in why
    assert "100 B used, 30 B more, the limit is 1000 B" in why
    assert events_of(context)[-1].kind == "end"


def test_s17_the_chunk_files_of_another_plan_count(
    beegfs: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S17: a file of 2 MiB over four targets is four of them; a run that says nothing of them counts one a
    file."""
    mounted(monkeypatch, tmp_path)
    contexts = {}
    for name in ("first", "second"):
        context = context_for(tmp_path, tree(tmp_path / name, {"large": b"1" * (2 << 20)}))
        context.config = replace(
            context.config, datasets={name: replace(context.config.datasets["data"], name=name)}
        )
        list_step.run(context, name)
        contexts[name] = context
    quota = {"scope": "group", "id": os.getegid(), "pool": 1, "used": 100, "limit": TIB, "files": 1}
    beegfs.write(quotas=[quota | {"file_limit": 8}])
    plan_step.run(contexts["first"], "first")
    path = contexts["first"].layout("first").under_way
    stated = json.loads(path.read_bytes())
    assert (stated["files"], stated["chunk_files"], stated["pool"]) == (1, 4, "1")
    with pytest.raises(NoSpaceError, match="1 chunk files are missing") as caught:
        plan_step.run(contexts["second"], "second")
    assert "dataset first" in str(caught.value)
    del stated["chunk_files"]
    path.write_text(json.dumps(stated))
    assert plan_step.run(contexts["second"], "second")["files"] == 1


def test_the_named_kind_chooses_the_tools(beegfs: Cluster, tmp_path: Path) -> None:
    """By which tests have the vendor's commands asked of another mount."""
    assert store_checks.check_target(tmp_path).results == []
    found = store_checks.check_target(tmp_path, named="beegfs").results
    assert f"BeeGFS {beegfs.version}" in found[0].about
    assert store_checks.has_tools(tmp_path, "beegfs")
    checks = store_checks.check_plan(tmp_path, SizeClasses([1]), 1, named="beegfs")
    assert "a file lies on up to" in checks.results[0].found


def test_a1_releases_before_storage_pools_are_read_by_beegfs_df(
    beegfs7: Cluster, target_folder: Path
) -> None:
    """A1: their beegfs-ctl refuses the option that shows pools; their table has another heading."""
    beegfs7.write(version="6.18")
    found = store_checks.check_target(target_folder).results
    assert gravest(found) == "ok", found
    assert "8 storage targets, 1 metadata targets" in found[0].found
    assert "beegfs-df" in {call["argv"][0] for call in beegfs7.calls()}
    beegfs7.change(201, capacity="emergency")
    assert gravest(store_checks.check_target(target_folder).results) == "stop"


def test_what_got_no_answer_is_told_in_the_plan_too(beegfs: Cluster, target_folder: Path) -> None:
    beegfs.write(management=False)
    checks = store_checks.check_plan(target_folder, SizeClasses([1]), 1)
    assert gravest(checks.results) == "warning"
    assert "management server" in checks.results[0].about


def test_a8_the_quota_of_another_group_is_roots_to_ask(
    beegfs8: Cluster, target_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A8: for others it is not known, and that is told."""
    beegfs8.write(root=False, uid=1000)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    found = store_checks.check_target(target_folder, gid=os.getegid() + 1).results
    assert [one.about for one in found if one.verdict == "note"] == [
        f"BeeGFS 8 quota of group {os.getegid() + 1}"
    ]
    assert gravest(found) == "note"


def test_s18_a_group_quota_asks_for_the_group(beegfs: Cluster, target_folder: Path) -> None:
    """S18: a stop where neither the configuration nor the folder says whose quota it is."""
    quota = {"scope": "group", "id": os.getegid(), "pool": 1, "used": GIB, "limit": TIB}
    beegfs.write(quotas=[quota | {"files": 5, "file_limit": None}])
    (stop,) = [one for one in store_checks.check_target(target_folder).results if one.verdict == "stop"]
    assert (stop.about, "permissions.group" in stop.mend) == ("group", True)
    assert gravest(store_checks.check_target(target_folder, gid=os.getegid()).results) == "ok"
    target_folder.chmod(0o2755)
    assert gravest(store_checks.check_target(target_folder).results) == "ok"
    beegfs.write(quotas=[quota | {"limit": None, "files": 5, "file_limit": None}])
    target_folder.chmod(0o755)
    assert gravest(store_checks.check_target(target_folder).results) == "ok"


@pytest.mark.parametrize("name", ["#fSiDs#", "a/#fSiDs#/b"])
def test_a_name_that_beegfs_keeps_for_itself_is_refused_before_a_byte_moves(
    tmp_path: Path, name: str
) -> None:
    """BeeGFS answers EEXIST, 7.4.7 and 8.3.1."""
    context = context_for(tmp_path, tree(tmp_path / "source", {name: b"1", "fine": b"2"}))
    list_step.run(context, "data")
    context.config = replace(context.config, target=replace(context.config.target, filesystem="beegfs"))
    with pytest.raises(PreflightError) as caught:
        list_step.run(context, "data")
    assert "#fSiDs#" in str(caught.value)
    assert "a name that the target's file system keeps for itself" in str(caught.value)
    assert caught.value.exit_code == 3
