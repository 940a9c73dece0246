"""One published dataset for all tests here; each works on a copy of its target."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.in_process import InProcess
from tests.support.published import content, published
from tests.support.staging_runs import tree

from penstock.config.settings import PlanConfig
from penstock.dataset.context import Context

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.core.run_steps import Event

GIANT = PlanConfig(giant_bytes=4 << 20, part_bytes=1 << 20)
ODD = os.fsdecode(b"odd/\xff -\\ \n")
FILES = {
    **{f"d{i % 3}/f{i:02d}": content(i, 5000 + i) for i in range(12)},
    "big/giant": content(99, (5 << 20) + 7),
    "deep/er/file": b"deep",
    ODD: b"odd",
    "empty": b"",
    "a-between": b"x",
    "a/below": b"y",
}


@pytest.fixture
def files() -> dict[str, bytes]:
    """Path to content, of all that `staged` holds; a giant is `big/giant`, in parts of 1 MiB."""
    return FILES


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Context]:
    """Published once; not to be changed."""
    folder = tmp_path_factory.mktemp("template")
    with published(folder, tree(folder / "source", FILES), plan=GIANT) as context:
        yield context


@pytest.fixture
def staged(template: Context, tmp_path: Path) -> Context:
    """The same release on a target of its own, to be damaged. Its source is the template's."""
    root = tmp_path / "target"
    shutil.copytree(template.config.target.root, root, symlinks=True)
    config = replace(template.config, target=replace(template.config.target, root=root))
    events: list[Event] = []
    return Context(config, InProcess(), sink=events.append)
