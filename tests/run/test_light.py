"""What each step's process loads: a run starts a dozen of them."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = (
    "pyarrow",
    "numpy",
    "rich",
    "jsonschema",
    "fsspec",
    "botocore",
    "pathspec",
    "snakemake",
    "jinja2",
    "prometheus_client",
)


@pytest.mark.parametrize(
    ("modules", "but"),
    [
        ("cli.main, cli.commands.single_steps, cli.argument_parser, cli.session, cli.commands.run", ()),
        ("doctor.preflight_step, listing.collection, sources.s3, sources.posix", ()),
        ("run.copy_step, run.permissions_step, run.verify_step", ()),
        ("jobs.array_runner", ()),
        (
            "run.report_step, look.views.html_report, look.views.run_summary, look.status_report",
            (),
        ),
        ("dataset.gate", ()),
        ("config.loader", ()),
        ("run.list_step, run.plan_step, run.publish_step", ("pyarrow",)),
    ],
)
def test_it_loads_nothing_heavy(modules: str, but: tuple[str, ...]) -> None:
    names = ", ".join(f"penstock.{name}" for name in modules.split(", "))
    heavy = set(HEAVY) - set(but) - ({"numpy"} if but else set())  # pyarrow takes numpy along where it is
    code = f"import sys, {names}\nprint(*sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
