"""How long after its writing each file was read back, as the seal says it."""

from __future__ import annotations

import os
import random
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.whole_way import go, records

from penstock.core.grades import SOON, is_soon, read_delay
from penstock.core.model import Record
from penstock.core.seal import SealedReadDelay
from penstock.dataset import seals
from penstock.fs.capabilities import traits_of_mount
from penstock.look.views import html_report, run_summary
from penstock.run import report_step
from penstock.run.publish_step import BOUND_RATIO, ReadDelays
from penstock.tables.manifest import Files

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.dataset.context import Context

SECOND = 10**9
NOW = 1_700_000_000
BLANK: dict[str, Any] = dict.fromkeys(Record._fields, "") | dict.fromkeys(
    ("modified_ns", "source", "mtime_ns", "inode", "carried", "shared"), 0
)


def file(**fields: Any) -> Record:
    """A record that says nothing else; `parts` is bytes."""
    known = {"size": 1, "ctime_ns": NOW * SECOND, "read_at": NOW, "parts": b"", **fields}
    return Record(**{**BLANK, **known})


def sealed(*batches: Sequence[Record]) -> SealedReadDelay | None:
    delays = ReadDelays()
    for batch in batches:
        delays.add(Files.of(batch))
    return delays.sealed()


@pytest.mark.parametrize(
    ("record", "seconds"),
    [
        (file(size=0), None),
        (file(shared=1), None),
        (file(read_at=0), None),
        (file(), 0),
        (file(ctime_ns=NOW * SECOND + 1), 0),
        (file(ctime_ns=(NOW + 86_400) * SECOND), 0),
        (file(ctime_ns=(NOW - 5) * SECOND), 5),
        (file(ctime_ns=(NOW - 5) * SECOND + 1), 4),
        (file(ctime_ns=1), NOW - 1),
    ],
)
def test_the_seconds_of_a_file(record: Record, seconds: int | None) -> None:
    fields = record.size, record.ctime_ns, record.read_at, record.shared
    assert read_delay(*fields) == seconds
    assert is_soon(*fields) == (seconds is not None and seconds < SOON)
    soon = int(seconds is not None and seconds < SOON)
    assert sealed([record]) == (None if seconds is None else SealedReadDelay(seconds, seconds, soon))


@pytest.mark.parametrize("most", [3, 90, 3600, 40 * 86_400])
@pytest.mark.parametrize("files", [1, 2, 3001])
def test_the_median_is_below_the_exact_one_by_less_than_a_step(most: int, files: int) -> None:
    chance = random.Random(f"{most} {files}")
    rows = [
        file(
            ctime_ns=(NOW - chance.randrange(-2, most)) * SECOND + chance.randrange(SECOND),
            size=chance.randrange(4),
            shared=int(chance.random() < 0.1),
            read_at=chance.choice([0, NOW, NOW, NOW]),
        )
        for _ in range(files - 1)
    ]
    rows.append(file(ctime_ns=(NOW - most) * SECOND))
    known = [read_delay(row.size, row.ctime_ns, row.read_at, row.shared) for row in rows]
    exact = sorted(seconds for seconds in known if seconds is not None)
    median = exact[(len(exact) - 1) // 2]
    stated = sealed(rows[::2], rows[1::2]) if files > 1 else sealed(rows)
    assert stated is not None
    assert (stated.least, stated.soon) == (exact[0], sum(seconds < SOON for seconds in exact))
    assert stated.median <= median
    assert median + 1 <= BOUND_RATIO * (stated.median + 1)


@pytest.mark.parametrize("kind", ["ext4", "lustre"])
def test_a_run_says_it_and_whether_a_servers_memory_may_have_answered(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    proc = tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    line = f"30 1 0:30 / {os.path.realpath(tmp_path)} rw - {kind} /dev/of/it rw\n"
    (proc / "self/mountinfo").write_text(line)
    monkeypatch.setattr(report_step, "traits_of_mount", partial(traits_of_mount, proc=proc))
    go(context)
    layout = context.layout("data")
    seal = seals.load(layout, layout.current.resolve().name).seal
    delays = [read_delay(r.size, r.ctime_ns, r.read_at, r.shared) for r in records(context).values()]
    known = sorted(seconds for seconds in delays if seconds is not None)
    assert seal.evidence.read_after is not None
    assert seal.evidence.read_after.least == known[0]
    assert seal.evidence.read_after.soon == len(known) > 0
    result = report_step.run(context, "data")
    text = " ".join(run_summary.render(result).split())
    assert f"Read after read back {known[0]} s after writing at least, " in text
    assert ("; a server's memory may have answered: `penstock audit" in text) == (kind == "lustre")
    assert f"<p>read back {known[0]} s after writing" in html_report.render(result)
