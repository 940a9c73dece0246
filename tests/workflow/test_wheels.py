"""The folder that `make wheels` writes is all that a machine without a network needs: pip, pipx, the section
for pip of conda's environment and a container install penstock from it, and what was installed stages."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from tests.support import wheel
from tests.support.commands import ROOT
from tests.workflow.conftest import Place, digests

if TYPE_CHECKING:
    from collections.abc import Iterator

SYSTEM_PYTHON = "/usr/bin/python3"
ACCOUNT = 4321
"""Of nobody: root is refused."""

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
    pip = (programs / "python", "-m", "pip", "--disable-pip-version-check", "install", "--no-compile")
    offline(*pip, *options, "-r", requirements, cwd=requirements.parent, **variables)
    return programs


def stages(penstock: Path, place: Place) -> None:
    said = offline(penstock, "--as-root", "run", cwd=place.folder)
    assert "STATUS        PASSED, " in said
    assert digests(place.published()) == digests(place.source)


def test_pip_installs_what_has_the_hashes_of_its_requirements(wheels: Path, place: Place) -> None:
    requirements = place.folder / "requirements.txt"
    shutil.copy(wheels / requirements.name, requirements)
    programs = installed(requirements, "--no-index", "--find-links", wheels, "--require-hashes")
    stages(programs / "penstock", place)


@pytest.mark.skipif(shutil.which("pipx") is None, reason="there is no pipx")
def test_pipx_installs_it(wheels: Path, place: Place) -> None:
    folders = {"PIPX_HOME": place.folder / "pipx", "PIPX_BIN_DIR": place.folder / "bin"}
    # pipx looks for a newer pip for itself, and goes on without one.
    words = ("pipx", "install", f"--pip-args=--no-index --find-links {wheels} --no-compile", "penstock")
    offline(*words, cwd=place.folder, PIP_RETRIES="0", **folders)
    stages(place.folder / "bin/penstock", place)


def test_the_pip_section_of_the_conda_environment_installs_it(wheels: Path, tmp_path: Path) -> None:
    """As conda hands it to pip: each item is a line of a file. conda itself is not run."""
    section = yaml.safe_load((ROOT / "envs/penstock.yaml").read_text())["dependencies"][-1]["pip"]
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("\n".join(section))
    programs = installed(requirements, "-U", "--exists-action=b", PENSTOCK_WHEELS=wheels)
    assert offline(programs / "penstock", "--version", cwd=tmp_path).startswith("penstock ")
    got = offline(programs / "python", "-m", "pip", "freeze", "--all", cwd=tmp_path).lower().splitlines()
    assert set(section[2:]) <= {line.partition(" @ ")[0].replace("_", "-") for line in got}


@pytest.mark.timeout(1000)  # the first time the tree is made
@pytest.mark.skipif(shutil.which("podman") is None, reason="there is no podman")
@pytest.mark.skipif(
    os.path.realpath(sys.executable) != os.path.realpath(SYSTEM_PYTHON),
    reason=f"the wheels are for {sys.executable}, and the tree has the system's Python",
)
def test_a_container_is_built_of_it_and_stages(wheels: Path, place: Place, podman: list[str]) -> None:
    options = ("--network", "none", "--build-arg", "BASE=localhost/base", "-t", "penstock")
    offline(*podman, "build", "-q", "-f", ROOT / "envs/Containerfile", *options, wheels, cwd=place.folder)
    # Limits of their own: podman's are higher than a process may set that is confined itself.
    limits = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096")
    started = (*podman, "run", "--rm", "--network", "none", *limits)
    assert offline(*started, "penstock", "--version", cwd=place.folder).startswith("penstock ")
    for path in (place.folder, *place.folder.rglob("*")):
        os.chown(path, ACCOUNT, ACCOUNT)
    work = ("--user", f"{ACCOUNT}:{ACCOUNT}", "-v", f"{place.folder}:/work", "-w", "/work")
    assert "STATUS        PASSED, " in offline(*started, *work, "penstock", "run", cwd=place.folder)
    data = offline(*started, *work, "penstock", "path", "d", cwd=place.folder).strip()
    assert digests(place.folder / Path(data).relative_to("/work")) == digests(place.source)


@pytest.fixture
def podman() -> Iterator[list[str]]:
    """Its words, with images of its own: `base` is a tree of this machine's Debian."""
    suite = re.findall(r"^VERSION_CODENAME=(\w+)$", Path("/etc/os-release").read_text(), re.MULTILINE)[0]
    subprocess.run((ROOT / "tests/cluster/suite.sh", suite, "true"), check=True, stdin=subprocess.DEVNULL)
    # Its paths may have 50 characters.
    with tempfile.TemporaryDirectory(prefix="penstock-images-", dir="/tmp") as store:
        # runc, since crun refuses a machine that has control groups of both versions.
        words = ["podman", "--root", f"{store}/root", "--runroot", f"{store}/run", "--runtime", "runc"]
        words += ["--cgroup-manager", "cgroupfs", "--events-backend", "none"]
        packed = ("tar", "-C", ROOT / ".suites" / suite, "--one-file-system", "-c", ".")
        with subprocess.Popen(packed, stdout=subprocess.PIPE) as tree:
            subprocess.run((*words, "import", "-q", "-", "base"), stdin=tree.stdout, check=True)
        assert tree.returncode == 0
        yield words
