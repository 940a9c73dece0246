from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support import seals
from tests.support.staging_runs import ScriptedSource, context_for, events_of, tree

from penstock.config.settings import Config, EngineConfig, PermissionsConfig, SourceConfig
from penstock.core.errors import ConfigError, FailedError, InterruptedRunError, LockedError, PreflightError
from penstock.core.human import in_quotes
from penstock.core.model import Entry, Listed
from penstock.dataset import run_store
from penstock.jobs.dataset_state import holding
from penstock.listing.collection import Gathered, gather, ordered
from penstock.run import list_step
from penstock.tables.run_tables import read_listing

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.dataset.context import Context

ODD = {
    "a b": b"1", "line\nfeed": b"22", "%41": b"3", "-rf": b"", "$(touch x)": b"4", "quo'te\"s": b"5",
    os.fsdecode(b"\xff\xfe"): b"6", "x" * 255: b"7", "deep/er/日本": b"8", "deep/er-still": b"9",
}  # fmt: skip


def rows(path: Path) -> list[Entry]:
    return [entry for batch in read_listing(path) for entry in batch]


def gathered(
    tmp_path: Path, *sources: ScriptedSource, into: tuple[str, ...] = ("",), **changes: object
) -> Gathered:
    context = context_for(tmp_path, "s3://bucket/prefix/", **changes)
    dataset = replace(
        context.dataset("data"),
        sources=tuple(SourceConfig(source.url, folder) for source, folder in zip(sources, into, strict=True)),
    )
    return gather(context, dataset, ordered(dataset, list(sources)), tmp_path / "listing")


def test_odd_names_are_listed_as_they_are_in_byte_order(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", ODD))
    receipt = list_step.run(context, "data")
    layout = context.layout("data")
    found = rows(layout.run(receipt["run"]).listing)
    assert [entry.path for entry in found] == sorted(ODD, key=os.fsencode)
    assert {entry.path: entry.size for entry in found} == {
        name: len(content) for name, content in ODD.items()
    }
    assert (receipt["files"], receipt["bytes"], receipt["scanned"]) == (10, sum(map(len, ODD.values())), 10)
    assert receipt["published"] is False
    assert receipt["current"] is None
    assert receipt["release"].endswith("-" + receipt["run"][:8])
    info = run_store.open_run(layout).info
    assert info.release == receipt["release"]
    assert info.histogram == ((4096, 10, receipt["bytes"]),)
    assert json.loads(json.dumps(receipt)) == receipt
    assert events_of(context)[0].kind == "start"
    assert events_of(context)[-1].data["run"] == receipt["run"]


def test_an_unchanged_source_meets_the_same_run(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", ODD))
    first = list_step.run(context, "data")
    assert list_step.run(context, "data") == first
    assert os.listdir(context.layout("data").runs) == [first["run"]]
    tree(tmp_path / "source", {"new": b"file"})
    second = list_step.run(context, "data")
    assert second["run"] != first["run"]
    assert run_store.open_run(context.layout("data")).info.run == second["run"]
    (tmp_path / "source" / "new").unlink()
    assert list_step.run(context, "data")["run"] == first["run"]


def changed(config: Config, **changes: object) -> Config:
    return replace(config, datasets={"data": replace(config.datasets["data"], **changes)})  # type: ignore[arg-type]


def test_what_decides_the_content_makes_another_run_and_nothing_else_does(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", ODD))
    plain = context.config
    first = list_step.run(context, "data")["run"]
    others = [
        changed(plain, exclude=("nothing",)),
        changed(plain, permissions=PermissionsConfig(file_mode=0o444)),
        changed(plain, release="v1"),
        changed(plain, links="skip"),
        replace(plain, plan=replace(plain.plan, part_bytes=1 << 20)),
        replace(plain, verify=replace(plain.verify, digests=("xxh3_128", "sha256"))),
    ]
    seen = {first}
    for other in others:
        context.config = other
        seen.add(list_step.run(context, "data")["run"])
    assert len(seen) == 1 + len(others)
    context.config = replace(plain, engine=EngineConfig(workers=3), plan=replace(plain.plan, shard_bytes=5))
    assert list_step.run(context, "data")["run"] == first
    info = run_store.open_run(context.layout("data")).info
    assert info.config["engine"]["workers"] == 3


def test_a_name_that_is_not_a_path_stops_everything_and_leaves_no_trace(tmp_path: Path) -> None:
    source = tree(
        tmp_path / "source", {"good": b"1", ".p.0123456789abcdef": b"2", "a/.p.00000000000000ff": b"3"}
    )
    context = context_for(tmp_path, source)
    with pytest.raises(PreflightError) as caught:
        list_step.run(context, "data")
    assert caught.value.exit_code == 3
    assert "2 keys" in str(caught.value)
    assert '".p.0123456789abcdef"' in str(caught.value)
    assert '"a/.p.00000000000000ff"' in str(caught.value)
    assert sorted(os.listdir(tmp_path)) == ["source"]
    context.config = changed(context.config, exclude=(".p.*",))
    assert list_step.run(context, "data")["files"] == 1


def test_an_empty_source_is_told_and_leaves_no_trace(tmp_path: Path) -> None:
    (tmp_path / "source" / "empty").mkdir(parents=True)
    context = context_for(tmp_path, tmp_path / "source")
    with pytest.raises(PreflightError, match="has 0 objects") as caught:
        list_step.run(context, "data")
    assert str(tmp_path / "source") in str(caught.value)
    assert sorted(os.listdir(tmp_path)) == ["source"]


def test_a_missing_source_and_a_target_that_is_a_file_are_told(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match="source folder cannot be read"):
        list_step.run(context_for(tmp_path, tmp_path / "none"), "data")
    assert os.listdir(tmp_path) == []
    (tmp_path / "target").write_text("a file")
    with pytest.raises(PreflightError, match="not a folder"):
        list_step.run(context_for(tmp_path, tree(tmp_path / "source", {"a": b""})), "data")


def test_refused_links_leave_no_trace_and_skipped_ones_are_counted(tmp_path: Path) -> None:
    source = tree(tmp_path / "source", {"a": b"1"})
    os.symlink("a", source / "link")
    context = context_for(tmp_path, source)
    with pytest.raises(PreflightError, match="link"):
        list_step.run(context, "data")
    assert sorted(os.listdir(tmp_path)) == ["source"]
    context.config = changed(context.config, links="skip")
    assert list_step.run(context, "data")["ignored"] == {"links": 1}


def test_links_that_the_patterns_leave_out_are_not_refused(tmp_path: Path) -> None:
    source = tree(tmp_path / "source", {"a": b"1", "cache/b": b"2"})
    os.symlink("a", source / "link")
    os.symlink("/etc/hostname", source / "cache" / "link")
    context = context_for(tmp_path, source)
    context.config = changed(context.config, exclude=("cache/", "/link"))
    receipt = list_step.run(context, "data")
    assert (receipt["files"], receipt["ignored"]) == (1, {"filtered": 3})


def test_a_source_that_holds_the_target_is_refused(tmp_path: Path) -> None:
    tree(tmp_path / "all", {"a": b"1"})
    context = context_for(tmp_path / "all", tmp_path / "all")
    with pytest.raises(PreflightError, match="lie in one another"):
        list_step.run(context, "data")


def test_the_lock_of_another_run_stops_it(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", ODD))
    first = list_step.run(context, "data")
    with holding(context, "data", str(first["run"]), "copy"), pytest.raises(LockedError) as caught:
        list_step.run(context, "data")
    assert caught.value.exit_code == 7
    assert list_step.run(context, "data") == first


def test_a_stop_leaves_no_trace(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", ODD))
    context.stop.set(15)
    with pytest.raises(InterruptedRunError) as caught:
        list_step.run(context, "data")
    assert caught.value.exit_code == 143
    assert sorted(os.listdir(tmp_path)) == ["source"]


def publish(context: Context, receipt: dict[str, object]) -> None:
    """What publish leaves, as far as list looks at it."""
    layout = context.layout("data")
    release = layout.release(str(receipt["release"]))
    release.mkdir()
    (release / "release.json").write_text(seals.written(release=release.name, run=receipt["run"]))
    layout.current.unlink(missing_ok=True)
    layout.current.symlink_to(f"releases/{release.name}")
    layout.run(str(receipt["run"])).receipt("publish").parent.mkdir(parents=True)
    layout.run(str(receipt["run"])).receipt("publish").write_text("{}")


def test_a_published_release_is_found_and_not_moved_forward_again_after_a_rollback(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", ODD))
    first = list_step.run(context, "data")
    publish(context, first)
    again = list_step.run(context, "data")
    assert (again["published"], again["current"]) == (True, first["release"])
    tree(tmp_path / "source", {"new": b"file"})
    second = list_step.run(context, "data")
    assert second["published"] is False
    publish(context, second)
    layout = context.layout("data")
    layout.current.unlink()
    layout.current.symlink_to(f"releases/{first['release']}")
    rolled_back = list_step.run(context, "data")
    assert (rolled_back["published"], rolled_back["current"]) == (True, first["release"])


def test_a_release_that_was_deleted_is_made_anew_from_the_start(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", ODD))
    first = list_step.run(context, "data")
    publish(context, first)
    layout = context.layout("data")
    folder = layout.run(first["run"])
    folder.plan.write_text("{}")
    (folder.folder / "journal" / "00000").mkdir(parents=True)
    (layout.release(first["release"]) / "release.json").unlink()
    layout.release(first["release"]).rmdir()
    layout.current.unlink()
    again = list_step.run(context, "data")
    assert again == first
    assert sorted(os.listdir(folder.folder)) == ["listing.parquet", "run.json"]
    assert "is gone" in str([event.data for event in events_of(context) if event.kind == "note"])


def test_a_release_stopped_between_its_rename_and_the_pointer_is_not_done(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", ODD))
    first = list_step.run(context, "data")
    publish(context, first)
    folder = context.layout("data").run(first["run"])
    folder.receipt("publish").unlink()
    folder.plan.write_text("{}")
    assert list_step.run(context, "data")["published"] is False
    folder.plan.unlink()
    assert list_step.run(context, "data")["published"] is True


def test_a_configured_name_is_used_and_refused_for_other_content(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", ODD), release="v1")
    first = list_step.run(context, "data")
    assert first["release"] == "v1"
    publish(context, first)
    assert list_step.run(context, "data")["published"] is True
    tree(tmp_path / "source", {"new": b"file"})
    with pytest.raises(PreflightError, match='"v1" exists already'):
        list_step.run(context, "data")
    assert os.listdir(context.layout("data").runs) == [first["run"]]


def test_a_run_that_was_killed_while_it_listed_is_swept(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", ODD))
    first = list_step.run(context, "data")
    torn = context.layout("data").runs / ".new-0123456789abcdef"
    torn.mkdir()
    (torn / ".ff.tmp").write_bytes(b"torn")
    assert list_step.run(context, "data") == first
    assert not torn.exists()


def test_a_damaged_description_is_told(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", ODD))
    first = list_step.run(context, "data")
    context.layout("data").run(first["run"]).run_file.write_text("{")
    with pytest.raises(FailedError, match="description"):
        list_step.run(context, "data")


def test_hostile_keys_are_all_named_at_once(tmp_path: Path) -> None:
    bad = ["../x", "/abs", "a", "a//b", "a/b", "b/../c", "nul\0", "x" * 256, "y/"]
    keys = sorted([*bad, "fine", "a-between", "z"], key=os.fsencode)
    source = ScriptedSource([Listed(key, 1, "e", 1) for key in keys])
    with pytest.raises(PreflightError) as caught:
        gathered(tmp_path, source)
    text = str(caught.value)
    assert "8 keys" in text
    for key in bad:
        if key != "a":
            assert in_quotes(key) in text
    assert "fine" not in text
    assert caught.value.exit_code == 3
    assert os.listdir(tmp_path) == []


def test_offenders_of_all_sources_and_of_their_policies_are_named_together(tmp_path: Path) -> None:
    one = ScriptedSource(["../x"], fails=PreflightError("1 item cannot be staged", why="fifo"))
    two = ScriptedSource(["a//b"], url="s3://other/")
    with pytest.raises(PreflightError) as caught:
        gathered(tmp_path, one, two, into=("one", "two"))
    for part in ('"../x"', '"a//b"', "fifo", "2 keys"):
        assert part in str(caught.value)
    with pytest.raises(PreflightError, match="fifo"):
        gathered(tmp_path, replace(one, keys=["a"]))


def test_folder_markers_are_ignored_and_counted(tmp_path: Path) -> None:
    keys = [Listed(key, size, "", 0) for key, size in (("", 0), ("a/", 0), ("a/b", 1), ("c/", 0))]
    found = gathered(tmp_path, ScriptedSource(keys, left_out={"links": 2, "filtered": 0}))
    assert (found.files, found.scanned) == (1, 4)
    assert found.ignored == {"markers": 3, "links": 2}


@pytest.mark.parametrize(("mtime", "warned"), [("keep", True), ("now", False)])
def test_files_whose_source_states_no_time_are_told(tmp_path: Path, mtime: str, warned: bool) -> None:
    source = ScriptedSource([Listed("a", 1, "t", 5), Listed("b", 1, "t", 0), Listed("c", 1, "t", 0)])
    context = context_for(tmp_path, "s3://bucket/prefix/", permissions=PermissionsConfig(mtime=mtime))
    dataset = context.dataset("data")
    gather(context, dataset, ordered(dataset, [source]), tmp_path / "listing")
    text = (
        'the source states no time of "b": 2 files get the time 1970-01-01, unless `permissions.mtime: now`'
    )
    assert any(text in getattr(event, "text", "") for event in events_of(context)) is warned


def test_filtered_keys_are_counted_and_not_judged(tmp_path: Path) -> None:
    found = gathered(tmp_path, ScriptedSource(["../x", "a", "b.tmp"]), exclude=("*.tmp", "x"))
    assert found.ignored == {"filtered": 2}
    with pytest.raises(PreflightError, match="nothing of the source belongs") as caught:
        gathered(tmp_path, ScriptedSource(["a", "b"]), include=("*.jpg",))
    assert "2 objects seen" in str(caught.value)


def test_sources_are_listed_in_the_order_of_their_folders(tmp_path: Path) -> None:
    one, two, three = (ScriptedSource(["x", "y"], url=f"s3://{n}/") for n in "123")
    found = gathered(tmp_path, one, two, three, into=("b", "a/z", "a-b"))
    assert found.files == 6
    assert [(entry.path, entry.key, entry.source) for entry in rows(tmp_path / "listing")] == [
        ("a-b/x", "x", 2), ("a-b/y", "y", 2), ("a/z/x", "x", 1), ("a/z/y", "y", 1), ("b/x", "x", 0),
        ("b/y", "y", 0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "into", [("", "a"), ("a", "a"), ("a", "a/b"), ("../x", "b"), ("a//b", "c"), ("/a", "b")]
)
def test_folders_of_sources_may_not_nest_and_must_be_paths(tmp_path: Path, into: tuple[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"share a folder|`into`"):
        gathered(tmp_path, ScriptedSource(["x"]), ScriptedSource(["x"]), into=into)


def test_a_listing_out_of_order_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FailedError, match="not in ascending order"):
        gathered(tmp_path, ScriptedSource(["b", "a"], page=1))
    assert os.listdir(tmp_path) == []


def test_sizes_are_told_by_powers_of_four(tmp_path: Path) -> None:
    sizes = [0, 1, 4096, 4097, 16384, 16385, 1 << 20]
    found = gathered(
        tmp_path, ScriptedSource([Listed(f"k{n}", size, "e", 1) for n, size in enumerate(sizes)])
    )
    assert found.histogram == [
        [4096, 3, 4097], [16384, 2, 20481], [65536, 1, 16385], [262144, 0, 0], [1 << 20, 1, 1 << 20],
    ]  # fmt: skip


def test_checksum_files_beside_the_data_are_attached(tmp_path: Path) -> None:
    sums = "".join(f"{hashlib.sha256(c).hexdigest()}  {n}\n" for n, c in (("a", b"1"), ("b", b"22")))
    files = {"d/a": b"1", "d/b": b"22", "d/c": b"3", "d/SHA256SUMS": sums.encode()}
    context = context_for(tmp_path, tree(tmp_path / "source", files), checksums=("SHA256SUMS",))
    receipt = list_step.run(context, "data")
    folder = context.layout("data").run(receipt["run"])
    found = {entry.path: entry.checksum for entry in rows(folder.listing)}
    assert found == {
        "d/SHA256SUMS": "",
        "d/a": f"sha256:full:{hashlib.sha256(b'1').hexdigest()}",
        "d/b": f"sha256:full:{hashlib.sha256(b'22').hexdigest()}",
        "d/c": "",
    }
    assert sorted(os.listdir(folder.folder)) == ["listing.parquet", "run.json", "stated.parquet"]
    assert list_step.run(context, "data") == receipt
    tree(tmp_path / "source", {"d/SHA256SUMS": b"what is this"})
    with pytest.raises(PreflightError, match="checksum file cannot be used") as caught:
        list_step.run(context, "data")
    assert "add to the end of `checksums` of the dataset ['!/d/SHA256SUMS']" in caught.value.hint
    tree(tmp_path / "source", {"e/SHA256SUMS": sums.encode(), "e/a": b"1", "e/b": b"22"})
    context.config = changed(context.config, checksums=("SHA256SUMS", "!/d/SHA256SUMS"))
    assert list_step.run(context, "data")["files"] == 7
    context.config = changed(context.config, checksums=("MD5SUMS",))
    with pytest.raises(PreflightError, match="there is no checksum file"):
        list_step.run(context, "data")


def stated(tmp_path: Path, names: tuple[str, ...], sums: str, **changes: object) -> Context:
    """A source with these files, each empty, and a SHA256SUMS of the names in `sums`."""
    lines = "".join(f"{hashlib.sha256(b'').hexdigest()}  {name}\n" for name in sums.split())
    files = dict.fromkeys(names, b"") | {"SHA256SUMS": lines.encode()}
    changes.setdefault("checksums", ("SHA256SUMS",))
    return context_for(tmp_path, tree(tmp_path / "source", files), **changes)


def test_names_that_a_checksum_file_states_and_the_source_lacks_are_refused(tmp_path: Path) -> None:
    context = stated(tmp_path, ("a", "b"), "a b c ../d /abs/b x/y")
    with pytest.raises(PreflightError) as caught:
        list_step.run(context, "data")
    text = str(caught.value)
    assert "checksum files name 4 files that the source does not list; nothing was copied" in text
    assert 'in "SHA256SUMS":' in text
    for name in ("c", "../d", "/abs/b", "x/y"):
        assert f'"{name}" is not listed' in text
    assert "`datasets.data.unlisted: skip`" in caught.value.hint
    assert sorted(os.listdir(tmp_path)) == ["source"]


@pytest.mark.parametrize(
    ("changes", "ignored", "said"),
    [
        ({"unlisted": "skip"}, {"names of checksum files that are not listed": 2}, "warning"),
        ({"exclude": ("c", "/x/")}, {"names of checksum files that are filtered": 2}, "note"),
        ({"include": ("a", "b")}, {"filtered": 1, "names of checksum files that are filtered": 2}, "note"),
    ],
)
def test_names_that_are_let_go_are_counted(
    tmp_path: Path, changes: dict[str, object], ignored: dict[str, int], said: str
) -> None:
    context = stated(tmp_path, ("a", "b"), "a b c x/y", **changes)
    assert list_step.run(context, "data")["ignored"] == ignored
    (text,) = [
        str(event.data["text"])
        for event in events_of(context)
        if event.kind == said and "4 checksums, 2 of them" in str(event.data.get("text"))
    ]
    assert ("2 of them of names that are not listed" in text) == (said == "warning")
    assert dict(run_store.open_run(context.layout("data")).info.ignored) == ignored


@pytest.mark.parametrize("changes", [{"unlisted": "skip"}, {"exclude": ("*.tar",)}])
def test_checksum_files_that_name_no_file_of_the_dataset_are_refused(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    context = stated(
        tmp_path, ("a", "b.tar"), "/build/out.tar b.tar" if "exclude" in changes else "/b", **changes
    )
    with pytest.raises(PreflightError, match="name no file of the dataset"):
        list_step.run(context, "data")
    assert sorted(os.listdir(tmp_path)) == ["source"]


def test_a_list_of_keys_says_which_of_the_named_files_belong_to_the_dataset(tmp_path: Path) -> None:
    context = stated(tmp_path, ("a", "b"), "a b")
    (tmp_path / "keys").write_text("a\nSHA256SUMS\n")
    (source,) = context.dataset("data").sources
    context.config = changed(context.config, sources=(replace(source, list_from=str(tmp_path / "keys")),))
    assert list_step.run(context, "data")["ignored"] == {"names of checksum files that are not listed": 1}


def test_empty_folders_are_told(tmp_path: Path) -> None:
    source = tree(tmp_path / "source", {"a": b"1"})
    (source / "empty" / "deep").mkdir(parents=True)
    context = context_for(tmp_path, source)
    receipt = list_step.run(context, "data")
    assert receipt["ignored"] == {"empty folders": 1}
    assert any("1 empty folder " in str(event.data.get("text")) for event in events_of(context))
