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
_SBATCH = """\
cat > {folder}/script
printf '%s\\n' "$*" >> {folder}/jobs
wc -l < {folder}/jobs
"""
_SQUEUE = """\
for word; do case $word in --name=*) name=${{word#--name=}};; esac; done
[ -e {folder}/jobs ] || exit 0
grep -n -e "--job-name=$name" {folder}/jobs | sed "s/:.*/|/"
exit 0
"""
_SCONTROL = """\
echo "$*" >> {folder}/scontrol.calls
case "$1 $2" in
--version*) echo slurm 24.11.5 ;;
"show config") cat {folder}/config ;;
"show node") cat {folder}/nodes ;;
"show partition") cat {folder}/partitions ;;
"show job") cat {folder}/job ;;
esac
"""


class PaperSlurm:
    """Its commands lie in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        for name, text in (
            ("config", CONFIG),
            ("nodes", NODES),
            ("partitions", PARTITIONS),
        ):
            (folder / name).write_text(text)
        self.noted(0)
        bodies = {
            "sbatch": _SBATCH,
            "squeue": _SQUEUE,
            "scontrol": _SCONTROL,
            "scancel": 'echo "$*" >> {folder}/scancel.calls\n',
            "sinfo": "exit 0\n",
            "sacct": "exit 0\n",
        }
        for name, body in bodies.items():
            self._write(name, body.format(folder=folder))

    def _write(self, name: str, body: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{body}")
        path.chmod(0o755)

    def noted(self, at_once: int) -> None:
        """The throttle that is noted of any array."""
        (self.folder / "job").write_text(f"JobId=7 ArrayTaskThrottle={at_once}\n")

    def refuse(self, command: str, words: str) -> None:
        """From now on this command fails with these words."""
        self._write(command, f"echo '{words}' >&2\nexit 1\n")

    def lines(self, name: str) -> list[str]:
        """`jobs`, `scancel.calls`, `scontrol.calls`."""
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []
