"""A delta moves what changed, and nothing else: the server's log is the witness. The release before stays as
it was, byte for byte and mode for mode."""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.published import flip
from tests.support.s3server import S3Server
from tests.support.staging_runs import tree
from tests.support.whole_way import content, go, records, staging
from tests.target.conftest import need_root

from penstock.cli.commands.single_steps import render_plan
from penstock.config.settings import PermissionsConfig, PlanConfig
from penstock.core.dataset_documents import Publication
from penstock.core.errors import PreflightError
from penstock.dataset import release_records, run_store, seals
from penstock.keep import audit_step, repair_step
from penstock.run import report_step

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.dataset.context import Context

PLAN = PlanConfig()
GROUP = "4242"
"""By number: no group database need know it."""


@contextmanager
def served(tmp_path: Path, source: Path, *more: str) -> Iterator[tuple[Context, S3Server]]:
    """A dataset from a store whose etags are MD5s."""
    with S3Server(source, options=["--md5-etags", *more]) as server:
        options = {"endpoint_url": server.endpoint, "anon": True}
        with staging(tmp_path, server.url(), plan=PLAN) as context:
            data = context.config.datasets["data"]
            sources = (replace(data.sources[0], storage_options=options),)
            context.config = replace(context.config, datasets={"data": replace(data, sources=sources)})
            yield context, server


def looks(root: Path) -> Mapping[str, tuple[Any, ...]]:
    """All that a reader sees of a tree but its bytes, which `content` has."""
    found = {}
    for folder, _, names in os.walk(root):
        for path in (Path(folder), *(Path(folder) / name for name in names)):
            seen = path.lstat()
            mode = stat.S_IMODE(seen.st_mode)
            found[str(path)] = (mode, seen.st_uid, seen.st_gid, seen.st_ino, seen.st_mtime_ns)
    return found


def fetched(server: S3Server, since: int) -> list[str]:
    """The keys of which bytes were asked for."""
    return sorted(one.key for one in server.requests()[since:] if one.method == "GET" and one.key)


def permissions(context: Context, policy: PermissionsConfig) -> None:
    data = replace(context.config.datasets["data"], permissions=policy)
    context.config = replace(context.config, datasets={"data": data})


def test_a_delta_of_400_files_moves_what_changed_and_leaves_the_first_release_as_it_was(
    tmp_path: Path,
) -> None:
    """20 changed and 10 renamed; another group, by --copy-unchanged; and then a file of it is repaired."""
    need_root()
    source = tree(
        tmp_path / "source", {f"{n // 100:02d}/{n:04d}": f"file {n} ".encode() * 20 for n in range(400)}
    )
    with served(tmp_path, source) as (context, server):
        layout = context.layout("data")
        first = layout.release(go(context)["release"]) / "data"
        was, bytes_then = looks(first), content(first)
        for n in range(0, 400, 20):
            (source / f"{n // 100:02d}/{n:04d}").write_bytes(f"changed {n}".encode())
        for n in range(10, 400, 40):
            os.rename(source / f"{n // 100:02d}/{n:04d}", source / f"{n // 100:02d}/renamed-{n:04d}")
        permissions(context, PermissionsConfig(group=GROUP))
        since = len(server.requests())
        with pytest.raises(PreflightError, match=r"release .* has other permissions\.group"):
            go(context)
        context.copy_unchanged = True
        receipt = go(context, upto="copy")
        go(context, after="copy")
        moved = fetched(server, since)
        assert moved == sorted(f"{n // 100:02d}/{n:04d}" for n in range(0, 400, 20))
        assert (receipt["linked"], receipt["copied_rows"]) == (380, 20)
        second = layout.current.resolve() / "data"
        assert content(second) == content(source)
        assert {seen[2] for path, seen in looks(second).items() if Path(path).is_file()} == {4242}
        assert (looks(first), content(first)) == (was, bytes_then)

        flip(second / "03/0351")
        audit_step.run(context, "data")
        result = repair_step.run(context, "data")
        assert (result["status"], result["also_repaired"]) == ("REPAIRED", {})
        assert content(second) == content(source)
        assert (looks(first), content(first)) == (was, bytes_then)


@pytest.mark.parametrize(
    ("more", "grade"), [((), "etag-md5"), (("--checksums",), "full")], ids=["etags alone", "a CRC of each"]
)
def test_renamed_objects_are_linked_and_counted(tmp_path: Path, more: tuple[str, ...], grade: str) -> None:
    files = {f"a/{n}": f"bytes of {n}".encode() * 50 for n in range(6)}
    source = tree(tmp_path / "source", files)
    with served(tmp_path, source, *more) as (context, server):
        layout = context.layout("data")
        first = layout.release(go(context)["release"]) / "data"
        os.rename(source / "a/1", source / "a/renamed")
        tree(source, {"z/moved": b""})
        os.rename(source / "a/2", source / "z/moved")
        # A copy has another time than the file that the release holds.
        os.rename(source / "a/3", source / "z/later")
        os.utime(source / "z/later", (5, 5))
        since = len(server.requests())
        plan = go(context, upto="plan")
        assert (plan["unchanged"], plan["renamed"]) == (6, 3)
        assert any("3 files of them, " in said and "under another name" in said for said in plan["why"])
        assert any("1 file, " in said and "of another time are copied there" in said for said in plan["why"])
        assert "3 of them" in render_plan(plan)
        go(context, after="plan")
        assert fetched(server, since) == []
        second = layout.current.resolve()
        assert content(second / "data") == content(source)
        assert (second / "data/a/renamed").samefile(first / "a/1")
        assert (second / "data/z/moved").samefile(first / "a/2")
        assert not (second / "data/z/later").samefile(first / "a/3")
        assert (second / "data/z/later").stat().st_mtime == 5
        found = records(context)
        assert (found["a/renamed"].source_grade, found["a/renamed"].key) == (grade, "a/renamed")
        stored = seals.find(layout, second.name)
        assert stored is not None
        assert (stored.seal.unchanged, stored.seal.renamed) == (6, 3)
        line = next(one for one in release_records.history_lines(layout) if isinstance(one, Publication))
        assert line.renamed == 3
        context.run = run_store.open_run(layout).id
        assert report_step.run(context, "data")["renamed"]["files"] == 3
        assert audit_step.run(context, "data")["status"] == "PASSED"
        # A repair finds the damaged inode under its other name, too.
        flip(second / "data/a/renamed")
        audit_step.run(context, "data")
        result = repair_step.run(context, "data")
        assert result["also_repaired"] == {first.parent.name: ["a/1"]}
        assert (first / "a/1").read_bytes() == files["a/1"]


def test_an_etag_that_nothing_proved_to_be_an_md5_is_no_checksum(tmp_path: Path) -> None:
    """Etags of another kind, or of objects whose bytes were not compared with them: fetched again."""
    source = tree(tmp_path / "source", {"a": b"a" * 500, "b": b"b" * 500})
    with S3Server(source) as server, staging(tmp_path, server.url(), plan=PLAN) as context:
        data = context.config.datasets["data"]
        options = {"endpoint_url": server.endpoint, "anon": True}
        sources = (replace(data.sources[0], storage_options=options),)
        context.config = replace(context.config, datasets={"data": replace(data, sources=sources)})
        go(context)
        os.rename(source / "a", source / "c")
        since = len(server.requests())
        go(context)
        assert fetched(server, since) == ["c"]
        assert content(context.layout("data").current / "data") == content(source)
