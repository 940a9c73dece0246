from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support import seals
from tests.support.staging_runs import context_for, events_of, tree

from penstock.config.settings import PlanConfig, VerifyConfig
from penstock.core import human
from penstock.core.errors import NoSpaceError, PreflightError
from penstock.core.model import Entry, Listed, Record, Reuse
from penstock.core.run_documents import (
    FILE_COST,
    REUSED_DIVISOR,
    Cut,
    Load,
    parts,
)
from penstock.dataset import run_store
from penstock.dataset.documents import read_plan
from penstock.jobs import forecast
from penstock.run import list_step, plan_step
from penstock.tables.manifest import Files, ManifestWriter
from penstock.tables.run_tables import ListingWriter, read_listing, read_shard

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.dataset.context import Context

FILES = {"a/one": b"1" * 10, "a/two": b"2" * 20, "b": b"", "giant": b"g" * 1000, "z/y/x": b"z" * 30}
SMALL = PlanConfig(giant_bytes=500, part_bytes=300, shard_files=3)


def planned(context: Context) -> tuple[dict[str, Any], list[list[Entry]]]:
    receipt = plan_step.run(context, "data")
    run = run_store.open_run(context.layout("data"))
    info, folder = run.info, run.folder
    plan = read_plan(folder)
    assert plan.run == info.run
    return receipt, [[row for b in read_shard(folder.shard(s.index)) for row in b] for s in plan.shards]


def test_shards_hold_every_row_once_in_order_and_giants_in_parts(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", FILES), plan=SMALL)
    list_step.run(context, "data")
    receipt, shards = planned(context)
    rows = [row for shard in shards for row in shard]
    assert [(row.path, row.part, row.offset, row.length) for row in rows] == [
        ("a/one", -1, 0, 10), ("a/two", -1, 0, 20), ("b", -1, 0, 0),
        ("giant", 0, 0, 300), ("giant", 1, 300, 300), ("giant", 2, 600, 300), ("giant", 3, 900, 100),
        ("z/y/x", -1, 0, 30),
    ]  # fmt: skip
    assert [len(shard) for shard in shards] == [3, 3, 2]
    assert receipt["shards"] == 3
    assert "a shard has at most 3 files" in receipt["why"][0]
    assert (receipt["files"], receipt["bytes"], receipt["giants"], receipt["folders"]) == (5, 1060, 1, 3)
    plan = read_plan(run_store.open_run(context.layout("data")).folder)
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
    assert list_step.run(context, "data")["hard_links"] == {"files": 2, "of": 1, "bytes": 2000}
    receipt, _ = planned(context)
    told = "hard links of the source become files of their own: 2 files are links of 1 other, 1.95 KiB more"
    assert told in receipt["why"]
    plain = context_for(tmp_path / "other", tree(tmp_path / "other" / "source", FILES))
    assert list_step.run(plain, "data")["hard_links"] == {}
    receipt, _ = planned(plain)
    assert not [why for why in receipt["why"] if "links" in why]
    for one, notes in ((context, [told]), (plain, [])):
        assert [
            e.data["text"] for e in events_of(one) if e.kind == "note" and "links" in e.data["text"]
        ] == notes


def test_planning_again_changes_nothing(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", FILES), plan=SMALL)
    list_step.run(context, "data")
    first, _ = planned(context)
    folder = run_store.open_run(context.layout("data")).folder
    stamps = {path: path.stat().st_mtime_ns for path in folder.folder.rglob("*")}
    staged = context.layout("data").staging(first["release"]) / "data" / "half"
    staged.write_bytes(b"")
    assert plan_step.run(context, "data") == first
    assert {path: path.stat().st_mtime_ns for path in folder.folder.rglob("*")} == stamps
    assert staged.exists()


def test_without_a_listing_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match="penstock step list data"):
        plan_step.run(context_for(tmp_path, tree(tmp_path / "source", FILES)), "data")


def test_a_full_target_is_told_with_figures_and_nothing_is_created(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", FILES), keep_free=1 << 60)
    list_step.run(context, "data")
    with pytest.raises(NoSpaceError) as caught:
        plan_step.run(context, "data")
    assert caught.value.exit_code == 6
    assert "16,384 bytes" in str(caught.value)
    assert "1.00 EiB" in str(caught.value)
    layout = context.layout("data")
    assert os.listdir(layout.releases) == []
    assert not run_store.open_run(layout).folder.plan.exists()
    context.config = replace(context.config, target=replace(context.config.target, keep_free=0))
    assert plan_step.run(context, "data")["shards"] == 1


def test_a_staging_that_no_plan_stands_for_is_removed_first(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", FILES), release="v1")
    first = list_step.run(context, "data")
    plan_step.run(context, "data")
    layout = context.layout("data")
    (layout.staging("v1") / "data" / "stale").write_bytes(b"x")
    tree(tmp_path / "source", {"new": b"n"})
    second = list_step.run(context, "data")
    plan_step.run(context, "data")
    assert os.listdir(layout.staging("v1") / "data") == []
    # The other run's is set aside: what it holds may be taken over.
    assert os.listdir(layout.releases / f".v1.{first['run']}.staging" / "data") == ["stale"]
    assert layout.run(first["run"]).taken.exists()
    # Killed before plan.json: what was copied by nobody's journal goes.
    folder = layout.run(second["run"])
    folder.plan.unlink()
    folder.journals(0).mkdir(parents=True)
    (layout.staging("v1") / "data" / "stale").write_bytes(b"x")
    plan_step.run(context, "data")
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
    (folder / "release.json").write_text(seals.written(release=release, run=run))
    layout.current.unlink(missing_ok=True)
    layout.current.symlink_to(f"releases/{release}")


def test_unchanged_files_are_linked_from_the_current_release(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", FILES), plan=SMALL)
    first = list_step.run(context, "data")
    publish(context, first["release"], first["run"])
    tree(tmp_path / "source", {"a/two": b"changed", "b-new": b"new"})
    list_step.run(context, "data")
    receipt, shards = planned(context)
    linked = {row.path: row.reuse.digest for shard in shards for row in shard if row.reuse}
    assert linked == {
        "a/one": f"xxh3_128:{0:032x}", "b": f"xxh3_128:{2:032x}", "z/y/x": f"xxh3_128:{4:032x}",
    }  # fmt: skip
    assert (receipt["unchanged"], receipt["unchanged_bytes"], receipt["base"]) == (3, 40, first["release"])
    assert "3 of 6 files are unchanged" in receipt["why"][1]
    assert sum(s.reused for s in read_plan(run_store.open_run(context.layout("data")).folder).shards) == 3


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        ("off", "reuse is none"),
        ("digests", "other verify.digests"),
        ("seal", "no seal"),
        ("manifest", "cannot be read"),
        ("run", "description"),
        ("source", "other sources"),
    ],
)
def test_a_release_that_cannot_be_compared_is_not_linked_from(tmp_path: Path, spoil: str, why: str) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", FILES))
    first = list_step.run(context, "data")
    publish(context, first["release"], first["run"])
    layout = context.layout("data")
    dataset = context.config.datasets["data"]
    release = layout.release(first["release"])
    tree(tmp_path / "source", {"new": b"n"})
    if spoil == "digests":
        context.config = replace(context.config, verify=VerifyConfig(digests=("xxh3_128", "sha256")))
    elif spoil == "off":
        context.config = replace(context.config, plan=PlanConfig(reuse="none"))
    elif spoil == "seal":
        (release / "release.json").write_text("{")
    elif spoil == "manifest":
        (release / "manifest.parquet").write_bytes(b"PAR1 torn")
    elif spoil == "run":
        layout.run(first["run"]).run_file.unlink()
    elif spoil == "source":
        dataset = replace(dataset, sources=(replace(dataset.sources[0], url=str(tmp_path / "source" / "a")),))
    context.config = replace(context.config, datasets={"data": dataset})
    list_step.run(context, "data")
    receipt, _ = planned(context)
    assert receipt["unchanged"] == 0
    assert receipt["base"] is None
    assert why in receipt["why"][1]


def test_a_published_run_is_not_planned_again(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", FILES))
    first = list_step.run(context, "data")
    publish(context, first["release"], first["run"])
    receipt = plan_step.run(context, "data")
    assert (receipt["published"], receipt["files"], receipt["shards"]) == (True, 5, 0)
    assert os.listdir(context.layout("data").releases) == [first["release"]]


def test_the_time_is_told_by_what_the_last_release_measured(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", FILES))
    first = list_step.run(context, "data")
    layout = context.layout("data")
    publish(context, first["release"], first["run"])
    told = {"format": 1, "done_files": 5, "linked": 0, "done_bytes": 5_000_000, "seconds": 2.5}
    path = layout.run(first["run"]).receipt("copy", 0)
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(told))
    named = [{"run": first["run"], "release": first["release"]}, {"run": "gone", "release": "r"}]
    lines = [{"format": 1, **line} for line in named]
    layout.history.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"run": "half')
    tree(tmp_path / "source", {"new": b"n"})
    list_step.run(context, "data")
    why = plan_step.run(context, "data")["why"][2]
    assert f"bound by elements (files): 2 files/s (release {first['release']})" in why


SIZES = st.sampled_from([0, 1, 299, 300, 301, 499, 500, 501, 4095, 4096, 4097]) | st.integers(0, 3000)
PATHS = st.lists(st.sampled_from(["a", "b", "a-b", "\udcff", "é"]), min_size=1, max_size=4).map("/".join)
LISTINGS = st.dictionaries(PATHS, st.tuples(SIZES, st.sampled_from(["", "t", "u"])), min_size=1, max_size=40)


def listed(context: Context, objects: dict[str, tuple[int, str]]) -> list[Entry]:
    """A run whose listing is this one, {path: (size, token)}, whatever its source holds."""
    run = list_step.run(context, "data")["run"]
    path = context.layout("data").run(run).listing
    paths = sorted(objects, key=os.fsencode)
    path.unlink()
    with ListingWriter(path) as writer:
        writer.add([Listed(path, *objects[path], 5, "v", "c") for path in paths])
        writer.close()
    return [Entry(p, p, *objects[p], 5, 0, "v", "c", length=objects[p][0]) for p in paths]


def row_by_row(context: Context, entries: list[Entry]) -> list[list[Entry]]:
    """The shards of these entries, each row by itself."""
    plan = context.config.plan
    rows = [
        row
        for entry in entries
        for row in (parts(entry, plan.giant_bytes, plan.part_bytes) if entry.token else [entry])
    ]
    prices = [FILE_COST + row.length // (REUSED_DIVISOR if row.reuse else 1) for row in rows]
    to_copy = sum(entry.size for entry in entries if not entry.reuse)
    wanted = forecast.shards(
        context,
        context.layout("data"),
        context.config,
        Load(sum(prices), to_copy, len(rows)),
        "copy",
        "verify",
    ).shards
    cut = Cut(sum(prices), wanted)
    shards: list[list[Entry]] = [[] for _ in range(wanted)]
    for row, price in zip(rows, prices, strict=True):
        shards[cut.place(price)].append(row)
    return list(filter(None, shards))


def compared(context: Context, entries: list[Entry]) -> None:
    """Plans the run, and holds all that it tells against the rows one by one."""
    receipt, shards = planned(context)
    assert shards == row_by_row(context, entries)
    linked = [entry for entry in entries if entry.reuse]
    folders = {above for e in entries for n, c in enumerate(e.path) if c == "/" and (above := e.path[:n])}
    plan = context.config.plan
    assert receipt["files"] == len(entries)
    assert receipt["bytes"] == sum(entry.size for entry in entries)
    giants = (e for e in entries if e.size >= plan.giant_bytes and e.size > plan.part_bytes)
    assert receipt["giants"] == sum(bool(e.token) for e in giants)
    assert (receipt["unchanged"], receipt["unchanged_bytes"]) == (len(linked), sum(e.size for e in linked))
    assert receipt["folders"] == len(folders)
    blocks = sum(-(-entry.size // 4096) * 4096 for entry in entries if not entry.reuse)
    assert receipt["why"][-1].startswith(f"takes {human.size(blocks)} of ")
    told = read_plan(run_store.open_run(context.layout("data")).folder).shards
    assert [(one.index, one.rows, one.files, one.bytes, one.reused) for one in told] == [
        (
            index,
            len(rows),
            sum(row.offset + row.length == row.size for row in rows),
            sum(row.length for row in rows),
            sum(bool(row.reuse) for row in rows),
        )
        for index, rows in enumerate(shards)
    ]


@pytest.mark.parametrize("examples", [8, pytest.param(60, marks=pytest.mark.thorough)])
def test_a_plan_is_what_its_rows_make_one_by_one(
    tmp_path_factory: pytest.TempPathFactory, examples: int
) -> None:
    """The first release, and then one that links what is in it already."""

    @settings(deadline=None, max_examples=examples, suppress_health_check=[HealthCheck.too_slow])
    @given(
        LISTINGS,
        LISTINGS,
        st.sampled_from([(500, 300), (300, 500), (300, 300), (100, 64), (10_000, 300)]),
        st.integers(1, 7),
    )
    def property_of(
        before: dict[str, tuple[int, str]],
        now: dict[str, tuple[int, str]],
        giant: tuple[int, int],
        shards: int,
    ) -> None:
        two_releases(tmp_path_factory.mktemp("plan"), before, now, giant, shards)

    property_of()


def two_releases(
    folder: Path,
    before: dict[str, tuple[int, str]],
    now: dict[str, tuple[int, str]],
    giant: tuple[int, int],
    shards: int,
) -> None:
    plan = PlanConfig(giant_bytes=giant[0], part_bytes=giant[1], shard_files=max(1, len(before) // shards))
    context = context_for(folder, tree(folder / "source", {"x": b"1"}), plan=plan)
    entries = listed(context, before)
    compared(context, entries)

    first = run_store.open_run(context.layout("data"))
    publish(context, first.release, first.id)
    tree(folder / "source", {"x": b"22"})
    held = {
        entry._replace(length=0): Reuse(f"xxh3_128:{n:032x}", "size", "", 1, "h")
        for n, entry in enumerate(entries)
        if entry.token and entry.size < plan.giant_bytes
    }
    entries = [e._replace(reuse=held.get(e._replace(length=0))) for e in listed(context, before | now)]
    compared(context, entries)


@pytest.mark.parametrize("every", [0, 1000])
def test_a_plan_of_many_batches_is_what_its_rows_make_one_by_one(tmp_path: Path, every: int) -> None:
    plan = PlanConfig(giant_bytes=500, part_bytes=300, shard_files=9000)
    context = context_for(tmp_path, tree(tmp_path / "source", FILES), plan=plan)
    sizes = {n: 700 if every and n % every == 0 else n % 500 for n in range(20_000)}
    compared(context, listed(context, {f"{n // 70:05d}/{n:07d}": (size, "t") for n, size in sizes.items()}))


def test_the_parts_of_one_giant_fill_shards(tmp_path: Path) -> None:
    plan = PlanConfig(giant_bytes=500, part_bytes=1, shard_files=7000)
    context = context_for(tmp_path, tree(tmp_path / "source", FILES), plan=plan)
    compared(context, listed(context, {"a": (1, "t"), "b": (20_000, "t"), "c": (499, "t")}))


# What has no version token ------------------------------------------------------------------------


def listed_at(tmp_path: Path, url: str, objects: list[Listed]) -> Context:
    """A dataset whose source is that URL by now; its listing is this one."""
    context = context_for(tmp_path, tree(tmp_path / "source", FILES), plan=SMALL)
    run = list_step.run(context, "data")["run"]
    folder = context.layout("data").run(run)
    folder.listing.unlink()
    with ListingWriter(folder.listing) as writer:
        writer.add(objects)
        writer.close()
    told = json.loads(folder.run_file.read_text())
    folder.run_file.write_text(json.dumps({**told, "sources": [url]}))
    return context


@pytest.mark.parametrize(
    ("url", "token", "rows"),
    [
        ("https://host/d/", "", 1),
        ("https://host/d/", "W/weak", 1),
        ("https://host/d/", "1000 Thu, 01 Jan 1970 00:00:00 GMT", 1),
        ("https://host/d/", "strong", 4),
        ("s3://bucket/", "etag", 4),
        ("s3://bucket/", "", 1),
        ("az://container/", "etag", 4),
        ("/folder", "1000-1-1-1", 4),
        ("memory://root", "1000-5", 4),
        ("memory://root", "", 1),
    ],
)
def test_only_what_is_pinned_is_split(tmp_path: Path, url: str, token: str, rows: int) -> None:
    """Parts that are read at different times could else be of two versions, and nothing would tell."""
    context = listed_at(tmp_path, url, [Listed("giant", 1000, token, 5)])
    receipt, shards = planned(context)
    assert [row.part for shard in shards for row in shard] == ([-1] if rows == 1 else list(range(rows)))
    assert receipt["giants"] == (rows > 1)


def test_what_takes_several_requests_and_has_no_token_is_refused(tmp_path: Path) -> None:
    large = 9 << 20
    objects = [
        Listed("large", large, "", 0),
        Listed("pinned", large, "t", 0),
        Listed("small", 1 << 20, "", 0),
    ]
    context = listed_at(tmp_path, "sftp://host/d/", objects)
    with pytest.raises(PreflightError, match="cannot be pinned") as caught:
        plan_step.run(context, "data")
    assert "large: 9.00 MiB" in str(caught.value)
    assert "pinned:" not in str(caught.value)
    assert "small:" not in str(caught.value)
    assert "exclude" in caught.value.hint


def test_one_request_of_the_web_needs_no_token(tmp_path: Path) -> None:
    context = listed_at(tmp_path, "https://host/d/", [Listed("large", 9 << 20, "", 0)])
    assert planned(context)[0]["giants"] == 0


def test_a_staging_of_which_no_plan_stands_is_removed_and_that_is_said(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", FILES))
    list_step.run(context, "data")
    run = run_store.open_run(context.layout("data"))
    tree(run.data, {"left/over": b"of an attempt that was killed"})
    plan_step.run(context, "data")
    assert not (run.data / "left" / "over").exists()
    told = [str(event.data["text"]) for event in events_of(context) if event.kind == "note"]
    assert any(run.staging.name in text and "removed" in text for text in told)
