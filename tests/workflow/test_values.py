"""`snakemake --config` reaches the steps, or is refused by name."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from tests.workflow.conftest import Place, digests

from penstock.target import tree_removal

if TYPE_CHECKING:
    from collections.abc import Mapping


def _frozen(place: Place, part: str) -> Mapping[str, object]:
    [run] = place.target.glob("d/.penstock/runs/*/run.json")
    found: Mapping[str, object] = json.loads(run.read_text())["config"][part]
    return found


@pytest.mark.thorough
def test_values_of_the_command_line_reach_the_steps(place: Place) -> None:
    """P5, the half that is taken; the file stays as it is, and holds again without --config."""
    before = (place.folder / "config.yaml").read_bytes()
    done = place.snakemake("--dry-run", "--config", "engine={limit: 1MiB/s}")
    assert done.returncode == 0, done.stderr
    assert not (place.folder / "results/.workflow/configurations").exists()
    done = place.snakemake(
        "--config", "engine={limit: 1MiB/s}", 'datasets={d: {permissions: {file_mode: "0400"}}}', "dataset=d"
    )
    assert done.returncode == 0, done.stderr
    assert _frozen(place, "engine")["limit"] == 1 << 20
    data = place.published()
    assert digests(data) == digests(place.source)
    assert (data / "a.txt").stat().st_mode & 0o777 == 0o400
    assert (place.folder / "config.yaml").read_bytes() == before

    tree_removal.remove_tree(place.target)
    shutil.rmtree(place.folder / "results/d")
    done = place.snakemake()
    assert done.returncode == 0, done.stderr
    assert _frozen(place, "engine")["limit"] is None
    assert (place.published() / "a.txt").stat().st_mode & 0o777 == 0o440


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("engine={limit: 1KiB/s}", "foo=bar"), "foo (--config): unknown key"),
        (("datasets={d: {permissions: {file_mode: 0440}}}",), "(--config): `0440` is read in different ways"),
        (("dataset=d", "--config", "engine={limit: 1KiB/s}"), "--config is given twice"),
        (("limit=1KiB/s",), "--config limit: is of an audit"),
    ],
)
def test_what_is_not_understood_stages_nothing(place: Place, words: tuple[str, ...], said: str) -> None:
    """P5, the half that is refused: what Snakemake's own reading would have dropped or changed."""
    done = place.snakemake("--config", *words)
    assert done.returncode == 1
    assert said in done.stderr
    assert not place.target.exists()
