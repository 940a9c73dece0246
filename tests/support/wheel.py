"""penstock as people install it: its wheel in an environment that was empty, and no checkout."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from packaging import requirements
from tests.support.commands import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BUILT_FROM = (
    "LICENSE", "Makefile", "README.md", "Snakefile", "config.yaml", "docs", "envs", "profiles",
    "pyproject.toml", "scripts", "workflow",
)  # fmt: skip
PATIENCE = 500.0
"""Seconds: packages that are not in pip's cache are fetched."""
TIMEOUT = pytest.mark.timeout(600)
"""Of the tests that use it, the first of which waits until it is made."""


@dataclass(frozen=True)
class Installation:
    """Everything lies in `folder`, which every account may read."""

    folder: Path

    @property
    def sources(self) -> Path:
        """The files that it was built from, without what else a checkout holds."""
        return self.folder / "sources"

    @property
    def wheel(self) -> Path:
        [found] = self.folder.glob("penstock-*.whl")
        return found

    @property
    def bin(self) -> Path:
        return self.folder / "environment" / "bin"

    @property
    def package(self) -> Path:
        [found] = self.folder.glob("environment/lib/python*/site-packages/penstock")
        return found


def install(folder: Path) -> Installation:
    """Build the wheel by `make wheel`, and install it by pip. What it says that it needs, in the locked
    versions, comes from these tests' own environment (where `make venv` installed the lock) and is linked,
    which takes a tenth of the time."""
    made = Installation(folder)
    made.sources.mkdir()
    unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in BUILT_FROM:
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, made.sources / name, symlinks=True, ignore=unwanted)
        else:
            shutil.copy(path, made.sources)
    build("wheel", made.sources, folder)
    _run(sys.executable, "-m", "venv", "--without-pip", str(folder / "environment"))
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")
    _run(*pip, "--python", str(made.bin / "python"), "install", "--no-deps", str(made.wheel))
    _link_needed(made.package.parent)
    return made


def beside(
    made: Installation, folder: Path, *, version: str = "", snakemake: str = "", without: Sequence[str] = ()
) -> Installation:
    """A further environment, in `folder`, of what is installed in `made`, by links: within a second. With
    `version` it holds a penstock that says to be of it; with `snakemake` a Snakemake that does. `without`:
    what is not installed there, as the names of modules and distributions begin."""
    folder.chmod(0o755)
    _run(sys.executable, "-m", "venv", "--without-pip", str(folder / "environment"))
    packages = next(folder.glob("environment/lib/python*/site-packages"))
    for path in made.package.parent.iterdir():
        if not path.name.startswith(tuple(without)):
            (packages / path.name).symlink_to(path)
    if version:
        _of_version(packages, "penstock", version)
        [rules] = packages.glob("penstock/workflow/assets/workflow/rules/installation.smk")
        _change(rules, r"(?m)^VERSION = .*$", f'VERSION = "{version}"')
    if snakemake:
        _of_version(packages, "snakemake", snakemake)
    other = Installation(folder)
    for name, main in (
        ("penstock", "penstock.__main__ import program"),
        ("snakemake", "snakemake.cli import main"),
    ):
        program = other.bin / name
        program.write_text(f"#!{other.bin}/python\nimport sys\nfrom {main} as main\nsys.exit(main())\n")
        program.chmod(0o755)
    return other


def _of_version(packages: Path, name: str, version: str) -> None:
    """A copy of the package and its metadata in place of the links to them, with this version."""
    [metadata_folder] = packages.glob(f"{name}-*.dist-info")
    for link, copy in (
        (packages / name, packages / name),
        (metadata_folder, packages / f"{name}-{version}.dist-info"),
    ):
        source = link.resolve()
        link.unlink()
        shutil.copytree(source, copy)
    _change(packages / f"{name}-{version}.dist-info/METADATA", r"(?m)^Version: .*$", f"Version: {version}")
    _change(packages / name / "__init__.py", r"(?m)^__version__ = .*$", f'__version__ = "{version}"')


def _change(file: Path, pattern: str, text: str) -> None:
    changed, times = re.subn(pattern, lambda _: text, file.read_text())
    assert times == 1, file
    file.write_text(changed)


def build(target: str, sources: Path, folder: Path) -> None:
    """`make wheel` or `make wheels` in a checkout, by these tests' own environment."""
    variables = (f"DIST={folder}", f"VENV={sys.prefix}")
    _run("make", "-C", str(sources), "-o", "venv", target, *variables)


def _link_needed(packages: Path) -> None:
    """The files of every distribution that the penstock in `packages` needs, and that those need."""
    [own] = metadata.distributions(name="penstock", path=[str(packages)])
    waiting: list[tuple[metadata.Distribution, frozenset[str]]] = [(own, frozenset())]
    done = set()
    while waiting:
        for name, extras in _needs(*waiting.pop()):
            if (name, extras) not in done:
                done.add((name, extras))
                waiting.append((metadata.distribution(name), extras))
    for name in {name for name, _ in done}:
        needed = metadata.distribution(name)
        for file in needed.files or ():
            _link(Path(str(needed.locate_file(file))), packages / file)


def _needs(
    distribution: metadata.Distribution, extras: frozenset[str]
) -> Iterator[tuple[str, frozenset[str]]]:
    for line in distribution.requires or ():
        wanted = requirements.Requirement(line)
        if wanted.marker is None or any(wanted.marker.evaluate({"extra": one}) for one in {"", *extras}):
            yield wanted.name, frozenset(wanted.extras)


def _link(source: Path, target: Path) -> None:
    # Programs lie beside the packages; compiled files may have gone.
    if ".." in target.parts or not source.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        target.hardlink_to(source)
    except FileExistsError:
        return
    except OSError:  # another file system
        shutil.copy2(source, target)


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def installation() -> Iterator[Installation]:
    # Not below pytest's own folder, which is closed to the accounts of jobs.
    folder = Path(tempfile.mkdtemp(prefix="penstock-wheel-", dir="/tmp"))
    try:
        folder.chmod(0o755)
        yield install(folder)
    finally:
        shutil.rmtree(folder)
