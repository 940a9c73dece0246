"""penstock as a module of another workflow, and deployed by snakedeploy: real ones, which stage."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import yaml
from tests.support import snakedeploy
from tests.support.commands import ROOT, run, started
from tests.support.go_servers import UnavailableError
from tests.workflow.conftest import Place, digests

from penstock.config import loader

if TYPE_CHECKING:
    from pathlib import Path

WORKFLOW = ROOT / "workflow/Snakefile"
CONTROLLER = """
import pathlib, sys
from penstock.workflow import controller
controller.take(pathlib.Path("results/.workflow").absolute(), print)
print("taken", flush=True)
sys.stdin = open("/dev/null")
import signal
signal.pause()
"""


SNAKEMAKE = (sys.executable, "-m", "penstock.cli.snakemake_start")


def _snakemake(folder: Path, *words: str, code: str = "") -> subprocess.CompletedProcess[str]:
    """Of what lies in the folder; `code` runs before it in the same process."""
    program = f"import sys\n{code}\nfrom snakemake.cli import main\nmain(sys.argv[1:])"
    command = (sys.executable, "-c", program) if code else SNAKEMAKE
    return run(*command, "--cores", "2", *words, cwd=folder)


OUTER = f"""
configfile: "outer.yaml"

rule all:
    default_target: True
    input: "trained", "counted"

module penstock:
    snakefile: "{WORKFLOW}"
    config: config["penstock"]
    prefix: "staging"

use rule * from penstock as penstock_*

rule count:
    input: rules.penstock_all.input
    output: "counted"
    run:
        from pathlib import Path
        staged = sum(1 for _ in Path("target/d/current/data").iterdir())
        Path(output[0]).write_text(f"{{staged}} {{len(input)}}")

rule train:
    input: penstock.staged("d")
    output: "trained"
    shell:
        "data=$({sys.executable} -m penstock --config {{penstock.CONFIG_FILE:q}} path d)"
        " && cat $data/a.txt > {{output}}"
"""


def test_a_module_of_a_part_of_the_configuration_stages_for_the_rules_beside_it(place: Place) -> None:
    """P6: with a prefix, other names, a rule that waits for one dataset, and one that waits for all. What
    other parts of the configuration hold is not penstock's business; a second run copies nothing."""
    outer = "samples: {1: 010, day: 2026-11-27}\n" + yaml.safe_dump({"penstock": place.config})
    (place.folder / "outer.yaml").write_text(outer)
    (place.folder / "Snakefile").write_text(OUTER)
    (place.folder / "config.yaml").unlink()
    done = _snakemake(place.folder, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "Would         list the source" in done.stdout
    assert not (place.folder / "staging").exists()

    done = _snakemake(place.folder)
    assert done.returncode == 0, done.stderr
    data = place.target / "d/current/data"
    assert digests(data) == digests(place.source)
    assert (place.folder / "trained").read_bytes() == b"alpha"
    assert (place.folder / "counted").read_text() == "3 2"
    assert not (place.folder / "results").exists()
    [made] = (place.folder / "staging/results/.workflow/configurations").iterdir()
    place.monkeypatch.chdir(place.folder)
    assert loader.load(made).datasets.keys() == {"d"}
    [run_folder] = (place.target / "d/.penstock/runs").iterdir()

    (place.folder / "trained").unlink()
    done = _snakemake(place.folder)
    assert done.returncode == 0, done.stderr
    assert (place.folder / "trained").exists()
    assert [*(place.target / "d/.penstock/runs").iterdir()] == [run_folder]

    # The same strictness as of a file, by the key; and of two controllers the second is refused.
    (place.folder / "outer.yaml").write_text(outer.replace("keep_free", "keepfree"))
    done = _snakemake(place.folder)
    assert done.returncode == 1
    assert "target.keepfree: unknown key; did you mean `keep_free`?" in done.stderr
    assert "[of module penstock]" in done.stderr


DEPLOYED = f"""
configfile: "config/config.yaml"

module penstock:
    snakefile: "{WORKFLOW}"
    config: config

use rule * from penstock
"""


def _catalogue(place: Place) -> None:
    """The folder as snakedeploy leaves it."""
    (place.folder / "workflow").mkdir()
    (place.folder / "config").mkdir()
    (place.folder / "workflow/Snakefile").write_text(DEPLOYED)
    (place.folder / "config.yaml").rename(place.folder / "config/config.yaml")


def test_two_controllers_of_a_module_are_one_too_many(place: Place) -> None:
    """Snakemake obeys no `onstart` of a module, and the profile that is deployed says `nolock`."""
    _catalogue(place)
    (place.folder / "results/.workflow").mkdir(parents=True)
    with started(sys.executable, "-c", CONTROLLER, cwd=place.folder) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "taken\n"
        done = _snakemake(place.folder, "--nolock")
        assert done.returncode == 1
        assert f"a Snakemake is at work in this working directory already: process {first.pid}" in done.stderr
        assert "Traceback" not in done.stderr
        assert not place.target.exists()
        # To look is allowed meanwhile.
        done = _snakemake(place.folder, "--summary", "--nolock")
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("sys.modules['penstock'] = None", "the Python of this snakemake has no penstock"),
        (
            "import penstock; penstock.__version__ = '0.9'",
            "the workflow is of penstock 1.0.0, the package of penstock 0.9",
        ),
    ],
)
def test_a_python_without_this_penstock_is_named(place: Place, code: str, said: str) -> None:
    _catalogue(place)
    done = _snakemake(place.folder, code=code)
    assert done.returncode == 1
    assert said in done.stderr
    assert sys.executable in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.thorough
def test_what_snakedeploy_deploys_stages_once_it_is_configured(place: Place, tmp_path: Path) -> None:
    try:
        program = snakedeploy.program()
    except UnavailableError as error:
        pytest.skip(f"snakedeploy cannot be installed: {error}")
    clone = _clone(tmp_path / "github" / "penstock")
    deployed = tmp_path / "deployed"
    words = ("deploy-workflow", f"file://{clone}", str(deployed), "--tag", "v1")
    done = run(str(program), *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (deployed / "config/README.md").is_file()
    assert (deployed / "profiles/default/config.v8+.yaml").is_file()
    assert (deployed / "config/config.yaml").read_bytes() == (ROOT / "config.yaml").read_bytes()
    snakefile = deployed / "workflow/Snakefile"
    text = snakefile.read_text()
    declared = 'github("github/penstock", path="workflow/Snakefile", tag="v1")'
    assert declared in text
    snakefile.write_text(text.replace(declared, f'"{clone}/workflow/Snakefile"'))

    configuration = deployed / "config/config.yaml"
    document = {**place.config, "datasets": {"d": {"source": str(place.source)}, "e": {"source": "/nowhere"}}}
    document["target"] = {**place.config["target"], "root": str(place.target)}
    configuration.write_text(yaml.safe_dump(document))
    # Values of the command line, and messages with the file's lines, as without a module.
    done = _snakemake(deployed, "--config", "dataset=d", "engine={limit: 1KiB}")
    assert done.returncode == 1
    assert "engine.limit (--config): " in done.stderr
    done = _snakemake(deployed, "--config", "dataset=d", "engine={limit: 900MiB/s}")
    assert done.returncode == 0, done.stderr
    assert digests(place.target / "d/current/data") == digests(place.source)
    assert not (place.target / "e").exists()
    configuration.write_text(configuration.read_text() + "plan: {reuse: 0440}\n")
    done = _snakemake(deployed)
    assert done.returncode == 1
    lines = len(configuration.read_text().splitlines())
    assert f"plan.reuse (line {lines}): `0440` is read in different ways" in done.stderr
    assert str(configuration) in done.stderr


def _clone(folder: Path) -> Path:
    """A repository of what belongs to the workflow, as GitHub would have it."""
    for name in (
        "Snakefile",
        "config.yaml",
        "config",
        "envs",
        "profiles",
        "workflow",
        "README.md",
        "LICENSE",
    ):
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, folder / name, symlinks=True)
        else:
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, folder / name)
    identity = ("-c", "user.name=x", "-c", "user.email=x@localhost", "-c", "init.defaultBranch=main")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "x"), ("tag", "v1")):
        subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)
    return folder
