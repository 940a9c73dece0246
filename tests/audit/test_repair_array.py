"""A repair's fetches are elements of an array: the process that runs the command requests nothing of a
source, a repair that was killed goes on, and nothing of it stays beside the files."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.commands import started, until
from tests.support.published import content, damage, data_of, flip, published
from tests.support.s3server import S3Server
from tests.support.scripted_cluster import FAILED, ScriptedCluster, Worker
from tests.support.staging_runs import tree

from penstock.cli.commands.audits import render_repair
from penstock.cli.main import main
from penstock.config.loader import TESTED
from penstock.config.settings import PlanConfig
from penstock.core import dataset_documents, findings
from penstock.core.errors import FailedError, InterruptedRunError, NewerFormatError
from penstock.core.layout import TEMPORARY
from penstock.dataset import release_records
from penstock.keep import audit_step, repair_step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.cluster.port import Status
    from penstock.dataset.context import Context

MIB = 1 << 20
FILES = {f"d{i % 2}/f{i}": content(i, 300_000) for i in range(8)}


def left_behind(context: Context) -> list[str]:
    """What a repair that ended leaves outside its files: nothing."""
    layout = context.layout("data")
    found = [name for name in os.listdir(layout.releases) if name.endswith(".repair")]
    found += [str(path) for path in (layout.state / "repairs").glob("*")]
    found += [n for _, _, names in os.walk(layout.releases) for n in names if TEMPORARY.fullmatch(n)]
    return found


class Commands(ScriptedCluster):
    """A cluster of nodes, of which each worker is the command that SLURM would get."""

    ends = ""
    """Where the nodes' mounts say that an fsync ends."""
    state: Path
    then: Callable[[int], object] = staticmethod(lambda _: None)
    """Called with the number of a worker that ended."""

    def work(self, array: str, number: int, worker: Worker) -> Status | None:
        spec = self.arrays[array]
        if self.asked[array] < (self.lasts(number, 1) if self.lasts else self.queries_until_end):
            return None
        words = [*spec.command, str(number + spec.base)]
        done = subprocess.run(words, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        for path in self.state.glob("repairs/*/receipts/repair/*.json") if self.ends else ():
            path.write_text(json.dumps(json.loads(path.read_bytes()) | {"fsync_ends": self.ends}))
        self.then(number)
        return self.over(worker, f"n{number}")


def elements(context: Context, *, run: bool, ends: str = "") -> ScriptedCluster:
    """`Commands`, or a cluster on which none works."""
    cluster = Commands(lambda *_: FAILED) if run else ScriptedCluster(lambda *_: FAILED)
    if isinstance(cluster, Commands):
        cluster.ends, cluster.state = ends, context.layout("data").state
    context.cluster = cluster
    return cluster


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Context, S3Server]]:
    source = tree(tmp_path / "source", FILES)
    plan = PlanConfig(shard_bytes=1_200_000)
    with S3Server(source) as server:
        options = {"endpoint_url": server.endpoint, "anon": True}
        with published(tmp_path, server.url(), plan=plan, options=options) as context:
            for path in FILES:
                flip(data_of(context) / path, 1000)
            assert audit_step.run(context, "data")["counts"] == {"changed": len(FILES)}
            yield context, server


def test_on_a_cluster_the_nodes_fetch_and_the_command_requests_nothing(
    served: tuple[Context, S3Server],
) -> None:
    context, server = served
    local, before = context.cluster, len(server.requests())
    broken = {path: (data_of(context) / path).read_bytes() for path in FILES}
    try:
        idle = elements(context, run=False)
        context.config = replace(context.config, cluster=replace(context.config.cluster, retries=0))
        with pytest.raises(FailedError, match="repair: 2 shards did not finish"):
            repair_step.run(context, "data")
        assert [(spec.step, list(spec.indices)) for spec in idle.arrays.values()] == [("repair", [0, 1])]
        assert server.requests()[before:] == []
        assert {path: (data_of(context) / path).read_bytes() for path in FILES} == broken

        worked = elements(context, run=True)
        done = repair_step.run(context, "data")
        assert [list(spec.indices) for spec in worked.arrays.values()] == [[0, 1]]
    finally:
        context.cluster = local
    assert (done["status"], len(done["repaired"])) == ("REPAIRED", len(FILES))
    assert done["fetched_bytes"] == sum(map(len, FILES.values()))
    assert {path: (data_of(context) / path).read_bytes() for path in FILES} == FILES
    assert left_behind(context) == []
    assert audit_step.run(context, "data")["status"] == "PASSED"


def test_a_killed_repair_goes_on_where_it_was(
    served: tuple[Context, S3Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TESTED, '{"plan.shard_bytes": "1.2MB"}')
    context, server = served
    layout, source = context.layout("data"), context.config.datasets["data"].sources[0]
    config = tmp_path / "penstock.yaml"
    text = f"""
target: {{root: {context.config.target.root}}}
datasets:
  data: {{source: "{source.url}", storage_options: {{endpoint_url: "{server.endpoint}", anon: true}}}}
engine: {{limit: LIMIT}}
"""
    config.write_text(text.replace("LIMIT", "600KiB/s"))
    release = os.readlink(layout.current).rpartition("/")[2]
    receipts = layout.repair(release).receipt("repair", 0)
    command = (sys.executable, "-m", "penstock", "--config", str(config), "repair", "data")
    with started(*command, cwd=tmp_path) as process:
        until(receipts.exists, "the first element")
        process.kill()
        process.wait()
    assert (layout.repair_staging(release) / "data").is_dir()
    first = {path for path in FILES if path.startswith("d0/")}
    before = len(server.requests())
    config.write_text(text.replace("LIMIT", "100MiB/s"))
    # The first element's receipt holds: its files are put in their places, and not fetched again.
    assert main(["repair", "--config", str(config), "data"]) == 0
    fetched = {r.key for r in server.requests()[before:] if r.method == "GET"}
    assert len(first) == 4
    assert fetched <= FILES.keys() - first
    assert {path: (data_of(context) / path).read_bytes() for path in FILES} == FILES
    assert left_behind(context) == []
    assert audit_step.run(context, "data")["status"] == "PASSED"


def test_a_repair_that_was_killed_while_it_replaced_files_is_continued(
    served: tuple[Context, S3Server], tmp_path: Path
) -> None:
    """Files that are in their places stay there; one that was lost on its way is fetched again."""
    context, server = served
    layout, local = context.layout("data"), context.cluster
    release = os.readlink(layout.current).rpartition("/")[2]
    folder, staging = layout.repair(release).folder, layout.repair_staging(release)
    cluster = elements(context, run=True)
    assert isinstance(cluster, Commands)
    cluster.then = lambda number: number == 1 and shutil.copytree(folder, tmp_path / "kept")
    try:
        assert repair_step.run(context, "data")["status"] == "REPAIRED"
    finally:
        context.cluster = local
    # As a kill leaves it: both workers have ended, and every file has gone from staging.
    (tmp_path / "kept" / "arrays.jsonl").unlink()
    shutil.copytree(tmp_path / "kept", folder)
    (staging / "data").mkdir(parents=True)
    damage(data_of(context) / "d0/f2", os.unlink)
    assert not (data_of(context) / "d0/f2").exists()
    before = len(server.requests())
    done = repair_step.run(context, "data")
    assert (done["status"], len(done["repaired"])) == ("REPAIRED", len(FILES))
    assert {r.key for r in server.requests()[before:] if r.method == "GET"} == {"d0/f2"}
    assert (data_of(context) / "d0/f2").read_bytes() == FILES["d0/f2"]
    assert left_behind(context) == []


def test_an_array_that_lives_is_met_again_and_ended_for_another_audit(
    served: tuple[Context, S3Server],
) -> None:
    context, _ = served
    local, cluster = context.cluster, elements(context, run=True)
    queries = 0

    def interrupt() -> None:
        nonlocal queries
        queries += 1
        if queries % 3 == 0:
            raise InterruptedRunError(signal.SIGTERM)

    cluster.on_query, cluster.lasts = interrupt, lambda *_: 1000 if len(cluster.arrays) == 1 else 1
    try:
        for _ in range(2):
            with pytest.raises(InterruptedRunError):
                repair_step.run(context, "data")
            assert (len(cluster.arrays), cluster.cancelled) == (1, [])
        context.cluster = local
        audit_step.run(context, "data")
        context.cluster = cluster
        cluster.on_query = lambda: None
        assert repair_step.run(context, "data")["status"] == "REPAIRED"
    finally:
        context.cluster = local
    assert (len(cluster.arrays), cluster.cancelled) == (2, ["1"])
    assert left_behind(context) == []


def test_of_a_shortened_giant_its_end_alone_is_fetched(tmp_path: Path) -> None:
    files = {"giant": content(1, 8 * MIB - 5)}
    plan = PlanConfig(giant_bytes=4 * MIB, part_bytes=MIB)
    with published(tmp_path, tree(tmp_path / "source", files), plan=plan) as context:
        damage(data_of(context) / "giant", lambda path: (path.chmod(0o600), os.truncate(path, 6 * MIB))[1])
        assert audit_step.run(context, "data")["counts"] == {"changed": 1}
        done = repair_step.run(context, "data")
        assert (done["status"], done["fetched_bytes"]) == ("REPAIRED", 2 * MIB - 5)
        assert (data_of(context) / "giant").read_bytes() == files["giant"]
        assert left_behind(context) == []


def test_what_an_element_fetched_is_read_as_it_was_written_and_refused_of_a_newer_format() -> None:
    found = findings.FetchedFiles((findings.FetchedFile("a\udcff", "gone", "direct", 7),), 5)
    written = findings.FETCHED_FILES.to_json(found)
    assert findings.FETCHED_FILES.from_json(json.dumps(written).encode(), "here") == found
    with pytest.raises(NewerFormatError, match="format 99"):
        findings.FETCHED_FILES.from_json(json.dumps({**written, "format": 99}).encode(), "here")


@pytest.mark.parametrize("ends", ["", "in the storage servers' memory (tuneRemoteFSync=false)"])
def test_a_repair_says_where_its_fsyncs_ended(served: tuple[Context, S3Server], ends: str) -> None:
    """In its result, in its words and in the dataset's history, as the copy does in the seal."""
    context, _ = served
    local = context.cluster
    try:
        elements(context, run=True, ends=ends)
        done = repair_step.run(context, "data")
    finally:
        context.cluster = local
    assert (done["status"], done.get("fsync_ends", "")) == ("REPAIRED", ends)
    assert (f"each fsync ended {ends}" in render_repair(done)) is bool(ends)
    line = json.loads(context.layout("data").history.read_text().splitlines()[-1])
    assert line.get("fsync_ends", "") == ends
    assert ("fsync_ends" in line) is bool(ends)
    assert next(release_records.history_lines(context.layout("data"))) == dataset_documents.line_from_json(
        json.dumps(line).encode(), ""
    )
