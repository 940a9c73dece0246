"""A wheel in an environment of its own stages: no checkout is needed, and none of its files is written."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from typing import TYPE_CHECKING

from tests.support.commands import ROOT, run
from tests.support.wheel import TIMEOUT, build
from tests.workflow.conftest import Place, digests

import penstock

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.wheel import Installation

pytestmark = TIMEOUT
ASSETS = ("Snakefile", "config.yaml", "workflow", "profiles", "envs/penstock.yaml")


def test_wheel_and_sdist_hold_the_checkouts_files_and_no_links(
    installation: Installation, tmp_path: Path
) -> None:
    wanted = {}
    for name in ASSETS:
        path = ROOT / name
        for file in [path] if path.is_file() else [at for at in path.rglob("*") if at.is_file()]:
            wanted[f"penstock/assets/{file.relative_to(ROOT)}"] = file.read_bytes()
    assert len(wanted) > 10
    with zipfile.ZipFile(installation.wheel) as wheel:
        assert all(wheel.read(name) == content for name, content in wanted.items())
        assert not any((info.external_attr >> 28) == 0o12 for info in wheel.infolist())
    installed = installation.folder / "environment/share/man/man1/penstock.1"
    assert installed.read_bytes() == (ROOT / "docs/penstock.1").read_bytes()
    code = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    words = (sys.executable, "-c", code, str(tmp_path))
    subprocess.run(words, cwd=installation.sources, check=True, capture_output=True)
    [sdist] = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as packed:
        members = {entry.name.partition("/scripts/")[2]: entry for entry in packed}
        assert wanted.keys() <= members.keys()
        assert all(entry.isfile() or entry.isdir() for entry in members.values())
        assert any(name.endswith("/docs/penstock.1") for name in packed.getnames())


def test_the_same_files_make_the_same_bytes_and_the_checkout_stays_as_it_was(
    installation: Installation, tmp_path: Path
) -> None:
    """Copied at another time, into another folder, by an account with another umask."""
    before = os.umask(0o077)
    try:
        sources = shutil.copytree(
            installation.sources, tmp_path / "sources", symlinks=True, copy_function=shutil.copy
        )
        held = _state(sources).keys()
        build("wheel", sources, tmp_path / "dist")
    finally:
        os.umask(before)
    assert _state(sources).keys() == held
    [again] = (tmp_path / "dist").iterdir()
    assert again.name == f"penstock-{penstock.__version__}-py3-none-any.whl"
    assert again.read_bytes() == installation.wheel.read_bytes()


def test_an_installation_previews_stages_and_stays_as_it_is(installation: Installation, place: Place) -> None:
    """P2."""
    program = str(installation.bin / "penstock")
    before = _state(installation.package)
    done = run(program, "run", "--dry-run", cwd=place.folder)
    assert done.returncode == 0, done.stderr
    assert "Would         list the source, and copy, verify and publish all of it\n" in done.stdout
    done = run(program, "run", cwd=place.folder)
    assert done.returncode == 0, done.stderr
    assert "STATUS        PASSED\n" in done.stdout
    assert digests(place.published()) == digests(place.source)
    done = run(program, "run", "--submit", cwd=place.folder)
    assert done.returncode == 2
    assert "only SLURM takes a command as a job" in done.stderr
    assert _state(installation.package) == before


def test_the_crontab_line_prints_what_a_run_said_that_did_not_end_well(
    installation: Installation, place: Place
) -> None:
    text = (ROOT / "docs/install.md").read_text()
    [line] = re.findall(r"^30 1 \* \* \*  (.* run > .*)$", text, re.MULTILINE)
    for written, here in {
        "/srv/staging": str(place.folder),
        "/opt/penstock/current/bin": str(installation.bin),
        "my.yaml": "config.yaml",
        "--backend slurm": "--backend local",
    }.items():
        assert written in line
        line = line.replace(written, here)

    def cron() -> str:
        environment = {
            "HOME": str(place.folder),
            "LOGNAME": "me",
            "PATH": "/usr/bin:/bin",
            "PENSTOCK_AS_ROOT": "1",
        }
        return subprocess.run(
            ("/bin/sh", "-c", line), env=environment, cwd="/", capture_output=True, text=True, check=False
        ).stdout

    assert cron() == ""
    assert digests(place.published()) == digests(place.source)
    shutil.rmtree(place.source)
    assert "the source folder cannot be read" in cron()


def _state(folder: Path) -> dict[Path, tuple[int, int]]:
    """Inode and ctime of each file: root, too, is seen to write into it."""
    return {path: (path.stat().st_ino, path.stat().st_ctime_ns) for path in folder.rglob("*")}


def test_what_is_packed_in_an_archive_is_refused(installation: Installation, place: Place) -> None:
    code = f"import sys; sys.path.insert(0, {str(installation.wheel)!r}); "
    code += "from penstock.__main__ import program; program()"
    done = run(str(installation.bin / "python"), "-c", code, "run", cwd=place.folder)
    assert done.returncode == 3, done.stderr
    assert "the workflow cannot be started out of an archive" in done.stderr
    assert "Traceback" not in done.stderr
