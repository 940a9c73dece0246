"""Commands of a SLURM that exists on paper: for tests of how it is talked to, on machines without SLURM.

Each is a shell script in one folder. Jobs are lines of `jobs`: `sbatch` adds one, `squeue` finds it by its
name, and nothing ever runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = """\
AccountingStorageType   = accounting_storage/slurmdbd
AllowSpecResourcesUsage = Yes
ClusterName             = lab
MaxArraySize            = 1001
MinJobAge               = 30 sec
SLURM_VERSION           = 24.11.5
TaskPlugin              = task/cgroup,task/affinity
"""
NODES = """\
NodeName=n1 CPUTot=8 CoresPerSocket=4 Sockets=1 RealMemory=8000 \
Partitions=data,cpu AvailableFeatures=fast Gres=gpu:a100:4,nvme:2 TmpDisk=4000 \
State=IDLE+DRAIN Reason=new disk [root@2026-11-01T10:00:00]
NodeName=n2 CPUTot=8 CoresPerSocket=4 Sockets=2 RealMemory=8000 Partitions=data \
AvailableFeatures=plain,ib State=DOWN*
"""
PARTITIONS = """\
PartitionName=data Default=YES DefaultTime=NONE MaxTime=UNLIMITED MinNodes=0 MaxNodes=UNLIMITED QoS=N/A
PartitionName=cpu Default=NO DefaultTime=NONE MaxTime=1-02:30:00 MinNodes=1 MaxNodes=4 QoS=bulk
"""
JOB = "JobId=7 JobState={state} Reason=None NodeList=n1 ExitCode={code}:0 ArrayTaskThrottle={at_once}"
RECORDS = """\
100|90_0|COMPLETED|1700000000|1700000100|n1
101|90_1|CANCELLED by 1000|1700000000|1700000200|n2
90|90_[2-4%2]|CANCELLED by 1000|Unknown|1700000200|None assigned
"""
_SBATCH = """\
cat > {folder}/script
printf '%s\\n' "$*" >> {folder}/jobs
wc -l < {folder}/jobs
"""
_SQUEUE = """\
for word; do case $word in --name=*) name=${{word#--name=}};; esac; done
[ -e {folder}/jobs ] || exit 0
grep -n -e "--job-name=$name" {folder}/jobs | cut -d: -f1
exit 0
"""
_SCONTROL = """\
echo "$*" >> {folder}/scontrol.calls
case "$1 $2" in
--version*) echo slurm 24.11.5 ;;
"show config") cat {folder}/config ;;
"show node") cat {folder}/nodes ;;
"show partition") cat {folder}/partitions ;;
"show job") [ -s {folder}/job ] && cat {folder}/job || {{ echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1; }} ;;
esac
"""  # noqa: E501


class PaperSlurm:
    """Its commands lie in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        for name, text in (
            ("config", CONFIG),
            ("nodes", NODES),
            ("partitions", PARTITIONS),
            ("records", RECORDS),
        ):
            (folder / name).write_text(text)
        self.job()
        bodies = {
            "sbatch": _SBATCH,
            "squeue": _SQUEUE,
            "scontrol": _SCONTROL,
            "scancel": 'echo "$*" >> {folder}/scancel.calls\n',
            "sinfo": "exit 0\n",
            "sacct": "cat {folder}/records\n",
        }
        for name, body in bodies.items():
            self._write(name, body.format(folder=folder))

    def _write(self, name: str, body: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{body}")
        path.chmod(0o755)

    def job(self, state: str = "RUNNING", code: int = 0, at_once: int = 0) -> None:
        """What is said of any job."""
        (self.folder / "job").write_text(JOB.format(state=state, code=code, at_once=at_once) + "\n")

    def refuse(self, command: str, words: str) -> None:
        """From now on this command fails with these words."""
        self._write(command, f"echo '{words}' >&2\nexit 1\n")

    def lines(self, name: str) -> list[str]:
        """`jobs`, `scancel.calls`, `scontrol.calls`."""
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []
