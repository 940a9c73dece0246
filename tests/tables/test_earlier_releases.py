"""Releases and killed runs that 1.0.0 made: today's code reads, audits, repairs, reuses and resumes them.
`tests/fixtures/make.py` says how they were made."""

from __future__ import annotations

import json
import lzma
import os
import subprocess
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest
from tests.support import fixed_settings
from tests.support.s3server import S3Server
from tests.support.staging_runs import tree
from tests.support.whole_way import content

from penstock.cli.main import main
from penstock.core.layout import DatasetLayout
from penstock.host import waits
from penstock.tables.manifest import read_manifest
from penstock.target import tree_removal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
MADE_BY = ("1.0.0",)
"""Versions."""
PUBLISHED = ("posix", "s3", "several")


PLAN = {"shard_files": 10, "shard_bytes": "1MiB", "giant_bytes": "1MiB", "part_bytes": "1MiB"}
NOTHING: Mapping[str, object] = MappingProxyType({})


class Earlier:
    """What the fixture holds, in a folder of its own; and the command on it."""

    def __init__(
        self, version: str, top: Path, capture: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch
    ) -> None:
        self.capture, self.patch = capture, patch
        # Not every machine has xz.
        content = lzma.decompress((FIXTURES / f"{version}.tar.xz").read_bytes())
        subprocess.run(["tar", "-C", str(top), "-xp", "--no-same-owner"], input=content, check=True)
        self.top = top / "made"
        self.config = top / "config.yaml"
        for file in self.top.glob("target/*/.penstock/runs/*/run.json"):
            file.write_text(json.dumps(json.loads(file.read_text()) | {"root": str(self.top / "target")}))
        # The host that the killed runs held their locks on is gone for good.
        for lock in self.top.glob("target/*/.penstock/lock"):
            lock.unlink()

    def layout(self, dataset: str) -> DatasetLayout:
        return DatasetLayout(self.top / "target", dataset)

    def serve(self, endpoint: str = "http://127.0.0.1:9", verify: Mapping[str, object] = NOTHING) -> None:
        options = {"endpoint_url": endpoint, "anon": True}
        bucket = {"source": "s3://bucket/", "storage_options": options}
        several = [
            {"url": f"s3://bucket/d{n}/", "into": into, "storage_options": options}
            for n, into in enumerate(("one", "two"))
        ]
        document = {
            "target": {"root": str(self.top / "target"), "keep_free": 0},
            "datasets": {
                "posix": {"source": str(self.top / "folder")},
                "s3": bucket,
                "several": {"sources": several},
                "in-copy": bucket,
                "in-verify": bucket,
            },
            "verify": dict(verify),
            "plan": PLAN,
        }
        document, environment = fixed_settings.apart(document)
        for name, value in environment.items():
            self.patch.setenv(name, value)
        self.config.write_text(json.dumps(document))

    def bucket(self) -> dict[bytes, bytes]:
        """What the bucket names; a key that is not UTF-8 cannot be one of S3."""
        held = content(self.top / "bucket")
        return {path: data for path, data in held.items() if b"\xff" not in path}

    def command(self, *words: str) -> str:
        return self.ended(0, *words)

    def ended(self, status: int, *words: str) -> str:
        self.capture.readouterr()
        ended = main(["--config", str(self.config), "--progress", "off", *words])
        said = self.capture.readouterr()
        assert ended == status, said.out + said.err
        return said.out + said.err

    def staged(self, dataset: str) -> dict[str, Any]:
        for step in ("list", "plan", "copy", "permissions", "verify", "publish"):
            self.command("step", step, dataset)
        seal: dict[str, Any] = json.loads((self.layout(dataset).current / "release.json").read_text())
        return seal


@pytest.fixture(params=MADE_BY)
def earlier(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Earlier]:
    # Whether the killed runs' elements still write cannot be seen: until this has passed they are waited for.
    monkeypatch.setattr(waits, "PATIENCE", 0.5)
    monkeypatch.setattr(waits, "HEARTBEAT", 0.1)
    made = Earlier(request.param, tmp_path, capsys, monkeypatch)
    made.serve()
    yield made
    tree_removal.remove_tree(made.top)


@pytest.fixture
def served(earlier: Earlier) -> Iterator[Earlier]:
    with S3Server(earlier.top / "bucket", options=["--md5-etags"]) as server:
        earlier.serve(server.endpoint)
        yield earlier


def test_each_release_opens_and_is_whole(earlier: Earlier) -> None:
    for dataset in PUBLISHED:
        layout = earlier.layout(dataset)
        release = layout.current.resolve()
        assert earlier.command("path", dataset).strip() == str(release / "data")
        earlier.command("gate", dataset)
        earlier.command("status", dataset)
        records = [record for batch in read_manifest(release / "manifest.parquet") for record in batch]
        assert {os.fsencode(record.path): record.size for record in records} == {
            path: len(data) for path, data in content(release / "data").items()
        }


def test_each_release_passes_an_audit_and_shows_what_rots(earlier: Earlier) -> None:
    for dataset in ("posix", "several"):
        earlier.command("audit", dataset)
    rotten = earlier.layout("posix").current / "data/d1/file 01"
    os.chmod(rotten, 0o600)
    rotten.write_bytes(b"x" * rotten.stat().st_size)
    earlier.ended(4, "audit", "posix")


def test_a_rotten_file_is_repaired_from_its_source(served: Earlier) -> None:
    rotten = served.layout("s3").current / "data/d0/added"
    whole = rotten.read_bytes()
    os.chmod(rotten, 0o600)
    rotten.write_bytes(b"y" * len(whole))
    served.ended(4, "audit", "s3")
    served.command("repair", "s3")
    assert rotten.read_bytes() == whole
    served.command("audit", "s3")


def test_the_next_release_links_what_is_unchanged_and_reads_it_before_it_is_carried_over(
    earlier: Earlier,
) -> None:
    """Files that were unpacked since have other inodes than their release says."""
    before = earlier.layout("s3").current.resolve()
    with S3Server(earlier.top / "bucket", options=["--md5-etags"]) as server:
        earlier.serve(server.endpoint, {"linked": "30d"})
        tree(earlier.top / "bucket", {"d2/newer": b"newer"})
        assert "carried" not in earlier.staged("s3")
        after = earlier.layout("s3").current.resolve()
        assert after != before
        assert content(after / "data") == earlier.bucket()
        assert (after / "data/d1/file 04").stat().st_ino == (before / "data/d1/file 04").stat().st_ino
        tree(earlier.top / "bucket", {"d2/newest": b"newest"})
        assert earlier.staged("s3")["carried"]["files"] > 0
    assert content(earlier.layout("s3").current / "data") == earlier.bucket()


@pytest.mark.parametrize("dataset", ["in-copy", "in-verify"])
def test_a_killed_run_goes_on(served: Earlier, dataset: str) -> None:
    (run,) = served.layout(dataset).runs.iterdir()
    journals = {path.name for path in run.glob("journal/*/*.journal")}
    for step in ("list", "plan", "copy", "permissions", "verify"):
        served.command("step", step, dataset)
    assert journals <= {path.name for path in run.glob("journal/*/*.journal")}
    served.command("step", "publish", dataset)
    seal = json.loads((served.layout(dataset).current / "release.json").read_text())
    assert seal["run"] == run.name
    assert not list(run.glob("journal"))
    assert content(served.layout(dataset).current / "data") == served.bucket()


@pytest.mark.parametrize("dataset", ["in-copy", "in-verify"])
def test_a_killed_run_of_a_source_that_changed_since_is_taken_over(served: Earlier, dataset: str) -> None:
    layout = served.layout(dataset)
    (run,) = layout.runs.iterdir()
    # The server has another port than it had then: by its address it would be another store.
    endpoint = json.loads(served.config.read_text())["datasets"][dataset]["storage_options"]
    described = json.loads((run / "run.json").read_text())
    described["origins"] = []
    described["config"]["dataset"]["sources"][0]["storage_options"] = endpoint
    (run / "run.json").write_text(json.dumps(described))
    tree(served.top / "bucket", {"d2/newer": b"newer"})
    seal = served.staged(dataset)
    assert seal["run"] != run.name
    copied = json.loads((layout.run(seal["run"]).folder / "receipts/copy.json").read_text())
    assert copied["taken"] > 0
    assert copied["copied_rows"] + copied["taken"] == sum(
        shard["rows"] for shard in json.loads(layout.run(seal["run"]).plan.read_text())["shards"]
    )
    assert content(layout.current / "data") == served.bucket()
    assert [path.name for path in layout.runs.iterdir()] == [seal["run"]]
    assert [path.name for path in layout.releases.iterdir()] == [seal["release"]]
