"""`--new-release`: what a release holds already, staged as a new one that trusts nothing of the old."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.published import flip, writable
from tests.support.staging_runs import tree
from tests.support.standing import begin
from tests.support.whole_way import content, go

from penstock.core.errors import FindingsError
from penstock.target import tree_removal

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.dataset.context import Context


STANDING = True


def anew(context: Context, upto: str = "publish") -> dict[str, object]:
    context.new_release = True
    try:
        return go(context, upto=upto)
    finally:
        context.new_release = False


@pytest.mark.parametrize(
    ("damage", "named"), [("a rotten file", "v1"), ("a forged seal", "auto"), ("a seal that is gone", "v1")]
)
def test_a_damaged_release_is_replaced_by_a_new_one_and_stays_as_it_is(
    context: Context, source: Path, damage: str, named: str
) -> None:
    config = context.config
    dataset = replace(config.datasets["data"], release=named)
    context.config = replace(config, datasets={"data": dataset})
    layout = context.layout("data")
    first = str(begin(context)["release"])
    release = layout.release(first)
    if damage == "a rotten file":
        flip(release / "data" / "z")
    else:
        with writable(release):
            seal = json.loads((release / "release.json").read_bytes())
            (release / "release.json").unlink()
            if damage == "a forged seal":
                (release / "release.json").write_text(json.dumps({**seal, "run": "0" * 16}))
        with pytest.raises(FindingsError, match="run --new-release data"):
            go(context)
    before = content(release)
    receipt = anew(context)
    assert receipt["release"] != first
    assert named == "auto" or str(receipt["release"]).startswith("v1-")
    assert os.readlink(layout.current) == f"releases/{receipt['release']}"
    assert content(layout.current / "data") == content(source)
    assert content(release) == before
    # Linked is nothing, and the next plain run meets the new one.
    seal = json.loads((layout.current / "release.json").read_bytes())
    assert (seal["base"], seal["unchanged"]) == (None, 0)
    listed = go(context, upto="list")
    assert (listed["published"], listed["run"]) == (True, receipt["run"])


def test_the_same_command_goes_on_with_what_it_began(context: Context, source: Path) -> None:
    first = begin(context)["run"]
    begun = anew(context, upto="copy")["run"]
    assert begun != first
    assert anew(context)["run"] == begun
    assert anew(context)["run"] not in (first, begun)
    tree(source, {"new": b"file"})
    changed = go(context)["run"]
    (source / "new").unlink()
    again = go(context)
    assert again["run"] not in (first, begun, changed), "of the replaced ones none is met again"
    assert content(context.layout("data").current / "data") == content(source)


def test_a_staging_brings_nothing_of_a_release_that_is_not_trusted(context: Context, source: Path) -> None:
    """Another run had linked its files before somebody found that it is damaged."""
    layout = context.layout("data")
    release = layout.release(str(begin(context)["release"]))
    tree(source, {"new": b"file"})
    assert go(context, upto="copy")["linked"] > 0
    flip(release / "data" / "z")
    (source / "new").unlink()
    assert anew(context, upto="plan")["taken"] == 1, "only the giant, which that run fetched"
    anew(context)
    assert content(layout.current / "data") == content(source)


def test_without_a_release_it_is_a_plain_run(context: Context) -> None:
    assert anew(context)["run"] == go(context)["run"]
    layout = context.layout("data")
    tree_removal.remove_tree(layout.runs)
    assert anew(context)["published"]
    assert len(os.listdir(layout.replaced)) == 1
