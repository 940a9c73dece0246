"""A source's URL that names one object: it is staged by its own name, as a file of a web server is."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support import all_steps
from tests.support.hostile import Hostile
from tests.support.s3server import S3Server
from tests.support.staging_runs import tree
from tests.support.whole_way import content, go, staging

from penstock.cli.main import main
from penstock.config.settings import SourceConfig
from penstock.core.errors import PreflightError

if TYPE_CHECKING:
    from pathlib import Path

DATA = bytes(range(256)) * 40


def sources(url: str, endpoint: str) -> dict[str, Any]:
    return {"sources": (SourceConfig(url, "", {"endpoint_url": endpoint, "anon": True}),)}


def test_s1_one_object_is_published_as_one_file_by_its_own_name(tmp_path: Path) -> None:
    objects = tree(tmp_path / "bucket", {"data/train.tar": DATA, "data/train.tar.md5": b"x", "other": b"y"})
    config = tmp_path / "config.yaml"
    with S3Server(objects) as server:
        text = {
            "target": {"root": str(tmp_path / "target"), "keep_free": "0B"},
            "datasets": {
                "one": {
                    "source": server.url("data/train.tar"),
                    "storage_options": {"endpoint_url": server.endpoint, "anon": True},
                }
            },
        }
        config.write_text(json.dumps(text))
        assert all_steps.run(str(config), "one") == 0
        assert main(["--config", str(config), "diff", "one", "--json"]) == 0
    current = tmp_path / "target/one/current"
    assert content(current / "data") == {b"train.tar": DATA}
    seal = json.loads((current / "release.json").read_text())
    assert [source["url"] for source in seal["sources"]] == ["s3://bucket/data/train.tar"]


def test_s1_one_file_of_a_file_system_is_published_as_one_file(tmp_path: Path) -> None:
    source = tree(tmp_path / "source", {"a": b"1", "train.tar": DATA})
    with staging(tmp_path, source / "train.tar") as context:
        first = go(context)
        assert content(context.layout("data").current / "data") == {b"train.tar": DATA}
        assert go(context, upto="list")["published"]
        (source / "new").write_bytes(DATA)
        os.replace(source / "new", source / "train.tar")
        assert go(context)["release"] != first["release"]


def test_s1_a_giant_is_copied_in_parts(tmp_path: Path) -> None:
    objects = tree(tmp_path / "bucket", {"data/giant": DATA * 30})
    with (
        S3Server(objects) as server,
        staging(tmp_path, "", **sources(server.url("data/giant"), server.endpoint)) as context,
    ):
        assert go(context, upto="plan")["giants"] == 1
        go(context, after="plan")
        assert content(context.layout("data").current / "data") == {b"giant": DATA * 30}


def test_s1_beside_a_folder_of_its_name_an_object_with_bytes_is_refused(tmp_path: Path) -> None:
    with (
        Hostile({"p/run": b"1", "p/run/x": b"22", "p/run-b": b"3"}) as server,
        staging(tmp_path, "", **sources("s3://bucket/p/run", server.endpoint)) as context,
    ):
        with pytest.raises(PreflightError, match="the URL names an object and a folder") as caught:
            go(context, upto="list")
        assert "s3://bucket/p/run/ for the folder" in caught.value.hint
        # Each advice, taken by the letter.
        for url, include, files in (
            ("s3://bucket/p/run/", ("**",), {b"x": b"22"}),
            ("s3://bucket/p/", ("/run", "!/run/**"), {b"run": b"1"}),
        ):
            dataset = replace(context.dataset("data"), include=include, **sources(url, server.endpoint))
            context.config = replace(context.config, datasets={"data": dataset})
            go(context)
            assert content(context.layout("data").current / "data") == files


def test_s1_a_marker_of_no_bytes_is_counted_and_the_folder_is_staged(tmp_path: Path) -> None:
    with (
        Hostile({"p/run": b"", "p/run/x": b"22"}) as server,
        staging(tmp_path, "", **sources("s3://bucket/p/run", server.endpoint)) as context,
    ):
        assert go(context, upto="list")["ignored"] == {"markers": 1}
        go(context, after="list")
        assert content(context.layout("data").current / "data") == {b"x": b"22"}


def test_s1_a_folder_that_holds_an_object_of_its_own_name_wants_the_slash(tmp_path: Path) -> None:
    with Hostile({"run/run": b"1", "run/x": b"22"}) as server:
        with (
            staging(tmp_path, "", **sources("s3://bucket/run", server.endpoint)) as context,
            pytest.raises(PreflightError, match="the folder's own name"),
        ):
            go(context, upto="list")
        with staging(tmp_path, "", **sources("s3://bucket/run/", server.endpoint)) as context:
            go(context)
            assert content(context.layout("data").current / "data") == {b"run": b"1", b"x": b"22"}


def test_s1_an_object_that_may_be_read_and_not_listed_is_staged(tmp_path: Path) -> None:
    def listing_denied(asked: Any) -> str:
        return "AccessDenied" if not asked.key else ""

    with (
        Hostile({"p/train.tar": DATA}) as server,
        staging(tmp_path, "", **sources("s3://bucket/p/train.tar", server.endpoint)) as context,
    ):
        server.ended = listing_denied
        go(context)
        assert content(context.layout("data").current / "data") == {b"train.tar": DATA}


def test_s1_where_nothing_is_the_source_is_still_empty(tmp_path: Path) -> None:
    with (
        Hostile({"p/other": b"1"}) as server,
        staging(tmp_path, "", **sources("s3://bucket/p/train.tar", server.endpoint)) as context,
        pytest.raises(PreflightError, match="the source has 0 objects"),
    ):
        go(context, upto="list")


MARKED = {
    "run1": b"",
    "run1/x": b"1",
    "run1/sub/y": b"2",
    "b/run1": b"3",
    "odd [a]!": b"4",
    "odd [a]!/z": b"5",
}


def test_s4_the_advice_for_a_file_that_is_also_a_folder_works_by_the_letter(tmp_path: Path) -> None:
    """Beside patterns that stand in `exclude` already."""
    from penstock.config.strict_yaml import parse

    with (
        Hostile({f"p/{key}": data for key, data in (MARKED | {"run1/t.tmp": b"6"}).items()}) as server,
        staging(tmp_path, "", exclude=("*.tmp",), **sources("s3://bucket/p/", server.endpoint)) as context,
    ):
        with pytest.raises(PreflightError, match="3 key") as caught:
            go(context, upto="list")
        advised = caught.value.hint.partition("begin `exclude` with ")[2]
        patterns = parse(f"exclude: {advised}").value["exclude"]
        dataset = replace(context.dataset("data"), exclude=(*patterns, "*.tmp"))
        context.config = replace(context.config, datasets={"data": dataset})
        assert go(context, upto="list")["ignored"] == {"filtered": 3}
        go(context, after="list")
        kept = {key.encode(): data for key, data in MARKED.items() if key not in ("run1", "odd [a]!")}
        assert content(context.layout("data").current / "data") == kept


def test_s4_the_advice_names_keys_and_not_the_paths_of_the_release(tmp_path: Path) -> None:
    with Hostile({"p/run1": b"", "p/run1/x": b"1"}) as server:
        (source,) = sources("s3://bucket/p/", server.endpoint)["sources"]
        with (
            staging(tmp_path, "", sources=(replace(source, into="into"),)) as context,
            pytest.raises(PreflightError) as caught,
        ):
            go(context, upto="list")
    assert caught.value.hint.endswith("begin `exclude` with ['/run1', '!/run1/**']")
