"""Compares kernel parameters and the kernel's command line with vendors' recommendations for moving data. For
preflight; nothing is changed.

Each table names its source; docs/host-tuning.md has the sources' further advice. The two tables of kernel
parameters contradict each other in part: a person chooses one.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.checks import CheckResult
from penstock.core.text import printable
from penstock.host.proc import PROC, Root

if TYPE_CHECKING:
    from collections.abc import Mapping

SYS = "/sys"


class SysctlProfile(NamedTuple):
    """A vendor's table of kernel parameters."""

    name: str
    source: str  # of the table, for people
    values: Mapping[str, str]  # by the names of sysctl(8); several numbers are separated by one blank


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
    | no such name             | note: "not known", by this kernel or network namespace |
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
    """Return the profile for /etc/sysctl.d, without names that this kernel lacks; "": all is as wanted."""
    if all(result.verdict == "ok" for result in results):
        return ""
    here = [result for result in results if result.verdict != "note"]
    return "".join(
        f"{text}\n"
        for text in (f"# {profile.source}", *(f"{result.about} = {result.wanted}" for result in here))
    )


def kernel_results(proc: Root = PROC, sys: Root = SYS) -> list[CheckResult]:
    """Check what WEKA and Lenovo recommend for hosts with WEKA's client, beside sysctl. The results are notes
    only: other clients and uses want other settings."""
    return [_numa_balancing(proc), _iommu(proc, sys), _threads(sys)]


def _numa_balancing(proc: Root) -> CheckResult:
    """
    | kernel.numa_balancing now | result |
    |---------------------------|--------|
    | 0                         | ok     |
    | there is none             | ok     |
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
    | any                      | none           | ok                                |
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
    """Return a small file's words, separated by one blank; None: unreadable."""
    try:
        return printable(" ".join(path.read_text(encoding="utf-8", errors="surrogateescape").split()))
    except OSError:
        return None


def _entries(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
