"""`penstock run` starts the workflow that it was installed with, whatever a person has set for others."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from tests.support.commands import ROOT, run
from tests.workflow.conftest import Place, digests

if TYPE_CHECKING:
    from pathlib import Path

FOREIGN = """\
rule all:
    output: "touched"
    shell: "touch {output}"
"""
PROFILE = """\
dry-run: true
directory: elsewhere
jobs: 500
executor: cluster-generic
no-such-option: 1
"""
"""Each line ends a run that reads it, or keeps it from staging."""


def _profile(folder: Path, text: str) -> None:
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(text)


def test_a_workflow_of_the_users_own_is_not_run(place: Place) -> None:
    """e5, with Snakemake's own names for profiles too: in the working directory and in the user's folder."""
    (place.folder / "Snakefile").write_text(FOREIGN)
    for name in ("workflow/Snakefile", "workflow/rules/common.smk"):
        path = place.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(FOREIGN)
    for name in ("profiles/default", "profiles/slurm", "default", "slurm", "local"):
        _profile(place.folder / name, PROFILE)
    done = place.penstock("--backend", "local", "run")
    assert done.returncode == 0, done.stderr
    assert "STATUS        PASSED, " in done.stdout
    assert digests(place.published()) == digests(place.source)
    assert not (place.folder / "touched").exists()


def test_settings_for_other_workflows_and_a_home_that_cannot_be_written_have_no_say(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """e3. A service account may not write into its home; root may write anywhere, but not below a file."""
    (place.folder / "not-a-folder").write_text("")
    monkeypatch.setenv("HOME", str(place.folder / "not-a-folder"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    home = place.folder / "home"
    _profile(home / "snakemake" / "mine", PROFILE)
    _profile(home / "snakemake" / "default", PROFILE)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    monkeypatch.setenv("SNAKEMAKE_PROFILE", "mine")
    monkeypatch.setenv("SNAKEMAKE_OUTPUT_CACHE", str(place.folder / "no such folder"))
    monkeypatch.setenv("SNAKEMAKE_CONDA_PREFIX", "/proc/none")
    done = place.penstock("run")
    assert done.returncode == 0, done.stderr
    assert "STATUS        PASSED, " in done.stdout
    assert digests(place.published()) == digests(place.source)
    assert place.receipts("report")


@pytest.mark.parametrize(
    "name", ["results", "results/.workflow", "results/.workflow/list", "results/d", ".snakemake"]
)
def test_a_file_where_a_folder_is_needed_is_named(place: Place, name: str) -> None:
    path = place.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    done = place.penstock("run")
    assert done.returncode == 3, done.stderr
    assert f"receipts and reports cannot be written [{path}" in done.stderr
    assert "Traceback" not in done.stderr
    assert not place.target.exists()


@pytest.mark.thorough
def test_a_number_of_another_run_lists_anew(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands in the environment of another run's shell: its listing is not taken for today's."""
    monkeypatch.setenv("PENSTOCK_INVOCATION", "00000000000000000007")
    for content in (b"alpha", b"omega"):
        (place.source / "a.txt").write_bytes(content)
        done = place.snakemake()
        assert done.returncode == 0, done.stderr
        assert (place.published() / "a.txt").read_bytes() == content


def test_an_installation_below_a_brace_is_refused(place: Place) -> None:
    """Snakemake takes the path of a rule's environment for a pattern."""
    (place.folder / "{x}").symlink_to(ROOT / "scripts")
    code = f"import sys; sys.path.insert(0, {str(place.folder / '{x}')!r}); "
    code += "from penstock.__main__ import program; program()"
    done = run(sys.executable, "-I", "-X", "utf8", "-c", code, "run", cwd=place.folder)
    assert done.returncode == 3, done.stderr
    assert "below a name with a brace" in done.stderr
