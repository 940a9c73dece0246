"""What `penstock plan` says of a dataset's next run, by real listings; and that it changes nothing."""

from __future__ import annotations

import json
import os
import re
import tempfile
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.commands import penstock
from tests.support.published import published
from tests.support.staging_runs import context_for, tree

from penstock.cli import main
from penstock.config import quantities
from penstock.config.settings import BandwidthConfig, PlanConfig
from penstock.core import typed_json
from penstock.core.errors import PreflightError
from penstock.core.estimates import ASSUMED, Work
from penstock.look import explanation

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.catalogue_rows import Explanation
    from penstock.dataset.context import Context

NOTHING = quantities.Assumption()
FILES = {
    **{f"small/{index}": b"x" * 10 for index in range(40)},
    "large": b"y" * 300_000,
    "giant": b"z" * 3_000_000,
}
SMALL_GIANTS = PlanConfig(giant_bytes=2_000_000)


def of_data(context: Context, given: str = "") -> Explanation:
    return explanation.of_dataset(context, "data", quantities.read_assumption(given))


@pytest.fixture
def context(tmp_path: Path) -> Context:
    (tmp_path / "target").mkdir()
    return context_for(tmp_path, tree(tmp_path / "source", FILES), plan=SMALL_GIANTS)


def test_a_first_release_is_copied_whole(context: Context) -> None:
    plan = of_data(context)
    assert (plan.files, plan.bytes, plan.current, plan.other_steps) == (42, 3_300_400, "", None)
    assert plan.copied == Work(42, 3_300_400)
    assert [(row.most, row.files, row.bytes) for row in plan.classes if row.files] == [
        (128 << 10, 40, 400),
        (1_999_999, 1, 300_000),
        (None, 1, 3_000_000),
    ]
    assert {c.name: c.origin for c in plan.forecast.ceilings if c.rate is not None} == {
        "elements (bytes)": ASSUMED,
        "elements (files)": ASSUMED,
    }
    assert plan.shards == 1
    assert plan.requests == {}
    assert re.fullmatch("takes .+ of .+ free on .+, and leaves .+", plan.space[0])
    assert typed_json.read(type(plan), json.loads(json.dumps(typed_json.plain(plan)))).copied == plan.copied


def test_nothing_is_written_to_the_target_and_nothing_stays_in_tmpdir(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    of_data(context)
    assert [*os.scandir(context.config.target.root)] == [*os.scandir(scratch)] == []


def test_what_is_given_goes_before_what_is_known_and_binds_where_it_is_the_least(context: Context) -> None:
    capped = replace(context.config, bandwidth=BandwidthConfig(None, 10**6, requests=2))
    context = replace(context, config=capped)
    plan = of_data(context)
    assert plan.forecast.binding is not None
    assert (plan.forecast.binding.name, plan.forecast.seconds) == ("requests to sources", 21)
    plan = of_data(context, "link=1kB/s, nodes=3, egress=1000/GB")
    assert plan.forecast.binding is not None
    assert (plan.forecast.binding.name, plan.forecast.binding.origin) == ("network link", "given")
    assert plan.forecast.seconds == pytest.approx(3300.4)
    assert (plan.nodes, plan.price) == (3, pytest.approx(3.3004))


def test_a_later_run_copies_what_differs_from_the_current_release(tmp_path: Path) -> None:
    source = tree(tmp_path / "source", FILES)
    with published(tmp_path, source, plan=SMALL_GIANTS) as context:
        assert of_data(context).copied == Work(0, 0)
        (source / "large").write_bytes(b"new" * 1000)
        (source / "small/1").unlink()
        (source / "more").write_bytes(b"m")
        plan = of_data(context)
    assert plan.copied == Work(2, 3001)
    assert {kind: count.files for kind, count in plan.changes.items() if count.files} == {
        "unchanged": 40,
        "changed": 1,
        "added": 1,
        "removed": 1,
    }
    assert plan.other_steps is not None
    assert plan.other_steps.release == plan.current
    assert plan.other_steps.seconds > 0


def test_a_target_without_room_is_said_and_not_refused(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    context = context_for(tmp_path, tree(tmp_path / "source", FILES), keep_free=1 << 60)
    assert "the target has too little space for this run" in " ".join(of_data(context).space)


def test_a_source_that_is_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    with pytest.raises(PreflightError, match="the source folder cannot be read"):
        of_data(context_for(tmp_path, tmp_path / "nowhere"))


def test_z3_the_command_answers_without_a_source(capsys: pytest.CaptureFixture[str]) -> None:
    """Z3"""
    text = "20PB, 200M files, nodes=16, link=70Gbit/s"
    assert main.main(["plan", "--explain", "--assume", text]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "200,000,000 files, 17.8 PiB, as given; 16 nodes" in out
    assert "network link 8.15 GiB/s 522 MiB/s 635 h <-- binds" in out
    assert "Copy 635 to 679 h" in out
    assert "Not known source, target's writes, target's metadata, nodes' networks, nodes' CPUs" in out


def test_o4_the_command_shows_ceilings_in_sum_and_by_node(capsys: pytest.CaptureFixture[str]) -> None:
    """O4"""
    assert main.main(["plan", "--assume", "89.6TB, 1M files, nodes=16, nic=100Gbit/s, writes=140GB/s"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "target's writes 130 GiB/s 8.15 GiB/s 10 min 40 s <-- binds" in out
    assert "nodes' networks 186 GiB/s 11.6 GiB/s 7 min 28 s " in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--assume", "nodes=4"], "penstock.yaml"),
        (["d", "--assume", "4GB"], "a size is given, and a dataset is named that has its own [--assume]"),
        (["--assume", "link=0GB/s"], "link=0GB/s: must be more than nothing"),
        (["--assume", "wire=1GB/s"], "wire=1GB/s: there are nodes, link, source, writes"),
    ],
)
def test_what_cannot_be_answered_ends_with_2(words: list[str], said: str, tmp_path: Path) -> None:
    done = penstock("plan", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
