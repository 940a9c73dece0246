"""What differs between backends is asked by its name, and SLURM's variables are named in one package."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import penstock
from penstock.cluster.port import Abilities, abilities_of

PACKAGE = Path(penstock.__file__).parent
COMPARED = re.compile(r"""(kind|backend) [!=]= ["'](local|slurm)["']""")


@pytest.mark.parametrize(
    ("backend", "ends", "nodes"), [("local", True, False), ("slurm", False, True), ("newer", False, True)]
)
def test_the_table(backend: str, ends: bool, nodes: bool) -> None:
    assert abilities_of(backend) == Abilities(elements_end_with_controller=ends, has_nodes=nodes)


def having(pattern: re.Pattern[str]) -> set[str]:
    """The modules of the package in which this is found."""
    found = (path for path in PACKAGE.rglob("*.py") if pattern.search(path.read_text(encoding="utf-8")))
    return {path.relative_to(PACKAGE).as_posix() for path in found}


def test_only_one_package_names_slurms_variables() -> None:
    named = having(re.compile(r"\bSLURMD?_"))
    assert "cluster/slurm/environment.py" in named
    assert {name for name in named if not name.startswith("cluster/slurm/")} == set()


def test_backends_are_compared_by_name_only_where_one_is_opened() -> None:
    assert having(COMPARED) == {"cluster/registry.py"}
