"""The configuration files of the test cluster, as text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

NODES = ("n1", "n2", "n3", "n4")
CONFINED = "c1"
"""The node of a cluster that confines its jobs."""
ORDINARY = "daemon"
"""An account without privileges. Not `nobody`: later releases of SLURM give that one no association."""
CPUS = 8
MEMORY_MIB = 8000


@dataclass(frozen=True)
class Settings:
    """What a test may want otherwise."""

    accounting: bool = False
    """With slurmdbd and its database; accounts and QOS are then enforced."""
    max_array: int = 1001
    allow_spec: bool = True
    """AllowSpecResourcesUsage: without it `--core-spec` is ignored."""
    min_job_age: int = 300
    """Seconds until slurmctld forgets a job that ended (at least 2)."""
    confined: bool = False
    """One node with the machine's own CPUs and memory, of which SLURM keeps a core. It holds each job within
    the cores and the memory that it gave it, by cgroups of version 1."""
    tokens: bool = False
    """It takes tokens (auth/jwt) beside munge: `Machine.token`."""
    cluster: str = "penstock"
    """ClusterName."""
    extra: Mapping[str, str] = field(default_factory=dict)
    """Further lines of slurm.conf."""

    @property
    def nodes(self) -> Sequence[str]:
        return (CONFINED,) if self.confined else NODES


def slurm_conf(
    folder: Path, ports: Mapping[str, int], user: str, settings: Settings, hardware: str = ""
) -> str:
    """slurm.conf: short timeouts, so that a lost node is noticed while a person watches. `hardware`: this
    machine's CPUs and memory, as `slurmd -C` writes them; of a node that confines its jobs."""
    lines: dict[str, str] = {
        "ClusterName": settings.cluster,
        "SlurmctldHost": "localhost(127.0.0.1)",
        "SlurmctldPort": str(ports["slurmctld"]),
        "SlurmUser": user,
        "SlurmdUser": user,
        "AuthType": "auth/munge",
        # A requeued element may start again only when its old credential has expired.
        "AuthInfo": f"socket={folder}/munge.socket,cred_expire=5",
        "CryptoType": "crypto/munge",
        "StateSaveLocation": f"{folder}/state",
        "SlurmdSpoolDir": f"{folder}/spool/%n",
        "SlurmctldPidFile": f"{folder}/slurmctld.pid",
        "SlurmdPidFile": f"{folder}/slurmd.%n.pid",
        "SlurmctldLogFile": f"{folder}/logs/slurmctld.log",
        "SlurmdLogFile": f"{folder}/logs/slurmd.%n.log",
        "SlurmdParameters": "config_overrides",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core_Memory",
        "AllowSpecResourcesUsage": "YES" if settings.allow_spec else "NO",
        "MpiDefault": "none",
        "SwitchType": "switch/none",
        "ReturnToService": "2",
        "SlurmdTimeout": "10",
        "SlurmctldTimeout": "10",
        "MessageTimeout": "10",
        "KillWait": "5",
        "MinJobAge": str(settings.min_job_age),
        "MaxArraySize": str(settings.max_array),
        "MaxJobCount": "20000",
        "JobRequeue": "1",
        "SchedulerType": "sched/backfill",
        "SchedulerParameters": "sched_min_interval=100000,batch_sched_delay=1,bf_interval=3,"
        "requeue_setup_env_fail",
        "PreemptType": "preempt/partition_prio",
        "PreemptMode": "REQUEUE",
        "Licenses": "wan:4",
    }
    if settings.accounting:
        lines |= {
            "AccountingStorageType": "accounting_storage/slurmdbd",
            "AccountingStorageHost": "127.0.0.1",
            "AccountingStoragePort": str(ports["slurmdbd"]),
            # With munge this is the path of its socket, whatever AuthInfo says.
            "AccountingStoragePass": f"{folder}/munge.socket",
            "AccountingStorageEnforce": "associations,limits,qos",
            "AccountingStorageTRES": "license/wan",
            "AccountingStoreFlags": "job_comment",
            "JobAcctGatherType": "jobacct_gather/linux",
            "JobAcctGatherFrequency": "5",
        }
    if settings.tokens:
        lines |= {"AuthAltTypes": "auth/jwt", "AuthAltParameters": f"jwt_key={folder}/jwt.key"}
    if settings.confined:
        lines |= {"ProctrackType": "proctrack/cgroup", "TaskPlugin": "task/affinity,task/cgroup"}
    lines |= settings.extra
    text = "".join(f"{key}={value}\n" for key, value in lines.items())
    if settings.confined:
        return (
            f"{text}NodeName={CONFINED} NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[CONFINED]} "
            f"{hardware} CoreSpecCount=1 State=UNKNOWN\n"
            f"PartitionName=data Nodes={CONFINED} Default=YES MaxTime=INFINITE State=UP\n"
        )
    for index, node in enumerate(NODES):
        # WEKA's own cores on two of the four.
        reserved = " CoreSpecCount=1" if index < 2 else ""
        feature = "fast" if index < 2 else "plain"
        text += (
            f"NodeName={node} NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[node]} CPUs={CPUS} "
            f"Sockets=1 CoresPerSocket={CPUS} ThreadsPerCore=1 RealMemory={MEMORY_MIB} "
            f"Feature={feature}{reserved} State=UNKNOWN\n"
        )
    text += "PartitionName=data Nodes=n[1-4] Default=YES MaxTime=INFINITE State=UP PriorityTier=1\n"
    text += "PartitionName=cpu Nodes=n[3-4] MaxTime=01:00:00 State=UP PriorityTier=1\n"
    text += "PartitionName=urgent Nodes=n[1-4] MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF\n"
    return text


def cgroup_conf(release: tuple[int, int], settings: Settings) -> str:
    """No control groups: the tests' machine may have none that it can change. But of a node that confines its
    jobs those of version 1 that `hierarchies.sh` shows it."""
    if settings.confined:
        automount = "" if release >= (23, 11) else "CgroupAutomount=no\n"
        return (
            f"CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\n{automount}"
            "ConstrainCores=yes\nConstrainRAMSpace=yes\n"
        )
    return "CgroupPlugin=disabled\n" if release >= (23, 11) else "CgroupAutomount=no\n"


def slurmdbd_conf(folder: Path, ports: Mapping[str, int], user: str) -> str:
    lines = {
        "DbdHost": "localhost",
        "DbdAddr": "127.0.0.1",
        "DbdPort": str(ports["slurmdbd"]),
        "SlurmUser": user,
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={folder}/munge.socket",
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "127.0.0.1",
        "StoragePort": str(ports["database"]),
        "StorageUser": "slurm",
        "StoragePass": "slurm",
        "StorageLoc": "slurm_acct_db",
        "LogFile": f"{folder}/logs/slurmdbd.log",
        "PidFile": f"{folder}/slurmdbd.pid",
        "CommitDelay": "0",
    }
    return "".join(f"{key}={value}\n" for key, value in lines.items())
