"""What a process and its helpers use: CPU time, memory, the peak of the job's control group."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from penstock.cluster.registry import read_job_environment
from penstock.core.element_documents import ElementUsage
from penstock.host import kernel_facts
from penstock.host.kernel_facts import Meter, children, memory_peak, peak_memory, process_stat

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MIB = 1 << 20
HELPER = """
import sys, time
held = bytearray(64 << 20)
for at in range(0, len(held), 4096): held[at] = 1
del held
until = time.process_time() + 0.3
while time.process_time() < until: pass
print("used", flush=True)
sys.stdin.read()
"""
"""Holds 64 MiB for a moment, uses 0.3 s of CPU time, and waits."""


@pytest.fixture
def helper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-c", HELPER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"used\n"
        yield process
        process.kill()


def test_a_helper_counts_while_it_lives_and_after_it_has_ended(helper: subprocess.Popen[bytes]) -> None:
    """CPU time of a living helper by /proc, of an ended one by getrusage; its peak of memory stays after it
    has given the memory back."""
    whole = Meter()
    living = whole.used(ElementUsage())
    assert living.processes >= 2
    assert living.memory_peak > 64 * MIB + peak_memory("self") // 2
    helper.communicate()
    ended = whole.used(ElementUsage())
    assert ended.cpu_seconds >= living.cpu_seconds - 0.05
    assert ended.memory_peak == living.memory_peak
    assert ended.cpu_seconds > 0
    assert ended.seconds >= living.seconds


def test_a_meter_begins_with_the_process() -> None:
    code = (
        "import time; began = time.time(); until = time.process_time() + 0.3\n"
        "while time.process_time() < until: pass\n"
        "from penstock.host.kernel_facts import Meter\n"
        "from penstock.core.element_documents import ElementUsage\n"
        "used = Meter().used(ElementUsage())\n"
        "print(used.seconds, used.cpu_seconds, used.began - began)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    seconds, cpu, offset = map(float, done.stdout.split())
    assert seconds >= 0.3
    assert cpu >= 0.3
    assert offset <= 0.1


def test_look_reads_for_the_meter_that_was_entered(helper: subprocess.Popen[bytes]) -> None:
    meter = Meter()
    before = meter.used(ElementUsage())
    with subprocess.Popen(
        [sys.executable, "-c", HELPER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as second:
        assert second.stdout is not None
        second.stdout.readline()
        kernel_facts.read_peaks()  # nobody measures: nothing happens
        assert meter._peak == before.memory_peak
        kernel_facts.enter_meter(meter)
        kernel_facts.read_peaks()
        kernel_facts.enter_meter(None)
        second.communicate()
    assert meter.used(ElementUsage()).memory_peak > before.memory_peak + 60 * MIB


def test_children_are_found_by_the_kernel_s_list_and_without_it(tmp_path: Path) -> None:
    def process(pid: int, parent: int, state: str = "S") -> None:
        folder = tmp_path / str(pid)
        folder.mkdir()
        fields = ["0"] * 20
        fields[0], fields[1] = state, str(parent)
        (folder / "stat").write_text(f"{pid} (a) b) {' '.join(fields)}\n")
        (folder / "status").write_text("Name:\ta\nVmPeak:\t 9 kB\nVmHWM:\t    2048 kB\n")

    for pid, parent, state in ((10, 1, "S"), (11, 10, "S"), (12, 10, "R"), (13, 11, "S"), (14, 10, "Z")):
        process(pid, parent, state)
    assert sorted(one.pid for one in children(10, tmp_path)) == [11, 12]
    for thread, names in (("10", "11 14 99 "), ("20", "12")):
        (tmp_path / "10" / "task" / thread).mkdir(parents=True)
        (tmp_path / "10" / "task" / thread / "children").write_text(names)
    assert sorted(one.pid for one in children(10, tmp_path)) == [11, 12]
    assert peak_memory(12, tmp_path) == 2 * MIB
    assert peak_memory(99, tmp_path) == 0
    assert children(10, tmp_path / "nowhere") == []


def test_the_children_of_this_process_are_found(helper: subprocess.Popen[bytes]) -> None:
    assert helper.pid in {one.pid for one in children(os.getpid())}
    seen = process_stat(helper.pid)
    assert seen is not None
    assert seen.parent == os.getpid()
    helper.kill()
    helper.wait()
    assert helper.pid not in {one.pid for one in children(os.getpid())}


V2 = "0::/system.slice/slurmstepd.scope/job_77/step_batch/user/task_0\n"
V1 = "5:cpuset:/slurm/uid_0/job_77/step_batch\n4:memory:/slurm/uid_0/job_77/step_batch\n0::/\n"
OWN, FILE, OWN_V1, FILE_V1 = (
    "unified/system.slice/slurmstepd.scope/job_77", "memory.peak",
    "memory/slurm/uid_0/job_77", "memory.max_usage_in_bytes",
)  # fmt: skip


@pytest.mark.parametrize(
    ("said", "file", "found"),
    [
        (V2, f"{OWN}/{FILE}", (5 * MIB, FILE)),
        (V1, f"{OWN_V1}/{FILE_V1}", (5 * MIB, FILE_V1)),
        # Not the job's own: of another job, of the step alone, of no job; a kernel without the file.
        (V2.replace("job_77", "job_770"), f"{OWN}0/{FILE}", (0, "")),
        (V2, f"{OWN}/step_batch/{FILE}", (0, "")),
        ("0::/user.slice\n", f"unified/user.slice/{FILE}", (0, "")),
        (V2, f"{OWN}/memory.current", (0, "")),
        ("", f"unified/{FILE}", (0, "")),
    ],
)
def test_the_peak_of_the_job_s_own_control_group(
    tmp_path: Path, said: str, file: str, found: tuple[int, str]
) -> None:
    proc, sys_fs = tmp_path / "proc" / "self", tmp_path / "sys"
    proc.mkdir(parents=True)
    (proc / "cgroup").write_text(said)
    (proc / "mountinfo").write_text(
        f"30 20 0:26 / {sys_fs}/unified rw - cgroup2 cgroup2 rw\n"
        f"31 20 0:27 / {sys_fs}/memory rw - cgroup cgroup rw,memory\n"
        f"32 20 0:28 / {sys_fs}/cpuset rw - cgroup cgroup rw,cpuset\n"
    )
    path = sys_fs / file
    path.parent.mkdir(parents=True)
    path.write_text(f"{5 * MIB}\n")
    assert memory_peak("job_77", tmp_path / "proc") == found
    used = Meter(cgroup="job_77", proc=str(tmp_path / "proc")).used(ElementUsage())
    assert (used.job_memory_peak, used.job_memory_file) == found


def test_the_job_s_control_group_is_named_where_the_kernel_has_it(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text(V2)
    from penstock.cluster.slurm import environment

    assert environment.read({"SLURM_JOB_ID": "77"}, tmp_path).cgroup == "job_77"
    assert environment.read({"SLURM_JOB_ID": "78"}, tmp_path).cgroup == ""
    assert environment.read({}, tmp_path).cgroup == ""
    assert read_job_environment({}).cgroup == ""
