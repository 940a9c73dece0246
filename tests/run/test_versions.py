"""Runs and releases that another version of penstock wrote."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from tests.support.staging_runs import context_for
from tests.support.whole_way import FILES, content, go

from penstock.config.settings import (
    ClusterConfig,
    Config,
    DatasetConfig,
    EngineConfig,
    FollowLimit,
    PermissionsConfig,
    PlanConfig,
    SourceConfig,
    TargetConfig,
    VerifyConfig,
)
from penstock.core.errors import NewerFormatError
from penstock.dataset import gate, run_store
from penstock.keep import audit_step
from penstock.look import status_report
from penstock.run import list_step

if TYPE_CHECKING:
    from penstock.dataset.context import Context


def changed(path: Path, **values: Any) -> None:
    path.chmod(0o600)
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_a_manifest_without_a_later_column_is_linked_from(context: Context, source: Path) -> None:
    layout = context.layout("data")
    release = layout.release(go(context)["release"])
    manifest = release / "manifest.parquet"
    manifest.chmod(0o600)
    pq.write_table(pq.read_table(manifest).drop_columns(["digests"]), manifest)
    (source / "new").write_bytes(b"new")
    receipt = go(context, upto="plan")
    assert (receipt["base"], receipt["unchanged"]) == (release.name, len(FILES) - 1)
    assert go(context, after="plan")["published"]
    assert content(layout.current / "data") == content(source)


def test_a_run_of_another_version_is_gone_on_with(context: Context, source: Path) -> None:
    layout = context.layout("data")
    go(context, upto="copy")
    run = run_store.open_run(layout)
    info, folder = run.info, run.folder
    # Another version of the same format knows fewer keys, or more.
    config = json.loads(json.dumps(info.config))
    for part in ("dataset", "plan", "engine", "verify"):
        config[part]["later"] = "on"
    del config["engine"]["timeout"], config["verify"]["linked"], config["plan"]["reuse"]
    config["dataset"]["sources"][0]["later"] = config["dataset"]["permissions"]["later"] = 1
    changed(folder.run_file, config=config, later=1)
    plan = json.loads(folder.plan.read_text())
    changed(folder.plan, shards=[{**shard, "later": 1} for shard in plan["shards"]], later=1)
    receipt = go(context, after="copy")
    assert (receipt["run"], receipt["published"]) == (info.run, True)
    assert content(layout.current / "data") == content(source)


@pytest.mark.parametrize("what", ["run", "plan"])
def test_a_run_of_a_newer_format_is_refused_by_name_and_kept(context: Context, what: str) -> None:
    go(context, upto="copy")
    folder = run_store.open_run(context.layout("data")).folder
    path = folder.run_file if what == "run" else folder.plan
    changed(path, format=9)
    before = content(folder.folder)
    for step in ("list", "plan", "copy"):
        with pytest.raises(NewerFormatError, match="newer format") as told:
            go(context, upto=step, after={"list": "", "plan": "list", "copy": "plan"}[step])
        assert told.value.exit_code == 3
        assert (told.value.where, "format 9" in told.value.why) == (str(path), True)
        assert "a newer penstock is needed" in told.value.hint
    assert content(folder.folder) == before


def test_a_release_of_a_newer_format_is_refused_by_name(context: Context, source: Path) -> None:
    layout = context.layout("data")
    release = layout.release(go(context)["release"])
    changed(release / "release.json", format=9)
    for ask in (
        lambda: go(context, upto="list"),
        lambda: gate.passed(layout),
        lambda: audit_step.run(context, "data"),
    ):
        with pytest.raises(NewerFormatError, match="a release's seal is of a newer format"):
            ask()
    assert status_report.run(context, "data")["state"] == "newer"
    # Another run beside it: what to link from there cannot be known.
    (source / "new").write_bytes(b"new")
    with pytest.raises(NewerFormatError, match="a release's seal is of a newer format"):
        go(context, upto="plan")


def test_a_seal_is_proven_by_the_fields_that_it_names(context: Context) -> None:
    layout = context.layout("data")
    release = layout.release(go(context)["release"])
    layout.history.unlink()
    assert not audit_step.run(context, "data")["findings"]
    records = json.loads((release / "release.json").read_text())["records"]
    changed(release / "release.json", records={**records, "fields": [*records["fields"], "later"]})
    assert any("later" in str(one) for one in audit_step.run(context, "data")["findings"])


def test_the_id_of_a_run_is_the_same_in_every_version(tmp_path: Path) -> None:
    """Computed by 1.0.0: a run that it began is gone on with, not begun anew."""
    context = context_for(tmp_path, "s3://bucket/data/")
    config = Config(TargetConfig(Path("/target")), context.config.datasets)
    dataset = DatasetConfig("data", (SourceConfig("s3://bucket/data/"),))
    assert list_step.identity(config, dataset, ["s3://bucket/data/"], "sha256:00") == "e5c1e8f1ca0dacff"
    dataset = replace(dataset, exclude=("*.tmp",), checksums=("SHA256SUMS",), release="v1")
    assert list_step.identity(config, dataset, ["s3://bucket/data/"], "sha256:00") == "e837293718cdbc9e"


def test_the_id_of_a_run_with_every_key_set_is_the_same_in_every_version() -> None:
    """Computed by 1.0.0."""
    urls = ["s3://bucket/data/", "file:///more"]
    dataset = DatasetConfig(
        "data",
        (SourceConfig("s3://bucket/data/", "a", {"anon": True}), SourceConfig("/more", "b")),
        include=("*.tar",),
        exclude=("*.tmp", "!k"),
        release="v1",
        links="follow",
        empty_folders="keep",
        checksums=("SHA256SUMS",),
        changed="follow",
        follow_limit=FollowLimit(0.5, 0.5),
        permissions=PermissionsConfig("ml", 0o640, 0o2770, "now"),
    )
    config = Config(
        TargetConfig(Path("/target"), Path("/state"), 7),
        {"data": dataset},
        ClusterConfig("slurm"),
        plan=PlanConfig(1 << 30, 5, 2 << 30, 1 << 20, reuse="none"),
        engine=EngineConfig(1, 2, "fsync", 3, 4, 5.0),
        verify=VerifyConfig("fast", "cold", digests=("xxh3_128", "sha256")),
    )
    assert list_step.identity(config, dataset, urls, "sha256:00") == "f7920c8478bc9aeb"
    again = list_step.identity(config, dataset, urls, "sha256:00", after="0" * 16, folders="sha256:11")
    assert again == "5021cef3fb67ed46"
