"""Runs one slurmd, and stays above all that it leaves behind.

    python keeper.py PID_FILE slurmd -D -N n1

slurmstepd and the payloads of jobs outlive slurmd, and would then belong to process 1 as everybody's
orphans do. This process adopts them instead (PR_SET_CHILD_SUBREAPER): whatever a node started, and
nothing else, is below its keeper, and is found and ended by that. It ends when nothing is left of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
GROUPS = Path("/sys/fs/cgroup/cpuacct")


def counted_apart() -> None:
    """Where the tests' CPU is measured (`tests.support.profile`), that of jobs is summed by itself."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpuacct" in controllers.split(",") and path.startswith("/penstock-tests-"):
            jobs = GROUPS / path[1:] / "jobs"
            jobs.mkdir(exist_ok=True)
            (jobs / "cgroup.procs").write_text(str(os.getpid()))


def main() -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    counted_apart()
    noted, *command = sys.argv[1:]
    process = subprocess.Popen(command)
    new = Path(f"{noted}.new")
    new.write_text(str(process.pid))
    new.rename(noted)
    process.returncode = 0  # waited for below, with all the others
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


if __name__ == "__main__":
    main()
