"""What the Snakemake workflow catalogue looks for (scripts/generate-catalog.py of it), and its example."""

from __future__ import annotations

import re
import shutil
import sys
import zipfile
from typing import TYPE_CHECKING

import yaml
from tests.support.commands import ROOT, run
from tests.workflow.conftest import digests

import penstock
from penstock.target import tree_removal

if TYPE_CHECKING:
    from pathlib import Path


def test_the_catalogue_finds_what_it_looks_for() -> None:
    assert (ROOT / "workflow/Snakefile").is_file()
    assert (ROOT / "config/config.yaml").resolve() == ROOT / "config.yaml"
    assert (ROOT / "workflow/schemas/config.schema.yaml").is_file()
    usage = yaml.safe_load((ROOT / ".snakemake-workflow-catalog.yml").read_text())["usage"]
    assert usage == {"software-stack-deployment": {"conda": True}, "report": True}
    readme = (ROOT / "README.md").read_text().lower()
    assert "snakemake" in readme
    assert "workflow" in readme
    described = (ROOT / "config/README.md").read_text()
    assert len(described.splitlines()) < 40
    for link in re.findall(r"\]\(([^)#]+)", described):
        assert (ROOT / "config" / link).exists(), link


def test_the_rule_files_are_of_the_packages_version() -> None:
    text = (ROOT / "workflow/rules/installation.smk").read_text()
    assert f'VERSION = "{penstock.__version__}"\n' in text


def test_the_example_of_the_catalogue_runs_and_makes_a_report(tmp_path: Path) -> None:
    """As the catalogue's workflows are run, in a copy of `.test`: no server, no profile. The report is of a
    run that copied nothing."""
    folder = tmp_path / ".test"
    shutil.copytree(ROOT / ".test", folder, ignore=shutil.ignore_patterns("results", "target", ".snakemake"))
    words = (sys.executable, "-m", "penstock.cli.snakemake_start", "-s", str(ROOT / "workflow/Snakefile"))
    words = (*words, "--configfile", "config/config.yaml", "--cores", "2")
    for _ in range(2):
        done = run(*words, cwd=folder)
        assert done.returncode == 0, done.stderr
        assert re.search("example: .* is published, in ", done.stderr)
    staged = digests(folder / "target/example/current/data")
    wanted = digests(folder / "source")
    assert staged == {name: digest for name, digest in wanted.items() if not name.endswith(".tmp")}
    done = run(*words, "--report", "report.zip", cwd=folder)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(folder / "report.zip") as packed:
        page = packed.read("report/report.html").decode()
        held = [name for name in packed.namelist() if name.endswith(("report.html", "report.json"))]
    assert "Datasets that penstock staged" in page
    assert "PASSED" in page
    assert "2 files, 44 B" in page
    assert len(held) == 3
    tree_removal.remove_tree(folder)
