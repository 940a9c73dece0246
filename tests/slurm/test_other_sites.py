"""Stagings behind login nodes as other sites have them, each on a real SLURM."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import jwt
import pytest
from tests.cluster.fixtures import borrowed
from tests.cluster.place import Place, job_user
from tests.cluster.processes import wait_for
from tests.cluster.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.machine import Machine

pytestmark = pytest.mark.slurm

WRAPPED = """\
#!/bin/sh
echo '{line}'
echo '   Welcome to the cluster | 4 nodes'
echo '77 jobs wait'
{program} "$@"
code=$?
echo '--> 3 of 4 allocations are left'
exit $code
"""
SECRET = "never-in-a-job-7c1f"
OUTER = {
    "SBATCH_PARTITION": "cpu", "SBATCH_ARRAY_INX": "7-9", "SBATCH_TIMELIMIT": "1", "SBATCH_HOLD": "1",
    "SBATCH_EXPORT": "NONE", "SBATCH_CORE_SPEC": "1", "SBATCH_CLUSTERS": "elsewhere",
    "SBATCH_JOB_NAME": "outer", "SBATCH_NO_REQUEUE": "1", "SQUEUE_STATES": "PENDING", "SQUEUE_FORMAT": "%i",
    "SQUEUE_FORMAT2": "jobid", "SINFO_FORMAT": "%N", "SCANCEL_STATE": "PENDING",
    "SLURM_TIME_FORMAT": "relative", "SLURM_JOB_NAME": "outer", "SLURM_MEM_PER_NODE": "100",
    "SLURM_EXPORT_ENV": "NONE", "SLURM_ARRAY_TASK_ID": "3", "SLURM_RESTART_COUNT": "4",
}  # fmt: skip


def with_settings(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    for machine in borrowed(settings, monkeypatch):
        with Place(machine) as place:
            yield place


@pytest.fixture
def tokens(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    yield from with_settings(Settings(tokens=True), monkeypatch)


@pytest.fixture
def private(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    extra = {"PrivateData": "jobs,nodes,partitions,reservations,usage"}
    yield from with_settings(Settings(extra=extra), monkeypatch)


def staged(place: Place, env: dict[str, str]) -> str:
    place.fill("a", 20)
    place.configure(["a"])
    said = place.ends(place.start("penstock", "--config", "my.yaml", "--backend", "slurm", "run", env=env), 0)
    place.published("a")
    assert len(place.arrays("copy")) == len(place.submissions("a", "copy")) == 1
    assert not place.arrays("verify"), "its worker read back what it copied"
    return said


def login_node(machine: Machine, folder: Path) -> Path:
    """A slurm.conf of a machine that has no munge."""
    conf = folder / "login.conf"
    conf.write_text(machine.conf.read_text().replace("/munge.socket", "/no-munge-here"))
    conf.chmod(0o644)
    return conf


def test_l2_a_login_node_with_a_token_and_no_munge(tokens: Place) -> None:
    place, token = tokens, tokens.machine.token(job_user())
    env = {"SLURM_CONF": str(login_node(place.machine, place.folder)), "SLURM_JWT": token}
    staged(place, env)
    kept = [place.target, place.work, place.machine.folder / "state", place.machine.folder / "logs"]
    kept += [place.machine.folder / "spool", *place.folder.glob("output-*")]
    files = [path for top in kept for path in (top.rglob("*") if top.is_dir() else [top]) if path.is_file()]
    assert [path for path in files if path.stat().st_size > 0], "it looked at something"
    assert not [path for path in files if token.encode() in path.read_bytes()]
    (array,) = place.arrays("copy")
    assert token not in place.machine.run("scontrol", "show", "job", array).stdout


def test_l2_a_token_that_has_ended_is_named(tokens: Place) -> None:
    place, key = tokens, (tokens.machine.folder / "jwt.key").read_bytes()
    token = jwt.encode({"exp": 1_700_000_000, "iat": 1_699_990_000, "sun": job_user()}, key, "HS256")
    env = {"SLURM_CONF": str(login_node(place.machine, place.folder)), "SLURM_JWT": token}
    place.fill("a", 2)
    place.configure(["a"])
    words = ("penstock", "--config", "my.yaml", "--backend", "slurm", "preflight")
    said = place.ends(place.start(*words, env=env), 3)
    assert "SLURM_JWT ended at 2023-11-1" in said
    assert "`unset SLURM_JWT`" in said
    assert token not in said


def test_l3_a_partition_for_jobs_of_a_reservation_is_named(place: Place) -> None:
    made = ("PartitionName=kept", "Nodes=n[1-4]", "ReqResv=YES", "State=UP")
    assert not place.machine.run("scontrol", "create", *made).returncode
    try:
        place.fill("a", 2)
        place.configure(["a"], cluster={"partition": "kept"})
        said = place.ends(place.penstock("preflight"), 3)
        assert "Access/permission denied" in said
        assert "cluster.reservation, or another cluster.partition" in said
    finally:
        place.machine.run("scontrol", "delete", "PartitionName=kept")


def test_l1_a_wrapper_that_prints_three_lines_before_and_one_after(place: Place) -> None:
    wrappers = place.folder / "wrappers"
    wrappers.mkdir(mode=0o755)
    for name in ("sbatch", "squeue", "scontrol", "scancel", "sinfo"):
        program = shutil.which(name, path=place.machine.env["PATH"])
        (wrappers / name).write_text(WRAPPED.format(program=program, line="-" * 40))
        (wrappers / name).chmod(0o755)
    staged(place, {"PATH": f"{wrappers}:{place.env['PATH']}"})


def test_l2_a_wrapper_that_runs_sbatch_where_no_process_or_file_of_this_one_is_known(place: Place) -> None:
    """As over ssh, or into a container: a /proc and a folder for temporary files of its own."""
    away = "unshare --user --map-current-user --keep-caps --mount --pid --fork --mount-proc"
    tried = subprocess.run([*away.split(), "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"no user namespaces here, as in a chroot: {tried.stderr.strip()}")
    wrappers, temporary = place.folder / "wrappers", place.folder / "temporary"
    wrappers.mkdir(mode=0o755)
    temporary.mkdir()
    temporary.chmod(0o1777)
    program = shutil.which("sbatch", path=place.machine.env["PATH"])
    inside = f'mount -t tmpfs none {temporary} && exec {program} "$@"'
    (wrappers / "sbatch").write_text(f"#!/bin/sh\nexec {away} /bin/sh -c '{inside}' sbatch \"$@\"\n")
    (wrappers / "sbatch").chmod(0o755)
    path = f"{wrappers}:{place.env['PATH']}"
    staged(place, {"PATH": path, "TMPDIR": str(temporary), "OF_THE_USER": SECRET})
    kept = [path for path in (place.machine.folder / "state").rglob("*") if path.is_file()]
    assert kept
    assert not [path for path in kept if SECRET.encode() in path.read_bytes()]
    assert not list(temporary.iterdir())


def test_l3_what_is_private_is_not_wrong(private: Place) -> None:
    said = staged(private, {})
    assert re.search(r"does not show its nodes", said), said


def test_l3_a_controller_and_elements_keep_to_a_time_limit_that_is_private(private: Place) -> None:
    """Seven days in a partition of one hour: it waited for ever (PartitionTimeLimit)."""
    place = private
    place.fill("a", 5)
    cluster = {"partition": "cpu", "time": "auto", "core_spec": "none", "cpus": 1, "probe": False}
    place.configure(["a"], cluster=cluster)
    job = place.ends(place.penstock("run", "--submit", "--parsable", "a")).strip()

    def shown() -> str:
        return place.machine.run("squeue", "-h", "--states=all", "-j", job, "-o", "%T %r").stdout

    def begun() -> bool:
        assert "PartitionTimeLimit" not in shown()
        return "PENDING" not in shown()

    wait_for(begun, "the controller's start", seconds=120, every=0.5)
    wait_for(lambda: "COMPLETED" in shown() or "FAILED" in shown(), "its end", seconds=280, every=1)
    assert "COMPLETED" in shown(), (place.work / f"results/logs/submit-{job}_0.log").read_text()
    place.published("a")


def test_l2_the_options_of_an_outer_job_change_nothing_that_is_submitted(place: Place) -> None:
    staged(place, OUTER)
    (array,) = place.arrays("copy")
    shown = place.machine.run("squeue", "-h", "--states=all", "-j", array, "-o", "%P|%l|%X").stdout.split()
    assert set(shown) == {"data|1:00:00|2"}
