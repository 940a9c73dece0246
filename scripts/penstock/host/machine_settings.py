"""Reads this machine's hardware (sockets, cores, NUMA nodes, network devices), and the kernel's parameters
and command line. Also reads files of `name = value` lines, such as SLURM's cgroup.conf. Changes nothing.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.core import range_lists
from penstock.core.human import printable
from penstock.core.node_answer import FileValue, Machine, Nic
from penstock.core.run_steps import CheckResult
from penstock.host.kernel_facts import PROC, Root

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping


def setting(path: Path, name: str) -> FileValue:
    """Return the last value of this name, which is not case-sensitive. `#` begins a comment. Never raises."""
    shown = printable(str(path))
    try:
        lines = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return FileValue(shown)
    except OSError as error:
        return FileValue(shown, error=error.strerror or str(error))
    last = None
    for line in lines:
        key, equals, value = line.partition("#")[0].partition("=")
        if equals and key.strip().lower() == name.lower():
            last = printable(value.strip().strip("\"'"))
    return FileValue(shown, last)


# The hardware of this machine: sockets, cores, siblings, NUMA nodes, caches of level 3, network devices. Read
# from /sys, or from `lscpu -J -e` if /sys lacks them (some containers). Preflight compares WEKA's cores with
# SLURM's.

SYS = "/sys"
LSCPU = ("lscpu", "-J", "-e")  # the command whose output `from_lscpu` reads


def read_topology(sys: str | os.PathLike[str] = SYS) -> Machine:
    """Return the machine as /sys describes it to any account. Fields that /sys lacks are empty."""
    folder = Path(sys, "devices/system/cpu")
    online = _list(folder / "online")
    cores: dict[Hashable, list[int]] = {}
    sockets: dict[Hashable, list[int]] = {}
    caches: dict[Hashable, list[int]] = {}
    for cpu in online:
        at = folder / f"cpu{cpu}"
        siblings = _list(at / "topology/core_cpus_list") or _list(at / "topology/thread_siblings_list")
        if not siblings:
            return Machine(nics=_nics(sys))
        cores.setdefault(siblings, []).append(cpu)
        if (socket := _number(at / "topology/physical_package_id")) is not None:
            sockets.setdefault(socket, []).append(cpu)
        if below := _below_l3(at / "cache"):
            caches.setdefault(below, []).append(cpu)
    here = frozenset(online)
    nodes = {number: tuple(sorted(here & cpus)) for number, cpus in _numa_nodes(sys).items() if here & cpus}
    return Machine(_groups(cores), _groups(sockets), _groups(caches), nodes, _nics(sys))


def from_lscpu(out: str, nics: Iterable[Nic] = ()) -> Machine:
    """Return the machine from the output of `LSCPU`, with these network devices; empty for any other text."""
    try:
        rows = json.loads(out)["cpus"]
        cores: dict[Hashable, list[int]] = {}
        sockets: dict[Hashable, list[int]] = {}
        caches: dict[Hashable, list[int]] = {}
        nodes: dict[int, list[int]] = {}
        for row in rows:
            if row.get("online") in (False, "no"):
                continue
            cpu = int(row["cpu"])
            socket = row.get("socket")
            cores.setdefault((socket, row["core"]), []).append(cpu)
            if _given(socket):
                sockets.setdefault(socket, []).append(cpu)
            if _given(row.get("node")):
                nodes.setdefault(int(row["node"]), []).append(cpu)
            # Names and numbers of caches, joined by colons: "l1d:l1i:l2:l3" is "0:0:0:0".
            names = next((name for name in row if name.lower().endswith("l3")), "")
            last = str(row.get(names) or "").rpartition(":")[2]
            if last.isdecimal():
                caches.setdefault(last, []).append(cpu)
    except (ValueError, KeyError, TypeError, AttributeError):
        return Machine(nics=tuple(nics))
    return Machine(
        _groups(cores),
        _groups(sockets),
        _groups(caches),
        {node: tuple(sorted(cpus)) for node, cpus in sorted(nodes.items())},
        tuple(nics),
    )


def _numa_nodes(sys: str | os.PathLike[str]) -> dict[int, frozenset[int]]:
    """Return the CPUs of each NUMA node that has any, by ascending number; {} if not known."""
    folder = f"{sys}/devices/system/node"
    try:
        names = os.listdir(folder)
    except OSError:
        return {}
    nodes: dict[int, frozenset[int]] = {}
    for number in sorted(int(name[4:]) for name in names if re.fullmatch(r"node\d+", name)):
        try:
            with open(f"{folder}/node{number}/cpulist", encoding="ascii") as stream:
                cpus = frozenset(range_lists.cpus(stream.read()))
        except (OSError, ValueError):
            return {}
        if cpus:
            nodes[number] = cpus
    return nodes


def _groups(members: Mapping[Hashable, list[int]]) -> tuple[tuple[int, ...], ...]:
    """Sort the groups by their lowest CPUs."""
    return tuple(sorted(tuple(sorted(cpus)) for cpus in members.values()))


def _below_l3(caches: Path) -> tuple[int, ...]:
    for index in _folder_entries(caches):
        if _number(caches / index / "level") == 3:
            return _list(caches / index / "shared_cpu_list")
    return ()


def _nics(sys: str | os.PathLike[str]) -> tuple[Nic, ...]:
    """Return physical network devices, without `lo`, bridges and VLANs."""
    folder = Path(sys, "class/net")
    nics = []
    for name in sorted(_folder_entries(folder)):
        if not (folder / name / "device").is_dir():
            continue
        node = _number(folder / name / "device/numa_node")
        # The kernel writes -1 for "not known".
        nics.append(Nic(printable(name), node if node is not None and node >= 0 else None))
    return tuple(nics)


def network_speed(sys: str | os.PathLike[str] = SYS) -> float | None:
    """Return bytes a second of the fastest active network device; None if not stated (virtual devices)."""
    speeds = [_number(Path(sys, "class/net", nic.name, "speed")) for nic in _nics(sys)]
    megabits = max((speed for speed in speeds if speed), default=-1)
    return megabits * 1e6 / 8 if megabits > 0 else None


def _given(value: object) -> bool:
    return value not in (None, "", "-")


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _list(path: Path) -> tuple[int, ...]:
    try:
        return range_lists.cpus(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return ()


def _folder_entries(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


# Compares kernel parameters and the kernel's command line with vendors' recommendations for moving data.
#
# Each table states its source, and docs/host-tuning.md has the sources' further advice. The two tables of
# kernel parameters contradict each other in part, so a person chooses one of them.


class SysctlProfile(NamedTuple):
    """A vendor's table of kernel parameters."""

    name: str
    source: str  # readable source of the table
    values: Mapping[str, str]  # values by sysctl(8)'s names; several numbers are separated by a blank


PROFILES = {
    profile.name: profile
    for profile in (
        SysctlProfile(
            "netapp-100g",
            "NetApp TR-4915, table for hosts with 100GbE (8 of its 14 lines)",
            {
                "net.core.rmem_max": "268435456",
                "net.core.wmem_max": "268435456",
                "net.core.netdev_max_backlog": "300000",
                "net.ipv4.tcp_rmem": "4096 1342177 134217728",
                "net.ipv4.tcp_wmem": "4096 1342177 134217728",
                "net.ipv4.tcp_fin_timeout": "7",
                "net.ipv4.tcp_slow_start_after_idle": "0",
                "net.ipv4.tcp_mtu_probing": "1",
            },
        ),
        SysctlProfile(
            "netapp-xcp-docs",
            "NetApp XCP documentation, Performance tuning (NFS)",
            {
                "net.core.rmem_default": "1342177",
                "net.core.rmem_max": "16777216",
                "net.core.wmem_default": "1342177",
                "net.core.wmem_max": "16777216",
                "net.core.netdev_max_backlog": "300000",
                "net.ipv4.tcp_rmem": "4096 1342177 16777216",
                "net.ipv4.tcp_wmem": "4096 1342177 16777216",
                "net.ipv4.tcp_fin_timeout": "10",
            },
        ),
    )
}


def sysctl_results(profile: SysctlProfile, proc: Root = PROC) -> list[CheckResult]:
    """Compare each value of the profile.

    | /proc/sys has            | verdict                                         |
    |--------------------------|-------------------------------------------------|
    | the profile's value      | ok                                              |
    | another value            | warning                                         |
    | no such name             | note: "not known" to this kernel or network namespace |
    """
    return [_sysctl_result(name, wanted, proc) for name, wanted in profile.values.items()]


def _sysctl_result(name: str, wanted: str, proc: Root) -> CheckResult:
    setting = _text(Path(proc, "sys", *name.split(".")))
    if setting is None:
        return CheckResult(name, "not known: /proc/sys of this host has no such name", "note", wanted)
    return CheckResult(name, setting, "ok" if setting == wanted else "warning", wanted)


def drop_in_path(profile: SysctlProfile) -> str:
    return f"/etc/sysctl.d/90-{profile.name}.conf"


def drop_in(profile: SysctlProfile, results: list[CheckResult]) -> str:
    """Return the profile for /etc/sysctl.d, without names that this kernel lacks; "" if nothing differs."""
    if all(result.verdict == "ok" for result in results):
        return ""
    here = [result for result in results if result.verdict != "note"]
    return "".join(
        f"{text}\n"
        for text in (f"# {profile.source}", *(f"{result.about} = {result.wanted}" for result in here))
    )


def kernel_results(proc: Root = PROC, sys: Root = SYS) -> list[CheckResult]:
    """Check settings, beside sysctl, that WEKA and Lenovo recommend for hosts with WEKA's client. The results
    are only notes, since other clients and uses need other settings."""
    return [_numa_balancing(proc), _iommu(proc, sys), _threads(sys)]


def _numa_balancing(proc: Root) -> CheckResult:
    """
    | kernel.numa_balancing now | result |
    |---------------------------|--------|
    | 0                         | ok     |
    | no such parameter         | ok     |
    | another value             | note   |
    """
    about, wanted = "NUMA balancing", "off (numa_balancing=disable on the kernel's command line)"
    now = _text(Path(proc, "sys/kernel/numa_balancing"))
    option = _option(proc, "numa_balancing")
    on_command_line = f"; the command line has {option}" if option else "; the command line does not set it"
    if now is None:
        return CheckResult(about, f"this kernel has none{on_command_line}", "ok", wanted)
    text = f"kernel.numa_balancing is {now}{on_command_line}"
    if now == "0":
        return CheckResult(about, text, "ok", wanted)
    mend = "`kernel.numa_balancing = 0` in /etc/sysctl.d, or numa_balancing=disable and a reboot"
    return CheckResult(about, text, "note", wanted, mend)


def _iommu(proc: Root, sys: Root) -> CheckResult:
    """
    | intel_iommu=off is given | IOMMUs in /sys | result                            |
    |--------------------------|----------------|-----------------------------------|
    | yes or no                | none           | ok                                |
    | yes                      | some           | note: they are not Intel's        |
    | no                       | some           | note                              |
    """
    about, wanted = "IOMMU", "off (intel_iommu=off on the kernel's command line)"
    units = _entries(Path(sys, "class/iommu"))
    groups = _entries(Path(sys, "kernel/iommu_groups"))
    option = _option(proc, "intel_iommu")
    on_command_line = (
        f"the command line has {option}" if option else "the command line does not set intel_iommu"
    )
    if not units and not groups:
        return CheckResult(about, f"none is in use; {on_command_line}", "ok", wanted)
    text = f"{len(units)} in use, {len(groups)} groups of devices; {on_command_line}"
    mend = "intel_iommu=off and a reboot, or off in UEFI; not where devices are handed to virtual machines"
    return CheckResult(about, text, "note", wanted, mend)


def _threads(sys: Root) -> CheckResult:
    """
    | smt/active      | result            |
    |-----------------|-------------------|
    | 0               | ok                |
    | 1               | note              |
    | cannot be read  | note: "not known" |
    """
    about, wanted = "hyper-threading", "off"
    active = _text(Path(sys, "devices/system/cpu/smt/active"))
    if active == "0":
        return CheckResult(about, "off, or the processor has none", "ok", wanted)
    if active is None:
        return CheckResult(about, "not known: this kernel does not say", "note", wanted)
    mend = "off in UEFI, or nosmt on the kernel's command line, and a reboot"
    return CheckResult(about, "on", "note", wanted, mend)


def _option(proc: Root, name: str) -> str:
    """Return the last `name=...` of the kernel's command line, or ""."""
    words = (_text(Path(proc, "cmdline")) or "").split(" ")
    return next((word for word in reversed(words) if word.startswith(f"{name}=")), "")


def _text(path: Path) -> str | None:
    """Return a small file's words, separated by single blanks, or None if it is unreadable."""
    try:
        return printable(" ".join(path.read_text(encoding="utf-8", errors="surrogateescape").split()))
    except OSError:
        return None


def _entries(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
