# ruff: noqa: E501 (a state and its row stand in a line)
"""`penstock status` of many datasets: the order, the widths, and what stands below a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from penstock.look import status_report

if TYPE_CHECKING:
    from penstock.core.step_results import StatusResult

NOW = 1773576000.0
STATES: dict[str, dict[str, Any]] = {
    "failed": {"why": "copy: no space is left", "to_do": "make room", "work": {
        "state": "failed", "step": "copy", "why": "copy: no space is left", "exit": 6, "at": "2026-03-15T11:58:00Z"}},
    "stopped": {"work": {"state": "stopped", "step": "copy", "percent": 42.9, "signal": "SIGTERM", "at": "2026-03-15T11:00:00Z"}},
    "damaged": {"why": "manifest.parquet is missing", "to_do": "`penstock repair d`", "current": "20260314-0a1b2c3d"},
    "held": {"why": "storage target 17", "current": "20260314-0a1b2c3d"},
    "nothing published": {"to_do": "run `penstock run d`"},
    "unknown": {"why": "no sign of life for 300 s or more"},
    "copying": {"release": "20260315-ffffffff", "work": {
        "state": "copying", "step": "copy", "percent": 62.4, "copy": {"of_bytes": 46 << 20}}},
    "waiting": {"why": "for SLURM: array 7, Priority", "work": {"state": "waiting", "why": "for SLURM: array 7, Priority"}},
    "published": {"current": "20260314-0a1b2c3d", "release": "20260314-0a1b2c3d", "bytes": 62181888,
                  "sealed": "2026-03-15T11:37:00Z", "pinned": 2},
}  # fmt: skip


def dataset(number: int) -> StatusResult:
    state = list(STATES)[number % len(STATES)]
    return cast("StatusResult", {"dataset": f"dataset-{number}", "state": state, **STATES[state]})


def lines(count: int, columns: int) -> list[str]:
    rows = [dataset(number) for number in range(count)]
    return [
        line.text for line in status_report.render_table(rows, "/beegfs/datasets", 412 * 10**12, NOW, columns)
    ]


@pytest.mark.parametrize("columns", [80, 140])
@pytest.mark.parametrize("count", [1, 12, 200])
def test_rows_fit_and_those_that_need_a_person_come_first(count: int, columns: int) -> None:
    shown = lines(count, columns)
    assert max(map(len, shown)) <= columns
    marks = [line[0] for line in shown[3:-2] if line[1] == " " and line[2] != " "]
    assert len(marks) == count
    assert marks == sorted(marks, key=list(status_report.KINDS).index)
    assert shown[0] == "/beegfs/datasets   Sun 15 Mar 12:00Z   375 TiB free"


@pytest.mark.parametrize(
    ("state", "row", "below"),
    [
        ("failed", "! failed 2 min ago - - - -", ["no space is left (copy, exit 6)", "next: make room"]),
        ("stopped", "! stopped 1 h ago - - - -", ["by SIGTERM (copy, 42 % done)"]),
        ("damaged", "! damaged 20260314-0a1b2c3d - - never", ["manifest.parquet is missing", "next: `penstock repair d`"]),
        ("held", "! HELD 20260314-0a1b2c3d - - never", ["storage target 17"]),
        ("nothing published", "? nothing published - - - -", ["next: run `penstock run d`"]),
        ("unknown", "? unknown - - - -", ["no sign of life for 300 s or more"]),
        ("copying", "~ copying 62 % (20260315-ffffffff) 46.0 MiB - -", []),
        ("waiting", "~ waiting - - - -", ["for SLURM: array 7, Priority"]),
        ("published", "published, 2 pins 20260314-0a1b2c3d 59.3 MiB 23 min never", []),
    ],
)  # fmt: skip
def test_what_each_state_shows(state: str, row: str, below: list[str]) -> None:
    result = cast("StatusResult", {"dataset": "d", "state": state, **STATES[state]})
    shown = [line.text for line in status_report.render_table([result], "/t", None, NOW)]
    mark, _, rest = row.partition(" ") if row[1] == " " else (" ", "", row)
    assert shown[3].split() == f"{mark} d {rest}".split()
    assert [line.strip() for line in shown[4:-2]] == below


def test_an_older_release_stays_in_sight_of_a_failed_run() -> None:
    result = {
        **dataset(0),
        "current": "20260314-0a1b2c3d",
        "bytes": 1 << 20,
        "sealed": "2026-03-14T12:00:00Z",
    }
    shown = [
        line.text for line in status_report.render_table([cast("StatusResult", result)], "/t", None, NOW)
    ]
    assert " ".join(shown[3].split()) == "! dataset-0 failed 2 min ago 20260314-0a1b2c3d 1.00 MiB 1 d never"


def test_a_rolled_back_dataset_and_a_pause_are_named() -> None:
    row = {**dataset(8), "release": "20260315-ffffffff", "pinned": 0, "pause": "ann: until noon"}
    shown = [line.text for line in status_report.render_table([cast("StatusResult", row)], "/t", None, NOW)]
    assert "published, rolled back" in shown[3]
    assert shown[-2:] == ["1 dataset: 1 well", "PAUSE: ann: until noon"]
