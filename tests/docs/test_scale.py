"""What docs/scale.md rests on: the simulation, by the calibration that is kept beside it."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from benchmarks import scale, scale_large
from benchmarks.scale import predict
from benchmarks.scale_simulation import Calibration, Pace, Shape, Step, Work, cut
from tests.support.commands import ROOT

KNOWN = scale.loaded(ROOT / "benchmarks/scale.json")
BOUND = Pace(first=1.0, turn=1.0, fixed=1.0, a_byte=1e-6, a_file=0.0)
PLAIN = Calibration(before=0.0, between=0.0, after=0.0, copy=BOUND, verify=BOUND, noticed=20.0)
SHAPE = Shape([(4000, 1_000_000)], nodes=8, slots=8, shard_files=50)


def copied(shape: Shape, known: Calibration = PLAIN) -> tuple[float, float]:
    """Seconds of copy, and files that were copied once more."""
    forecast = predict(shape, known)
    return forecast.parts[1], forecast.again


def test_shards_are_those_of_a_plan_and_hold_all_rows() -> None:
    shape = Shape([(1003, 10_000), (77, 5_000_000)], nodes=4, slots=4, shard_files=100)
    decision, shards = cut(shape)
    assert (decision.shards, len(shards)) == (11, 11)
    assert sum(shard.files for shard in shards) == shape.files
    assert sum(shard.size for shard in shards) == shape.bytes


def test_half_of_the_nodes_take_twice_as_long() -> None:
    whole, _ = copied(SHAPE)
    half, _ = copied(replace(SHAPE, nodes=4, slots=8))
    throttled, _ = copied(replace(SHAPE, slots=4))
    assert half / whole == pytest.approx(2.0, rel=0.02)
    assert throttled == pytest.approx(half, rel=0.02)


def test_a_link_that_all_share_takes_as_long_with_any_nodes() -> None:
    link = replace(PLAIN, link=2e6)
    seconds = [copied(replace(SHAPE, nodes=nodes, slots=nodes), link)[0] for nodes in (4, 8)]
    assert seconds == pytest.approx([SHAPE.bytes / 2e6] * 2, rel=0.05)


def test_a_budget_of_metadata_operations_bounds_files_and_not_bytes() -> None:
    small = replace(SHAPE, objects=[(4000, 100)])
    assert copied(small, replace(PLAIN, metadata=40.0))[0] == pytest.approx(100, rel=0.3)
    assert copied(SHAPE, replace(PLAIN, metadata=40.0))[0] == copied(SHAPE)[0]


def test_what_a_lost_node_did_not_finish_is_done_once_more_and_nothing_else() -> None:
    shape = Shape([(400, 1_000_000)], nodes=4, slots=4, shard_files=100)
    whole, none = copied(shape)
    known = replace(PLAIN, copy=replace(BOUND, turn=0.0, first=0.0, fixed=0.0))
    assert none == 0.0
    assert whole == pytest.approx(102.0)
    # 50.5 files were copied; eight streams hold half of a file each; the rest follows on a node that is free.
    late, again = copied(replace(shape, lost=[(50.5, None)]), known)
    assert again == pytest.approx(4.5)
    assert late == pytest.approx(100 + 54)
    # The node is noticed to be lost after 20 s; back before that, nothing changes for its element.
    back, _ = copied(replace(shape, lost=[(50.5, 5.0)]), known)
    assert back == pytest.approx(50.5 + 20 + 54)
    with pytest.raises(ValueError, match="no node is left"):
        copied(replace(shape, lost=[(10.0, None)] * 4))


def test_arrays_hold_the_workers_and_follow_where_the_time_of_a_job_ends() -> None:
    shape, works = replace(SHAPE, max_array=3), [Work(1, 1_000_000)] * 80
    brief, long = Step(shape, PLAIN, BOUND, works), Step(shape, PLAIN, replace(BOUND, fixed=1000.0), works)
    assert brief.run() < long.run()
    assert (brief.arrays, long.arrays) == (3, 3)
    longer = Step(shape, PLAIN, replace(BOUND, fixed=2000.0), works)
    assert 4 * 3600 < longer.run() < 8 * 3600
    assert longer.arrays == 6


def test_workers_read_back_beside_the_copy_and_all_read_what_is_left() -> None:
    pace = Pace(first=0.0, turn=0.0, fixed=0.0, a_byte=1e-6, a_file=0.0)
    works = [Work(1, 1_000_000)] * 80

    def copied_and_read(
        beside: Pace, lost: list[tuple[float, float | None]] | None = None
    ) -> tuple[float, float]:
        step = Step(SHAPE, PLAIN, pace, works, lost or [], beside)
        ended = step.run()
        return step.copied, ended

    assert copied_and_read(pace) == pytest.approx((10.0, 11.0))
    # Reading is no faster than copying, and where it is slower, all workers read at the end.
    assert copied_and_read(replace(pace, a_byte=1e-7)) == pytest.approx((10.0, 11.0))
    assert copied_and_read(replace(pace, a_byte=2e-6)) == pytest.approx((10.0, 21.0))
    # A lost node's reading begins anew, once that is noticed.
    assert copied_and_read(pace, [(4.5, None)]) == pytest.approx((25.5, 26.5))


def test_elements_that_nothing_binds_take_what_each_takes() -> None:
    at_once = replace(PLAIN, copy=replace(BOUND, a_byte=0.0))
    assert copied(replace(SHAPE, nodes=4, slots=4), at_once)[0] == pytest.approx(80 / 4 * 2)


def test_a_pace_is_fitted_to_elements_of_which_some_are_bound_by_files() -> None:
    def element(number: int, files: int, size: int) -> scale.Element:
        took = 2.0 + max(files * 0.1, size * 1e-6)
        begun = 100.0 * number
        return scale.Element("n1", -1.0, begun, begun + took, Work(files, size), 8)

    elements = [
        element(number, files, size)
        for number, (files, size) in enumerate([(100, 1000), (50, 1000), (4, 10**7), (4, 2 * 10**7)])
    ]
    pace = scale.pace(elements)
    assert pace.first == 1.0
    assert (pace.fixed, pace.a_byte, pace.a_file) == pytest.approx((2.0, 1e-6, 0.1), rel=0.01)


def test_the_page_has_what_a_thousand_nodes_are_predicted_to_take_within_seconds() -> None:
    """20 PB and 10^9 objects are simulated in seconds, and docs/scale.md says what came out."""
    shape, site = scale_large.cases(KNOWN)["half of the nodes"]
    assert (shape.files, shape.bytes, shape.slots) == (10**9, 20 * 10**15, 500)
    begun = time.process_time()
    line = scale_large.row("half of the nodes", shape, site)
    assert time.process_time() - begun < 60
    assert line in (ROOT / "docs/scale.md").read_text()
