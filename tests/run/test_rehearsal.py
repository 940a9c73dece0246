"""A rehearsal copies a sample for real, keeps its figures, and leaves nothing of the sample behind, however
it ends."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import random
import signal
import sys
import threading
import time
import xml.dom.minidom
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.commands import penstock, started, until
from tests.support.images import file_system
from tests.support.s3server import S3Server
from tests.support.staging_runs import events_of, tree
from tests.support.whole_way import go, staging

from penstock.config.settings import (
    BandwidthConfig,
    EngineConfig,
    PlanConfig,
    SourceConfig,
    TargetConfig,
    VerifyConfig,
)
from penstock.core import estimates
from penstock.core.errors import (
    FailedError,
    InterruptedRunError,
    LockedError,
    NoSpaceError,
    PreflightError,
)
from penstock.core.layout import DATA
from penstock.core.run_documents import (
    FILE_COST,
    REHEARSAL,
    Leg,
    Load,
    Rehearsal,
    knee,
    size_distance,
)
from penstock.core.run_steps import Warned
from penstock.dataset import documents
from penstock.jobs.dataset_state import holding
from penstock.jobs.forecast import cost_rate, element_rates, known
from penstock.look import explanation, release_comparison
from penstock.run import rehearsal
from penstock.target import notices
from penstock.target.room_watch import RoomWatch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context

DRAW = random.Random(3)
FILES = {
    f"{number % 7}/{number:04d}": DRAW.randbytes(min(90_000, int(DRAW.lognormvariate(7, 2))))
    for number in range(300)
} | {"giant": b"g" * 100_000}
LONG = 120.0
"""Seconds: a sample of these files is copied whole before."""
SECOND = 300 - rehearsal.FIRST
"""Files of the second slice then: the largest, of which the first is taken off."""
MORE = (SECOND - rehearsal.FIRST, SECOND)
"""How many files count, or SECOND where the small slices took as long as the large one."""


def left(layout: DatasetLayout) -> list[str]:
    """What lies on the target beside the state's folder."""
    notice = [layout.repair_under_way.name] if layout.repair_under_way.exists() else []
    return sorted([*(os.listdir(layout.releases) if layout.releases.exists() else []), *notice])


def kept(layout: DatasetLayout) -> Rehearsal:
    return documents.load(REHEARSAL, layout.rehearsal_result)


def test_a_sample_is_copied_and_read_back_and_the_plan_goes_by_it(context: Context) -> None:
    """Z4: the distance is reported and below 0.05, and so is the error of the plan's figures until then."""
    layout = context.layout("data")
    assert known(context.config, layout)["files"].rate == estimates.Rate(1000, "assumed")
    made, sizes = rehearsal.rehearse(context, "data", LONG)
    assert (made.files, made.sample, len(made.legs), made.knee) == (300, 300, 1, 0)
    leg = made.leg
    assert not Counter(sizes) - Counter(len(content) for name, content in FILES.items() if name != "giant")
    assert leg.files in MORE
    assert 0 < leg.bytes <= sum(sizes)
    assert leg.distance < 0.05
    assert min(leg.seconds, leg.read_seconds) > 0
    assert made.model_error == pytest.approx(
        (leg.files / 1000 + leg.bytes / 1e9) / leg.seconds - 1, abs=0.001
    )
    assert kept(layout) == made
    assert left(layout) == []
    rates = known(context.config, layout)
    rate = rates["files"].rate
    assert rate is not None
    assert rate.value == pytest.approx(leg.rates[0])
    assert rate.origin == f"rehearsed {made.day}"
    text = "\n".join(line.text for line in explanation.render_rehearsal(made))
    assert f"KS distance {leg.distance:.3f}" in text
    assert "model" in text


def test_a_release_that_is_measured_later_takes_its_place(context: Context) -> None:
    made, _ = rehearsal.rehearse(context, "data", LONG)
    layout = context.layout("data")
    past = made._replace(at="2001-01-01T00:00:00Z")
    documents.write(REHEARSAL, layout.rehearsal_result, past)
    # Slow enough for its copy to count.
    context.config = replace(context.config, engine=EngineConfig(workers=1, limit=1_000_000))
    load = Load(FILE_COST, 0, 1)
    assert cost_rate(layout, load) is None  # shards are not cut by a rehearsal
    release = go(context)["release"]
    assert element_rates(layout).origin == f"release {release}"
    assert cost_rate(layout, load) == pytest.approx(FILE_COST * element_rates(layout).files_per_second)
    newer = made._replace(at="2101-01-01T00:00:00Z")
    documents.write(REHEARSAL, layout.rehearsal_result, newer)
    assert element_rates(layout).origin == f"rehearsed {newer.day}"
    assert element_rates(layout).files_per_second == pytest.approx(made.leg.rates[0])
    layout.rehearsal_result.write_text("no document")
    assert element_rates(layout).origin == f"release {release}"


def test_s3_is_read_for_real(tmp_path: Path) -> None:
    source = tree(tmp_path / "source", FILES)
    with S3Server(source) as server:
        options = {"endpoint_url": server.endpoint, "anon": True}
        sources = (SourceConfig(server.url(), "", options),)
        plan = PlanConfig(giant_bytes=100_000, part_bytes=50_000)
        with staging(tmp_path, server.url(), plan=plan, sources=sources) as context:
            made, _ = rehearsal.rehearse(context, "data", LONG)
            asked = {one.key for one in server.requests() if one.method == "GET" and one.key}
    assert made.leg.files in MORE
    assert len(asked & set(FILES)) >= 300 - list(FILES.values()).count(b"")
    assert "giant" not in asked
    assert left(context.layout("data")) == []


def test_a_sweep_on_a_stub_finds_its_knee_and_writes_the_table(tmp_path: Path) -> None:
    """A3"""

    def stub(streams: int | None) -> tuple[Leg, list[int]]:
        rate = min(streams or 0, 24) * 1e8
        return Leg(streams or 0, 10, int(10 * rate), 10.0, 5.0, 0.01), [1]

    legs = [leg for leg, _ in rehearsal.sweep([8, 16, 32, 64], stub)]
    assert knee(legs) == 32
    made = Rehearsal("data", "2026-11-02T12:00:00Z", "n1", 10, 10, legs, 32, "fsync")
    rows = list(csv.DictReader(explanation.csv(made).splitlines()))
    assert [(row["streams"], row["knee"]) for row in rows] == [
        ("8", "0"),
        ("16", "0"),
        ("32", "1"),
        ("64", "0"),
    ]
    assert float(rows[1]["bytes_per_second"]) == 1.6e9
    assert float(rows[1]["read_per_second"]) == 3.2e9
    drawing = xml.dom.minidom.parseString(explanation.svg(made))
    bars = [one.getAttribute("class") for one in drawing.getElementsByTagName("rect")]
    assert bars == ["b", "b", "a", "b"]
    assert any("32 streams: `engine.streams: 32`" in line.text for line in explanation.render_rehearsal(made))


def test_each_number_of_streams_is_tried_also_while_a_hold_stands(context: Context) -> None:
    layout = context.layout("data")
    layout.root.mkdir()
    (layout.root / "HOLD").write_text("data a target is checked\n")
    made, _ = rehearsal.rehearse(context, "data", LONG, (1, 3))
    assert [leg.streams for leg in made.legs] == [1, 3]
    assert all(leg.files in MORE and leg.distance < 0.05 for leg in made.legs)
    assert made.knee in (1, 3)


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Context]:
    """The same dataset at a few files a second."""
    source = tree(tmp_path / "source", FILES)
    with staging(tmp_path, source) as context:
        context.config = replace(context.config, engine=EngineConfig(workers=1, limit=40_000))
        yield context


def test_the_time_ends_it_and_whole_slices_count_alone(context: Context) -> None:
    context.config = replace(context.config, engine=EngineConfig(workers=1, limit=100_000))
    made, sizes = rehearsal.rehearse(context, "data", 12.0)
    assert 0 < made.leg.files <= len(sizes) < SECOND
    assert made.leg.distance < 0.05
    assert made.leg.rates[1] < 110_000
    assert left(context.layout("data")) == []


def test_a_slice_that_is_cut_off_leaves_nothing_to_the_next_leg(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rehearsal, "FILLED", 50.0)
    context.config = replace(context.config, engine=EngineConfig(workers=1, limit=100_000))
    made, _ = rehearsal.rehearse(context, "data", 24.0, (1, 2))
    assert [(leg.streams, leg.files) for leg in made.legs] == [(1, rehearsal.FIRST), (2, rehearsal.FIRST)]
    assert left(context.layout("data")) == []


def test_too_short_a_time_says_so(slow: Context) -> None:
    with pytest.raises(FailedError, match=r"(?s)the time is too short.*--time") as caught:
        rehearsal.rehearse(slow, "data", 1.5)
    assert "64 files" in str(caught.value)
    layout = slow.layout("data")
    assert left(layout) == []
    assert not layout.rehearsal_result.exists()


def test_a_signal_leaves_nothing(slow: Context) -> None:
    layout = slow.layout("data")
    with watched(slow) as failed:
        until(lambda: (layout.rehearsal / DATA).exists() or failed, "the folder")
        slow.stop.set(signal.SIGTERM)
    assert isinstance(failed[0], InterruptedRunError)
    assert "nothing of the sample is left" in str(failed[0])
    assert left(layout) == []
    assert not layout.rehearsal_result.exists()


@contextlib.contextmanager
def watched(context: Context, seconds: float = LONG) -> Iterator[list[Any]]:
    """A rehearsal in a thread; at the end what it returned, or raised."""
    ended: list[Any] = []

    def work() -> None:
        try:
            ended.append(rehearsal.rehearse(context, "data", seconds)[0])
        except Exception as error:  # noqa: BLE001 (the test looks at it)
            ended.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield ended
    finally:
        thread.join(60)
    assert ended


def test_what_a_killed_rehearsal_left_the_next_step_removes(tmp_path: Path, slow: Context) -> None:
    layout = slow.layout("data")
    settings = {
        "target": {"root": str(layout.root), "keep_free": "1MiB"},
        "engine": {"limit": "320kbit/s"},
        "datasets": {"data": {"source": str(tmp_path / "source")}},
    }
    (tmp_path / "penstock.yaml").write_text(json.dumps(settings))
    words = [sys.executable, "-m", "penstock", "--progress", "off", "rehearse", "data"]
    with started(*words, cwd=tmp_path, env={"PENSTOCK_AS_ROOT": "1"}) as process:
        until(lambda: (layout.rehearsal / DATA).exists() or process.poll() is not None, "the folder")
        assert process.poll() is None, process.stdout and process.stdout.read()
        process.kill()
        process.wait()
    assert layout.rehearsal.name in left(layout)
    with holding(slow, "data", "", "list"):
        assert layout.rehearsal.name not in left(layout)


def test_while_pause_stands_it_rests_and_its_time_with_it(context: Context) -> None:
    """What was copied meanwhile is not counted."""
    layout = context.layout("data")
    context.config = replace(context.config, engine=EngineConfig(workers=1, limit=200_000))
    layout.root.mkdir()
    looks = list[float]()
    watch = notices.PauseWatch(layout.root, lambda _: looks.append(time.monotonic()), every=0.1)
    with notices.watching(watch), watched(context, 6.0) as ended:
        until(lambda: (layout.rehearsal / DATA).exists() or ended, "the folder")
        (layout.root / notices.PAUSE_NAME).touch()
        until(lambda: looks or ended, "the rest")
        began = time.monotonic()
        until(lambda: time.monotonic() - began > 7, "more than its time")
        assert not ended
        (layout.root / notices.PAUSE_NAME).unlink()
    assert isinstance(ended[0], Rehearsal), ended
    assert ended[0].leg.seconds < 6
    assert ended[0].leg.rates[1] > 50_000
    assert left(layout) == []


def test_a_target_without_room_is_not_filled(tmp_path: Path) -> None:
    source = tree(tmp_path / "source", FILES)
    with file_system(tmp_path, "tmpfs", size=300 << 10) as point, staging(point, source) as context:
        with pytest.raises(NoSpaceError, match="too little space"):
            rehearsal.rehearse(context, "data", LONG)
        assert left(context.layout("data")) == []


def test_where_a_later_slice_does_not_fit_what_was_measured_is_kept(tmp_path: Path) -> None:
    """In room for the first slice, and not for the rest of the sample."""
    source = tree(tmp_path / "source", {f"{number:04d}": bytes(20_000) for number in range(300)})
    with file_system(tmp_path, "tmpfs", size=4 << 20) as point, staging(point, source) as context:
        layout = context.layout("data")
        done, sizes = rehearsal.rehearse(context, "data", LONG)
        assert len(sizes) == done.leg.files == rehearsal.FIRST
        assert documents.load(REHEARSAL, layout.rehearsal_result) == done
        assert left(layout) == []
        said = [event.text for event in events_of(context) if isinstance(event, Warned)]
        kept = "a further slice of the sample did not fit, and what was measured before is kept: "
        assert len([text for text in said if text.startswith(kept)]) == 1


def test_a_number_of_streams_that_does_not_fit_leaves_the_figures_of_those_before() -> None:
    def stub(streams: int | None) -> tuple[Leg, list[int]]:
        if streams == 32:
            raise NoSpaceError("too little space")
        return Leg(streams or 0, 10, 10, 10.0, 5.0, 0.01), [1]

    said: list[NoSpaceError] = []
    assert [leg.streams for leg, _ in rehearsal.sweep([8, 16, 32, 64], stub, said.append)] == [8, 16]
    assert len(said) == 1
    with pytest.raises(NoSpaceError):
        rehearsal.sweep([32, 8], stub, said.append)


def test_a_target_that_becomes_full_is_left_as_it_was(tmp_path: Path) -> None:
    """Somebody else takes the room that was there."""
    source = tree(tmp_path / "source", FILES)
    with (
        file_system(tmp_path, "tmpfs", size=4 << 20) as point,
        staging(point, source) as context,
    ):
        context.config = replace(context.config, engine=EngineConfig(workers=1, limit=100_000))
        layout = context.layout("data")
        with watched(context) as ended:
            until(lambda: (layout.rehearsal / "journal").exists() or ended, "the first slice")
            with contextlib.suppress(OSError):
                (point / "full").write_bytes(bytes(8 << 20))
        assert isinstance(ended[0], NoSpaceError), ended
        assert left(layout) == []
        assert not layout.rehearsal_result.exists()


def test_s17_the_room_is_watched_for_what_a_slice_has_left(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[int, int]] = []

    class Recorded(RoomWatch):
        def __call__(self, moved: int = 0, left: int = 0) -> None:
            calls.append((moved, left))
            super().__call__(moved, left)

    monkeypatch.setattr(rehearsal, "RoomWatch", Recorded)
    rehearsal.rehearse(context, "data", LONG)
    first, *_, last = calls
    assert first[1] > 0
    assert [moved for moved, _ in calls] == sorted(moved for moved, _ in calls)
    assert sum(last) == sum(len(data) for path, data in FILES.items() if path != "giant")


def test_an_object_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    files = {f"f{number}": b"x" * 1000 for number in range(30)}
    source = tree(tmp_path / "source", files)
    with staging(tmp_path, source) as context:

        def changed(event: object) -> None:
            if getattr(event, "kind", "") == "end":  # of the listing
                (source / "f7").unlink()

        context.sink = changed
        with pytest.raises(FailedError, match=r"not copied and read back.*f7"):
            rehearsal.rehearse(context, "data", LONG)
    assert left(context.layout("data")) == []


def test_where_nothing_can_be_copied_nothing_is_made(tmp_path: Path) -> None:
    source = tree(tmp_path / "source", {"large": b"l" * 200_000})
    with staging(tmp_path, source) as context:
        with pytest.raises(PreflightError, match=r"nothing to rehearse with.*plan.giant_bytes"):
            rehearsal.rehearse(context, "data", LONG)
        assert not context.layout("data").folder.exists()
        (source / "large").unlink()
        with pytest.raises(PreflightError, match="has 0 objects"):
            rehearsal.rehearse(context, "data", LONG)


def test_a_required_checksum_is_not_asked_of_a_sample(context: Context) -> None:
    """The checksum files beside the data that prove it are fetched by list."""
    context.config = replace(context.config, verify=VerifyConfig(source_checksum="require"))
    made, _ = rehearsal.rehearse(context, "data", LONG)
    assert made.leg.files in MORE


def test_it_keeps_to_the_links_cap_and_to_the_budget_of_operations(tmp_path: Path, context: Context) -> None:
    link = tmp_path / "link"
    link.mkdir(0o700)
    target = TargetConfig(context.config.target.root, keep_free=0, ops=400)
    bandwidth = BandwidthConfig(folder=link, link=300_000)
    context.config = replace(context.config, target=target, bandwidth=bandwidth)
    made, _ = rehearsal.rehearse(context, "data", LONG)
    files, copied, _ = made.leg.rates
    assert copied < 330_000
    assert files * estimates.OPERATIONS_A_FILE < 440
    assert left(context.layout("data")) == []


def test_another_process_with_the_lock_comes_first(context: Context) -> None:
    rehearsal.rehearse(context, "data", LONG)
    layout = context.layout("data")
    assert not [event for event in events_of(context) if isinstance(event, Warned)]
    with holding(context, "data", "", "list"), pytest.raises(LockedError):
        rehearsal.rehearse(context, "data", LONG)
    assert left(layout) == []


def test_the_command_writes_what_was_asked_for(tmp_path: Path, source: Path) -> None:
    settings = {
        "target": {"root": str(tmp_path / "target"), "keep_free": "1MiB"},
        "datasets": {"data": {"source": str(source)}},
    }
    (tmp_path / "penstock.yaml").write_text(json.dumps(settings))
    words = ("--as-root", "--progress", "off", "rehearse", "data", "--time", "40s", "--fio", "job.fio")
    done = penstock(*words, "--sweep", "2,1", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "<- knee" in done.stdout
    rows = list(csv.DictReader((tmp_path / "results/rehearsal-data.csv").read_text().splitlines()))
    assert [row["streams"] for row in rows] == ["1", "2"]
    assert (tmp_path / "results/rehearsal-data.svg").read_text().startswith("<svg xmlns=")
    assert "numjobs=" in (tmp_path / "job.fio").read_text()
    shown = penstock("--progress", "off", "plan", "data", cwd=tmp_path)
    assert "rehearsed " in shown.stdout
    wrong = penstock("--as-root", "rehearse", "data", "--sweep", "8,many", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "numbers of streams from 1 to 4096" in wrong.stderr
    alone = penstock("--as-root", "rehearse", "data", "--csv", "rates.csv", cwd=tmp_path)
    assert alone.returncode == 2
    assert "--csv names the table of --sweep" in alone.stderr
    (tmp_path / "file").touch()
    inside = penstock(*words[:-1], "file/job.fio", cwd=tmp_path)
    assert inside.returncode == 1
    assert "a result cannot be written" in inside.stderr
    assert "rehearsed on" in inside.stdout


def test_the_sample_of_many_files_has_their_sizes(tmp_path: Path) -> None:
    """Z4: also where not all are drawn, and where each folder has sizes of its own."""
    source, count = tmp_path / "source", 20_000
    for number in range(count):
        path = source / f"{number * 40 // count:02d}" / f"{number}"
        if number % 500 == 0:
            path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.truncate(path, int(DRAW.lognormvariate(number * 10 / count, 2)))
    with (
        staging(tmp_path, source, plan=PlanConfig()) as context,
        release_comparison.listing(context, "data") as now,
    ):
        sample, files = rehearsal._draw(now, 1 << 40)
        sizes = list(rehearsal._sizes(now, 1 << 40))
    assert (files, sample.num_rows) == (count, rehearsal.MOST)
    assert len(set(sample["path"].to_pylist())) == rehearsal.MOST
    for some in (sample, sample.slice(0, 64), sample.slice(5000, 100)):
        assert size_distance(some["size"].to_pylist(), sizes) < 0.05
