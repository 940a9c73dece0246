from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.staging_runs import context_for, events_of, tree

from penstock.config.model import PermissionsConfig, PlanConfig
from penstock.core.model import Entry, Record
from penstock.errors import NoSpaceError, PreflightError
from penstock.formats.columns import Files
from penstock.formats.listing import read_listing
from penstock.formats.manifest import ManifestWriter
from penstock.formats.shards import read_shard
from penstock.steps import listing, planning, runbook

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.steps.context import Context

FILES = {"a/one": b"1" * 10, "a/two": b"2" * 20, "b": b"", "giant": b"g" * 1000, "z/y/x": b"z" * 30}
SMALL = PlanConfig(giant_bytes=500, part_bytes=300, shard_files=3)


def planned(context: Context) -> tuple[dict[str, Any], list[list[Entry]]]:
    receipt = planning.run(context, "data")
    info, folder = runbook.open_run(context.layout("data"))
    plan = runbook.read_plan(folder)
    assert plan.run == info.run
    return receipt, [[row for b in read_shard(folder.shard(s.index)) for row in b] for s in plan.shards]


def test_shards_hold_every_row_once_in_order_and_giants_in_parts(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", FILES), plan=SMALL)
    listing.run(context, "data")
    receipt, shards = planned(context)
    rows = [row for shard in shards for row in shard]
    assert [(row.path, row.part, row.offset, row.length) for row in rows] == [
        ("a/one", -1, 0, 10), ("a/two", -1, 0, 20), ("b", -1, 0, 0),
        ("giant", 0, 0, 300), ("giant", 1, 300, 300), ("giant", 2, 600, 300), ("giant", 3, 900, 100),
        ("z/y/x", -1, 0, 30),
    ]  # fmt: skip
    assert [len(shard) for shard in shards] == [3, 3, 2]
    assert receipt["shards"] == 3
    assert "shard_files" in receipt["why"][0]
    assert (receipt["files"], receipt["bytes"], receipt["giants"], receipt["folders"]) == (5, 1060, 1, 3)
    plan = runbook.read_plan(runbook.open_run(context.layout("data"))[1])
    assert sum(shard.files for shard in plan.shards) == 5
    assert sum(shard.bytes for shard in plan.shards) == 1060
    data = context.layout("data").staging(receipt["release"]) / "data"
    assert data.is_dir()
    assert data.parent.stat().st_mode & 0o777 == 0o700
    assert json.loads(json.dumps(receipt)) == receipt
    assert events_of(context)[-1].kind == "end"


def test_hard_links_are_told_of(tmp_path: Path) -> None:
    source = tree(tmp_path / "source", FILES)
    for name in ("giant.link", "z/link"):
        os.link(source / "giant", source / name)
    context = context_for(tmp_path, source)
    assert listing.run(context, "data")["hard_links"] == {"files": 2, "of": 1, "bytes": 2000}
    receipt, _ = planned(context)
    told = "hard links of the source become files of their own: 2 files are links of 1 other, 1.95 KiB more"
    assert told in receipt["why"]
    plain = context_for(tmp_path / "other", tree(tmp_path / "other" / "source", FILES))
    assert listing.run(plain, "data")["hard_links"] == {}
    receipt, _ = planned(plain)
    assert not [why for why in receipt["why"] if "links" in why]
    for one, notes in ((context, [told]), (plain, [])):
        assert [
            e.data["text"] for e in events_of(one) if e.kind == "note" and "links" in e.data["text"]
        ] == notes


def test_planning_again_changes_nothing(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", FILES), plan=SMALL)
    listing.run(context, "data")
    first, _ = planned(context)
    folder = runbook.open_run(context.layout("data"))[1]
    stamps = {path: path.stat().st_mtime_ns for path in folder.folder.rglob("*")}
    staged = context.layout("data").staging(first["release"]) / "data" / "half"
    staged.write_bytes(b"")
    assert planning.run(context, "data") == first
    assert {path: path.stat().st_mtime_ns for path in folder.folder.rglob("*")} == stamps
    assert staged.exists()


def test_without_a_listing_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match="penstock list data"):
        planning.run(context_for(tmp_path, tree(tmp_path / "source", FILES)), "data")


def test_a_full_target_is_told_with_figures_and_nothing_is_created(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", FILES), keep_free=1 << 60)
    listing.run(context, "data")
    with pytest.raises(NoSpaceError) as caught:
        planning.run(context, "data")
    assert caught.value.exit_code == 6
    assert "16,384 bytes" in str(caught.value)
    assert "1.00 EiB" in str(caught.value)
    layout = context.layout("data")
    assert os.listdir(layout.releases) == []
    assert not runbook.open_run(layout)[1].plan.exists()
    context.config = replace(context.config, target=replace(context.config.target, keep_free=0))
    assert planning.run(context, "data")["shards"] == 1


def test_a_staging_that_no_plan_stands_for_is_removed_first(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", FILES), release="v1")
    first = listing.run(context, "data")
    planning.run(context, "data")
    layout = context.layout("data")
    (layout.staging("v1") / "data" / "stale").write_bytes(b"x")
    tree(tmp_path / "source", {"new": b"n"})
    second = listing.run(context, "data")
    planning.run(context, "data")
    assert os.listdir(layout.staging("v1") / "data") == []
    assert not layout.run(first["run"]).folder.exists()
    # Killed before plan.json: what was copied by nobody's journal goes.
    folder = layout.run(second["run"])
    folder.plan.unlink()
    folder.journals(0).mkdir(parents=True)
    (layout.staging("v1") / "data" / "stale").write_bytes(b"x")
    planning.run(context, "data")
    assert os.listdir(layout.staging("v1") / "data") == []
    assert not folder.journals(0).exists()


def publish(context: Context, release: str, run: str) -> None:
    """A release as far as plan looks at it: seal, manifest, pointer."""
    layout = context.layout("data")
    folder = layout.release(release)
    folder.mkdir()
    entries = [entry for batch in read_listing(layout.run(run).listing) for entry in batch]
    writer = ManifestWriter(folder / "manifest.parquet")
    records = [
        Record(
            e.path, e.size, f"xxh3_128:{n:032x}", e.modified_ns, e.key, e.token, e.version, e.source,
            "size", "", "cold", "direct", "h", "h", "a", 1, 1,
        )
        for n, e in enumerate(entries)
    ]  # fmt: skip
    writer.add(Files.of(records))
    writer.finish()
    (folder / "release.json").write_text(json.dumps({"run": run}))
    layout.current.unlink(missing_ok=True)
    layout.current.symlink_to(f"releases/{release}")


def test_unchanged_files_are_linked_from_the_current_release(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", FILES), plan=SMALL)
    first = listing.run(context, "data")
    publish(context, first["release"], first["run"])
    tree(tmp_path / "source", {"a/two": b"changed", "b-new": b"new"})
    listing.run(context, "data")
    receipt, shards = planned(context)
    linked = {row.path: row.reuse.partition(" ")[0] for shard in shards for row in shard if row.reuse}
    assert linked == {
        "a/one": f"xxh3_128:{0:032x}", "b": f"xxh3_128:{2:032x}", "z/y/x": f"xxh3_128:{4:032x}",
    }  # fmt: skip
    assert (receipt["unchanged"], receipt["unchanged_bytes"], receipt["base"]) == (3, 40, first["release"])
    assert "3 of 6 files are unchanged" in receipt["why"][1]
    assert sum(s.reused for s in runbook.read_plan(runbook.open_run(context.layout("data"))[1]).shards) == 3


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        ("permissions", "other permissions"),
        ("off", "reuse is off"),
        ("seal", "no seal"),
        ("manifest", "cannot be read"),
        ("run", "description"),
        ("source", "other sources"),
    ],
)
def test_a_release_that_cannot_be_compared_is_not_linked_from(tmp_path: Path, spoil: str, why: str) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", FILES))
    first = listing.run(context, "data")
    publish(context, first["release"], first["run"])
    layout = context.layout("data")
    dataset = context.config.datasets["data"]
    release = layout.release(first["release"])
    tree(tmp_path / "source", {"new": b"n"})
    if spoil == "permissions":
        dataset = replace(dataset, permissions=PermissionsConfig(file_mode=0o444))
    elif spoil == "off":
        context.config = replace(context.config, plan=PlanConfig(reuse=False))
    elif spoil == "seal":
        (release / "release.json").write_text("{")
    elif spoil == "manifest":
        (release / "manifest.parquet").write_bytes(b"PAR1 torn")
    elif spoil == "run":
        layout.run(first["run"]).run_file.unlink()
    elif spoil == "source":
        dataset = replace(dataset, sources=(replace(dataset.sources[0], url=str(tmp_path / "source" / "a")),))
    context.config = replace(context.config, datasets={"data": dataset})
    listing.run(context, "data")
    receipt, _ = planned(context)
    assert receipt["unchanged"] == 0
    assert receipt["base"] is None
    assert why in receipt["why"][1]


def test_a_published_run_is_not_planned_again(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", FILES))
    first = listing.run(context, "data")
    publish(context, first["release"], first["run"])
    receipt = planning.run(context, "data")
    assert (receipt["published"], receipt["files"], receipt["shards"]) == (True, 5, 0)
    assert os.listdir(context.layout("data").releases) == [first["release"]]


def test_the_time_is_told_by_what_the_last_release_measured(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", FILES))
    first = listing.run(context, "data")
    layout = context.layout("data")
    publish(context, first["release"], first["run"])
    told = {"done_files": 5, "linked": 0, "done_bytes": 5_000_000, "seconds": 2.5}
    path = layout.run(first["run"]).receipt("copy", 0)
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(told))
    lines = [{"run": first["run"], "release": first["release"]}, {"run": "gone", "release": "r"}]
    layout.history.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"run": "half')
    tree(tmp_path / "source", {"new": b"n"})
    listing.run(context, "data")
    why = planning.run(context, "data")["why"][2]
    assert f"measured with release {first['release']}" in why
    assert "1.91 MiB/s or 2 files/s" in why
