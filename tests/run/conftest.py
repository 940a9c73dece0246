"""What most tests here begin with: a dataset `data` from a small folder, staged step by step.

A module with `STANDING = True` has its tests one after another at one place, where `standing.begin` gives
them what was staged there once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.staging_runs import tree
from tests.support.standing import PLACES, Standing
from tests.support.whole_way import FILES, SMALL, staging

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.dataset.context import Context


@pytest.fixture(scope="session")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Standing:
    made = Standing(tmp_path_factory.mktemp("standing"))
    PLACES[made.place] = made
    return made


@pytest.fixture
def tmp_path(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """The test's own folder, or, with a source, the place of all tests, whose remains go to that folder."""
    if "source" not in request.fixturenames or not getattr(request.module, "STANDING", False):
        yield tmp_path
        return
    place = request.getfixturevalue("standing")
    yield place.place
    place.leave(tmp_path)


@pytest.fixture
def source(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A folder of the test module's own FILES, or of the usual ones."""
    files = getattr(request.module, "FILES", FILES)
    place = PLACES.get(tmp_path)
    return tree(tmp_path / "source", files) if place is None else place.source(files)


@pytest.fixture
def context(tmp_path: Path, source: Path, request: pytest.FixtureRequest) -> Iterator[Context]:
    """The dataset, nothing of it staged; planned by the test module's own PLAN, or in small pieces."""
    with staging(tmp_path, source, plan=getattr(request.module, "PLAN", SMALL)) as made:
        yield made
