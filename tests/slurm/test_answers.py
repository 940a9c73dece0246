"""SLURM that answers late, or no longer knows an array: each step ends right, and says what it waits for."""

from __future__ import annotations

import json
import shutil
import sys
import time
from typing import TYPE_CHECKING

import pytest
from tests.cluster.fixtures import need_slurm
from tests.cluster.machine import Machine
from tests.cluster.place import Place
from tests.cluster.processes import below, halted, kill
from tests.cluster.settings import Settings

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

pytestmark = pytest.mark.slurm


def planned(place: Place, **engine: str) -> None:
    """Three shards or more, two workers."""
    place.fill("a", 60)
    place.configure(["a"], cluster={"probe": False}, plan={"shard_files": 20}, engine=engine)
    place.planned("a")


def copying(place: Place, progress: str = "lines", **env: str) -> subprocess.Popen[bytes]:
    words = ("-m", "penstock", "--config", "my.yaml", "--backend", "slurm", "--progress", progress)
    return place.start(sys.executable, *words, "step", "copy", "a", env=env)


def at_work(place: Place) -> list[Path]:
    """The progress files of elements."""
    return [*place.target.glob("a/.penstock/runs/*/progress/copy/*")]


def test_a_squeue_of_five_seconds_is_no_reason_to_wait_for_more(place: Place) -> None:
    """The step took 112 s for elements of 13 s."""
    planned(place, limit="200KiB/s")
    folder = place.folder / "commands"
    folder.mkdir()
    real = shutil.which("squeue", path=place.machine.env["PATH"])
    (folder / "squeue").write_text(f'#!/bin/sh\nsleep 5\nexec {real} "$@"\n')
    (folder / "squeue").chmod(0o755)
    begun = time.monotonic()
    said = place.ends(copying(place, PATH=f"{folder}:{place.env['PATH']}"))
    assert time.monotonic() - begun < 90
    assert "the cluster answers slowly: the last query took 5." in said


def test_receipts_end_the_step_of_an_array_that_was_renamed(place: Place) -> None:
    planned(place, limit="200KiB/s")
    process = copying(place)
    place.until(place.running, "elements that run", process)
    ((array, _),) = place.submissions("a", "copy")
    assert not place.machine.run("scontrol", "update", f"JobId={array}", "Name=lab-job").returncode
    said = place.ends(process, seconds=200)
    assert len(place.submissions("a", "copy")) == 1, said
    assert "without finishing anything" not in said


BAD = """\
#!/bin/sh
[ -e {folder}/bad ] || exec {program} "$@"
printf . >> {folder}/{name}.calls
case $(( $(wc -c < {folder}/{name}.calls) % 5 )) in
0) kill -9 $$ ;;
1) echo 'slurm_load_jobs error: Unspecified error' >&2; exit 1 ;;
2) {program} "$@" | head -c 9 ;;
3) exit 1 ;;
4) exit 0 ;;
esac
"""


def misbehaving(place: Place, *names: str) -> Path:
    """A folder of these commands, which fail in turn by a signal, unknown words, an answer that is cut off,
    none, and an empty one, while the file `bad` is there."""
    folder = place.folder / "commands"
    folder.mkdir()
    folder.chmod(0o777)
    for name in names:
        program = shutil.which(name, path=place.machine.env["PATH"])
        (folder / name).write_text(BAD.format(folder=folder, program=program, name=name))
        (folder / name).chmod(0o755)
    return folder


def test_queries_that_fail_in_any_way_fail_no_step(place: Place) -> None:
    """squeue that was killed once ended the step, and its array ran on unwatched."""
    planned(place, limit="200KiB/s")
    folder = misbehaving(place, "squeue", "scontrol", "sinfo")
    process = copying(place, PATH=f"{folder}:{place.env['PATH']}")
    place.until(place.running, "elements that run", process)
    (folder / "bad").touch()
    said = place.ends(process)
    assert (folder / "squeue.calls").stat().st_size > 2, said
    assert "the cluster does not answer, asking on: squeue" in said
    assert len(place.submissions("a", "copy")) == 1, said


def test_a_further_controller_goes_on_while_queries_fail(place: Place) -> None:
    """It meets the array of the first one, which was killed, and ends by the receipts."""
    planned(place, limit="200KiB/s")
    first = copying(place)
    place.until(place.running, "elements that run", first)
    place.kill(first)
    folder = misbehaving(place, "squeue")
    (folder / "squeue").write_text("#!/bin/sh\necho 'squeue: error: Unspecified error' >&2\nexit 1\n")
    said = place.ends(copying(place, PATH=f"{folder}:{place.env['PATH']}"))
    assert "is not waited for (the cluster does not answer)" in said
    assert len(place.submissions("a", "copy")) == 1, said


@pytest.mark.later_release
def test_what_slurmctld_forgot_is_unknown_and_then_submitted_again() -> None:
    """It is killed, and gets back the state that it had before the submission: the nodes end its workers,
    which cannot end by themselves before: the source does not answer meanwhile."""
    settings = Settings(min_job_age=2)
    need_slurm(settings)
    machine = Machine.new(settings)
    try:
        machine.up()
        machine.guard()
        with Place(machine) as place:
            planned(place)
            state, before = machine.folder / "state", machine.folder / "before"
            shutil.copytree(state, before)

            def again() -> int:
                """How many workers were submitted after the first array."""
                _, *later = place.workers("a", "copy")
                return sum(workers for _, workers in later)

            with halted(*below(place.server.pid)):
                process = copying(place, "json", PENSTOCK_TEST_HEARTBEAT="2")
                place.until(lambda: len(at_work(place)) == 2, "two elements at work", process)
                kill(machine.daemons["slurmctld"])
                shutil.rmtree(state)
                shutil.copytree(before, state)
                # Else new elements get the ids of those that it forgot, and what still runs of these is taken
                # for the new ones: then no node ends it.
                with machine.conf.open("a") as conf:
                    conf.write("FirstJobId=1000\n")
                machine.start_controller()
                place.until(lambda: again() == 2, "workers in their place", process)
            told = [json.loads(line) for line in place.ends(process).splitlines()]
            changes = [line["data"] for line in told if line.get("kind") == "element"]
            unknown = {one["index"] for one in changes if one["reason"] == "not known to the cluster"}
            assert unknown == {0, 1}
            lost = [change["index"] for change in changes if change["state"] == "lost"]
            assert sorted(lost) == [0, 1]
            assert again() == 2
            assert any("to be tried again" in line.get("data", {}).get("text", "") for line in told)
    finally:
        machine.down()
