"""What most tests here begin with: a dataset `data` from a small folder, staged step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.staging_runs import tree
from tests.support.whole_way import FILES, SMALL, staging

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.dataset.context import Context


@pytest.fixture
def source(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A folder of the test module's own FILES, or of the usual ones."""
    return tree(tmp_path / "source", getattr(request.module, "FILES", FILES))


@pytest.fixture
def context(tmp_path: Path, source: Path, request: pytest.FixtureRequest) -> Iterator[Context]:
    """The dataset, nothing of it staged; planned by the test module's own PLAN, or in small pieces."""
    with staging(tmp_path, source, plan=getattr(request.module, "PLAN", SMALL)) as made:
        yield made
