"""`make quick`: the tests that start no process, talk to no server and stage no dataset.

A file is left out by what it imports, itself or through other modules of the tests: `APART`. So is a test
that asks for a fixture of such a `conftest.py`. What product code starts is no import of the test's: a test
that starts a process or opens a port all the same fails here, and its file belongs to `STARTS`.
"""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
APART = {
    "subprocess", "multiprocessing", "socket", "http.server", "pty", "os.fork",
    "tests.support.forked", "tests.support.staging_runs",
}  # fmt: skip
"""Modules that a pure test does not import, and a function that it does not call."""
STARTS = {
    "cli/test_submit.py",
    "cluster_port/test_other_sites.py",
    "core/test_secrets_in_text.py",
    "vendors/test_bind_mounts.py",
    "vendors/test_command.py",
    "vendors/test_data_states.py",
    "vendors/test_weka_cores.py",
}
"""Files whose processes or servers are started by product code."""
LONG = {
    "config/test_configuration_page.py",
    "core/test_balance.py",
    "docs/test_messages.py",
    "docs/test_names.py",
    "engine/test_pacing.py",
    "oracles/test_http.py",
    "shares/test_rule.py",
    "tables/test_records.py",
    "tables/test_shards.py",
}
"""Pure files that take three seconds of CPU or more."""
EVENTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "socket.bind"}
"""Events of `sys.addaudithook` that no pure test raises."""


def pure(file: Path) -> bool:
    """Whether a file of the tests imports nothing of APART."""
    todo, seen = [file], set[Path]()
    while todo:
        if (file := todo.pop()) not in seen:
            seen.add(file)
            names = _imported(file)
            if names & APART:
                return False
            todo += filter(None, map(_file, names))
    return True


@cache
def _imported(file: Path) -> frozenset[str]:
    return frozenset(_names(ast.parse(file.read_text(encoding="utf-8"))))


def _names(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr == "fork":
            yield f"{node.value.id}.fork"


def _file(module: str) -> Path | None:
    """That of a module of the tests."""
    if not module.startswith("tests."):
        return None
    path = ROOT / module.replace(".", "/")
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    if collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
        return None
    named = str(collection_path.relative_to(ROOT / "tests")) in STARTS | LONG
    return named or not pure(collection_path) or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    apart = [item for item in items if not all(map(pure, _fixtures(item)))]
    config.hook.pytest_deselected(items=apart)
    items[:] = [item for item in items if item not in set(apart)]


def _fixtures(item: pytest.Item) -> set[Path]:
    """The files of the fixtures that a test asks for, but for what all tests have."""
    info = item._fixtureinfo if isinstance(item, pytest.Function) else None
    defined = info.name2fixturedefs.values() if info else ()
    files = {Path(one.func.__code__.co_filename) for found in defined for one in found}
    return {file for file in files if file.is_relative_to(ROOT / "tests")} - {ROOT / "tests/conftest.py"}


def pytest_runtestloop() -> None:
    """From now on."""
    sys.addaudithook(_refuse)


def _refuse(event: str, _: object) -> None:
    if event in EVENTS:
        pytest.fail(
            f"{event}: a test of `make quick` starts no process and opens no port (tests/support/pure)"
        )
