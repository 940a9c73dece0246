"""What verify, summary and report say of shards that elements read back while others were copied."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from tests.support.one_shard import do_shard
from tests.support.staging_runs import events_of, tree
from tests.support.whole_way import FILES, go, staging

from penstock.core.run_steps import Ended, Started
from penstock.dataset import run_store
from penstock.look.views import html_report, run_summary
from penstock.look.views.line_view import Lines
from penstock.run import report_step, verify_step

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.core.run_steps import Event
    from penstock.dataset.context import Context


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Context]:
    with staging(tmp_path, tree(tmp_path / "source", FILES)) as made:
        yield made


def read_beside(context: Context, shards: int) -> int:
    """The bytes of the run's first shards, which are read back before verify begins."""
    go(context, upto="permissions")
    run = run_store.open_run(context.layout("data"))
    for index in run.indices[:shards]:
        assert do_shard(run.folder, "verify", index) == 0
    return sum(run.shards[index].bytes for index in run.indices[:shards])


def verified(context: Context) -> tuple[list[Event], str]:
    """The events of verify, and the lines that show them."""
    before = len(events_of(context))
    verify_step.run(context, "data")
    stream = io.StringIO()
    view = Lines(stream)
    events = events_of(context)[before:]
    for event in events:
        view(event)
    return events, stream.getvalue()


def test_a_verify_that_finds_all_read_back_is_one_calm_line(context: Context) -> None:
    size = read_beside(context, 99)
    shards = len(run_store.open_run(context.layout("data")).indices)
    events, lines = verified(context)
    assert not any(isinstance(event, Started) for event in events), "no bar from 0"
    assert lines.endswith(f"data verify: done: all {shards} shards were read back while others were copied\n")
    assert lines.count("\n") == 1
    result = report_step.gather(context, run_store.open_run(context.layout("data")))
    assert result["verified"]["beside_copy_bytes"] == result["verified"]["bytes"] == size
    assert result["verified"]["moved_bytes"] == 0
    assert (
        f"Verified      {len(FILES)} files, 213 KiB, of them 213 KiB beside the copy\n"
        in run_summary.render(result)
    )
    (row,) = [html_report._step(step) for step in result["steps"] if step["step"] == "verify"]
    assert (row.why, row.rate) == ("213 KiB of them beside the copy", "")


def test_what_verify_reads_itself_has_its_own_seconds(context: Context) -> None:
    size = read_beside(context, 1)
    events, lines = verified(context)
    assert any(isinstance(event, Started) for event in events)
    (ended,) = [event.result for event in events if isinstance(event, Ended)]
    assert ended["beside_copy_bytes"] == size
    assert ended["moved_bytes"] == sum(map(len, FILES.values())) - size
    assert " KiB beside the copy, " in lines
    assert " KiB now in " in lines
    verify_step.run(context, "data")
    result = report_step.gather(context, run_store.open_run(context.layout("data")))
    assert result["verified"]["beside_copy_bytes"] == size, "also after a further command"
    assert " KiB beside the copy, " in run_summary.render(result)
    assert " KiB after it in " in run_summary.render(result)


def test_what_is_read_back_by_verify_alone_is_not_named(context: Context) -> None:
    read_beside(context, 0)
    _, lines = verified(context)
    result = report_step.gather(context, run_store.open_run(context.layout("data")))
    assert "beside" not in lines + run_summary.render(result)
    assert "beside_copy_bytes" not in result["verified"]
