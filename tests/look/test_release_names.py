"""`penstock show` takes the beginning of a release's name, with or without its dataset."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
from tests.support.commands import penstock

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.layout import DatasetLayout


@pytest.mark.parametrize("length", [12, None])
@pytest.mark.parametrize("words", [(), ("data",)])
def test_a_release_is_shown_by_its_name_or_its_beginning(
    layout: DatasetLayout, length: int | None, words: tuple[str, ...]
) -> None:
    names = sorted(os.listdir(layout.releases))
    done = penstock("show", *words, names[0][:length], "--root", str(layout.root), cwd=layout.root)
    assert done.stdout.partition(" ")[0].rstrip() == f"data/{names[0]}", done.stderr
    assert done.returncode == 0


def test_a_beginning_of_several_releases_names_them(layout: DatasetLayout) -> None:
    names = sorted(os.listdir(layout.releases))
    done = penstock("show", "data", "20", "--root", str(layout.root), cwd=layout.root)
    assert done.returncode == 2
    assert done.stderr == (f"penstock: data has 2 releases that begin so [20]\n  {', '.join(names)}\n")


def test_a_beginning_in_several_datasets_is_refused(layout: DatasetLayout, root: Path) -> None:
    shutil.copytree(layout.folder, root / "other", symlinks=True)
    done = penstock("show", "20", "--root", str(root), cwd=root)
    assert done.returncode == 2
    assert 'no dataset is named "20"' in done.stderr
