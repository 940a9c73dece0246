"""The memory limits of an element, read from a /proc of the test's own: cgroups of both versions
as SLURM, systemd and containers make them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from penstock.core import range_lists
from penstock.host import kernel_facts

if TYPE_CHECKING:
    from pathlib import Path

ENDLESS = 9223372036854771712
"""What memory.limit_in_bytes says where there is no limit, with pages of 4 KiB."""
MIB = 1 << 20


class Kernel(NamedTuple):
    """A /proc and mounts of cgroups below one folder."""

    root: Path

    @property
    def proc(self) -> Path:
        return self.root / "proc"

    def write(self, path: str, text: object) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    def is_in(self, *lines: str) -> None:
        """/proc/self/cgroup."""
        self.write("proc/self/cgroup", "\n".join(lines))

    def mounts(self, *mounts: tuple[str, str, str, str]) -> None:
        """(point, the cgroup that it shows, version, options of the file system), in this order."""
        lines = [
            f"{40 + i} 30 0:{29 + i} {shown} {self.root}/{point} rw shared:9 - {kind} {kind} rw,{options}"
            for i, (point, shown, kind, options) in enumerate(mounts)
        ]
        self.write("proc/self/mountinfo", "\n".join(["23 1 8:1 / / rw - ext4 /dev/sda1 rw", *lines]))

    def machine(self, memory: int) -> None:
        self.write("proc/meminfo", f"MemTotal:       {memory >> 10} kB\nMemFree:        1000 kB")

    def limit(self) -> int | None:
        return kernel_facts.memory_limit(self.proc)


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    made = Kernel(tmp_path)
    made.machine(256 << 30)
    return made


def slurm_of_version_1(kernel: Kernel) -> None:
    """As 22.05 makes them."""
    job = "/slurm/uid_1000/job_77"
    kernel.is_in(f"4:memory:{job}/step_batch/task_0", f"3:cpuset:{job}/step_batch/task_0", "0::/system.slice")
    kernel.mounts(
        ("cg/cpuset", "/", "cgroup", "cpuset"), ("cg/memory", "/", "cgroup", "memory"),
        ("cg/unified", "/", "cgroup2", "nsdelegate"),
    )  # fmt: skip
    for path in ("", "/slurm", "/slurm/uid_1000", f"{job}/step_batch", f"{job}/step_batch/task_0"):
        kernel.write(f"cg/memory{path}/memory.limit_in_bytes", ENDLESS)
    kernel.write(f"cg/memory{job}/memory.limit_in_bytes", 100 * MIB)


def slurm_of_version_2(kernel: Kernel) -> None:
    """As 23.02 and later make them: memory.high is what was asked for."""
    job = "/system.slice/slurmstepd.scope/job_77"
    kernel.is_in(f"0::{job}/step_batch/user/task_0")
    kernel.mounts(("cg", "/", "cgroup2", "nsdelegate,memory_recursiveprot"))
    for path in (f"{job}/step_batch/user/task_0", f"{job}/step_batch/user", "/system.slice"):
        kernel.write(f"cg{path}/memory.max", "max")
        kernel.write(f"cg{path}/memory.high", "max")
    kernel.write(f"cg{job}/memory.max", 120 * MIB)
    kernel.write(f"cg{job}/memory.high", 100 * MIB)


def container(kernel: Kernel) -> None:
    """The mount shows the container's own cgroup as its top; what is above it cannot be seen."""
    kernel.is_in("9:cpu,memory:/docker/0a1b/inner")
    kernel.mounts(("cg with blanks", "/docker/0a1b", "cgroup", "cpu,memory"))
    kernel.write("cg with blanks/memory.limit_in_bytes", 100 * MIB)
    kernel.write("cg with blanks/inner/memory.limit_in_bytes", 300 * MIB)
    info = (kernel.proc / "self/mountinfo").read_text()
    kernel.write("proc/self/mountinfo", info.replace("cg with blanks", r"cg\040with\040blanks").rstrip())


def hidden(kernel: Kernel) -> None:
    """Another mount lies over the machine's own, and shows what a cgroup namespace has as its top."""
    kernel.is_in("4:memory:/slurm/uid_1/job_7")
    kernel.mounts(
        ("cg/memory", "/..", "cgroup", "memory"), ("cg/memory", "/", "cgroup", "memory"),
        ("other", "/docker", "cgroup", "memory"),
    )  # fmt: skip
    kernel.write("cg/memory/memory.limit_in_bytes", ENDLESS)
    kernel.write("cg/memory/slurm/uid_1/job_7/memory.limit_in_bytes", 100 * MIB)
    kernel.write("other/memory.limit_in_bytes", 1)


def elsewhere(kernel: Kernel) -> None:
    """In a cgroup namespace whose top is not above the process."""
    kernel.is_in("0::/../other")
    kernel.mounts(("cg", "/", "cgroup2", "rw"))
    kernel.write("cg/memory.max", 100 * MIB)
    kernel.write("other/memory.max", 1)


@pytest.mark.parametrize("cgroup", [slurm_of_version_1, slurm_of_version_2, container, hidden, elsewhere])
def test_the_least_limit_on_the_path_holds(kernel: Kernel, cgroup: object) -> None:
    """The leaf says that there is no limit, and the job's cgroup has it."""
    assert callable(cgroup)
    cgroup(kernel)
    assert kernel.limit() == 100 * MIB


def test_without_a_limit_below_the_machine_s_memory_there_is_none(kernel: Kernel) -> None:
    slurm_of_version_1(kernel)
    kernel.write("cg/memory/slurm/uid_1000/job_77/memory.limit_in_bytes", 256 << 30)
    assert kernel.limit() is None
    kernel.write("proc/meminfo", "what is this")
    assert kernel.limit() == 256 << 30
    kernel.write("cg/memory/slurm/uid_1000/job_77/memory.limit_in_bytes", ENDLESS)
    assert kernel.limit() is None


def test_what_cannot_be_read_is_not_known(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path)
    assert kernel.limit() is None
    kernel.is_in("torn", "4:memory", "0::/x")
    kernel.write("proc/self/mountinfo", "40 30 0:29 / /nowhere rw - cgroup2\n")
    assert kernel.limit() is None


def test_this_machine_s_own_is_what_the_kernel_says() -> None:
    limit = kernel_facts.memory_limit()
    assert limit is None or limit > 0


@pytest.mark.parametrize("text", ["", "0", "0-3,8", "1,3,5-7"])
def test_lists_of_cpus_are_read_as_they_are_written(text: str) -> None:
    assert range_lists.listed(range_lists.cpus(text)) == text


@pytest.mark.parametrize("text", ["a", "1-b", "-3"])
def test_what_is_no_list_of_cpus_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        range_lists.cpus(text)
