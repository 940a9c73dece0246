"""O1 and S13: what is set on the staging folder before its first file, by which command, and read back."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.staging_runs import context_for, events_of, tree
from tests.vendors.beegfs_cluster import mounted, target

from penstock.config.settings import StripingConfig
from penstock.errors import NoSpaceError, PreflightError
from penstock.steps import copy_step, list_step, plan_step, preflight_step
from penstock.vendors import registry, striping
from penstock.vendors.facts import Pattern, Survey, Target
from penstock.vendors.placement import SizeClasses
from penstock.vendors.striping import NOTHING, Setting

if TYPE_CHECKING:
    from pathlib import Path

    from tests.vendors.beegfs_cluster import Cluster

    from penstock.state.context import Context

MIB, GIB = 1 << 20, 1 << 30
PATTERN = Pattern("raid0", 512 << 10, 4, "1", "Default")
FILES = {"a/one": b"1" * 10, "a/two": b"2" * 20, "b": b""}
WISH = StripingConfig(chunk=MIB, targets=2)


def survey(number: int = 16, **changes: Any) -> Survey:
    made = [Target("storage", str(at), pool="1", capacity="normal") for at in range(number)]
    made.append(Target("storage", "99", pool="2", capacity="normal"))
    return Survey("BeeGFS 8", tuple(made), pattern=PATTERN, pools=(("1", "Default"), ("2", "fast")))._replace(
        **changes
    )


def chosen(
    wish: StripingConfig, seen: Survey | None = None, *sizes: int, root: bool = False
) -> striping.Choice:
    return striping.choose(
        wish,
        seen or survey(),
        SizeClasses(sizes),
        root=root,
        command=lambda setting: f"set pool {setting.pool}",
    )


@pytest.mark.parametrize(
    ("wish", "setting"),
    [
        (StripingConfig(), NOTHING),
        (StripingConfig(chunk=512 << 10, targets=4), NOTHING),
        (StripingConfig(chunk=MIB, targets=4), Setting(chunk_bytes=MIB)),
        (StripingConfig(targets=64), Setting(targets=64)),
        (StripingConfig(pool="1"), NOTHING),
        (StripingConfig(pool="Default", targets=2), Setting(targets=2)),
    ],
)
def test_rows_of_what_is_set(wish: StripingConfig, setting: Setting) -> None:
    """S13: nothing unasked."""
    assert chosen(wish) == striping.Choice(setting)


@pytest.mark.parametrize(
    ("sizes", "targets"),
    [
        ([MIB] * 1000, 1),
        ([100 * MIB] * 50, None),
        ([MIB] * 1000 + [4 * GIB], 8),
        ([MIB] * 10000 + [4 * GIB], 1),
        ([0, 0], None),
    ],
)
def test_auto_by_the_class_that_holds_most_bytes(sizes: list[int], targets: int | None) -> None:
    """S13: at most eight targets, chunk and pool stay."""
    assert chosen(StripingConfig(auto=True), None, *sizes).setting == Setting(targets=targets)


def test_auto_takes_no_more_targets_than_there_are_and_leaves_mirrors() -> None:
    assert chosen(StripingConfig(auto=True), survey(3), 4 * GIB).setting == Setting(targets=3)
    mirrored = survey(pattern=PATTERN._replace(kind="mirrored"))
    assert chosen(StripingConfig(auto=True), mirrored, 4 * GIB) == striping.Choice()


def test_show_3_a_pool_is_roots() -> None:
    """Show 3, S13: a pool that is required stops the run of another account, with the administrator's
    command."""
    (stop,) = chosen(StripingConfig(pool="fast", targets=2)).results
    assert (stop.verdict, stop.about) == ("stop", "target.striping.pool")
    assert "an administrator run `set pool 2`" in stop.mend
    assert chosen(StripingConfig(pool="fast", targets=2), root=True).setting == Setting(targets=2, pool="2")
    (stop,) = chosen(StripingConfig(pool="slow"), root=True).results
    assert (stop.verdict, "no storage target is in a pool slow" in stop.found) == ("stop", True)
    unknown = survey(pattern=None)
    assert [one.verdict for one in chosen(StripingConfig(pool="fast"), unknown).results] == ["stop"]
    assert [one.verdict for one in chosen(WISH, unknown).results] == ["warning"]


def staged(tmp_path: Path, wish: StripingConfig) -> Context:
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
    context = staged(tmp_path, WISH)
    receipt = plan_step.run(context, "data")
    data = context.layout("data").staging(receipt["release"]) / "data"
    (call,) = settings(beegfs)
    argv = {
        7: ["beegfs-ctl", "--setpattern", "--chunksize=1m", "--numtargets=2", str(data)],
        8: ["beegfs", "entry", "set", "--chunk-size=1Mi", "--num-targets=2", str(data)],
    }
    assert call["argv"] == argv[beegfs.version]
    assert call["entries"] == []
    assert beegfs.calls()[-1]["argv"][-1] == str(data)
    assert beegfs.patterns() == {str(data): {"kind": "raid0", "chunk": MIB, "targets": 2, "pool": 1}}
    why = "\n".join(receipt["why"])
    assert "a file lies on up to 2 of 4 targets, in chunks of 1.00 MiB" in why
    assert "target.striping: 2 targets a file, chunks of 1.00 MiB, pool 1 (Default)" in why
    plan_step.run(context, "data")
    copy_step.run(context, "data")
    assert len(settings(beegfs)) == 1


def test_s13_inherit_sets_nothing(beegfs: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S13"""
    mounted(monkeypatch, tmp_path)
    plan_step.run(staged(tmp_path, StripingConfig()), "data")
    assert settings(beegfs) == []


def test_o1_lacking_rights_is_a_warning_with_the_administrators_command(
    beegfs: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O1, S13: without sysAllowUserSetPattern."""
    mounted(monkeypatch, tmp_path)
    beegfs.write(root=False, allow_user_pattern=False)
    context = staged(tmp_path, WISH)
    # Quotas of others are for root, and the stand-ins take this account for none.
    receipt = plan_step.run(context, "data")
    (text,) = [
        event.text for event in events_of(context) if event.kind == "warning" and "striped" in event.text
    ]
    assert "this account has not the right" in text
    above = context.layout("data").staging(receipt["release"])
    command = {
        7: f"`beegfs-ctl --setpattern --chunksize=1m --numtargets=2 {above}`",
        8: f"`beegfs entry set --chunk-size=1Mi --num-targets=2 {above}`",
    }
    assert f"have an administrator run {command[beegfs.version]}" in text
    assert beegfs.patterns() == {}
    copy_step.run(context, "data")


def test_what_does_not_fit_as_the_folder_gives_it_is_refused(
    beegfs: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A1: two targets would do, the site refuses the pattern, and one of the folder's four is full."""
    mounted(monkeypatch, tmp_path)
    beegfs.write(root=False, allow_user_pattern=False)
    beegfs.change(202, free=4, capacity="low")
    context = staged(tmp_path, WISH)
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
    mounted(monkeypatch, tmp_path)
    made = [target(1, role="metadata", total=2 << 40, free=1 << 40), *(target(at) for at in range(101, 165))]
    made[17].update(free=10 * MIB, capacity="low")
    beegfs8.write(targets=made, pattern={"kind": "raid0", "chunk": MIB, "targets": 64, "pool": 1})
    context = context_for(tmp_path, source)
    list_step.run(context, "data")
    with pytest.raises(NoSpaceError) as caught:
        plan_step.run(context, "data")
    # 4 GiB over 64 targets are 64 MiB on each.
    assert "BeeGFS 8 storage target 117" in str(caught.value)
    assert f"it takes 10.0 MiB until it is full: {54 * MIB:,} bytes are missing" in str(caught.value)
    assert "`target.striping: {targets: 8}`: 63 targets have room" in str(caught.value)
    striped = replace(context.config.target, striping=StripingConfig(targets=8))
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
    context = staged(tmp_path, WISH)
    plan_step.run(context, "data")
    assert [event for event in events_of(context) if event.kind == "warning" and "read back" in event.text]


def test_show_3_a_required_pool_stops_before_anything_is_made(
    beegfs: Cluster, target_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Show 3, show 4: the command is printed for an administrator, and never sent."""
    beegfs.write(root=False, uid=1000)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    checks = registry.check_plan(target_folder, SizeClasses([1]), 1, wish=StripingConfig(pool="2"))
    (stop,) = checks.striping
    assert stop.verdict == "stop"
    command = {
        7: f"`beegfs-ctl --setpattern --storagepoolid=2 {target_folder}`",
        8: f"`beegfs entry set --pool=2 {target_folder}`",
    }
    assert command[beegfs.version] in stop.mend
    assert checks.setting == NOTHING
    assert settings(beegfs) == []
    (stop,) = [
        one
        for one in registry.check_target(target_folder, wish=StripingConfig(pool="2"))
        if one.verdict == "stop"
    ]
    assert command[beegfs.version] in stop.mend


@pytest.mark.skipif(os.geteuid() != 0, reason="a pool is root's to set")
def test_root_sets_a_pool(beegfs: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounted(monkeypatch, tmp_path)
    context = staged(tmp_path, StripingConfig(pool="fast" if beegfs.version == 8 else "2"))
    preflight_step.run(context, "data")
    receipt = plan_step.run(context, "data")
    data = context.layout("data").staging(receipt["release"]) / "data"
    assert beegfs.patterns()[str(data)]["pool"] == 2
    beegfs.write(root=False, patterns={})
    (stop,) = registry.stripe(data, Setting(pool="2"))
    assert stop.verdict == "stop"


def test_nothing_is_striped_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool that is required stops; another wish is a warning; `inherit` says nothing."""
    context = staged(tmp_path, StripingConfig(pool="2"))
    with pytest.raises(PreflightError, match="no command for it here"):
        preflight_step.run(context, "data")
    with pytest.raises(PreflightError, match="cannot be striped as wished"):
        plan_step.run(context, "data")
    context = staged(tmp_path / "other", StripingConfig(auto=True))
    receipt = preflight_step.run(context, "data")
    assert [text for text in receipt["warnings"] if "nothing is striped" in text]
    plan_step.run(context, "data")
    assert registry.check_target(tmp_path, wish=StripingConfig()) == []
