"""Whatever is staged is worth keeping: rows of another run are taken over and read back."""

from __future__ import annotations

import errno
import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support import injected
from tests.support.abandoned import FILES, PLAN, inodes, named, opened, stagings
from tests.support.s3server import S3Server
from tests.support.staging_runs import tree
from tests.support.standing import begin
from tests.support.whole_way import content, go, records, staging, texts

from penstock.config.settings import PermissionsConfig, PlanConfig, SourceConfig
from penstock.core import human
from penstock.core.errors import SourceChangedError
from penstock.dataset.documents import read_plan, read_run
from penstock.engine import journal
from penstock.look.views import run_summary
from penstock.run import report_step
from penstock.tables.run_tables import read_shard
from penstock.target.links import Abandoned
from penstock.target.staging_writer import StagingWriter

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.layout import RunLayout
    from penstock.dataset.context import Context


STANDING = True


@pytest.mark.parametrize("upto", ["copy", "permissions", "verify"])
@pytest.mark.parametrize("release", ["auto", "v1"])
def test_a_source_that_changed_costs_what_changed(
    context: Context, source: Path, upto: str, release: str
) -> None:
    named(context, release)
    begin(context, upto=upto)
    layout = context.layout("data")
    first, folder = opened(context)
    before = inodes(layout.staging(first) / "data")
    (source / "d0/000").write_bytes(b"changed")
    (source / "new").write_bytes(b"new")
    plan = go(context, upto="plan")
    taken = len(FILES) - 1
    assert (plan["unchanged"], plan["taken"]) == (0, taken)
    (said,) = [text for text in plan["why"] if "taken over" in text]
    assert f"{taken} files" in said
    assert folder.folder.name in said
    receipt = go(context, upto="copy", after="plan")
    assert (receipt["taken"], receipt["linked"], receipt["copied_rows"]) == (taken, 0, 2)
    receipt = go(context, after="copy")
    assert content(layout.current / "data") == content(source)
    after = inodes(layout.current / "data")
    assert {name for name in after if after[name] == before.get(name)} == set(FILES) - {"d0/000"}
    told = report_step.run(context, "data")
    size = sum(map(len, FILES.values())) - len(FILES["d0/000"])
    assert told["taken"] == {"files": taken, "bytes": size}
    assert (told["copied"]["files"], told["copied"]["bytes"]) == (2, len(b"changed") + len(b"new"))
    assert f"Taken over    {taken} files, " in run_summary.render(told)
    # Nothing of it is left, and nothing is left to do.
    assert stagings(context) == []
    assert not folder.folder.exists()
    assert go(context, upto="list")["published"]
    assert {path.stat().st_nlink for path in (layout.current / "data").rglob("*") if path.is_file()} == {1}


def test_what_is_taken_over_is_read_back(context: Context, source: Path) -> None:
    begin(context, upto="verify")
    first, _ = opened(context)
    rotten = context.layout("data").staging(first) / "data/d1/021"
    seen = rotten.stat()
    rotten.chmod(0o600)
    rotten.write_bytes(b"x" * seen.st_size)
    rotten.chmod(0o440)
    os.utime(rotten, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    (source / "new").write_bytes(b"new")
    go(context)
    assert content(context.layout("data").current / "data") == content(source)
    found = records(context)
    assert found["d1/005"].method != "unread"
    # No release is blamed for it.
    assert not [text for text in texts(context) if "audit" in text]


def test_other_permissions_are_set_on_what_is_moved(context: Context, source: Path) -> None:
    begin(context, upto="permissions")
    data = context.config.datasets["data"]
    policy = PermissionsConfig(file_mode=0o400, dir_mode=0o500)
    context.config = replace(context.config, datasets={"data": replace(data, permissions=policy)})
    receipt = go(context, upto="copy")
    assert receipt["taken"] == len(FILES)
    go(context, after="copy")
    current = context.layout("data").current / "data"
    assert {p.stat().st_mode & 0o7777 for p in current.rglob("*") if p.is_file()} == {0o400}
    assert content(current) == content(source)


@pytest.fixture
def no_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers on a file system that refuses links between folders, as BeeGFS up to 7.3 does."""
    lines = "import os\n\ndef link(*_, **__):\n    raise PermissionError(1, 'no')\n\nos.link = link\n"
    monkeypatch.setattr(sys, "executable", injected.python(tmp_path / "python", lines))


def test_where_links_are_refused_files_are_moved(context: Context, source: Path, no_links: None) -> None:
    begin(context, upto="permissions")
    first, _ = opened(context)
    before = inodes(context.layout("data").staging(first) / "data")
    (source / "new").write_bytes(b"new")
    receipt = go(context, upto="copy")
    assert (receipt["taken"], receipt["copied_rows"]) == (len(FILES), 1)
    assert inodes(context.layout("data").staging(first) / "data") == {}
    go(context, after="copy")
    current = context.layout("data").current / "data"
    assert content(current) == content(source)
    assert {name: inode for name, inode in inodes(current).items() if name in before} == before


def test_where_links_are_refused_the_room_for_copies_is_asked_for(
    context: Context, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(context)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    (source / "new").write_bytes(b"new")
    go(context, upto="list")
    monkeypatch.setattr(os, "link", refuse)
    plan = go(context, upto="plan", after="list")
    monkeypatch.undo()
    assert (plan["unchanged"], plan["base"]) == (0, None)
    assert "everything is copied: this file system refuses hard links between folders" in plan["why"]
    blocks = sum(-(-len(data) // 4096) * 4096 for data in (*FILES.values(), b"new"))
    assert any(text.startswith(f"takes {human.size(blocks)} of ") for text in plan["why"])
    receipt = go(context, upto="copy", after="plan")
    assert (receipt["linked"], receipt["copied_rows"]) == (0, len(FILES) + 1)
    names = [".penstock", ".reserve", "current", "pins", "releases", "under-way.json"]
    assert sorted(os.listdir(context.layout("data").folder)) == names


def late_writer(data: Path) -> StagingWriter:
    return StagingWriter(
        data,
        file_mode=0o440,
        dir_mode=0o550,
        gid=None,
        durability="fsync",
        attempt="late",
        keep_mtime=False,
    )


def test_nothing_is_moved_out_of_a_staging_that_was_renamed_meanwhile(tmp_path: Path) -> None:
    """By an element that woke late: it is a release by now, or another run's of the same name."""
    theirs, mine = tmp_path / "theirs", tmp_path / "mine"
    tree(theirs, {"a": b"a", "b": b"b"})
    mine.mkdir()
    with late_writer(mine) as writer:
        planned = Abandoned(theirs, theirs.stat().st_ino)
        assert writer.move(planned, "a", 1, None)
        assert (mine / "a").stat().st_mode & 0o7777 == 0o440
        theirs.rename(tmp_path / "release")
        assert not writer.move(planned, "b", 1, None)
        tree(theirs, {"b": b"c"})
        assert not writer.move(planned, "b", 1, None)
    with late_writer(mine) as writer:  # one that opens it only now
        assert not writer.move(planned, "b", 1, None)
        assert not writer.move(Abandoned(theirs), "b", 1, None)
    assert content(tmp_path / "release") == {b"b": b"b"}
    assert content(theirs) == {b"b": b"c"}


@pytest.mark.parametrize("what", ["other store", "no reuse", "other folder"])
def test_what_is_not_the_same_for_sure_is_copied(context: Context, source: Path, what: str) -> None:
    begin(context, upto="copy")
    data = context.config.datasets["data"]
    if what == "no reuse":
        context.config = replace(context.config, plan=replace(PLAN, reuse="none"))
        (source / "new").write_bytes(b"new")
    elif what == "other folder":
        moved = replace(data.sources[0], into="below")
        context.config = replace(context.config, datasets={"data": replace(data, sources=(moved,))})
    else:
        _, folder = opened(context)
        info = read_run(folder)
        text = folder.run_file.read_text()
        assert str(info.origins[0]) in text
        folder.run_file.write_text(text.replace(str(info.origins[0]), "server:/elsewhere inode 7"))
        (source / "new").write_bytes(b"new")
    assert go(context, upto="plan")["taken"] == 0
    assert go(context, after="plan")["published"]
    assert stagings(context) == []


GIANT = bytes(range(256)) * 4000
GIANTS = PlanConfig(giant_bytes=300_000, part_bytes=100_000)


@pytest.mark.parametrize("missing", [0, 3])
def test_a_giant_is_moved_and_its_missing_parts_are_copied(tmp_path: Path, missing: int) -> None:
    source = tree(tmp_path / "source", {**FILES, "giant": GIANT})
    with staging(tmp_path, source, plan=GIANTS) as context:
        go(context, upto="permissions")
        layout = context.layout("data")
        first, folder = opened(context)
        forget(folder, missing)
        staged = layout.staging(first) / "data/giant"
        inode = staged.stat().st_ino
        (source / "new").write_bytes(b"new")
        receipt = go(context, upto="copy")
        assert receipt["copied_rows"] == missing + 1
        assert receipt["taken"] == len(FILES) + 11 - missing
        go(context, after="copy")
        assert content(layout.current / "data") == content(source)
        assert (layout.current / "data/giant").stat().st_ino == inode
        assert records(context)["giant"].digest.startswith("xxh3_128/100000:")
        told = report_step.run(context, "data")
        assert told["taken"]["files"] == len(FILES) + 1
        assert told["copied"]["bytes"] == len(b"new") + (missing and len(GIANT) - (11 - missing) * 100_000)


def forget(folder: RunLayout, count: int) -> None:
    """Take back what was recorded of the giant's last parts, and damage their bytes."""
    plan = read_plan(folder)
    for shard in plan.shards:
        copied = journal.replay(folder.journals(shard.index), shard.digest)
        entries = [entry for batch in read_shard(folder.shard(shard.index)) for entry in batch]
        rows = [row for row, entry in enumerate(entries) if entry.part >= 11 - count]
        lost = [copied[row] for row in rows]
        journal.invalidate(folder.journals(shard.index), shard.digest, lost, run="r", host="h")


def test_after_a_refusal_only_what_changed_or_was_missing_is_fetched(tmp_path: Path) -> None:
    """`changed: refuse`, an unversioned bucket: objects change between the listing and their GET."""
    objects = {f"p{i % 3}/{i:03d}": bytes([i]) * 3000 for i in range(60)}
    changed = {"p0/000", "p1/031", "p2/059"}
    with S3Server(tree(tmp_path / "bucket", objects)) as server:
        options = {"endpoint_url": server.endpoint, "anon": True}
        sources = (SourceConfig(server.url(), storage_options=options),)
        with staging(tmp_path, server.url(), sources=sources, plan=PLAN) as context:
            go(context, upto="plan")
            tree(server.root, dict.fromkeys(changed, b"another"))
            with pytest.raises(SourceChangedError) as told:
                go(context, upto="copy", after="plan")
            assert told.value.exit_code == 5
            had = {r.key for r in server.requests() if r.method == "GET" and r.status == 200} - changed - {""}
            assert len(had) == len(objects) - len(changed)
            before = len(server.requests())
            go(context, upto="plan")
            receipt = go(context, upto="copy", after="plan")
            assert (receipt["taken"], receipt["copied_rows"]) == (len(had), len(changed))
            go(context, after="copy")
            fetched = {
                r.key for r in server.requests()[before:] if r.method == "GET" and "list" not in r.query
            }
            assert fetched - {""} == changed
            assert content(context.layout("data").current / "data") == content(server.root)
            assert go(context, upto="list")["published"]
