"""Several datasets in one configuration: each is staged whatever becomes of the others."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from tests.workflow.conftest import Place, digests

from penstock.core.run_steps import AFTER_LIST
from penstock.target import tree_removal

if TYPE_CHECKING:
    from pathlib import Path

GROUP = "results/.workflow/list/00000000000000000001-00.json"


def group(place: Place) -> dict[str, dict[str, dict[str, object]]]:
    found: dict[str, dict[str, dict[str, object]]] = json.loads((place.folder / GROUP).read_text())
    return found


def test_one_that_cannot_be_listed_keeps_none_of_its_group(place: Place) -> None:
    place.config["datasets"] = {
        "bad": {"source": "nowhere"},
        "d": {"source": "source"},
        "e": {"source": "source", "include": ["/a.txt"]},
    }
    place.write()
    done = place.penstock("step", "list-group", "bad", "d", "e", "--receipt", GROUP)
    assert done.returncode == 0, done.stderr
    found = group(place)
    assert sorted(found["listed"]) == sorted(found["preflight"]) == ["d", "e"]
    assert found["failed"]["bad"]["command"] == "preflight"
    again = place.penstock("step", "list-failure", "bad", "--group", GROUP)
    assert again.returncode == 3
    assert "penstock: bad: " in again.stderr
    assert "nowhere" in again.stderr
    assert "Traceback" not in again.stderr


def test_a_group_drops_the_receipts_of_a_target_that_is_gone(place: Place) -> None:
    place.stage("d")
    _reported(place.folder, "d")
    [receipt] = place.receipts("copy")
    tree_removal.remove_tree(place.target)
    assert place.penstock("step", "list-group", "d", "--receipt", GROUP).returncode == 0
    assert not receipt.exists()


def test_what_became_of_a_listing_may_be_gone(place: Place) -> None:
    done = place.penstock("step", "list-failure", "d", "--group", GROUP)
    assert done.returncode == 1
    assert "what became of a listing cannot be read" in done.stderr


@pytest.mark.thorough
def test_more_datasets_than_listing_jobs(place: Place) -> None:
    """Each job evaluates the whole graph anew: their number does not grow with that of the datasets.
    Of 18 datasets `e00` shares its job with `e16`; it cannot be listed, nor can 14 that have their own."""
    place.config["datasets"] = {f"e{number:02d}": {"source": "nowhere"} for number in range(18)}
    names = ["e01", "e16", "e17"]
    for name in names:
        place.config["datasets"][name] = {"source": "source", "include": ["/a.txt"]}
    place.write()
    place.stage(*names)
    for name in names:
        _reported(place.folder, name)
    done = place.penstock("run")
    assert done.returncode == 3, done.stderr
    receipts = (place.folder / "results/.workflow/list").glob("*.json")
    jobs = [json.loads(path.read_text()) for path in receipts]
    assert len(jobs) == 16
    assert sorted(sorted(job["listed"]) for job in jobs if job["listed"]) == [["e01", "e17"], ["e16"]]
    assert [list(job["failed"]) for job in jobs if "e16" in job["listed"]] == [["e00"]]
    assert len(re.findall(r"^  e\d\d +unchanged ", done.stdout, re.MULTILINE)) == len(names)
    assert len(re.findall(r"^! e\d\d +FAILED ", done.stdout, re.MULTILINE)) == 15
    assert len(re.findall(r"^e\d\d  FAILED in preflight: ", done.stderr, re.MULTILINE)) == 15
    assert digests(place.published("e16")) == {"a.txt": digests(place.source)["a.txt"]}


def _reported(folder: Path, name: str) -> None:
    """Receipts as Snakemake would have them after a run."""
    [run] = (folder / "target" / name / ".penstock/runs").glob("[0-9a-f]*")
    receipts = folder / "results" / name / run.name
    receipts.mkdir(parents=True)
    for step in AFTER_LIST:
        (receipts / f"{step}.json").write_text(
            json.dumps({"dataset": name, "release": "r", "status": "PASSED"})
        )


def test_sl6_a_warning_of_preflight_is_given_once_and_counted_afterwards(place: Place) -> None:
    """By the first dataset that meets it; by each run that follows, in a line that names the whole list."""
    (place.folder / "link").mkdir()
    place.config["bandwidth"] = {"folder": "link"}
    place.config["datasets"] = {name: {"source": "source"} for name in "de"}
    place.write()

    def listed(number: int, *names: str) -> list[str]:
        receipt = f"results/.workflow/list/{number:020d}-00.json"
        done = place.penstock("--progress", "lines", "step", "list-group", *names, "--receipt", receipt)
        assert done.returncode == 0, done.stderr
        checked = json.loads((place.folder / receipt).read_text())["preflight"]
        assert all(any("bandwidth cap" in text for text in checked[name]["warnings"]) for name in names)
        words = ("warning: bandwidth cap", "given before")
        return [line for line in done.stderr.splitlines() if any(word in line for word in words)]

    first, counted = listed(1, "d", "e")
    assert " d preflight: warning: bandwidth cap: " in first
    assert re.search(r" e preflight: \d warnings? given before: `penstock preflight e` lists all$", counted)
    (again,) = listed(2, "d")
    assert re.search(r" d preflight: \d warnings? given before: `penstock preflight d` lists all$", again)
    assert "bandwidth cap" in place.penstock("preflight", "d").stdout
