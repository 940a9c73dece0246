"""Staging on a real cluster, from the command that a person types to a proven release.

PENSTOCK_TEST_FILES=20000 makes the first test a full-sized one (two files of 1 GiB besides).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from tests.cluster.fixtures import borrowed
from tests.cluster.place import Place
from tests.cluster.processes import below, parent, wait_for
from tests.cluster.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cluster.machine import Machine

pytestmark = pytest.mark.slurm

FILES = int(os.environ.get("PENSTOCK_TEST_FILES", "300"))
LARGE, GIANT = (1 << 30, 32) if FILES >= 20_000 else (12 << 20, 8)
NAMES = "abc" if FILES >= 20_000 else "ab"
ELEMENTS = int(os.environ.get("PENSTOCK_TEST_ELEMENTS", "12"))
PLAN = {"giant_bytes": f"{GIANT}MiB", "part_bytes": f"{GIANT // 4}MiB"}


@pytest.mark.timeout(1800)
def test_datasets_at_once_by_one_array_each(place: Place) -> None:
    share = FILES // len(NAMES)
    for name in NAMES:
        place.fill(name, share, large=[LARGE, LARGE] if name == "a" else [], size=71_000)
    place.configure(NAMES, plan={**PLAN, "shard_files": max(20, share // 5)})
    process = place.snakemake()
    most: Counter[str] = Counter()
    core_specs: set[str] = set()
    while not place.over(process):
        answer = place.machine.run("squeue", "--array", "-h", "-t", "R", "-o", "%F %X %j").stdout
        rows = [row for row in map(str.split, answer.splitlines()) if not row[2].startswith("penstock-probe")]
        core_specs |= {row[1] for row in rows}
        for array, count in Counter(row[0] for row in rows).items():
            most[array] = max(most[array], count)
    place.ends(process)
    assert core_specs == {"2"}
    assert most
    assert max(most.values()) <= 2, most
    for name in NAMES:
        place.published(name)
        # Elements of copy read all back, parts of giants, too.
        assert place.submissions(name, "verify") == []
        (submitted,) = place.submissions(name, "copy")
        assert submitted[0] in place.machine.run("squeue", "-h", "--states=all", "-o", "%F").stdout.split()
        assert set(place.fetched(name)) == {
            f"{name}/{p.relative_to(place.source / name)}"
            for p in (place.source / name).rglob("*")
            if p.is_file()
        }
    seal = json.loads((place.target / "a" / "current" / "release.json").read_text())
    assert seal["files"] == share + 2


def test_a_killed_controller_meets_its_array_again(place: Place) -> None:
    place.fill("a", 240)
    place.configure(["a"], plan={"shard_files": 60}, engine={"limit": "250KiB/s"})
    first = place.snakemake()
    place.until(lambda: place.fetched("a"), "bytes on their way", first)
    place.kill(first)
    (before,) = place.submissions("a", "copy")
    alive = place.machine.run("squeue", "-h", "-o", "%F", "-j", before[0]).stdout.split()
    assert set(alive) == {before[0]}, "the array outlives its controller"
    second = place.snakemake()
    said = place.ends(second)
    assert f"array {before[0]} lives: no probe is sent to a node" in said
    assert place.submissions("a", "copy") == [before]
    place.published("a")
    sizes = {f"a/{p.relative_to(place.source / 'a')}": p.stat().st_size for p in _files(place.source / "a")}
    assert place.fetched("a") == sizes, "nothing was fetched twice"


@pytest.mark.later_release
@pytest.mark.timeout(420)
def test_a_lost_node_and_one_that_freezes(place: Place) -> None:
    """n-dead: slurmd, slurmstepd and payload end at once. n-frozen: slurmd ends and the payload
    stops, so SLURM gives it up and runs its element elsewhere; it wakes when all is published."""
    place.fill("a", 200)
    place.configure(
        ["a"], cluster={"max_elements": 4}, plan={"shard_files": 50}, engine={"limit": "300KiB/s"}
    )
    process = place.staging("a")
    place.until(
        lambda: len(place.running()) >= 2 and len(place.fetched("a")) > 20, "running elements", process
    )
    dead, frozen = sorted(place.running().values())[:2]
    place.machine.kill_node(dead)
    stopped = place.machine.payload(frozen)
    place.machine.freeze(frozen)
    said = place.ends(process, seconds=280)
    assert f"lost with node {dead}" in said
    data = place.published("a")
    before = {path: path.stat().st_ctime_ns for path in _files(data)}
    place.machine.wake(stopped)
    wait_for(lambda: not any(map(parent, stopped)), "the late payload to end", seconds=90)
    assert place.published("a") == data
    assert {path: path.stat().st_ctime_ns for path in _files(data)} == before, "the late one changed nothing"
    assert len(place.submissions("a", "copy")) == 1, "SLURM's own requeue was enough"


def test_another_worker_takes_the_place_of_one_that_is_killed(place: Place) -> None:
    place.fill("a", 120)
    place.configure(["a"], cluster={"retries": 2}, plan={"shard_files": 20}, engine={"limit": "100KiB/s"})
    place.planned("a")
    process = place.penstock("step", "copy", "a")
    overlapped = False
    lost: list[int] = []
    for count in (1, 2):

        def works_and_killed(wanted: int = count) -> bool:
            arrays = place.workers("a", "copy")
            if len(arrays) != wanted:
                return False
            running = place.running()
            nonlocal overlapped
            overlapped |= len({element.partition("_")[0] for element in running}) > 1
            worker = f"{arrays[-1][0]}_0"
            node, held = running.get(worker), place.held("a", "copy")
            claims = {index: claim for index, _, claim in place.claims("a", "copy") if index in held}
            shards = [i for i, claim in claims.items() if claim["worker"].startswith(f"{worker}_")]
            if node is None or not shards or not place.machine.payload(node):
                return False
            place.machine.kill_payload(node)
            lost.extend(shards)
            return True

        place.until(works_and_killed, "worker 0 to work", process)
    said = place.ends(process)
    assert [workers for _, workers in place.workers("a", "copy")] == [2, 1, 1]
    assert "1 element for 1 shard to be tried again" in said
    assert overlapped, "the second array was there before the first one had ended"
    again = Counter(index for index, generation, _ in place.claims("a", "copy") if generation > 1)
    assert again == Counter(lost), "only shards that a killed worker held were taken twice"


def test_a_file_that_fails_stops_the_run_and_the_next_one_copies_only_it(place: Place) -> None:
    place.fill("a", 90)
    bad, aside = place.source / "a" / "000" / "file 000007.bin", place.folder / "aside"
    place.configure(["a"], plan={"shard_files": 30})
    place.planned("a")
    bad.rename(aside)
    copying = place.penstock("step", "copy", "a")
    assert copying.wait(280) in (1, 5), place.output(copying)
    assert "file 000007.bin" in place.output(copying)
    assert place.unpublished("a")
    before = place.fetched("a")
    assert len(before) == 89, "one bad file does not keep the others from being copied"
    aside.rename(bad)
    place.ends(place.staging("a"))
    place.published("a")
    again = {key: size for key, size in place.fetched("a").items() if size != before.get(key)}
    assert set(again) == {"a/000/file 000007.bin"}


def test_a_shard_whose_workers_are_killed_ends_the_run(place: Place) -> None:
    place.fill("a", 60)
    place.configure(["a"], cluster={"retries": 1}, plan={"shard_files": 30}, engine={"limit": "100KiB/s"})
    place.planned("a")
    process = place.penstock("step", "copy", "a")
    killed: set[str] = set()

    def killed_again() -> bool:
        last = {index: claim for index, _, claim in place.claims("a", "copy")}.get(0)
        node = place.held("a", "copy").get(0)
        if node and last and last["worker"] not in killed and place.machine.payload(node):
            killed.add(last["worker"])
            place.machine.kill_payload(node)
        return process.poll() is not None

    wait_for(killed_again, "the end of the run", seconds=240, every=0.2)
    said = place.ends(process, 1)
    assert "shard 0 on n" in said
    assert "signal 9" in said
    assert "1 shard did not finish" in said
    assert place.unpublished("a")
    assert len(killed) == 2, "one retry"
    claims = [(index, generation) for index, generation, _ in place.claims("a", "copy")]
    assert claims == [(0, 1), (0, 2), *((index, 1) for index in range(1, len(claims) - 1))]
    assert {receipt["index"] for receipt in place.receipts("a", "copy")} == set(range(1, len(claims) - 1))


def test_the_controller_goes_away_and_comes_back(place: Place) -> None:
    """slurmctld, in the middle of a copy: the run waits, says so and goes on."""
    place.fill("a", 90)
    # Workers need no controller: they are still at work when it is back.
    place.configure(["a"], plan={"shard_files": 10}, engine={"limit": "60KiB/s"})
    place.planned("a")
    process = place.penstock("step", "copy", "a")
    place.until(lambda: place.fetched("a"), "bytes on their way", process)
    place.machine.stop_controller()
    place.until(lambda: "does not answer" in place.output(process), "a word of it", process)
    place.machine.start_controller()
    said = place.ends(process)
    assert "answers again" in said
    assert len(place.submissions("a", "copy")) == 1


@pytest.mark.later_release
def test_preempted_elements_are_run_again(place: Place) -> None:
    place.fill("a", 100)
    place.configure(["a"], plan={"shard_files": 50}, engine={"limit": "400KiB/s"})
    place.planned("a")
    process = place.penstock("step", "copy", "a")
    place.until(lambda: len(place.fetched("a")) > 5 and place.running(), "a running element", process)
    node = min(place.running().values())
    urgent = place.machine.run(
        "sbatch", "--parsable", "--partition=urgent", f"--nodelist={node}", "--exclusive", "--chdir=/",
        "--output=/dev/null", "--wrap=sleep 3",
    )  # fmt: skip
    assert urgent.returncode == 0, urgent.stderr
    said = place.ends(process)
    assert f"preempted on {node}" in said or f"taken off {node} (preempted" in said
    assert len(place.submissions("a", "copy")) == 1, "requeued by SLURM itself"
    assert {claim["charged"] for _, _, claim in place.claims("a", "copy")} == {0}, "that uses up no retry"
    again = [index for index, generation, _ in place.claims("a", "copy") if generation > 1]
    assert len(again) == 1, "the shard that the preempted worker held"
    place.ends(place.penstock("run"))
    place.published("a")
    # Both starts count: the first one wrote down what it had used when it was told to stop.
    (table,) = place.work.glob("results/a/*/elements.parquet")
    rows = pq.read_table(table).to_pylist()
    starts = {(one["element"], one["restarts"]): one for one in rows if one["step"] == "copy"}
    for _, _, claim in (held for held in place.claims("a", "copy") if held[0] == again[0]):
        start = starts[claim["number"], claim["restarts"]]
        assert (start["starts_missing"] or 0, start["whole_node"]) == (0, True)
        assert start["node_hours"] == pytest.approx(start["seconds"] / 3600, abs=1e-5)
    assert sum(one["shards"] for one in rows if one["step"] == "copy") == len(place.receipts("a", "copy"))
    waits = [one["queue_wait"] for one in rows if one["queue_wait_by"] == "controller"]
    assert waits, "of each worker that did something"
    assert all(wait >= 0 for wait in waits)
    assert all(one["memory_peak"] for one in rows)


@pytest.mark.timeout(900)
def test_past_its_time_an_element_goes_on_in_the_next_one(place: Place) -> None:
    """SLURM counts time limits in whole minutes: 70 MiB at 1 MiB a second do not fit into one."""
    place.fill("a", 1000, size=71_000)
    place.configure(
        ["a"],
        # No retry: a tidy stop that had made progress uses up none.
        cluster={"time": "1min", "retries": 0},
        engine={"limit": "1MiB/s", "workers": 1, "streams": 2},
    )
    said = place.ends(place.staging("a"), seconds=800)
    assert "to be tried again" in said
    assert "143" not in said
    assert {claim["charged"] for _, _, claim in place.claims("a", "copy")} == {0}
    place.published("a")
    attempts = len(place.submissions("a", "copy"))
    assert attempts > 1
    files = (place.source / "a").rglob("*.bin")
    wanted = {f"a/{path.relative_to(place.source / 'a')}": path.stat().st_size for path in files}
    fetched = place.fetched("a")
    assert fetched.keys() == wanted.keys()
    again = [key for key, size in fetched.items() if size > wanted[key]]
    # What an attempt's two streams had in hand at its end may come once more, no more than that.
    assert len(again) <= 2 * (attempts - 1), again


def test_interrupted_then_cancelled_then_gone_on_with(place: Place) -> None:
    place.fill("a", 120)
    place.configure(["a"], plan={"shard_files": 60}, engine={"limit": "300KiB/s"})
    process = place.penstock("run")
    place.until(lambda: place.fetched("a"), "bytes on their way", process)
    process.send_signal(2)
    said = place.ends(process, 130)
    ((array, _),) = place.submissions("a", "copy")
    assert f"array {array} runs on" in said
    assert "my.yaml --backend slurm cancel a` ends it" in said
    assert array in place.machine.run("squeue", "-h", "-o", "%F").stdout.split()
    assert array in place.ends(place.penstock("cancel", "a"))
    wait_for(lambda: not place.machine.run("squeue", "-h", "-j", array).stdout.strip(), "its end")
    place.ends(place.penstock("step", "copy", "a"))
    assert len(place.submissions("a", "copy")) == 2


@pytest.fixture
def short_arrays(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """A place of work on a cluster whose arrays hold a little more than half of `ELEMENTS` workers: with 2000
    of them that is SLURM's own MaxArraySize=1001."""
    for machine in borrowed(Settings(max_array=ELEMENTS // 2 + 1), monkeypatch):
        with Place(machine) as made:
            yield made


@pytest.mark.timeout(900 + 4 * ELEMENTS)
def test_s26_many_elements_in_several_arrays_few_queries_little_memory(
    short_arrays: Place, record_property: Callable[[str, object], None]
) -> None:
    """S26: PENSTOCK_TEST_ELEMENTS=200 is the size that shows memory, 2000 what a step of that size costs."""
    place, most = short_arrays, ELEMENTS // 2 + 1
    place.fill("a", ELEMENTS * 2, size=2_000)
    place.configure(["a"], cluster={"max_elements": ELEMENTS}, plan={"shard_files": 2})
    shims, log = place.folder / "shims", place.folder / "queries"
    shims.mkdir()
    log.touch()
    log.chmod(0o666)
    for program in ("squeue", "scontrol", "sacct"):
        path = shims / program
        path.write_text(
            f'#!/bin/sh\necho "$(date +%s.%N) {program} $*" >> {log}\nexec /usr/bin/{program} "$@"\n'
        )
        path.chmod(0o755)
    began = time.monotonic()
    process = place.snakemake(env={"PATH": f"{shims}:{place.env['PATH']}"})
    peak: dict[str, int] = {}
    while not place.over(process):
        for pid in below(process.pid):
            name, size = _memory(pid)
            peak[name] = max(peak.get(name, 0), size)
    place.ends(process)
    told = [f"all of it took {time.monotonic() - began:.0f} s, peak memory in MiB {peak}"]
    place.published("a")
    lines = [line.split() for line in log.read_text().splitlines() if " -j " in line]
    submissions = place.workers("a", "copy")
    assert [workers for _, workers in submissions] == [most, ELEMENTS - most]
    for step in ("copy", "verify"):
        assert [receipt["index"] for receipt in place.receipts("a", step)] == [*range(ELEMENTS)]
    arrays = {array for array, _ in submissions}
    asked = [words for words in lines if arrays & set(words[words.index("-j") + 1].split(","))]
    times = [float(words[0]) for words in asked]
    seconds = times[-1] - times[0]
    told += [f"copy: {len(submissions)} submissions, {len(asked)} queries in {seconds:.0f} s"]
    # `poll` is 1 s here. One more where an array begins, two where it is over.
    assert len(asked) <= seconds + 3 * len(submissions) + 3, told
    assert place.submissions("a", "verify") == []
    record_property("controller", told)
    sys.stdout.write(f"\n{ELEMENTS} elements: {'; '.join(told)}\n")
    assert all(size < 200 for size in peak.values()), told


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def _memory(pid: int) -> tuple[str, int]:
    """Which command it is, and its peak of resident memory in MiB."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return "", 0
    name = next((word for word in words if word in ("copy", "verify", "list", "plan", "publish")), words[0])
    peak = next((line for line in status.splitlines() if line.startswith("VmHWM")), "VmHWM: 0 kB")
    return Path(name).name, int(peak.split()[1]) // 1024


def accounted(machine: Machine) -> list[list[str]]:
    """JobID, name, state, account and QOS of all jobs and elements that slurmdbd has."""
    words = ("sacct", "-X", "-n", "-P", "-a", "-o", "JobID,JobName,State,Account,QOS")
    return [row.split("|") for row in machine.run(*words).stdout.splitlines()]


@pytest.mark.later_release
def test_with_accounting_the_controller_as_a_job(slurm_accounting: Machine) -> None:
    earlier = {row[0] for row in accounted(slurm_accounting)}
    with Place(slurm_accounting) as place:
        place.fill("a", 60)
        place.configure(
            ["a"],
            cluster={"account": "ml", "qos": "bulk"},
            plan={"shard_files": 20},
            # SLURM samples memory every 5 s: elements of copy last longer.
            engine={"limit": "120KiB/s"},
        )
        job = place.ends(place.penstock("run", "--submit", "--parsable")).strip()
        assert f"runs already: job {job}" in place.ends(place.penstock("run", "--submit"))
        told_after = place.work / "after.txt"
        place.ends(
            place.start(
                "sbatch", "--account=ml", f"--dependency=afterok:{job}", "--kill-on-invalid-dep=yes",
                "--chdir=/", f"--output={told_after}", f"--wrap=readlink {place.target}/a/current",
            )
        )  # fmt: skip

        def ended() -> bool:
            return not slurm_accounting.run("squeue", "-h", "-j", job).stdout.strip()

        wait_for(ended, "the controller's job", seconds=240, every=0.5)
        log = (place.work / "results" / "logs" / f"submit-{job}_0.log").read_text()
        assert not place.unpublished("a"), log
        release = place.published("a").parent.name
        wait_for(lambda: told_after.exists() and told_after.read_text(), "the job after it", seconds=60)
        assert told_after.read_text().strip() == f"releases/{release}"
        steps = ("copy",)  # its elements read back, too

        def told() -> dict[str, list[list[str]]]:
            """The accounting's rows by step."""
            rows = [row for row in accounted(slurm_accounting) if row[0] not in earlier]
            return {step: [row[2:] for row in rows if f"-{step}-" in row[1]] for step in steps}

        def complete() -> bool:
            # slurmctld tells slurmdbd of a job's end some moments later.
            return all(
                rows and all(row == ["COMPLETED", "ml", "bulk"] for row in rows) for rows in told().values()
            )

        try:
            wait_for(complete, "the accounting of every step", seconds=60, every=0.5)
        except TimeoutError:
            raise AssertionError(told()) from None
        comments = slurm_accounting.run("sacct", "-X", "-n", "-P", "-a", "-o", "Comment").stdout.splitlines()
        assert f"penstock dataset=a step=copy release={release}" in comments
        place.ends(place.penstock("report", "a", "--html", str(place.work / "page.html")))
        rows = pq.read_table(place.work / "page.elements.parquet").to_pylist()
        assert sum(row["shards"] for row in rows) == len(place.receipts("a", "copy"))
        for row in rows:
            assert (row["queue_wait_by"], row["slurm_starts"], row["restarts"]) == ("slurmdbd", 1, 0)
            assert row["slurm_seconds"] == pytest.approx(row["seconds"], abs=3)
            assert row["slurm_granted_seconds"] >= row["slurm_seconds"]
            assert row["slurm_cpu_seconds"] == pytest.approx(row["cpu_seconds"], abs=1)
            assert row["slurm_memory_peak"] > 10 << 20
