"""O1 and S13: what is set on the staging folder before its first file, by which command, and read back."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.staging_runs import context_for, events_of, tree
from tests.vendors.beegfs_cluster import mounted, target

from penstock.config.settings import STRIPING
from penstock.core.errors import NoSpaceError
from penstock.doctor import preflight_step
from penstock.fs import store_checks
from penstock.fs.placement import (
    AUTO,
    INHERIT,
    SizeClasses,
    choose,
    parse,
)
from penstock.fs.stores import Pattern, StoreStatus, Target
from penstock.run import copy_step, list_step, plan_checks, plan_step

if TYPE_CHECKING:
    from pathlib import Path

    from tests.vendors.beegfs_cluster import Cluster

    from penstock.dataset.context import Context

MIB, GIB = 1 << 20, 1 << 30
PATTERN = Pattern("raid0", 512 << 10, 4, "1", "Default")
FILES = {"a/one": b"1" * 10, "a/two": b"2" * 20, "b": b""}


def status(number: int = 16, **changes: Any) -> StoreStatus:
    made = tuple(Target("storage", str(at), pool="1", capacity="normal") for at in range(number))
    return StoreStatus("BeeGFS 8", made, pattern=PATTERN)._replace(**changes)


@pytest.mark.parametrize(
    ("sizes", "targets"),
    [
        ([MIB] * 1000, 1),
        ([100 * MIB] * 50, 0),
        ([MIB] * 1000 + [4 * GIB], 8),
        ([MIB] * 10000 + [4 * GIB], 1),
        ([0, 0], 0),
        ([], 0),
    ],
)
def test_auto_by_the_class_that_holds_most_bytes(sizes: list[int], targets: int) -> None:
    """S13: at most eight targets, and nothing where the folder has that number."""
    assert choose(AUTO, status(), SizeClasses(sizes)).targets == targets


@pytest.mark.parametrize(
    ("wish", "seen", "choice"),
    [
        (INHERIT, status(), (0, [])),
        (INHERIT, status(pattern=None), (0, [])),
        (AUTO, status(3), (3, ["ok"])),
        (AUTO, status(0), (8, ["ok"])),
        (AUTO, status(pattern=PATTERN._replace(kind="mirrored")), (0, [])),
        (AUTO, status(pattern=PATTERN._replace(kind="composite")), (0, [])),
        (AUTO, status(pattern=None), (0, ["warning"])),
    ],
)
def test_rows_of_what_is_set(wish: str, seen: StoreStatus, choice: tuple[int, list[str]]) -> None:
    """S13: nothing unasked, and no more targets than there are with room."""
    chosen = choose(wish, seen, SizeClasses([4 * GIB]))
    assert (chosen.targets, [one.verdict for one in chosen.results]) == choice


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("targets=4, chunk=1MiB", (4, MIB)),
        ("targets=16,chunk=512KiB", (16, 512 << 10)),
        ("targets=1, chunk=1GiB", (1, GIB)),
        ("targets=8", (8, 0)),
    ],
)
def test_a_wish_is_read(text: str, values: tuple[int, int]) -> None:
    assert re.search(STRIPING, text)
    assert parse(text) == values


@pytest.mark.parametrize(
    "text",
    ["", "targets=0", "targets=4, chunk=3MiB", "targets=4, chunk=32KiB", "targets=4, chunk=1M", "chunk=1MiB",
     "4", "targets=4, chunk=1MiB\n", "targets=4 chunk=1MiB"],
)  # fmt: skip
def test_what_is_no_wish(text: str) -> None:
    """BeeGFS takes powers of two from 64 KiB on."""
    assert not re.search(STRIPING, text)


@pytest.mark.parametrize(
    ("wish", "seen", "choice"),
    [
        ("targets=4, chunk=1MiB", status(), (4, MIB, ["ok"])),
        ("targets=4, chunk=512KiB", status(), (0, 0, [])),
        ("targets=4", status(), (0, 0, [])),
        ("targets=2", status(), (2, 0, ["ok"])),
        ("targets=8, chunk=1MiB", status(3), (3, MIB, ["warning", "ok"])),
        ("targets=8, chunk=1MiB", status(0), (8, MIB, ["ok"])),
        ("targets=8", status(4), (0, 0, ["warning"])),
        ("targets=8", status(pattern=PATTERN._replace(kind="mirrored")), (0, 0, ["warning"])),
        ("targets=8", status(pattern=PATTERN._replace(kind="composite")), (0, 0, ["warning"])),
        ("targets=8", status(pattern=None), (0, 0, ["warning"])),
    ],
)
def test_rows_of_an_explicit_wish(wish: str, seen: StoreStatus, choice: tuple[int, int, list[str]]) -> None:
    """Whatever the files' sizes."""
    chosen = choose(wish, seen, SizeClasses())
    assert (chosen.targets, chosen.chunk, [one.verdict for one in chosen.results]) == choice


def staged(tmp_path: Path, wish: str = AUTO) -> Context:
    """Files of 30 bytes altogether: `auto` puts each on one target, and the folder has four."""
    context = context_for(tmp_path, tree(tmp_path / "source", FILES))
    context.config = replace(context.config, target=replace(context.config.target, striping=wish))
    list_step.run(context, "data")
    return context


def settings(cluster: Cluster) -> list[dict[str, Any]]:
    return [call for call in cluster.calls() if "--setpattern" in call["argv"] or "set" in call["argv"]]


def test_o1_the_staging_folder_is_striped_before_its_first_file(
    beegfs: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O1: the command of each version, on the empty staging folder, once; then it is read back."""
    mounted(monkeypatch, tmp_path)
    context = staged(tmp_path)
    receipt = plan_step.run(context, "data")
    data = context.layout("data").staging(receipt["release"]) / "data"
    (call,) = settings(beegfs)
    argv = {
        7: ["beegfs-ctl", "--setpattern", "--numtargets=1", str(data)],
        8: ["beegfs", "entry", "set", "--num-targets=1", str(data)],
    }
    assert call["argv"] == argv[beegfs.version]
    assert call["entries"] == []
    assert beegfs.calls()[-1]["argv"][-1] == str(data)
    assert beegfs.patterns() == {str(data): {"kind": "raid0", "chunk": 512 << 10, "targets": 1, "pool": 1}}
    why = "\n".join(receipt["why"])
    assert "a file lies on up to 1 of 4 targets, in chunks of 512 KiB" in why
    assert "target.striping: 1 targets a file, chunks of 512 KiB, pool 1 (Default)" in why
    plan_step.run(context, "data")
    copy_step.run(context, "data")
    assert len(settings(beegfs)) == 1


def test_targets_and_chunk_are_set_and_read_back(
    beegfs: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In bytes: the suffixes of the two versions differ."""
    mounted(monkeypatch, tmp_path)
    context = staged(tmp_path, "targets=2, chunk=1MiB")
    receipt = plan_step.run(context, "data")
    data = context.layout("data").staging(receipt["release"]) / "data"
    (call,) = settings(beegfs)
    argv = {
        7: ["beegfs-ctl", "--setpattern", "--numtargets=2", "--chunksize=1048576", str(data)],
        8: ["beegfs", "entry", "set", "--num-targets=2", "--chunk-size=1048576", str(data)],
    }
    assert (call["argv"], call["entries"]) == (argv[beegfs.version], [])
    assert beegfs.patterns() == {str(data): {"kind": "raid0", "chunk": MIB, "targets": 2, "pool": 1}}
    why = "\n".join(receipt["why"])
    assert "files are striped over 2 targets in chunks of 1.00 MiB, in place of 4 in chunks of 512 KiB" in why
    assert "target.striping: 2 targets a file, chunks of 1.00 MiB, pool 1 (Default)" in why


def test_what_is_read_back_counts_not_the_exit_status(
    beegfs8: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its licence library the command sets the pattern, and ends with 1."""
    mounted(monkeypatch, tmp_path)
    beegfs8.write(licensed=False)
    context = staged(tmp_path, "targets=2, chunk=1MiB")
    receipt = plan_step.run(context, "data")
    why = "\n".join(receipt["why"])
    assert "target.striping: 2 targets a file, chunks of 1.00 MiB" in why
    assert "ended with exit status 1, and set it: " in " ".join(why.split())
    assert not [event for event in events_of(context) if event.kind == "warning" and "striped" in event.text]


def test_a_chunk_that_is_not_set_is_said(
    beegfs: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounted(monkeypatch, tmp_path)
    beegfs.write(forgets=True)
    context = staged(tmp_path, "targets=4, chunk=1MiB")
    plan_step.run(context, "data")
    (text,) = [
        event.text for event in events_of(context) if event.kind == "warning" and "read back" in event.text
    ]
    assert "what is read back is 4 targets, chunks of 512 KiB" in text


def test_s13_inherit_sets_nothing(beegfs: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S13"""
    mounted(monkeypatch, tmp_path)
    plan_step.run(staged(tmp_path, INHERIT), "data")
    assert settings(beegfs) == []


def test_o1_lacking_rights_is_a_warning_with_the_administrators_command(
    beegfs: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O1, S13: without sysAllowUserSetPattern."""
    mounted(monkeypatch, tmp_path)
    beegfs.write(root=False, allow_user_pattern=False)
    context = staged(tmp_path)
    # Quotas of others are for root, and the stand-ins take this account for none.
    receipt = plan_step.run(context, "data")
    (text,) = [
        event.text for event in events_of(context) if event.kind == "warning" and "striped" in event.text
    ]
    assert "this account has not the right" in text
    above = context.layout("data").staging(receipt["release"])
    command = {
        7: f"`beegfs-ctl --setpattern --numtargets=1 {above}`",
        8: f"`beegfs entry set --num-targets=1 {above}`",
    }
    assert f"have an administrator run {command[beegfs.version]}" in text
    assert beegfs.patterns() == {}
    copy_step.run(context, "data")


def test_what_does_not_fit_as_the_folder_gives_it_is_refused(
    beegfs: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A1: one target would do, the site refuses the pattern, and one of the folder's four is full."""
    mounted(monkeypatch, tmp_path)
    beegfs.write(root=False, allow_user_pattern=False)
    beegfs.change(202, free=4, capacity="low")
    context = staged(tmp_path)
    with pytest.raises(NoSpaceError, match="storage target 202"):
        plan_step.run(context, "data")
    assert len(settings(beegfs)) == 1
    assert os.listdir(context.layout("data").releases) == []
    beegfs.write(allow_user_pattern=True)
    plan_step.run(context, "data")


def test_show_3_by_the_steps(beegfs8: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Show 3: list and plan of 100,000 files and four giants, 64 targets of which one is nearly full."""
    source = tmp_path / "source"
    source.mkdir()
    for number in range(100):
        (source / f"{number:02d}").mkdir()
        for name in range(1000):
            os.close(os.open(f"{source}/{number:02d}/{name:03d}", os.O_CREAT | os.O_WRONLY))
    for name in "abcd":
        with (source / f"giant-{name}").open("wb") as stream:
            stream.truncate(GIB)
    # The giants' bytes are not there, and count all the same.
    monkeypatch.setattr(plan_checks, "LEAST", 2 * GIB)
    mounted(monkeypatch, tmp_path)
    made = [target(1, role="metadata", total=2 << 40, free=1 << 40), *(target(at) for at in range(101, 165))]
    made[17].update(free=10 * MIB, capacity="low")
    beegfs8.write(targets=made, pattern={"kind": "raid0", "chunk": MIB, "targets": 64, "pool": 1})
    context = context_for(tmp_path, source)
    list_step.run(context, "data")
    with pytest.raises(NoSpaceError) as caught:
        plan_step.run(context, "data")
    # 4 GiB over 64 targets are 64 MiB on each, and a tenth of it.
    assert "BeeGFS 8 storage target 117" in str(caught.value)
    assert "it takes 10.0 MiB until it is full: 63,333,991 bytes are missing" in str(caught.value)
    striped = replace(context.config.target, striping=AUTO)
    context.config = replace(context.config, target=striped)
    receipt = plan_step.run(context, "data")
    assert receipt["files"] == 100_004
    assert "a file lies on up to 8 of 63 targets" in "\n".join(receipt["why"])


def test_o1_what_is_read_back_is_compared(
    beegfs: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O1: a command that ends well and sets nothing."""
    mounted(monkeypatch, tmp_path)
    beegfs.write(forgets=True)
    context = staged(tmp_path)
    plan_step.run(context, "data")
    (text,) = [
        event.text for event in events_of(context) if event.kind == "warning" and "read back" in event.text
    ]
    assert "ended with exit status 0, and what is read back is 4 targets, chunks of 512 KiB" in text


def test_nothing_is_striped_elsewhere(tmp_path: Path) -> None:
    """`auto` is a warning; `inherit` says nothing."""
    context = staged(tmp_path)
    receipt = preflight_step.run(context, "data")
    assert [text for text in receipt["warnings"] if "nothing is striped" in text]
    plan_step.run(context, "data")
    assert store_checks.check_target(tmp_path, wish=INHERIT).results == []
