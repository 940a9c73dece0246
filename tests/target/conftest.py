"""Places to store in: a RAM file system and the disk's, readable for any user."""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.core.layout import DatasetLayout
from penstock.fs.capabilities import facts
from penstock.target import dataset_folders, tree_removal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.fs.capabilities import StorageFacts


@pytest.fixture(params=["/dev/shm", "disk"])
def place(request: pytest.FixtureRequest) -> Iterator[Path]:
    """An empty folder on each kind of file system that is always there."""
    base = tempfile.gettempdir() if request.param == "disk" else request.param
    folder = Path(tempfile.mkdtemp(prefix="penstock-test-", dir=base))
    folder.chmod(0o755)
    yield folder
    tree_removal.remove_tree(folder)


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder on the disk, that other users can enter."""
    made = Path(tempfile.mkdtemp(prefix="penstock-test-"))
    made.chmod(0o755)
    yield made
    tree_removal.remove_tree(made)


@pytest.fixture
def layout() -> Iterator[DatasetLayout]:
    """A prepared dataset in RAM: the sweeps over crash points sync thousands of times."""
    root = Path(tempfile.mkdtemp(prefix="penstock-test-", dir="/dev/shm"))
    root.chmod(0o755)
    made = DatasetLayout(root, "set")
    dataset_folders.prepare(made)
    yield made
    tree_removal.remove_tree(root)


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """As in a process of penstock: no umask."""
    old = os.umask(0)
    yield
    os.umask(old)


def facts_with(folder: Path, **traits: object) -> StorageFacts:
    """The facts of a folder whose file system can do other things than it can."""
    seen = facts(folder)
    return dataclasses.replace(seen, traits=seen.traits._replace(**traits))  # type: ignore[arg-type]


def need_cold_reads(folder: Path) -> None:
    if not facts(folder).direct:
        pytest.skip("nothing in the temporary folder can be read cold: it is in RAM, or takes no O_DIRECT")


def need_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can mount file systems and change users")


def need(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"{program} is not installed")
    return path
