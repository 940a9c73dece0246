"""A test at the standing place begins as if it were the first one there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.support import standing
from tests.support.staging_runs import events_of
from tests.support.standing import PLACES, Standing, begin, seen
from tests.support.whole_way import content, go, records, staging

from penstock.dataset import gate
from penstock.keep import audit_step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FILES = {"a/one": b"1" * 10, "a/two": b"2" * 20_000, "giant": bytes(range(256)) * 500}


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Standing]:
    (tmp_path / "standing").mkdir()
    made = Standing(tmp_path / "standing")
    PLACES[made.place] = made
    yield made
    del PLACES[made.place]


def left(made: Standing, to: Path) -> Path:
    """What the test before left."""
    to.mkdir()
    made.leave(to)
    return to


def test_a_copy_is_what_the_steps_left(
    made: Standing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = made.source(FILES)
    with staging(made.place, source) as context:
        first = begin(context)
        events = list(events_of(context))
    with monkeypatch.context() as patched:
        left(made, tmp_path / "first")
        patched.setattr(standing, "go", None)
        with staging(made.place, made.source(FILES)) as context:
            assert begin(context) == first
            assert events_of(context) == events
    assert gate.passed(context.layout("data")).release == first["release"]
    assert content(context.layout("data").current / "data") == content(source)
    assert set(records(context)) == set(FILES)
    assert audit_step.run(context, "data")["status"] == "PASSED"
    assert go(context, upto="list")["published"]
    assert content(tmp_path / "first/target/data/releases") == content(context.layout("data").releases)


@pytest.mark.parametrize("upto", ["plan", "copy", "permissions", "verify"])
def test_a_run_goes_on_in_a_copy(made: Standing, tmp_path: Path, upto: str) -> None:
    for number in range(2):
        with staging(made.place, made.source(FILES)) as context:
            begin(context, upto=upto)
            assert go(context, after=upto)["published"]
            assert [event for event in events_of(context) if event.kind == "warning"] == []
            assert content(context.layout("data").current / "data") == content(made.place / "source")
        left(made, tmp_path / str(number))


@pytest.mark.parametrize(
    ("change", "stays"),
    [
        (lambda source: (source / "new").write_bytes(b"new"), True),
        (lambda source: (source / "a/one").write_bytes(b"2" * 10), False),
        (lambda source: (source / "a/one").chmod(0o600), False),
        (lambda source: (source / "giant").unlink(), False),
        (lambda source: (source / "folder").mkdir(), False),
        (lambda source: (source / "link").symlink_to("a"), False),
    ],
    ids=["a file came", "a file changed", "its mode", "a file went", "a folder came", "a link to a folder"],
)
def test_the_next_test_finds_the_source_as_it_was(
    made: Standing, tmp_path: Path, change: Callable[[Path], object], *, stays: bool
) -> None:
    source = made.source(FILES)
    before = seen(source)
    change(source)
    left(made, tmp_path / "left")
    after = seen(made.source(FILES))
    assert {path: one[1:2] for path, one in after.items()} == {path: one[1:2] for path, one in before.items()}
    assert (after == before) is stays
    assert content(source) == {os.fsencode(name): data for name, data in FILES.items()}
    assert os.listdir(made.place) == ["source"]


def test_what_is_not_the_beginning_is_refused(made: Standing) -> None:
    with staging(made.place, made.source(FILES)) as context:
        begin(context, upto="plan")
        with pytest.raises(AssertionError, match="something was done here before"):
            begin(context, upto="plan")
