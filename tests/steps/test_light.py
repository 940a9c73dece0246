"""What each step's process loads: a run starts a dozen of them."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("pyarrow", "numpy", "rich", "jsonschema", "fsspec", "botocore", "pathspec", "snakemake")


@pytest.mark.parametrize(
    ("modules", "but"),
    [
        ("cli.main, cli.steps, cli.parser, cli.session, cli.run", ()),
        ("steps.preflight, steps.gathering, sources.s3, sources.posix", ()),
        ("steps.copying, steps.permissions, steps.verifying, steps.on_node, steps.arrays", ()),
        ("steps.reporting, views.report, views.summary, steps.status, steps.gate", ()),
        ("config.loading", ()),
        ("steps.listing, steps.planning, steps.publishing", ("pyarrow",)),
    ],
)
def test_it_loads_nothing_heavy(modules: str, but: tuple[str, ...]) -> None:
    names = ", ".join(f"penstock.{name}" for name in modules.split(", "))
    heavy = set(HEAVY) - set(but) - ({"numpy"} if but else set())  # pyarrow takes numpy along where it is
    code = f"import sys, {names}\nprint(*sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
