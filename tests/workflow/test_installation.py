"""A wheel in an environment of its own stages: no checkout is needed, and none of its files is written.

What can be wrong with an installation is said by name, before anything is listed or made: a Snakemake that
is missing or does not fit, parts of two versions in one shell, a library that is gone. An account that did
not install it, and has no room in its home, stages all the same."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support import commands
from tests.support.commands import ROOT, run
from tests.support.wheel import TIMEOUT, Installation, beside, build
from tests.workflow.conftest import Place, digests

import penstock
from penstock.workflow import installation as parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

pytestmark = TIMEOUT
THIS, NEXT = penstock.__version__, "1.99.0"
SERVICE = 2004
"""An account that installed nothing."""
ASSETS = ("Snakefile", "config.yaml", "workflow", "profiles", "envs/penstock.yaml")


@pytest.fixture(scope="module")
def next_version(installation: Installation) -> Iterator[Installation]:
    with made_beside(installation, version=NEXT) as made:
        yield made


@contextlib.contextmanager
def made_beside(
    installation: Installation, *, version: str = "", snakemake: str = "", without: str = ""
) -> Iterator[Installation]:
    folder = Path(tempfile.mkdtemp(prefix="penstock-beside-", dir="/tmp"))
    try:
        folder.chmod(0o755)
        gone = (without,) if without else ()
        yield beside(installation, folder, version=version, snakemake=snakemake, without=gone)
    finally:
        shutil.rmtree(folder)


def refused(*words: str | Path, place: Place, code: int, env: Mapping[str, str] | None = None) -> str:
    """What a command says that ends with this status, and has neither made nor listed anything."""
    done = run(*map(str, words), cwd=place.folder, env=env)
    said = done.stdout + done.stderr
    assert done.returncode == code, said
    assert "Traceback" not in said
    assert not place.target.exists()
    return " ".join(said.split())


def snakemake(made: Installation, workflow: Path) -> tuple[str, ...]:
    words = (made.bin / "python", "-m", "snakemake", "--snakefile", workflow / "Snakefile")
    return (*map(str, words), "--workflow-profile", str(workflow / "profiles/default"))


# The wheel, and what is installed of it ----------------------------------------------------------


def _state(folder: Path) -> dict[Path, tuple[int, int]]:
    """Inode and ctime of each file: root, too, is seen to write into it."""
    return {path: (path.stat().st_ino, path.stat().st_ctime_ns) for path in folder.rglob("*")}


def test_wheel_and_sdist_hold_the_checkouts_files_and_no_links(
    installation: Installation, tmp_path: Path
) -> None:
    wanted = {}
    for name in ASSETS:
        path = ROOT / name
        for file in [path] if path.is_file() else [at for at in path.rglob("*") if at.is_file()]:
            wanted[f"penstock/workflow/assets/{file.relative_to(ROOT)}"] = file.read_bytes()
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


def test_an_installation_previews_stages_by_the_crontab_line_and_stays_as_it_is(
    installation: Installation, place: Place
) -> None:
    """P2. The line prints what a run said that did not end well."""
    program = str(installation.bin / "penstock")
    before = _state(installation.package)
    done = run(program, "run", "--dry-run", cwd=place.folder)
    assert done.returncode == 0, done.stderr
    assert "Would         list the source, and copy, verify and publish all of it\n" in done.stdout
    assert _by_cron(installation, place) == ""
    assert digests(place.published()) == digests(place.source)
    done = run(program, "run", "--submit", cwd=place.folder)
    assert done.returncode == 2
    assert "only SLURM takes a command as a job" in done.stderr
    shutil.rmtree(place.source)
    assert "the source folder cannot be read" in _by_cron(installation, place)
    assert _state(installation.package) == before


def _by_cron(installation: Installation, place: Place) -> str:
    """What the line of docs/install.md prints."""
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
    environment = {
        "HOME": str(place.folder), "LOGNAME": "me", "PATH": "/usr/bin:/bin", "PENSTOCK_AS_ROOT": "1",
    }  # fmt: skip
    return subprocess.run(
        ("/bin/sh", "-c", line), env=environment, cwd="/", capture_output=True, text=True, check=False
    ).stdout


def test_what_is_packed_in_an_archive_is_refused(installation: Installation, place: Place) -> None:
    code = f"import sys; sys.path.insert(0, {str(installation.wheel)!r}); "
    code += "from penstock.__main__ import program; program()"
    done = run(str(installation.bin / "python"), "-c", code, "run", cwd=place.folder)
    assert done.returncode == 3, done.stderr
    assert "the workflow cannot be started out of an archive" in done.stderr
    assert "Traceback" not in done.stderr


# Parts that are missing or do not fit -------------------------------------------------------------


def test_the_wanted_snakemake_is_that_of_the_packages_metadata() -> None:
    assert f'"{parts.WANTED}",' in (ROOT / "pyproject.toml").read_text()
    assert "snakemake>={}.{},<{}".format(*parts.FIRST, parts.BEFORE[0]) == parts.WANTED
    assert 'min_version("{}.{}")'.format(*parts.FIRST) in (ROOT / "workflow/Snakefile").read_text()


@pytest.mark.parametrize(
    "version",
    ["", "9.13.4", *(pytest.param(other, marks=pytest.mark.thorough) for other in ("8.30.0", "10.0.0"))],
)
def test_a_snakemake_that_is_missing_or_does_not_fit_is_said_before_anything_starts(
    installation: Installation, place: Place, version: str
) -> None:
    """By `run`, and on the login node by `run --submit`."""
    with made_beside(installation, snakemake=version, without="" if version else "snakemake") as made:
        for words in (("run",), ("--backend", "slurm", "run", "--submit")):
            said = refused(made.bin / "penstock", *words, place=place, code=3)
            assert f"[{made.bin.parent}]" in said
            assert "snakemake>=9.14,<10" in said
            assert f"{made.bin}/python -m pip install 'snakemake>=9.14,<10'" in said
            assert (f"Snakemake {version} is not one" in said) if version else ("is not installed" in said)
        assert not (place.folder / "results").exists()
        if version.startswith("8."):
            said = refused(*snakemake(made, made.package / "workflow/assets"), place=place, code=1)
            assert f"Expecting Snakemake version 9.14 or higher (you are currently using {version})" in said
        if version.startswith("10."):
            said = refused(*snakemake(made, made.package / "workflow/assets"), place=place, code=1)
            assert "Snakemake 10.0.0 is not one that penstock" in said


@pytest.mark.parametrize("library", ["yaml", "snakemake_interface_common"])
def test_a_library_that_is_gone_is_named(installation: Installation, place: Place, library: str) -> None:
    """Of penstock's own, and of Snakemake's."""
    with made_beside(installation, without=library) as made:
        said = refused(made.bin / "penstock", "run", place=place, code=3)
        assert f"this installation of penstock is not whole [{made.bin.parent}]" in said
        assert f"No module named '{library}'" in said


def test_penstock_starts_its_own_snakemake_and_not_that_of_path(
    installation: Installation, next_version: Installation, place: Place
) -> None:
    """Nor does it need one there. The older version's program stands first on PATH."""
    with made_beside(installation, version=THIS) as made:
        (made.bin / "snakemake").unlink()
        path = f"{made.bin}:{next_version.bin}:/usr/bin:/bin"
        env = {"PATH": path, "PYTHONPATH": str(next_version.package.parent)}
        done = run("penstock", "run", cwd=place.folder, env=env)
        assert done.returncode == 0, done.stderr
        assert f'"penstock": "{THIS}"' in (place.published().parent / "release.json").read_text()


def test_the_workflow_of_one_version_and_the_package_of_another_are_refused(
    installation: Installation, next_version: Installation, place: Place
) -> None:
    old, new = installation.package / "workflow/assets", next_version.package / "workflow/assets"
    for made, files, theirs, mine in (
        (next_version, old, THIS, NEXT),
        (installation, new, NEXT, THIS),
    ):
        said = refused(*snakemake(made, files), place=place, code=1)
        assert f"the workflow is of penstock {theirs}, the package of penstock {mine}" in said
        assert f"[{files}/workflow/rules]" in said
        assert f"the package is {made.package}, of Python {made.bin}/python" in said


def test_a_package_of_pythonpath_under_a_snakemake_is_refused(
    installation: Installation, next_version: Installation, place: Place
) -> None:
    """e2: the steps would be done by the one that is installed."""
    env = {"PYTHONPATH": str(next_version.package.parent)}
    words = snakemake(installation, next_version.package / "workflow/assets")
    said = refused(*words, place=place, code=1, env=env)
    assert f"Snakemake has found penstock {NEXT} by PYTHONPATH" in said
    assert f"its steps would be done by penstock {THIS} in {installation.package}" in said


def test_a_snakemake_without_penstock_is_named(installation: Installation, place: Place) -> None:
    with made_beside(installation, without="penstock") as made:
        said = refused(*snakemake(made, installation.package / "workflow/assets"), place=place, code=1)
        assert f"the Python of this snakemake has no penstock [{made.bin}/python]" in said


def test_version_tells_installations_apart(installation: Installation, next_version: Installation) -> None:
    for made, number in ((installation, THIS), (next_version, NEXT)):
        first, second = run(str(made.bin / "penstock"), "--version").stdout.splitlines()
        assert first == f"penstock {number}"
        assert f"{made.package}, Python " in second
        assert second.endswith(f": {made.bin}/python")


# Accounts, homes and folders -----------------------------------------------------------------


@pytest.fixture
def of_service(place: Place) -> Iterator[Place]:
    """A place below /tmp that belongs to an account which installed nothing."""
    if os.geteuid() != 0:
        pytest.skip("only root can be other accounts")
    folder = Path(tempfile.mkdtemp(prefix="penstock-service-", dir="/tmp"))
    try:
        shutil.copytree(place.folder, folder, dirs_exist_ok=True)
        for path in (folder, *folder.rglob("*")):
            os.lchown(path, SERVICE, SERVICE)
        folder.chmod(0o755)
        yield Place(folder, place.monkeypatch, place.config)
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def full_home() -> Iterator[Path]:
    """Of `SERVICE`, and without a free byte."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-home-", dir="/tmp"))
    try:
        words = ("mount", "-t", "tmpfs", "-o", f"size=64k,uid={SERVICE}", "tmpfs", folder)
        if subprocess.run(words, check=False, capture_output=True).returncode:
            pytest.skip("no tmpfs can be mounted here")
        try:
            with contextlib.suppress(OSError), (folder / "filling").open("wb", buffering=0) as file:
                while file.write(b"0" * 4096):
                    pass
            yield folder
        finally:
            subprocess.run(("umount", folder), check=True)
    finally:
        folder.rmdir()


def called(
    made: Installation, *words: str | Path, cwd: Path, env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """The command of `SERVICE`, with these variables alone."""
    return subprocess.run(
        [str(made.bin / "penstock"), *map(str, words)],
        cwd=cwd, env=env, user=SERVICE, group=SERVICE, extra_groups=[],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=commands.PATIENCE, check=False,
    )  # fmt: skip


def test_another_account_stages_with_a_full_home_by_a_configuration_that_it_reads_through_a_link(
    installation: Installation, of_service: Place, full_home: Path
) -> None:
    """It did not install penstock, and may write nowhere but in its working directory, where the relative
    paths of the configuration begin."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-kept-", dir="/tmp"))
    try:
        folder.chmod(0o755)
        kept = folder / "kept.yaml"
        shutil.move(of_service.folder / "config.yaml", kept)
        os.chown(kept, 0, 0)
        (folder / "team.yaml").symlink_to("kept.yaml")
        words = ("--config", folder / "team.yaml")
        env = {"PATH": os.environ["PATH"], "HOME": str(full_home)}
        done = called(installation, *words, "run", cwd=of_service.folder, env=env)
        assert done.returncode == 0, done.stderr
        assert "STATUS        PASSED, " in done.stdout
        assert digests(of_service.folder / "target/d/current/data") == digests(of_service.source)
        kept.chmod(0o600)
        for command in ("run", "status", "gate"):
            done = called(installation, *words, command, cwd=of_service.folder, env=env)
            assert done.returncode == 2, done.stderr
            assert f"the configuration cannot be read [{folder}/team.yaml]: Permission denied" in done.stderr
    finally:
        shutil.rmtree(folder)


def test_a_working_directory_that_is_not_the_accounts_own_is_named(
    installation: Installation, of_service: Place
) -> None:
    os.chown(of_service.folder, 0, 0)
    for words in (("run",), ("--backend", "slurm", "run", "--submit")):
        done = called(installation, *words, cwd=of_service.folder, env={"PATH": os.environ["PATH"]})
        assert done.returncode == 3, done.stderr
        assert str(of_service.folder) in done.stderr
        assert "Permission denied" in done.stderr
        assert "a working directory of your own" in done.stderr


@pytest.mark.parametrize("command", ["run", "status", "preflight"])
def test_a_working_directory_that_was_removed_is_named(place: Place, command: str) -> None:
    folder = place.folder / "gone"
    folder.mkdir()
    words = (
        f"rmdir {folder} && exec {sys.executable} -m penstock --config {place.folder}/config.yaml {command}"
    )
    done = run("/bin/sh", "-c", words, cwd=folder)
    assert done.returncode == 3, done.stderr
    assert f"the working directory was removed [{folder}]" in done.stderr


def test_an_account_without_a_home_is_told_what_needs_one(
    installation: Installation, of_service: Place
) -> None:
    kept = {"PATH": os.environ["PATH"]}
    of_service.config["datasets"] = {"d": {"source": "~/source"}}
    of_service.write()
    done = called(installation, "run", cwd=of_service.folder, env=kept)
    assert done.returncode == 2, done.stderr
    assert '"~/source" begins at a home, and there is none' in done.stderr
    assert not (of_service.folder / "target").exists()
    # Snakemake needs none, and comes as far as the source that is not there.
    of_service.config["datasets"] = {"d": {"source": "nowhere"}}
    of_service.write()
    done = called(installation, "run", cwd=of_service.folder, env=kept)
    assert done.returncode == 3, done.stderr
    assert f"{of_service.folder}/nowhere" in done.stderr
    assert "Traceback" not in done.stderr


# A newer version's state -----------------------------------------------------------------------


def test_a_state_of_a_newer_format_is_neither_used_nor_changed(place: Place) -> None:
    place.stage("d")
    [release] = place.releases()
    marker = place.target / "d/.penstock/state.json"
    marker.write_text(json.dumps({"format": 2, "penstock": "2.0.0"}))

    def files() -> dict[Path, tuple[int, int]]:
        return {
            path: (path.stat().st_ino, path.stat().st_mtime_ns)
            for path in place.target.rglob("*")
            if path.is_file()
        }

    before = files()
    for command in (
        "run", "path d", "gate d", "gate d --mend", "limit d --nodes 1", "cancel d", f"rollback d {release}",
        "gc d", f"remove d {release} --now", "audit d", "repair d",
    ):  # fmt: skip
        done = place.penstock(*command.split())
        assert done.returncode == 3, (command, done.stderr)
        assert f"of a newer format than this penstock reads [{marker}]" in done.stderr
        assert "use 2.0.0, which wrote it, or a later one; nothing was changed" in done.stderr
    done = place.penstock("status")
    assert (done.returncode, "a dataset's state is of a newer format" in done.stdout) == (0, True)
    assert files() == before
