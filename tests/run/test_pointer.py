"""Where `current` belongs when the source comes and goes, and when somebody sets it by hand."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
from tests.support.staging_runs import events_of, tree
from tests.support.whole_way import content, go, staging

from penstock.dataset import receipts, run_store
from penstock.look import status_report

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.dataset.context import Context


class Dataset:
    """A dataset whose source holds A, or something else."""

    def __init__(self, context: Context, source: Path) -> None:
        self.context, self.source = context, source
        self.layout = context.layout("data")
        self.releases: dict[str, str] = {}

    def holds(self, name: str) -> None:
        """Move the source's `latest` link to the version of this name."""
        version = self.source.parent / "versions" / name
        if not version.exists():
            tree(version, {"same": b"same", name: name.encode()})
        self.source.unlink(missing_ok=True)
        self.source.symlink_to(version)

    def stage(self, name: str) -> dict[str, object]:
        self.holds(name)
        return self.again(name)

    def again(self, name: str) -> dict[str, object]:
        receipt = go(self.context)
        assert self.releases.setdefault(name, receipt["release"]) == receipt["release"], "the same release"
        return receipt

    def current(self) -> str:
        named = os.path.basename(os.readlink(self.layout.current))
        return next(name for name, release in self.releases.items() if release == named)

    def by_hand(self, name: str) -> None:
        self.layout.current.unlink()
        self.layout.current.symlink_to(f"releases/{self.releases[name]}")

    def history(self) -> list[tuple[str, str]]:
        lines = [json.loads(line) for line in self.layout.history.read_text().splitlines()]
        back = {release: name for name, release in self.releases.items()}
        return [(line["event"], back[line["release"]]) for line in lines]

    def said(self) -> str:
        return "\n".join(str(e.data["text"]) for e in events_of(self.context) if e.kind == "note")


@pytest.fixture
def dataset(tmp_path: Path) -> Iterator[Dataset]:
    with staging(tmp_path, tmp_path / "latest") as context:
        yield Dataset(context, tmp_path / "latest")


def test_a_b_a_is_a(dataset: Dataset) -> None:
    for name in "ABA":
        receipt = dataset.stage(name)
        assert dataset.current() == name
        assert receipt["current"] == dataset.releases[name]
        assert content(dataset.layout.current / "data") == content(dataset.source)
    assert dataset.history() == [("publish", name) for name in "ABA"]
    assert "the source holds again what release" in dataset.said()
    before = dataset.layout.history.read_bytes()
    assert go(dataset.context, upto="list")["published"]
    go(dataset.context)
    assert dataset.layout.history.read_bytes() == before
    dataset.stage("B")
    assert dataset.current() == "B"


def test_set_back_by_hand_it_stays_until_the_source_changes(dataset: Dataset) -> None:
    for name in "AB":
        dataset.stage(name)
    dataset.by_hand("A")
    for _ in range(2):
        listed = go(dataset.context, upto="list")
        assert listed["published"]
        dataset.again("B")
        assert dataset.current() == "A"
    assert f"`current` was set to {dataset.releases['A']} since: it stays there" in dataset.said()
    assert dataset.history() == [("publish", "A"), ("publish", "B")]
    told = status_report.run(dataset.context, "data")
    assert told["state"] == "published"
    assert told["why"] == f"{dataset.releases['B']} is published, current is {dataset.releases['A']}"
    dataset.stage("C")
    assert dataset.current() == "C"


def test_the_source_follows_the_hand_and_goes_on(dataset: Dataset) -> None:
    """`current` is A by hand, then the source holds A, then B again: that is a change of the source."""
    for name in "AB":
        dataset.stage(name)
    dataset.by_hand("A")
    dataset.stage("A")
    assert dataset.current() == "A"
    assert dataset.history()[-1] == ("publish", "A")
    dataset.stage("B")
    assert dataset.current() == "B"


def test_a_rollback_that_the_history_tells_of_stays_too(dataset: Dataset) -> None:
    for name in "AB":
        dataset.stage(name)
    dataset.by_hand("A")
    led = {"from": dataset.releases["B"], "release": dataset.releases["A"]}
    line = {"format": 1, "event": "rollback", **led}
    with dataset.layout.history.open("a") as stream:
        stream.write(json.dumps(line) + "\n")
    dataset.again("B")
    assert dataset.current() == "A"
    dataset.stage("A")
    dataset.stage("B")
    assert dataset.current() == "B"


def test_a_line_that_an_overtaken_run_wrote_late_is_not_the_last_word(dataset: Dataset) -> None:
    for name in "AB":
        dataset.stage(name)
    late, last = dataset.layout.history.read_text().splitlines()
    dataset.layout.history.write_text(f"{last}\n{late}\n")
    found = run_store.last_move(dataset.layout)
    assert found is not None
    assert found.release == dataset.releases["B"]
    dataset.by_hand("A")
    dataset.again("B")
    assert dataset.current() == "A"


def test_stopped_between_the_rename_and_the_history_it_is_noted(dataset: Dataset) -> None:
    for name in "AB":
        dataset.stage(name)
    content_of = dataset.layout.history.read_text().splitlines()
    dataset.layout.history.write_text(content_of[0] + "\n")
    folder = run_store.open_run(dataset.layout).folder
    receipts.drop(folder.receipt("publish"))
    dataset.again("B")
    assert dataset.current() == "B"
    assert dataset.history() == [("publish", "A"), ("publish", "B")]
