"""Which files verify, audit and repair read by O_DIRECT where such a read harms readers beside it, as on
BeeGFS, and what they claim of it.

The file systems of the tests are not harmed: what their mount proves is handed in.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.support.engine_runs import make_tree, shard_run
from tests.support.published import data_of, flip
from tests.target.conftest import facts_with, need_cold_reads

from penstock.config.settings import VerifyConfig
from penstock.core.grades import answered_by
from penstock.dataset import release_records
from penstock.engine import repair_shard
from penstock.fs import capabilities, libc
from penstock.fs.capabilities import DirectReads, direct_reads, facts, traits_of_mount
from penstock.fs.cold_read import ColdReader
from penstock.fs.kinds import MountProof
from penstock.keep import audit_step, repair_step

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.dataset.context import Context
    from penstock.fs.capabilities import StorageFacts

BUFFERED = MountProof("dropped", direct_from_disks=True, direct_harms=True)
CONTENT = b"content" * 1000


def harmed(path: Path) -> StorageFacts:
    return replace(facts(path), proof=BUFFERED)


@pytest.fixture
def beegfs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The elements see what a BeeGFS mount says; workers see this machine's file system."""
    need_cold_reads(tmp_path)
    monkeypatch.setattr(capabilities, "facts", harmed)


def durable(context: Context) -> None:
    """What is not written back cannot be dropped: the target was just copied."""
    fd = os.open(data_of(context), os.O_RDONLY | os.O_DIRECTORY)
    libc.syncfs(fd)
    os.close(fd)


def with_key(context: Context, value: str) -> Context:
    verify = replace(context.config.verify, direct=value)
    return replace(context, config=replace(context.config, verify=verify))


@pytest.mark.parametrize(
    ("honoured", "harms", "key", "published", "use"),
    [
        (False, False, "unshared", False, "none"),
        (False, True, "always", True, "none"),
        (True, False, "unshared", True, "all"),
        (True, False, "always", False, "all"),
        (True, True, "always", True, "all"),
        (True, True, "unshared", False, "unlinked"),
        (True, True, "unshared", True, "none"),
    ],
)
def test_what_is_read_by_o_direct(
    tmp_path: Path, key: str, use: str, *, honoured: bool, harms: bool, published: bool
) -> None:
    seen = replace(facts_with(tmp_path, direct=honoured), proof=MountProof(direct_harms=harms))
    assert direct_reads(seen, key, published=published) == use


@pytest.mark.parametrize(
    ("methods", "servers", "owner", "whose"),
    [
        ([], True, True, ""),
        (["disk"], True, True, ""),
        (["disk"], False, True, ""),
        (["direct", "dropped"], False, True, ""),
        (["direct"], True, True, "the servers"),
        (["disk", "dropped"], True, True, "the servers"),
        (["cached", "direct"], False, True, "this node"),
        (["direct"], False, False, "this node"),
        (["cached"], True, True, "this node or the servers"),
    ],
)
def test_whose_memory_may_have_answered(
    methods: list[str], whose: str, *, servers: bool, owner: bool
) -> None:
    assert answered_by(methods, servers=servers, owner=owner) == whose


@pytest.mark.parametrize(
    ("use", "alone", "linked"),
    [("all", "disk", "disk"), ("unlinked", "disk", "dropped"), ("none", "dropped", "dropped")],
)
@pytest.mark.parametrize("together", [True, False])
def test_files_with_a_second_name_are_spared(
    beegfs: None, tmp_path: Path, use: DirectReads, alone: str, linked: str, *, together: bool
) -> None:
    names = ["alone", "linked", "more", "none"]
    for name in names:
        with (tmp_path / name).open("wb") as stream:
            stream.write(CONTENT * (name != "none"))
            os.fsync(stream.fileno())
    (tmp_path / "release").hardlink_to(tmp_path / "linked")
    ranges = [(name, 0, (tmp_path / name).stat().st_size) for name in names]
    with ColdReader(tmp_path, harmed(tmp_path), use) as reader:
        if together:
            reader.expect(ranges)
        read = {one[0]: reader.read(*one, lambda _: None).method for one in ranges}
    assert read == dict.fromkeys(names, alone) | {"linked": linked}


@pytest.mark.parametrize(
    ("key", "methods"), [("unshared", {"direct": 2, "dropped": 1}), ("always", {"direct": 3})]
)
def test_verify_spares_what_a_release_shares(
    beegfs: None, tmp_path: Path, key: str, methods: dict[str, int]
) -> None:
    run = shard_run(tmp_path, make_tree(tmp_path / "source", {"a": 10, "b": 5000, "c": 70_000}))
    run.copy()
    (tmp_path / "released").hardlink_to(run.data / "b")
    outcome = run.reread(verify=VerifyConfig(direct=key))
    assert (outcome.failures, outcome.methods) == ([], methods)


@pytest.mark.parametrize(
    ("key", "method", "other"), [("unshared", "dropped", "direct"), ("always", "direct", "dropped")]
)
def test_an_audit_reads_releases_beside_their_readers(
    beegfs: None, staged: Context, key: str, method: str, other: str
) -> None:
    durable(staged)
    result = audit_step.run(with_key(staged, key), "data")
    assert result["status"] == "PASSED"
    assert method in result["methods"]
    assert other not in result["methods"]


@pytest.mark.parametrize(
    ("key", "wanted"),
    [("unshared", {"staging": "unlinked"}), ("always", {"release": "all", "staging": "all"})],
)
def test_a_repair_believes_no_servers_memory_and_spares_readers(
    beegfs: None, staged: Context, monkeypatch: pytest.MonkeyPatch, key: str, wanted: dict[str, str]
) -> None:
    monkeypatch.setattr(repair_shard, "facts", harmed)
    used: dict[str, str] = {}

    class Watched(ColdReader):
        def __init__(self, data: Path, facts: StorageFacts, use: DirectReads = "all") -> None:
            used["release" if data == data_of(staged) else "staging"] = use
            super().__init__(data, facts, use)

    monkeypatch.setattr(repair_shard, "ColdReader", Watched)
    flip(data_of(staged) / "d0/f00")
    context = with_key(staged, key)
    audit_step.run(context, "data")
    done = repair_step.run(context, "data")
    assert done["repaired"] == [["d0/f00", "disk"]]
    assert used == wanted


def test_a_repair_goes_by_what_the_disks_showed_and_memory_did_not(
    beegfs: None, staged: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair_shard, "facts", harmed)
    damaged = data_of(staged) / "d0/f00"
    flip(damaged)
    audit_step.run(staged, "data")
    # As of an audit that read all from the servers' disks. Then their memory has the good bytes.
    layout, release = staged.layout("data"), damaged.parents[2].name
    seen = release_records.read_verdict(layout, release)
    assert seen is not None
    release_records.write_verdict(
        layout, seen._replace(stands=[one._replace(from_disks=True) for one in seen.stands])
    )
    flip(damaged)
    assert audit_step.run(staged, "data")["status"] == "PASSED"
    assert release_records.standing_findings(release_records.read_verdict(layout, release)) == {"changed": 1}
    assert repair_step.run(staged, "data")["repaired"] == [["d0/f00", "disk"]]
    assert not release_records.standing_findings(release_records.read_verdict(layout, release))


def test_an_audit_says_that_the_servers_memory_may_have_answered(
    staged: Context, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    need_cold_reads(tmp_path)
    proc = tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    line = f"30 1 0:30 / {os.path.realpath(tmp_path)} rw - lustre mgs@tcp:/fs rw\n"
    (proc / "self/mountinfo").write_text(line)
    durable(staged)
    assert audit_step.run(staged, "data")["promise"] == "every byte is read: any damage is found"
    seen: Callable[..., object] = partial(traits_of_mount, proc=proc)
    monkeypatch.setattr(audit_step, "traits_of_mount", seen)
    result = audit_step.run(staged, "data")
    assert (result["status"], result["grade"]) == ("PASSED", "cold, perhaps from the servers' memory")
    assert result["promise"].startswith("every byte is read: the memory of the servers may have answered")
