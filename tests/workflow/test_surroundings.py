"""`penstock` under the surroundings of the person who calls it: what lies in the working directory or on
PYTHONPATH is not imported, and no name depends on the locale."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support import commands, locales
from tests.support.commands import ROOT
from tests.workflow.conftest import digests

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.workflow.conftest import Place

SHADOWS = ("yaml", "queue", "json", "signal", "typing", "threading", "xxhash", "pyarrow", "snakemake", "rich")
PROGRAM = Path(sys.executable).with_name("penstock")
PROGRAMS = [(str(PROGRAM),), (sys.executable, "-m", "penstock")]


@pytest.fixture(scope="module")
def latin9(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    surroundings = locales.latin9(tmp_path_factory.mktemp("locale"))
    code = "import sys; print(sys.getfilesystemencoding())"
    plain = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **surroundings},
        capture_output=True,
        text=True,
        check=True,
    )
    assert plain.stdout.strip() == "iso8859-15"
    return surroundings


def shadowed(folder: Path) -> Path:
    """The folder, with modules in it that end whoever imports them."""
    folder.mkdir(exist_ok=True)
    for name in SHADOWS:
        (folder / f"{name}.py").write_text("raise SystemExit(99)\n")
    return folder


def called(
    *words: str, cwd: Path, surroundings: Mapping[str, str], program: tuple[str, ...] = (str(PROGRAM),)
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*program, *words],
        cwd=cwd,
        env={**os.environ, **surroundings},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=commands.PATIENCE,
        check=False,
    )


@pytest.mark.parametrize(
    "program", [(str(PROGRAM),), (sys.executable, "-m", "penstock")], ids=["script", "-m"]
)
@pytest.mark.parametrize("where", ["working directory", "PYTHONPATH"])
def test_modules_of_the_surroundings_are_not_imported(
    place: Place, tmp_path: Path, where: str, program: tuple[str, ...]
) -> None:
    shadows = shadowed(place.folder if where == "working directory" else tmp_path / "modules")
    surroundings = {"PYTHONPATH": str(shadows)} if where == "PYTHONPATH" else {}
    done = called("status", cwd=place.folder, surroundings=surroundings, program=program)
    assert (done.returncode, done.stderr) == (0, "")
    assert "nothing published" in done.stdout


def test_an_installation_on_pythonpath_is_refused_by_name(tmp_path: Path) -> None:
    """A module system's way: it cannot be kept apart from what else lies on PYTHONPATH."""
    program = ("/usr/bin/python3", "-S", "-m", "penstock")
    done = called("status", cwd=tmp_path, surroundings={"PYTHONPATH": f"{ROOT}/scripts"}, program=program)
    assert done.returncode == 3
    assert "installed on PYTHONPATH alone" in done.stderr
    assert "python3 -m venv FOLDER" in done.stderr


def test_an_installation_of_the_user_is_found(tmp_path: Path) -> None:
    """`pip install --user`: the user's site-packages are kept where penstock lies there, and only then."""
    code = "from penstock.host import interpreter as i; print(*i.isolated())"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    packages = tmp_path / f"lib/python{version}/site-packages"
    packages.mkdir(parents=True)
    surroundings = {"PYTHONUSERBASE": str(tmp_path), "PYTHONPATH": f"{ROOT}/scripts"}
    program = (os.path.realpath(sys.executable), "-c", code)
    kept = {}
    for installed in (False, True):
        if installed:
            (packages / "penstock-1.0.0.dist-info").mkdir()
        done = called(cwd=tmp_path, surroundings=surroundings, program=program)
        kept[installed] = "-I" not in done.stdout.split()
        assert done.returncode == 0, done.stderr
    assert kept == {False: False, True: True}


def test_an_old_numpy_of_the_machine_does_not_matter(tmp_path: Path) -> None:
    """pyarrow refuses to load beside a NumPy before 2.0, such as Debian 12's for its python3."""
    packages = tmp_path / "dist-packages"
    (packages / "numpy").mkdir(parents=True)
    (packages / "numpy/__init__.py").write_text("__version__ = '1.24.2'\n")
    (packages / "numpy-1.24.2.egg-info").mkdir()
    path = f"import sys; sys.path.insert(0, {str(packages)!r})"
    code = path + "; {} import pyarrow; print(pyarrow.array([1]).sum())"
    alone = called(cwd=tmp_path, surroundings={}, program=(sys.executable, "-c", code.format("")))
    assert "pyarrow requires NumPy" in alone.stderr, "what is hidden below"
    done = called(
        cwd=tmp_path, surroundings={}, program=(sys.executable, "-c", code.format("import penstock;"))
    )
    assert (done.returncode, done.stdout.strip()) == (0, "1"), done.stderr


def test_keys_and_names_do_not_depend_on_the_locale(
    place: Place, latin9: Mapping[str, str], tmp_path: Path
) -> None:
    """The same source in two locales is one release, with the names of the source."""
    (place.source / "\u00e9t\u00e9").mkdir()
    (place.source / "\u00e9t\u00e9/\u00e9.txt").write_bytes(b"accents")
    (place.source / os.fsdecode(b"not-\xff-utf8")).write_bytes(b"bytes")
    assert called("run", cwd=place.folder, surroundings={"LC_ALL": "C.UTF-8"}).returncode == 0
    [release] = place.releases()
    done = called("run", cwd=place.folder, surroundings=latin9)
    assert done.returncode == 0, done.stderr
    assert "nothing was copied" in done.stdout
    assert place.releases() == [release]
    assert digests(place.published()) == digests(place.source)
