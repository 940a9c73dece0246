"""`penstock cancel`: it finds the arrays by their book, whatever backend the configuration names."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.support.staging_runs import tree

from penstock.cli.main import main
from penstock.core.layout import DatasetLayout
from penstock.dataset import submitted_arrays
from penstock.dataset.submitted_arrays import ArrayBook

if TYPE_CHECKING:
    from pathlib import Path

# As strict as the real ones: squeue refuses a job that it does not know.
SQUEUE = """\
#!/bin/sh
case " $* " in
*" -j 7 "*) echo "7|0|COMPLETED|0:0|0|N/A|1795263274|1795263275|n1|None|" ;;
*" -j 8 "*) echo "8|0|RUNNING|0:0|0|N/A|1795263274|NONE|n2|None|" ;;
*) echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1 ;;
esac
"""
SCANCEL = """\
#!/bin/sh
echo "$*" >> @LOG@
"""


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DatasetLayout:
    """A dataset with an array that ended long ago (7) and one that runs (8); local is configured."""
    tree(tmp_path / "source", {"a": b"1"})
    (tmp_path / "my.yaml").write_text(
        json.dumps({"target": {"root": "target"}, "datasets": {"d": {"source": str(tmp_path / "source")}}})
    )
    commands = tmp_path / "commands"
    commands.mkdir()
    for name, text in (("squeue", SQUEUE), ("scancel", SCANCEL.replace("@LOG@", str(tmp_path / "ended")))):
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    layout = DatasetLayout(tmp_path / "target", "d")
    folder = layout.run("0123456789abcdef").folder
    folder.mkdir(parents=True)
    layout.state_marker.write_text('{"format": 1, "penstock": "1.0.0"}')
    book = ArrayBook(folder / "arrays.jsonl")
    for array in ("7", "8"):
        book.intend(f"name-{array}", "copy", "slurm", [0], workers=1, call="before")
        book.submitted(f"name-{array}", array)
    return layout


def test_it_ends_what_lives_without_being_told_the_backend(
    layout: DatasetLayout, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--config", "my.yaml", "cancel", "d"]) == 0
    assert capsys.readouterr().out == "d: cancelled array 8 of copy; `penstock run d` continues\n"
    assert (tmp_path / "ended").read_text() == "8\n"
    mark = submitted_arrays.CancelMark(layout, before="")
    assert mark.said().startswith("by ")


def test_with_a_root_it_needs_no_configuration(
    layout: DatasetLayout, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my.yaml").unlink()
    assert main(["cancel", "d", "--root", "target"]) == 0
    assert capsys.readouterr().out == "d: cancelled array 8 of copy; `penstock run d` continues\n"
    assert submitted_arrays.cancel_path(layout).exists()
    # What is not there, and all of what lies below a root, is not meant.
    assert main(["cancel", "e", "--root", "target"]) == 2
    assert main(["cancel", "--root", "target"]) == 2


def test_nothing_runs(tmp_path: Path, layout: DatasetLayout, capsys: pytest.CaptureFixture[str]) -> None:
    ArrayBook(layout.run("0123456789abcdef").arrays).ended("name-8")
    assert main(["--config", "my.yaml", "cancel", "d"]) == 0
    assert capsys.readouterr().out == "d: nothing is running to cancel\n"
    assert not (tmp_path / "ended").exists()


def test_a_dataset_that_cannot_be_cancelled_keeps_no_other_going(
    layout: DatasetLayout, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree(layout.root / "a/.penstock", {"state.json": b'{"format": 99, "penstock": "9.0"}'})
    text = json.loads((tmp_path / "my.yaml").read_text())
    text["datasets"] = {"a": text["datasets"]["d"], **text["datasets"]}
    (tmp_path / "my.yaml").write_text(json.dumps(text))
    assert main(["--config", "my.yaml", "cancel", "a", "d"]) == 3
    told = capsys.readouterr()
    assert "a: a dataset's state is of a newer format" in told.err
    assert "d: " in told.out
    assert (tmp_path / "ended").read_text() == "8\n"


def test_a_later_list_forgets_the_cancel(layout: DatasetLayout) -> None:
    assert main(["--config", "my.yaml", "cancel", "d"]) == 0
    assert submitted_arrays.cancel_path(layout).exists()
    assert main(["--config", "my.yaml", "step", "list", "d"]) == 0
    assert not submitted_arrays.cancel_path(layout).exists()


def test_hints_name_commands_as_this_one_was_called(
    layout: DatasetLayout, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--config", "my.yaml", "--backend", "local", "step", "plan", "d"]) == 3
    assert "run `penstock --config my.yaml --backend local step list d` first" in capsys.readouterr().err
