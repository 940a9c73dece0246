"""An audit that is killed at any moment goes on where it stopped; two at once do not run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.published import content, data_of, flip, published
from tests.support.staging_runs import events_of, tree

from penstock.core.errors import ConfigError, LockedError
from penstock.core.findings import AuditSelection, SoonFirst
from penstock.fs import small_files
from penstock.jobs import array_job, audits_and_adoptions
from penstock.keep import audit_plan, audit_step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.dataset.context import Context

DEADLINE = 60.0
COUNT = 48
SIZE = 256 << 10


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Context]:
    """12 MiB in 48 files: 12 seconds at 1 MiB a second."""
    folder = tmp_path_factory.mktemp("large")
    source = tree(folder / "source", {f"f{i:02d}": content(i, SIZE) for i in range(COUNT)})
    with published(folder, source) as context:
        flip(data_of(context) / "f00", 5)
        flip(data_of(context) / f"f{COUNT - 1}", 5)
        yield context


def killed(context: Context, tmp_path: Path, moment: Callable[[Path], bool], limit: str = "1MiB/s") -> None:
    """Start an audit by its command, kill it (and so its elements) at the moment that is asked for."""
    target = context.config.target.root
    source = context.config.datasets["data"].sources[0].url
    config = tmp_path / "config.yaml"
    config.write_text(
        json.dumps(
            {"target": {"root": str(target), "keep_free": "0B"}, "datasets": {"data": {"source": source}}}
        )
    )
    command = [sys.executable, "-m", "penstock", "--config", str(config), "audit", "--limit", limit]
    known = set(_folders(context))
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, process_group=0
    ) as process:
        try:
            deadline = time.monotonic() + DEADLINE
            while not any(moment(path) for path in _folders(context) if path not in known):
                assert process.poll() is None, "it ended too soon"
                assert time.monotonic() < deadline
                time.sleep(0.01)
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def _folders(context: Context) -> list[Path]:
    folder = context.layout("data").audits
    return list(folder.iterdir()) if folder.exists() else []


def _looked(path: Path) -> int:
    """How many rows the elements noted so far."""
    rows = 0
    for seen in path.glob("seen/*.json"):
        rows += sum(end - start for start, end in json.loads(seen.read_text())["ranges"])
    return rows


@pytest.mark.parametrize(
    "moment",
    [
        lambda path: (path / "audit.json").exists(),
        lambda path: (path / "plan.json").exists(),
        lambda path: _looked(path) > 0,
    ],
    ids=["described", "planned", "reading"],
)
def test_a_killed_audit_goes_on(large: Context, tmp_path: Path, moment: Callable[[Path], bool]) -> None:
    killed(large, tmp_path, moment)
    layout = large.layout("data")
    audit, end = next(audits_and_adoptions.audits_of(layout))
    assert not end
    looked = _looked(audit.layout(layout).folder)
    events_of(large).clear()
    result = audit_step.run(large, "data")
    assert result["audit"] == audit.id
    assert any("going on with" in str(e.data.get("text")) for e in events_of(large))
    assert [f.path for f in result["findings"]] == ["f00", f"f{COUNT - 1}"]
    # What was noted is not read again.
    assert result["resumed"] == looked
    assert result["rows"] == COUNT
    # It is closed: the same question is a new audit from here.
    assert audits_and_adoptions.open_audit(layout, audit.release, audit.seal, AuditSelection()) is None


def test_killed_between_its_elements_end_and_its_report(large: Context, tmp_path: Path) -> None:
    """The controller stands still while its elements go on to their end; then it is killed."""
    layout = large.layout("data")
    stopped: list[int] = []

    def ended(path: Path) -> bool:
        if not stopped and _looked(path):
            os.kill(_controller(layout.state), signal.SIGSTOP)
            stopped.append(1)
        return bool(stopped) and _settled(path)

    killed(large, tmp_path, ended, limit="6MiB/s")
    audit, end = next(audits_and_adoptions.audits_of(layout))
    assert not end
    result = audit_step.run(large, "data")
    assert result["audit"] == audit.id
    assert result["resumed"] == COUNT, "nothing is read again"
    assert sum(result["methods"].values()) == COUNT - 2
    assert [f.path for f in result["findings"]] == ["f00", f"f{COUNT - 1}"]


def _settled(path: Path) -> bool:
    """Whether all elements have their receipts."""
    plan = path / "plan.json"
    if not plan.exists():
        return False
    return len(list(path.glob("receipts/audit/*.json"))) == len(json.loads(plan.read_text())["shards"])


def _controller(state: Path) -> int:
    """The process that holds the lock of audits."""
    return int(json.loads((state / "audit.lock").read_text())["pid"])


def test_an_audit_that_was_given_up_is_not_met_again(staged: Context) -> None:
    layout = staged.layout("data")
    _, digest = audit_plan.read_seal(layout, data_of(staged).parent.name)
    release = data_of(staged).parent.name
    old = audits_and_adoptions.begin_audit(layout, release, digest, AuditSelection(), None)
    assert audits_and_adoptions.open_audit(layout, release, digest, AuditSelection()) == old
    assert audits_and_adoptions.open_audit(layout, release, "sha256:other", AuditSelection()) is None
    assert audits_and_adoptions.open_audit(layout, release, digest, AuditSelection("sample", 0.5)) is None
    long_ago = time.time() - array_job.STALE - 60
    os.utime(old.layout(layout).folder / "audit.json", (long_ago, long_ago))
    assert audits_and_adoptions.open_audit(layout, release, digest, AuditSelection()) is None


def test_a_rotation_reads_everything_in_its_turns(staged: Context, files: dict[str, bytes]) -> None:
    flip(data_of(staged) / "d0/f00", 9)
    found: list[dict[str, Any]] = []
    bytes_read = 0
    for turn in range(3):
        result = audit_step.run(staged, "data", audit_step.AuditRequest(rotate=3))
        assert f"slice {turn + 1} of 3" in result["promise"]
        bytes_read += result["bytes"]
        found += result["findings"]
    assert bytes_read == sum(map(len, files.values()))
    assert [f.path for f in found] == ["d0/f00"]
    assert audits_and_adoptions.next_slice(staged.layout("data"), "", "", 3, 0.0).turn == 0
    # What ended keeps what it found, and no more.
    layout = staged.layout("data")
    for audit, _ in audits_and_adoptions.audits_of(layout):
        names = set(os.listdir(audit.layout(layout).folder))
        assert names == {"audit.json", "findings.jsonl", "result.json"}


@pytest.mark.parametrize(
    ("finished", "soon", "following"),
    [
        ([], 0.0, AuditSelection("slice", turn=0, turns=4)),
        ([], 1.0, AuditSelection("slice", turn=0, turns=4)),
        ([], 0.5, AuditSelection("slice", turn=0, turns=4, soon_first=SoonFirst(0.5, 0.0))),
        ([("r0", 2, SoonFirst())], 0.0, AuditSelection("slice", turn=3, turns=4)),
        ([("r0", 3, SoonFirst())], 0.0, AuditSelection("slice", turn=0, turns=4)),
        ([("r0", 2, SoonFirst())], 0.5, AuditSelection("slice", turns=4, soon_first=SoonFirst(0.5, 0.75))),
        ([("r1", 2, SoonFirst())], 0.5, AuditSelection("slice", turn=3, turns=4)),
        ([("r1", 2, SoonFirst()), ("r0", 3, SoonFirst())], 0.5, AuditSelection("slice", turn=0, turns=4)),
        (
            [("r1", 2, SoonFirst(0.5, 0.1)), ("r0", 0, SoonFirst())],
            0.9,
            AuditSelection("slice", turn=3, turns=4, soon_first=SoonFirst(0.5, 0.1)),
        ),
        ([("r0", 2, SoonFirst(0.5, 0.25))], 0.0, AuditSelection("slice", turn=3, turns=4)),
        (
            [("r0", 2, SoonFirst(0.5, 0.75))],
            0.2,
            AuditSelection("slice", turns=4, soon_first=SoonFirst(0.2, 0.25)),
        ),
    ],
)
def test_the_slice_that_follows(
    staged: Context,
    finished: list[tuple[str, int, SoonFirst]],
    soon: float,
    following: AuditSelection,
) -> None:
    """Of release r1; another rotation's, and what was stopped, does not count."""
    layout = staged.layout("data")
    for release, turn, soon_first in finished:
        choice = AuditSelection("slice", turn=turn, turns=4, soon_first=soon_first)
        audit = audits_and_adoptions.begin_audit(layout, release, "sha256:aa", choice, None)
        small_files.write_json(audit.layout(layout).result, {})
    audits_and_adoptions.begin_audit(
        layout, "r1", "sha256:aa", AuditSelection("slice", turn=1, turns=4), None
    )
    other = audits_and_adoptions.begin_audit(
        layout, "r1", "sha256:aa", AuditSelection("slice", turn=1, turns=5), None
    )
    small_files.write_json(other.layout(layout).result, {})
    assert audits_and_adoptions.next_slice(layout, "r1", "sha256:aa", 4, soon) == following


def test_two_audits_at_once_are_refused(staged: Context) -> None:
    layout = staged.layout("data")
    with audit_step.auditing(staged, layout, "other", "audit"), pytest.raises(LockedError) as caught:
        audit_step.run(staged, "data")
    assert caught.value.exit_code == 7
    assert str(os.getpid()) in str(caught.value)


def test_the_limit_is_shared_by_the_elements(staged: Context) -> None:
    layout = staged.layout("data")
    release = data_of(staged).parent.name
    seal, digest = audit_plan.read_seal(layout, release)
    audit = audits_and_adoptions.begin_audit(layout, release, digest, AuditSelection(), 1000)
    audit_plan.plan(staged, layout, audit, seal)
    told = json.loads(audit.layout(layout).run_file.read_text())
    assert told["config"]["engine"]["limit"] == 1000
    # Met again with another limit, the elements follow that one.
    audit_plan.plan(staged, layout, audit._replace(limit=70), seal)
    assert json.loads(audit.layout(layout).run_file.read_text())["config"]["engine"]["limit"] == 70


def test_no_release_no_audit(staged: Context) -> None:
    with pytest.raises(ConfigError, match="no such release"):
        audit_step.run(staged, "data", audit_step.AuditRequest(release="x"))
