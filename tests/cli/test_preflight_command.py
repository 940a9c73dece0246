"""`penstock preflight`: the table, the JSON, and the exit statuses where something stops."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.support.commands import penstock

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Two datasets: `good`, and `bad`, whose source is not there."""
    (tmp_path / "there").mkdir()
    (tmp_path / "there/x").write_bytes(b"1")
    written = tmp_path / "my.yaml"
    written.write_text(
        f"target: {{root: {tmp_path / 'target'}, keep_free: 0B}}\n"
        f"datasets:\n  good: {{source: {tmp_path / 'there'}}}\n  bad: {{source: {tmp_path / 'none'}}}\n"
    )
    return written


def test_what_is_in_order_is_a_table(config: Path, tmp_path: Path) -> None:
    done = penstock("--config", str(config), "preflight", "good", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "good"
    assert lines[1].split() == ["VERDICT", "LOOKED", "AT", "FOUND"]
    assert [line.split()[1] for line in lines if line.startswith("  ok ")] == [
        "interpreter", "source", "cluster",
    ]  # fmt: skip
    assert any(line.startswith("  warning  readers") for line in lines)  # pytest's own folder is 0700
    assert any(line.startswith("  note     target") for line in lines)
    assert "\x1b" not in done.stdout
    assert not (tmp_path / "target").exists()


def test_what_stops_is_in_the_table_and_on_standard_error(config: Path, tmp_path: Path) -> None:
    done = penstock("--config", str(config), "preflight", "bad", cwd=tmp_path)
    assert done.returncode == 3
    assert "bad: the source folder cannot be read" in done.stderr
    assert "  stop     source" in done.stdout
    assert "to do: correct the path" in done.stdout
    assert "  note     target" in done.stdout


def test_each_dataset_is_looked_at_though_one_stops(config: Path, tmp_path: Path) -> None:
    done = penstock("--config", str(config), "preflight", "bad", "good", cwd=tmp_path)
    assert done.returncode == 3
    assert [line for line in done.stdout.splitlines() if not line.startswith(" ")] == ["bad", "good"]
    assert "bad: the source folder cannot be read" in done.stderr


@pytest.mark.parametrize("words", [["preflight", "--json"], ["--progress", "json", "preflight"]])
def test_the_document_has_every_row_whether_it_stops_or_not(
    config: Path, tmp_path: Path, words: list[str]
) -> None:
    done = penstock("--config", str(config), *words, cwd=tmp_path)
    assert done.returncode == 3
    good, bad = map(json.loads, done.stdout.splitlines())
    assert (good["dataset"], bad["dataset"]) == ("good", "bad")
    for found in (good, bad):
        assert {"checked", "warnings", "results"} <= found.keys()
        for row in found["results"]:
            assert row.keys() == {"about", "found", "verdict", "wanted", "mend"}
    assert not [row for row in good["results"] if row["verdict"] == "stop"]
    (stop,) = (row for row in bad["results"] if row["verdict"] == "stop")
    assert str(tmp_path / "none") in stop["found"]


def test_a_receipt_holds_one_dataset_and_is_written_where_nothing_stops(config: Path, tmp_path: Path) -> None:
    receipt = tmp_path / "receipt.json"
    done = penstock("--config", str(config), "preflight", "good", "--receipt", str(receipt), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert json.loads(receipt.read_text())["results"]
    receipt.unlink()
    assert (
        penstock(
            "--config", str(config), "preflight", "bad", "--receipt", str(receipt), cwd=tmp_path
        ).returncode
        == 3
    )
    assert not receipt.exists()
    assert (
        penstock("--config", str(config), "preflight", "--receipt", str(receipt), cwd=tmp_path).returncode
        == 2
    )
