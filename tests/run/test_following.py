"""A living source, the whole way: what is published, what a rerun finds to do, where a run ends with 5."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.in_process import InProcess
from tests.support.one_shard import do_shard
from tests.support.staging_runs import events_of, tree
from tests.support.whole_way import FILES, content, go, staging, texts

from penstock.config.settings import FollowLimit
from penstock.core.errors import PenstockError, SourceChangedError
from penstock.core.layout import RunLayout
from penstock.dataset import run_store
from penstock.dataset.documents import read_plan
from penstock.keep import audit_step
from penstock.run import list_step
from penstock.tables.manifest import read_manifest

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.cluster.port import ArraySpec
    from penstock.dataset.context import Context

ALL = FollowLimit(1.0, 1.0)
AFTER = FILES | {"a/one": b"one, anew", "giant": b"a giant that is none any more" * 5000, "z": b"Z" * 70_000}


def change(source: Path) -> None:
    """What a living source does between its listing and its copy."""
    for name in ("a/one", "giant", "z"):
        (source / name).write_bytes(AFTER[name])
    os.unlink(source / "deep/er/and/deeper")
    (source / "added").write_bytes(b"waits for the next run")


def held() -> dict[bytes, bytes]:
    return {os.fsencode(name): data for name, data in AFTER.items() if name != "deep/er/and/deeper"}


def published(context: Context) -> tuple[Path, dict[str, Any]]:
    release = context.layout("data").current.resolve()
    return release, json.loads((release / "release.json").read_text())


def follow(tmp_path: Path, source: Path, **more: Any) -> Any:
    return staging(tmp_path, source, changed="follow", follow_limit=ALL, **more)


def test_what_changed_is_published_in_its_new_version_and_that_is_said(tmp_path: Path, source: Path) -> None:
    """By processes of their own; what is published is audited like any release."""
    with follow(tmp_path, source, local=True) as context:
        first = go(context, upto="plan")
        change(source)
        receipt = go(context, after="plan")
        assert receipt["run"] == first["run"]
        release, seal = published(context)
        assert content(release / "data") == held()
        assert not (release / "data/deep").exists()
        records = {r.path: r for some in read_manifest(release / "manifest.parquet") for r in some}
        assert {r.path: r.size for r in records.values()} == {n: len(AFTER[n]) for n in records}
        assert records["giant"].parts == b""
        assert seal["snapshot"] is False
        assert (seal["amended"]["changed"], seal["amended"]["gone"]) == (3, 1)
        assert seal["amended"]["from"] <= seal["amended"]["until"] <= seal["sealed"]
        assert (seal["files"], seal["bytes"]) == (len(held()), sum(map(len, held().values())))
        # The frozen listing is as it was, and so is what the seal says of it.
        assert seal["listing"] != seal["amended"]["listing"]
        notes = texts(context, "note")
        assert any("3 files in their new version, 1 gone" in text for text in notes)
        assert audit_step.run(context, "data")["findings"] == []


def test_a_rerun_at_rest_has_nothing_to_do(tmp_path: Path, source: Path) -> None:
    with follow(tmp_path, source) as context:
        go(context, upto="plan")
        change(source)
        os.unlink(source / "added")
        first = go(context, after="plan")
        again = list_step.run(context, "data")
        assert (again["published"], again["run"], again["release"]) == (True, first["run"], first["release"])
        assert (again["files"], again["bytes"]) == (len(held()), sum(map(len, held().values())))
        assert go(context)["release"] == first["release"]
        assert len(list(context.layout("data").releases.iterdir())) == 1


def test_what_was_added_meanwhile_is_the_next_runs(tmp_path: Path, source: Path) -> None:
    with follow(tmp_path, source) as context:
        go(context, upto="plan")
        change(source)
        first = go(context, after="plan")
        second = go(context)
        assert second["release"] != first["release"]
        release, seal = published(context)
        assert content(release / "data") == held() | {b"added": b"waits for the next run"}
        assert "amended" not in seal
        # All but what was added, and what a release never links, is linked.
        assert seal["unchanged"] == len(held()) - 1


def test_the_listing_that_was_frozen_is_not_what_was_published(tmp_path: Path, source: Path) -> None:
    """A, then B while A is copied, then A again: the second run publishes A."""
    store = tmp_path / "before"
    os.rename(source, store)
    os.symlink(store, source)
    with follow(tmp_path, source) as context:
        go(context, upto="plan")
        other = tree(tmp_path / "after", {n: b for n, b in AFTER.items() if n != "deep/er/and/deeper"})
        os.unlink(source)
        os.symlink(other, source)
        first = go(context, after="plan")
        assert content(published(context)[0] / "data") == held()
        os.unlink(source)
        os.symlink(store, source)
        second = go(context)
        assert second["run"] != first["run"]
        assert content(published(context)[0] / "data") == {os.fsencode(n): b for n, b in FILES.items()}
        assert list_step.run(context, "data")["published"]


@pytest.mark.parametrize("limit", [FollowLimit(0.25, 1.0), FollowLimit(1.0, 0.0)])
def test_beyond_the_limit_the_run_ends_with_5(tmp_path: Path, source: Path, limit: FollowLimit) -> None:
    """Counted over all elements: each of them stays below it."""
    with staging(tmp_path, source, changed="follow", follow_limit=limit) as context:
        go(context, upto="plan")
        change(source)
        with pytest.raises(SourceChangedError) as caught:
            go(context, after="plan")
        assert caught.value.exit_code == 5
        assert "changed: follow" in str(caught.value)
        assert not context.layout("data").current.exists()


def test_checksums_beside_the_data_are_read_again(tmp_path: Path) -> None:
    import hashlib

    def sums(files: dict[str, bytes]) -> bytes:
        return "".join(f"{hashlib.sha256(d).hexdigest()}  {n}\n" for n, d in files.items()).encode()

    before, after = {"x": b"old", "y": b"same"}, {"x": b"new one", "y": b"same"}
    source = tree(tmp_path / "source", before | {"SHA256SUMS": sums(before)})
    with follow(tmp_path, source, checksums=("SHA256SUMS",)) as context:
        go(context, upto="plan")
        tree(source, after | {"SHA256SUMS": sums(after)})
        go(context, after="plan")
        release, _ = published(context)
        assert content(release / "data")[b"x"] == b"new one"
        records = {r.path: r for some in read_manifest(release / "manifest.parquet") for r in some}
        assert records["x"].source_proof == f"sha256:full:{hashlib.sha256(b'new one').hexdigest()}"
        assert records["x"].source_grade == "full"
        assert list_step.run(context, "data")["published"]


def test_damage_is_copied_again_of_the_version_that_is_there(tmp_path: Path, source: Path) -> None:
    with follow(tmp_path, source) as context:
        go(context, upto="plan")
        change(source)
        go(context, after="plan", upto="permissions")
        staged = context.layout("data").staging(_release(context))
        for name in ("a/one", "giant"):
            path = staged / "data" / name
            path.chmod(0o640)
            path.write_bytes(b"?" * path.stat().st_size)
        go(context, after="permissions")
        assert content(published(context)[0] / "data") == held()


def _release(context: Context) -> str:
    (staged,) = (path for path in context.layout("data").releases.iterdir() if path.name.endswith(".staging"))
    return staged.name[1:].removesuffix(".staging")


def test_beyond_the_limit_the_same_command_lists_anew_and_keeps_what_it_has(
    tmp_path: Path, source: Path
) -> None:
    with staging(tmp_path, source, changed="follow", follow_limit=FollowLimit(0.25, 1.0)) as context:
        first = go(context, upto="plan")
        change(source)
        with pytest.raises(SourceChangedError):
            go(context, after="plan")
        second = go(context)
        assert second["run"] != first["run"]
        release, seal = published(context)
        assert content(release / "data") == held() | {b"added": b"waits for the next run"}
        assert "amended" not in seal


class Halved(InProcess):
    """Its worker does the second shard before `between`, and the first one after it."""

    def __init__(self, between: Callable[[], None]) -> None:
        super().__init__()
        self._between = between

    def submit(self, spec: ArraySpec) -> str:
        words = list(spec.command)
        assert do_shard(RunLayout(Path(words[words.index("--run") + 1])), spec.step, 1) == 0
        self._between()
        return super().submit(spec)


@pytest.mark.parametrize("receipt", [True, False])
def test_a_kill_amid_the_joining_of_a_giant_costs_nothing_but_time(
    tmp_path: Path, source: Path, *, receipt: bool
) -> None:
    """Its first shard's parts count no more; its second's are recorded of the version before, and read back
    as they were recorded: these bytes did not change."""
    changed = b"anew" + FILES["giant"][4:]
    with follow(tmp_path, source) as context:
        go(context, upto="plan")
        folder = run_store.open_run(context.layout("data")).folder
        first, second = (shard.index for shard in read_plan(folder).shards)
        journals, aside = folder.journals(second), folder.journals(second).with_name("aside")
        held_before = b""

        def between() -> None:
            """The giant changes, and nothing can be written beside the second shard's journals."""
            nonlocal held_before
            held_before = folder.receipt("copy", second).read_bytes()
            (source / "giant").write_bytes(changed)
            journals.rename(aside)
            journals.write_bytes(b"")

        context.cluster = Halved(between)
        with pytest.raises(PenstockError, match="journal"):
            go(context, after="plan", upto="copy")
        journals.unlink()
        aside.rename(journals)
        if receipt:
            # A kill before the second shard was touched at all.
            folder.receipt("copy", second).write_bytes(held_before)
        assert [path.name for path in folder.journals(first).glob("whole-*")]
        assert not [path.name for path in journals.glob("whole-*")]
        context.cluster = InProcess()
        go(context, after="plan")
        expected = FILES | {"giant": changed}
        assert content(published(context)[0] / "data") == {os.fsencode(n): b for n, b in expected.items()}
        told = [str(e.data.get("text")) for e in events_of(context) if e.kind == "note"]
        assert sum("1 giant changed while" in text for text in told) == 1
