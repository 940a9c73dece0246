"""The table of file systems is the only one: a row added to it changes what the rest does."""

from __future__ import annotations

import ast
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.contracts.storage_contract import make_writer

import penstock
from docs import file_systems
from penstock.config.settings import VerifyConfig
from penstock.fs import kinds
from penstock.fs.capabilities import facts
from penstock.fs.cold_read import ColdReader
from penstock.fs.kinds import NEVER, Kind
from penstock.host.kernel_facts import mount_of
from penstock.listing.evidence import beyond
from penstock.sources import posix_reader as sparse

if TYPE_CHECKING:
    from collections.abc import Iterable

SIZE = 2 << 20


def labfs(monkeypatch: pytest.MonkeyPatch, folder: Path, **traits: object) -> None:
    """Add a row to the table, under which the file system of `folder` goes."""
    here = mount_of(os.path.realpath(folder)).type
    row = Kind("labfs", types=(here,))._replace(**traits)  # type: ignore[arg-type]
    monkeypatch.setattr(kinds, "TABLE", (row, *kinds.TABLE))
    assert facts(folder).kind == "labfs"


def test_durability_follows_the_row(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    labfs(monkeypatch, folder, syncfs=NEVER)
    assert facts(folder).durability == "fsync"
    labfs(monkeypatch, folder, syncfs=(3, 0))
    assert facts(folder).durability == "syncfs"


@pytest.mark.parametrize("reserves", [True, False])
def test_blocks_are_reserved_by_the_row(
    monkeypatch: pytest.MonkeyPatch, folder: Path, reserves: bool
) -> None:
    labfs(monkeypatch, folder, preallocate=reserves)
    with make_writer(folder) as writer:
        pending = writer.begin("large", SIZE)
        assert (os.fstat(pending.fd).st_blocks * 512 >= SIZE) is reserves
        writer.discard(pending)


@pytest.mark.parametrize("told", [True, False])
def test_holes_are_believed_by_the_row(monkeypatch: pytest.MonkeyPatch, folder: Path, told: bool) -> None:
    labfs(monkeypatch, folder, holes_told=told)
    sparse._holes_told.cache_clear()
    with (folder / "holed").open("wb") as stream:
        stream.truncate(SIZE)
        body = sparse.SparseBody(os.dup(stream.fileno()), "holed", os.fstat(stream.fileno()), 0, SIZE)
    assert body.certain is told
    body.close()
    sparse._holes_told.cache_clear()


def test_what_is_read_back_counts_by_the_row(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    verify = VerifyConfig(minimum_grade="cold")
    (folder / "f").write_bytes(b"x")
    labfs(monkeypatch, folder)
    seen = facts(folder)
    assert not seen.passable
    assert "on labfs bytes can be in caches" in beyond(verify, kind=seen.kind, alone=False)
    with ColdReader(folder, seen) as reader:
        assert reader.read("f", 0, 1, lambda _: None).method == "cached"
    labfs(monkeypatch, folder, one_cache=True)
    assert not beyond(verify, kind="labfs", alone=False)


def test_a_row_without_a_folder_is_no_target(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    from penstock.core.errors import PreflightError
    from penstock.target.dataset_folders import check_root

    check_root(folder)
    labfs(monkeypatch, folder, holds_files=False)
    with pytest.raises(PreflightError, match="labfs"):
        check_root(folder)


def names_of(rows: Iterable[Kind]) -> set[str]:
    return {name for row in rows for name in (row.name, *row.types)}


def may_name(path: Path) -> set[str]:
    """A product's modules may name the rows whose mounts it reads or whose tools it knows, and the module
    that holds the readers of mounts all rows that have a product."""
    package = Path(kinds.__file__).parent
    if not path.is_relative_to(package):
        return set()
    own = path.relative_to(package).parts[0].removesuffix(".py").partition("_")[0]
    rows = [row for row in kinds.TABLE if row.product and (path.stem == "mount_checks" or own == row.product)]
    return names_of(rows) | {row.product for row in rows}


def test_no_other_module_names_a_file_system() -> None:
    """As a text of its own; sentences for people may name one. Products' modules may name theirs."""
    names = names_of(row for row in kinds.TABLE if row.holds_files)
    package = Path(penstock.__file__).parent
    for path in sorted(package.rglob("*.py")):
        if path == Path(kinds.__file__):
            continue
        found = {
            node.value
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        assert not (found & names) - may_name(path), path


@pytest.mark.parametrize(("name", "text"), file_systems.pages().items(), ids=file_systems.pages())
def test_the_page_is_what_the_generator_prints(name: str, text: str) -> None:
    written = (file_systems.HERE / name).read_text(encoding="utf-8")
    assert written == text, f"docs/{name} is out of date: run `make docs`"


def test_the_pages_name_each_kind_with_commands_and_each_whose_blocks_are_a_hint() -> None:
    commands = (file_systems.HERE / "filesystems-commands.md").read_text(encoding="utf-8")
    archives = (file_systems.HERE / "filesystems-archives.md").read_text(encoding="utf-8")
    asked = [row.name for row in kinds.TABLE if row.holds_files and row.commands]
    assert f"On {', '.join(sorted(asked)[:-1])} and {max(asked)}," in commands
    hints = ", ".join(row.name for row in kinds.TABLE if row.holds_files and row.stubs)
    assert f"| {hints} | where no command answers" in archives


@pytest.mark.parametrize("shown", file_systems.SHOWN, ids=lambda one: f"{one.id}-{one.tests}")
def test_each_test_that_the_page_names_carries_its_id(shown: file_systems.Shown) -> None:
    text = (file_systems.HERE.parent / "tests" / shown.tests).read_text(encoding="utf-8")
    assert f"def test_{shown.id.lower()}_" in text or f'"{shown.id}"' in text


def test_names_and_numbers_are_told_apart() -> None:
    names = [row.name for row in kinds.TABLE]
    numbers = [row.magic for row in kinds.TABLE if row.magic is not None]
    assert len(set(names)) == len(names)
    assert len(set(numbers)) == len(numbers)


def test_each_product_of_the_table_has_a_module_that_reads_mounts() -> None:
    from penstock.fs.mount_checks import READERS

    modules = {path.stem.removesuffix("_mount") for path in Path(kinds.__file__).parent.glob("*_mount.py")}
    assert {row.product for row in kinds.TABLE if row.product} == modules == READERS.keys()


@pytest.mark.parametrize(
    ("mounted", "named", "rules"),
    [
        ("fuse", "auto", "fuse"),
        ("beegfs", "beegfs", "beegfs"),
        ("fuse", "beegfs", "beegfs"),
        ("nfs", "wekafs", "wekafs"),
        ("ext4", "lustre", "lustre"),
    ],
)
def test_the_row_whose_rules_hold(mounted: str, named: str, rules: str) -> None:
    assert kinds.rules_of(kinds.named_kind(mounted), named).name == rules
