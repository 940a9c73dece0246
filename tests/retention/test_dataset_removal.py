"""`remove DATASET --all`: a dataset goes by one rename, or nothing of it does."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.retention.test_decision import DAY, GRACE, NOW, known

from penstock.config.settings import GcConfig
from penstock.core.errors import PreflightError
from penstock.dataset import gate, holder, pins
from penstock.keep import collection, retention_steps
from penstock.keep.retention_decision import Criteria, with_dataset
from penstock.run import list_step, plan_step

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.retention.conftest import Releases

    from penstock.keep.retention_decision import Known


@pytest.mark.parametrize(
    ("one", "current", "grace", "held"),
    [
        (known("A", left=None), "A", 0.0, []),
        (
            known("A", left=None),
            "A",
            GRACE,
            ["grace: `current` names it, and 14 d 00 h are waited for its readers"],
        ),
        (known("A", left=3), "B", 4 * DAY, ["grace: it left `current` 3 d 00 h ago, 4 d 00 h are waited"]),
        (known("A", left=3), "B", 0.0, []),
        (known("A"), None, GRACE, []),
        (known("A", held=("pin x", "base: run r", "HOLD: y")), "A", 0.0, ["pin x", "HOLD: y"]),
    ],
)
def test_what_holds_a_release_whose_dataset_is_to_go(
    one: Known, current: str | None, grace: float, held: Sequence[str]
) -> None:
    assert with_dataset(one, current, grace, NOW).held_by == held


def below(releases: Releases) -> list[Path]:
    """Without the folder of the shares of `target.ops`, which is the root's."""
    return sorted(path for path in releases.layout.root.iterdir() if path != releases.layout.operations)


def test_all_of_it_goes_once_its_readers_are_not_waited_for(releases: Releases) -> None:
    releases.begin_with("AB")
    (releases.layout.root / "other").mkdir()
    assert releases.command("remove", "data", releases.names["A"], "--all").returncode == 2
    waits = releases.command("remove", "data", "--all")
    assert (waits.returncode, "grace: `current` names it" in waits.stderr) == (3, True)
    dry = releases.command("remove", "data", "--all", "--now", "--dry-run")
    assert f"the dataset would go, {releases.layout.folder}\n" in dry.stdout
    releases.check()
    done = releases.command("remove", "data", "--all", "--now")
    assert (done.returncode, "removed 2 of 2 releases" in done.stdout) == (0, True), done.stderr
    assert f"the dataset is gone, {releases.layout.folder}\n" in done.stdout
    assert below(releases) == [releases.layout.root / "other"]
    assert releases.command("remove", "data", "--all").returncode == 0
    releases.stage("C")
    releases.check()


def test_a_pin_between_the_mark_and_the_rename_keeps_all_of_it(releases: Releases) -> None:
    releases.begin_with("AB")
    context, layout = releases.context, releases.layout
    context.config = replace(context.config, gc=GcConfig(settle=0.01))
    plain = context.stop.wait

    def wait(seconds: float) -> None:
        assert layout.removing(releases.names["A"]).exists()
        # What a reader does whose look for a mark came before it was there.
        pins._place(layout, releases.names["A"])
        plain(seconds)

    context.stop.wait = wait  # type: ignore[method-assign]
    with pytest.raises(PreflightError, match="pin "):
        retention_steps.remove_all(context, "data", dry_run=False, now=True)
    assert releases.there() == "AB"
    assert not layout.removing(releases.names["A"]).exists()
    assert gate.passed(layout).release == releases.names["B"]


def test_what_is_at_work_and_what_penstock_did_not_make_is_left_alone(releases: Releases) -> None:
    releases.begin_with("A")
    mine = releases.layout.folder / "notes.txt"
    mine.write_text("mine")
    with pytest.raises(PreflightError, match=r"notes\.txt"):
        retention_steps.remove_all(releases.context, "data", dry_run=False, now=True)
    mine.unlink()
    releases.holds("B")
    list_step.run(releases.context, "data")
    plan_step.run(releases.context, "data")
    claim = max(releases.layout.claims.iterdir())
    before = claim.read_text()
    start = holder.start_time(os.getpid())
    claim.write_text(json.dumps({**json.loads(before), "controller": f"{os.getpid()}.{start}"}))
    with pytest.raises(PreflightError, match="its workflow is at work"):
        retention_steps.remove_all(releases.context, "data", dry_run=False, now=True)
    releases.check()
    # A run that did not end, and that nobody works on, goes with its dataset.
    claim.write_text(before)
    retention_steps.remove_all(releases.context, "data", dry_run=False, now=True)
    assert below(releases) == []


def test_killed_after_the_rename_the_same_command_removes_the_files(releases: Releases) -> None:
    releases.begin_with("A")
    criteria = Criteria(0.0, with_dataset=True)
    collection.take_name(releases.context, releases.layout, criteria, "remove")
    (rest,) = below(releases)
    assert rest.name.startswith(".removed-data-")
    assert os.path.isdir(rest / "releases")
    found = retention_steps.remove_all(releases.context, "data", dry_run=False)
    assert (found["cleared"], below(releases)) == (1, [])
