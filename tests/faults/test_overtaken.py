"""A run that is frozen on one node, taken over by another run on a second one, and then wakes.

Whatever the moment: the second run publishes, `current` never moves back, and the first one ends with 7 and
says which run overtook it, or with 0 where it had come to its end before.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.support.commands import PATIENCE, until
from tests.support.nodes import Node, node
from tests.support.staging_runs import tree
from tests.support.whole_way import content

from penstock.core.errors import PenstockError
from penstock.core.layout import DatasetLayout
from penstock.dataset import dataset_lock, run_store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from _pytest.mark.structures import ParameterSet

HEARTBEAT = 0.05
AT_REAL_VALUES = 480.0
"""Seconds within which a run ends that waits for the real patience."""
FILES = {f"d{i % 3}/{i:02d}": bytes([i]) * (100 * i) for i in range(24)}


class MissedError(Exception):
    """The first run had ended before it could be frozen."""


class Place:
    """A dataset `data` from a folder that changes between runs."""

    def __init__(
        self,
        folder: Path,
        *,
        target: Path | None = None,
        stored: Path | None = None,
        mounted: Mapping[str, tuple[Path, Path]] | None = None,
    ) -> None:
        """`target`: where nodes find it, `stored`: where the tests look, `mounted`: what each node sees."""
        target = target or folder / "target"
        self.mounted = mounted or {}
        self.folder, self.source = folder, tree(folder / "source", FILES)
        self.config = folder / "config.yaml"
        self.config.write_text(
            f"target: {{root: {target}, keep_free: 0}}\ndatasets: {{data: {{source: {folder}/source}}}}\n"
        )
        self.layout = DatasetLayout(stored or target, "data")
        self.changes = 0

    def node(
        self, name: str, *, heartbeat: float | None, pause_after: str = ""
    ) -> AbstractContextManager[Node]:
        mounted = self.mounted.get(name)
        return node(name, self.config, heartbeat=heartbeat, pause_after=pause_after, mounted=mounted)

    def change(self) -> None:
        self.changes += 1
        (self.source / "d0" / "00").write_bytes(b"version %d" % self.changes)

    def state(self, pattern: str) -> bool:
        """Whether the run that was listed last has such a file."""
        standing = dataset_lock.highest_claim(self.layout)
        return standing is not None and any(self.layout.run(standing.run).folder.glob(pattern))

    def staged(self, name: str) -> bool:
        """Whether this is in the staging of the run that was listed last."""
        with contextlib.suppress(PenstockError):
            info = run_store.open_run(self.layout).info
            return (self.layout.staging(info.release) / name).exists()
        return False

    def revealed(self) -> bool:
        """Whether the run that was listed last has its release, and `current` does not name it yet."""
        with contextlib.suppress(PenstockError):
            info = run_store.open_run(self.layout).info
            return self.layout.release(info.release).exists() and not self.current().endswith(info.release)
        return False

    def current(self) -> str:
        return os.readlink(self.layout.current)

    def listed(self, number: int) -> bool:
        return dataset_lock.claim_number(self.layout) > number


# (the step, the moment within it, when it is reached); the number is that of the claim before.
WITHIN: list[tuple[str, str, Callable[[Place, int, Node], bool]]] = [
    ("list", "holds the lock", lambda p, n, _: p.layout.lock.exists()),
    ("list", "gathers", lambda p, n, _: any(p.layout.runs.glob(".new-*"))),
    ("list", "has claimed", lambda p, n, _: p.listed(n)),
    ("plan", "writes shards", lambda p, n, _: p.listed(n) and p.state("shards/*.parquet")),
    ("plan", "has planned", lambda p, n, _: p.listed(n) and p.state("plan.json")),
    ("copy", "has noted its array", lambda p, n, _: p.listed(n) and p.state("arrays.jsonl")),
    ("copy", "keeps a journal", lambda p, n, _: p.listed(n) and p.state("journal/*/*.journal")),
    ("copy", "has copied a shard", lambda p, n, _: p.listed(n) and p.state("receipts/copy/*.json")),
    ("permissions", "has set them", lambda p, n, _: p.listed(n) and p.state("receipts/permissions.json")),
    ("verify", "writes records", lambda p, n, _: p.listed(n) and p.state("records/*.parquet")),
    ("verify", "has verified a shard", lambda p, n, _: p.listed(n) and p.state("receipts/verify/*.json")),
    ("publish", "writes a manifest", lambda p, n, _: p.listed(n) and p.state("receipts/verify.json")),
    ("publish", "has written a manifest", lambda p, n, _: p.listed(n) and p.staged("manifest.parquet")),
    ("publish", "has sealed", lambda p, n, _: p.listed(n) and p.staged("release.json")),
    ("publish", "has revealed", lambda p, n, _: p.listed(n) and p.revealed()),
]
BETWEEN = ("list", "plan", "copy", "permissions", "verify")
# A run that was overtaken learns of it before its claim, at its claim, where a step begins, in an element and
# before each rename of publish: a moment for each.
SAMPLE_WITHIN = (
    "list gathers", "list has claimed", "copy keeps a journal", "publish has sealed", "publish has revealed",
)  # fmt: skip
SAMPLE_BETWEEN = ("list", "copy")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    if os.geteuid() != 0:
        pytest.skip("only root can make namespaces")
    made = Place(tmp_path_factory.mktemp("overtaken"))
    with made.node("nodez", heartbeat=HEARTBEAT) as first:
        assert first.end() == 0, first.said()
    return made


def overtaken(
    place: Place,
    reached: Callable[[Node], bool],
    *,
    pause_after: str = "",
    listing: bool = False,
    heartbeat: float | None = HEARTBEAT,
) -> None:
    """Run A until it stands still, B to its end, wake A; and what must be true."""
    place.change()
    with place.node("nodea", heartbeat=heartbeat, pause_after=pause_after) as a:
        while not (there := reached(a)) and not a.ended():
            time.sleep(0.0005)
        if there:
            a.freeze()
        if a.ended():
            assert a.end() == 0, a.said()
            raise MissedError
        held = place.layout.lock.exists()
        place.change()
        with place.node("nodeb", heartbeat=heartbeat) as b:
            assert b.end(PATIENCE if heartbeat else AT_REAL_VALUES) == 0, b.said()
        assert content(place.layout.current / "data") == content(place.source)
        published = place.current()
        standing = dataset_lock.highest_claim(place.layout)
        assert standing is not None
        if held:
            assert "waiting for root runs `penstock" in b.said()
            assert "on nodea" in b.said()
            assert "took over the lock of root runs" in b.said()
        a.wake()
        code = a.end()
        assert place.current() == published, a.said()
        assert code in (0, 7), a.said()
        if code == 7:
            words = f"was overtaken by run {standing.run}", "by root on nodeb"
            if listing and words[0] not in a.said():
                # What it listed after it woke is the other run's own content.
                words = "the lock of dataset data was lost", "it is gone"
            assert all(some in a.said() for some in words), a.said()
            assert "nothing more was changed" in a.said()
        assert not place.layout.lock.exists()
        last = run_store.last_move(place.layout)
        assert last is not None
        assert (last.run, f"releases/{last.release}") == (standing.run, published)
        if code == 0:
            raise MissedError
    assert content(place.layout.current / "data") == content(place.source)
    assert not [name for name in os.listdir(place.layout.folder) if name.startswith(".current")]


def sampled(name: str, sample: tuple[str, ...], *values: object) -> ParameterSet:
    """A row, which `make test` runs where it is of the sample."""
    marks = [] if name in sample else [pytest.mark.thorough]
    return pytest.param(*values, id=name, marks=marks)


@pytest.mark.parametrize(
    ("step", "moment", "when"), [sampled(f"{row[0]} {row[1]}", SAMPLE_WITHIN, *row) for row in WITHIN]
)
def test_frozen_within_a_step(place: Place, step: str, moment: str, when: Callable[..., bool]) -> None:
    number = dataset_lock.claim_number(place.layout)
    for _ in range(9):
        # Some moments last a millisecond: a run that was faster has published, and the next one is tried.
        with contextlib.suppress(MissedError):
            overtaken(place, partial(when, place, number), listing=step == "list")
            return
        number = dataset_lock.claim_number(place.layout)
    pytest.fail("the moment was missed every time")


@pytest.mark.parametrize("step", [sampled(step, SAMPLE_BETWEEN, step) for step in BETWEEN])
def test_frozen_between_two_steps(place: Place, step: str) -> None:
    overtaken(place, lambda a: a.paused.exists(), pause_after=step)


def test_the_first_run_goes_on_where_nobody_overtook_it(place: Place) -> None:
    """Frozen for long, and woken before anybody came: it ends as if nothing had been."""
    number = dataset_lock.claim_number(place.layout)
    place.change()
    with place.node("nodea", heartbeat=HEARTBEAT) as a:
        until(lambda: (place.listed(number) and place.state("journal/*/*.journal")) or a.ended(), "copy")
        a.freeze()
        a.wake()
        assert a.end() == 0, a.said()
    assert content(place.layout.current / "data") == content(place.source)
    assert json.loads(place.layout.history.read_text().splitlines()[-1])["event"] == "publish"


@pytest.mark.real_patience
@pytest.mark.timeout(600)
def test_at_the_real_values(place: Place) -> None:
    """A heartbeat of 10 s and 120 s of patience."""
    number = dataset_lock.claim_number(place.layout)
    overtaken(place, lambda _: place.listed(number) and place.state("records/*.parquet"), heartbeat=None)
