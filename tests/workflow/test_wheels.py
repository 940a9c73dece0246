"""The folder that `make wheels` writes is all that a machine without a network needs: pip, pipx and the pip
section of the conda environment install penstock from it, and so does a container; the installed stages."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
import yaml
from tests.support import wheel
from tests.support.commands import ROOT
from tests.workflow.conftest import Place, digests

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.thorough,
    wheel.TIMEOUT,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root takes the network away from a process"),
]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    wheel.build("wheels", ROOT, folder)
    return folder / "wheels"


def offline(*words: str | Path, cwd: Path, **variables: str | Path) -> str:
    """What a command prints that has no network, and of the environment PATH and these variables alone."""
    done = subprocess.run(
        ("unshare", "--net", *words), cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        env={"PATH": os.environ["PATH"], "HOME": str(cwd), **variables}, timeout=wheel.PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def installed(requirements: Path, *options: str | Path, **variables: str | Path) -> Path:
    """The programs of a new environment beside the file of requirements."""
    programs = requirements.parent / "environment/bin"
    offline("python3", "-m", "venv", programs.parent, cwd=requirements.parent)
    words = (programs / "python", "-m", "pip", "--disable-pip-version-check", "install", "-q", *options)
    offline(*words, "-r", requirements, cwd=requirements.parent, **variables)
    return programs


def stages(penstock: Path, place: Place) -> None:
    said = offline(penstock, "--as-root", "run", cwd=place.folder)
    assert "STATUS        PASSED\n" in said
    assert digests(place.published()) == digests(place.source)


def test_pip_installs_what_has_the_hashes_of_its_requirements(wheels: Path, place: Place) -> None:
    requirements = place.folder / "requirements.txt"
    shutil.copy(wheels / requirements.name, requirements)
    programs = installed(requirements, "--no-index", "--find-links", wheels, "--require-hashes")
    stages(programs / "penstock", place)


def test_pipx_installs_it(wheels: Path, place: Place) -> None:
    folders = {"PIPX_HOME": place.folder / "pipx", "PIPX_BIN_DIR": place.folder / "bin"}
    source = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": wheels}
    offline("pipx", "install", "penstock", cwd=place.folder, **folders, **source)
    stages(place.folder / "bin/penstock", place)


def test_the_pip_section_of_the_conda_environment_installs_it(wheels: Path, tmp_path: Path) -> None:
    """As conda hands it to pip: each item is a line of a file beside the environment's. conda is not run."""
    section = yaml.safe_load((ROOT / "envs/penstock.yaml").read_text())["dependencies"][-1]["pip"]
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("\n".join(section))
    programs = installed(requirements, "-U", "--exists-action=b", PENSTOCK_WHEELS=wheels)
    assert offline(programs / "penstock", "--version", cwd=tmp_path).startswith("penstock ")
    got = offline(programs / "python", "-m", "pip", "freeze", "--all", cwd=tmp_path).lower().splitlines()
    assert set(section[2:]) <= {line.partition(" @ ")[0] for line in got}
