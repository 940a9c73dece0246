"""The client that reads a mount, and what follows from the mount: evidence, durability, what preflight says.

statfs(2) of this machine knows no BeeGFS: its number is handed in where a test needs one. It is the one thing
of the package that is replaced here; the mount table and /proc/fs/beegfs are folders of the test's own.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.fs.conftest import CLIENT, LIVE, changed
from tests.support.engine_runs import make_tree, shard_run
from tests.support.published import STEPS, data_of
from tests.support.staging_runs import context_for, tree
from tests.target.conftest import need_cold_reads

from penstock.core import seal
from penstock.core.run_steps import gravest
from penstock.doctor import preflight_target
from penstock.fs import capabilities, libc
from penstock.fs.beegfs_mount import live_clients
from penstock.fs.capabilities import facts
from penstock.fs.cold_read import ColdReader
from penstock.fs.kinds import MountProof
from penstock.fs.mount_checks import check_mount
from penstock.host.kernel_facts import option_values
from penstock.run import report_step

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BEEGFS, LUSTRE, NFS, FUSE, OTHER = 0x19830326, 0x0BD00BD0, 0x6969, 0x65735546, 0x12345


@pytest.fixture
def number(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets the number of the file system that statfs(2) gives."""

    def give(magic: int) -> None:
        monkeypatch.setattr(libc, "statfs_type", lambda _: magic)

    return give


def test_options_are_taken_apart() -> None:
    assert option_values("") == {}
    assert option_values("rw,core=3,core=4,sec=") == {"rw": (), "core": ("3", "4"), "sec": ("",)}
    assert option_values('context="u:r:t:s0:c1,c2",ro') == {"context": ('"u:r:t:s0:c1,c2"',), "ro": ()}
    assert option_values('rw,context="torn,ro') == {"rw": (), "context": ('"torn,ro',)}


def test_a_local_file_system_has_nothing_to_say(folder: Path, proc: Callable[..., Path]) -> None:
    assert check_mount(folder, proc()) == []
    assert check_mount(folder / "not" / "yet", proc(), source=True) == []
    assert facts(folder, proc()).proof == MountProof()


@pytest.mark.parametrize(
    ("magic", "mount", "about"),
    [
        (
            BEEGFS,
            "rw,relatime - beegfs beegfs_nodev rw,cfgFile=/etc/beegfs/beegfs-client.conf",
            "BeeGFS mount",
        ),
        (OTHER, "rw,relatime - wekafs default rw,writecache,inode_bits=auto", "WEKA mount"),
        (LUSTRE, "rw,relatime - lustre 10.0.0.1@tcp:/scratch rw,flock,user_xattr", "Lustre mount"),
        (NFS, "rw,relatime - nfs filer:/x rw,vers=3,hard,sec=sys", "NFS mount"),
    ],
)
def test_each_kind_is_read_by_its_client(
    magic: int, mount: str, about: str, folder: Path, proc: Callable[..., Path], number: Callable[[int], None]
) -> None:
    number(magic)
    root = proc(f"{folder} {mount}", clients={CLIENT: LIVE})
    found = check_mount(folder, root)
    assert {one.about for one in found} == {f"{about} {folder}"}
    assert gravest(found) in ("ok", "note")


def test_further_mounts_of_weka_are_seen_and_bind_mounts_are_none(
    folder: Path, proc: Callable[..., Path], number: Callable[[int], None]
) -> None:
    number(OTHER)
    line = "rw - wekafs default rw,forcedirect,acl,core=3"
    root = proc(f"{folder} {line}", f"/elsewhere {line}", f"/bound {line}")
    table = root / "self/mountinfo"
    table.write_text(table.read_text().replace("0:32", "0:30"))
    warned = [one.found for one in check_mount(folder, root) if one.verdict == "warning"]
    assert len(warned) == 1
    assert "mounted at /elsewhere too" in warned[0]


def test_a_mount_that_another_hides_is_not_judged_by_its_options(
    folder: Path, proc: Callable[..., Path], number: Callable[[int], None]
) -> None:
    number(NFS)
    assert check_mount(folder, proc(f"{folder} rw - ext4 /dev/vdb rw")) == []


def test_a_mount_that_does_not_answer_is_a_warning(
    folder: Path, proc: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stale(_: str) -> int:
        raise OSError(116, "Stale file handle")

    monkeypatch.setattr(libc, "statfs_type", stale)
    found = check_mount(folder, proc(f"{folder} rw - nfs filer:/x rw,vers=4.2"))
    assert [(one.verdict, one.found) for one in found] == [
        ("warning", "it does not answer: Stale file handle")
    ]


def test_clients_that_cannot_be_read_are_left_out(proc: Callable[..., Path], tmp_path: Path) -> None:
    root = proc(clients={"b": LIVE, "a": changed(tuneRemoteFSync=0)})
    (root / "fs/beegfs/c").mkdir()
    assert [(one.name, one.remote_fsync) for one in live_clients(root)] == [("a", False), ("b", True)]
    assert live_clients(tmp_path / "none") == []


def test_a7_the_deadline_comes_from_the_configuration_file(proc: Callable[..., Path], tmp_path: Path) -> None:
    file = tmp_path / "beegfs-client.conf"
    file.write_text(
        "# sysTargetOfflineTimeoutSecs = 1\nsysTargetOfflineTimeoutSecs  = 900\ntuneRemoteFSync = false\n"
    )
    seen = live_clients(proc(clients={"a": changed(cfgFile=file)}))[0]
    assert (seen.offline_seconds, seen.remote_fsync) == (900, True), "the live value goes before the file's"


@pytest.mark.parametrize(
    ("mode", "method"), [("readcache", "dropped"), ("coherent", "cached"), ("forcedirect", "dropped")]
)
def test_l6_a_read_through_the_page_cache_counts_by_the_mode(
    mode: str, method: str, folder: Path, proc: Callable[..., Path], number: Callable[[int], None]
) -> None:
    need_cold_reads(folder)
    number(OTHER)
    seen = facts(folder, proc(f"{folder} rw - wekafs default rw,{mode}"))
    assert seen.passable
    (folder / "f").write_bytes(b"x" * 8192)
    # Without O_DIRECT, as where the file system refuses it.
    plain = replace(seen, traits=seen.traits._replace(direct=False))
    with (folder / "f").open("rb+") as stream:
        libc.syncfs(stream.fileno())
    with ColdReader(folder, plain) as reader:
        assert reader.read("f", 0, 8192, lambda _: None).method == method
    with ColdReader(folder, seen) as reader:
        assert reader.read("f", 0, 8192, lambda _: None).method == "direct"


def test_no_read_by_fuse_is_cold(
    folder: Path, proc: Callable[..., Path], number: Callable[[int], None]
) -> None:
    number(FUSE)
    root = proc(f"{folder} rw - fuse.gateway gateway rw,user_id=0", clients={CLIENT: LIVE})
    seen = facts(folder, root)
    assert (seen.kind, seen.direct, seen.passable, seen.durability) == ("fuse", False, False, "fsync")


def test_preflight_warns_notes_and_stops_by_the_mounts(
    tmp_path: Path, proc: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.doctor import preflight_step

    source = tree(tmp_path / "source", {"a": b"1"})
    root = proc(
        f"{tmp_path / 'target'} rw - beegfs beegfs_ondemand rw,sysMgmtdHost=mgmt01",
        f"{source} rw,relatime - nfs filer:/x rw,vers=3,hard,sec=krb5",
        clients={CLIENT: changed(tuneRemoteFSync=0)},
    )
    numbers = {str(tmp_path / "target"): BEEGFS, str(source): NFS}
    own = libc.statfs_type
    monkeypatch.setattr(libc, "statfs_type", lambda path: numbers.get(path) or own(path))
    monkeypatch.setattr(preflight_target, "check_mount", partial(check_mount, proc=root))
    (tmp_path / "target").mkdir()
    context = context_for(tmp_path, source)
    receipt = preflight_step.run(context, "data")
    warned = "\n".join(receipt["warnings"])
    assert "BeeOND: this file system was made for a job" in warned
    assert "tuneRemoteFSync=false" in warned
    assert f"NFS mount {source}: version 3 of the protocol; have an administrator" in warned
    noted = "\n".join(receipt["checked"])
    assert {row.verdict for row in receipt["results"]} >= {"ok", "note", "warning"}
    assert "mounted without noatime" in noted
    assert "klist" in noted


ENDS = "in the storage servers' memory (tuneRemoteFSync=false)"


def test_the_copy_says_where_an_fsync_ended(
    folder: Path, proc: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, number: Callable[[int], None]
) -> None:
    number(BEEGFS)
    mount = f"{folder} rw - beegfs beegfs_nodev rw,cfgFile=/etc/beegfs/beegfs-client.conf"
    root = proc(mount, clients={CLIENT: changed(tuneRemoteFSync=0)})
    monkeypatch.setattr(capabilities, "facts", partial(facts, proc=root))
    run = shard_run(folder, make_tree(folder / "source", {"a": 10}))
    outcome = run.copy()
    assert (outcome.durability, outcome.fsync_ends) == ("fsync", ENDS)


@pytest.mark.parametrize("ends", ["", ENDS])
def test_the_seal_says_where_an_fsync_ended(tmp_path: Path, ends: str) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"1", "b": b"2"}))
    try:
        for step in STEPS[:-1]:
            step(context, "data")
        for path in (tmp_path / "target/data/.penstock/runs").glob("*/receipts/copy/*.json"):
            receipt = json.loads(path.read_bytes())
            assert receipt["fsync_ends"] == ""
            path.write_text(json.dumps(receipt | {"fsync_ends": ends}))
        STEPS[-1](context, "data")
        durability = report_step.run(context, "data")["durability"]
    finally:
        context.cluster.close()
    assert durability in ("fsync", "syncfs") if not ends else durability.endswith(f", which ended {ends}")
    content = (data_of(context).parent / "release.json").read_bytes()
    assert json.loads(content)["evidence"].get("fsync_ends", "") == ends
    assert ("fsync_ends" in json.loads(content)["evidence"]) is bool(ends)
    assert seal.RELEASE_SEAL.from_json(content, "release.json").evidence.fsync_ends == ends
