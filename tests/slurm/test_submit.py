"""Controllers as jobs: what a further `penstock run --submit` in the same folder gets."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING

import pytest
from tests.cluster.processes import wait_for

from penstock.jobs.controller_memory import needed

if TYPE_CHECKING:
    from tests.cluster.place import Place

pytestmark = pytest.mark.slurm


def test_further_datasets_get_a_job_of_their_own_that_follows(place: Place) -> None:
    """`afterok` of its id then finds them staged."""
    for name in ("a", "b"):
        place.fill(name, 5)
    place.configure(["a", "b"], cluster={"probe": False})

    def submitted(*names: str) -> dict[str, object]:
        told: dict[str, object] = json.loads(
            place.ends(place.penstock("--progress", "json", "run", "--submit", *names))
        )
        return told

    first, second = submitted("a"), submitted("b")
    assert (second["met"], second["after"]) == (False, [first["job"]])
    assert submitted("a") == {**first, "met": True}
    told_after = place.work / "after.txt"
    place.ends(
        place.start(
            "sbatch", f"--dependency=afterok:{second['job']}", "--kill-on-invalid-dep=yes", "--chdir=/",
            f"--output={told_after}", f"--wrap=readlink {place.target}/b/current",
        )
    )  # fmt: skip
    wait_for(lambda: told_after.exists() and told_after.read_text(), "the job after it", seconds=240)
    for name in ("a", "b"):
        release = place.published(name).parent.name
    assert told_after.read_text().strip() == f"releases/{release}"


def test_sl4_others_read_the_submitted_job_until_its_release_is_published(place: Place) -> None:
    """From its submission on, of a first release too, and from each step within the job."""
    place.fill("a", 5)
    place.configure(["a"], cluster={"probe": False})
    notice = place.target / "a/under-way.json"
    noticed: set[tuple[str, str]] = set()

    def is_withdrawn() -> bool:
        try:
            content = json.loads(notice.read_text())
        except FileNotFoundError:
            return bool(noticed)
        noticed.add((content["step"], content["job"]))
        return False

    first = place.ends(place.penstock("run", "--submit", "--parsable", "a")).strip()
    wait_for(is_withdrawn, "the first release", seconds=240, every=0.02)
    assert {job for _, job in noticed} == {first}
    assert {"submit", "list", "copy"} <= dict(noticed).keys()
    release = place.published("a").parent.name
    wait_for(lambda: not place.machine.run("squeue", "-h", "-j", first).stdout.strip(), "its job", seconds=60)

    noticed.clear()
    place.fill("a", 7)
    second = place.ends(place.penstock("run", "--submit", "--parsable", "a")).strip()
    wait_for(is_withdrawn, "the second release", seconds=240, every=0.02)
    assert {job for _, job in noticed} == {second}
    assert {"submit", "list", "copy"} <= dict(noticed).keys()
    assert place.published("a").parent.name != release


def test_a_controller_asks_for_memory_by_what_was_listed_last(place: Place) -> None:
    """A listing that outgrows its job ends by name, and leaves its count to the next submission."""
    place.fill("a", 5)

    def submitted() -> str:
        return place.ends(place.penstock("run", "--submit", "--parsable", "a")).strip()

    def asked(job: str) -> int:
        """MiB."""
        told = place.machine.run("scontrol", "show", "job", job).stdout
        found = re.search(r"MinMemoryNode=([0-9.]+)([MG])", told)
        assert found, told
        return round(float(found[1]) * (1024 if found[2] == "G" else 1))

    place.configure(["a"], cluster={"probe": False, "steps": {"submit": {"memory": "300MiB"}}})
    job = submitted()
    assert asked(job) == 300
    log = place.work / f"results/logs/submit-{job}_0.log"
    wait_for(lambda: log.exists() and "FAILED" in log.read_text(), "the end of the first one", seconds=240)
    said = log.read_text()
    assert "the listing outgrows the memory of the controller's job" in said, said
    assert f"5 files were listed, for which 464 MiB are needed; job {job} has 300 MiB" in said, said
    wait_for(lambda: not place.machine.run("squeue", "-h", "-j", job).stdout.strip(), "its job", seconds=60)

    (listed,) = place.target.glob("a/.penstock/runs/*/run.json")
    listed.write_text(json.dumps({**json.loads(listed.read_text()), "files": 50_000_000}))
    place.configure(["a"], cluster={"probe": False})
    job = submitted()
    assert asked(job) == -(-needed([50_000_000]) // (1 << 20))
    place.machine.run("scancel", job)


def test_a_controller_on_the_only_node_of_its_elements_is_refused(place: Place) -> None:
    """Before it is submitted; and at its start where a person's own job has `penstock run` in it."""
    place.fill("a", 5)
    place.configure(["a"], cluster={"probe": False, "exclude": "n[1-2],n4"})
    said = place.ends(place.penstock("run", "--submit", "a"), 3)
    assert "n3 is the only node that elements may use" in said
    command = f"{sys.executable} -m penstock --config my.yaml --backend slurm run a"
    words = ("sbatch", "--wait", "--export=ALL", "--mem=500M", "--nodelist=n3", f"--chdir={place.work}")
    place.ends(place.start(*words, "--output=own.log", f"--wrap={command}"), 3)
    assert "n3 is the only node that elements may use" in (place.work / "own.log").read_text()


def test_a_source_that_changes_meanwhile_loses_no_job_that_waits(place: Place) -> None:
    """The controller ended with 5, and SLURM cancelled what waited for it by `afterok`."""
    place.fill("a", 8, size=200_000)
    place.configure(["a"], cluster={"probe": False}, engine={"limit": "200KiB/s"})
    job = place.ends(place.penstock("run", "--submit", "--parsable", "a")).strip()
    told_after = place.work / "after.txt"
    after = place.ends(
        place.start(
            "sbatch", "--parsable", f"--dependency=afterok:{job}", "--kill-on-invalid-dep=yes", "--chdir=/",
            f"--output={told_after}", f"--wrap=readlink {place.target}/a/current",
        )
    ).strip()  # fmt: skip
    wait_for(lambda: any(place.target.glob("a/.penstock/runs/*/run.json")), "the listing", seconds=240)
    for path in (place.source / "a").rglob("*.bin"):
        path.write_bytes(path.read_bytes()[::-1])
    wait_for(lambda: told_after.exists() and told_after.read_text(), "the job after it", seconds=280)
    said = (place.work / f"results/logs/submit-{job}_0.log").read_text()
    assert "a: the source changed while it was copied; it is listed anew in 15 s (time 1 of 5)" in said, said
    release = place.published("a").parent.name
    assert told_after.read_text().strip() == f"releases/{release}"

    def states() -> set[str]:
        words = ("squeue", "-h", "--states=all", "-j", f"{job},{after}", "-o", "%T")
        return set(place.machine.run(*words).stdout.split())

    wait_for(lambda: states() == {"COMPLETED"}, "the end of both jobs")
