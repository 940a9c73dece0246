"""Kernel parameters and the kernel's command line against vendors' tables, under a /proc and /sys of the
test's own (N6, L9)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.support.commands import penstock

from penstock.host import machine_settings
from penstock.host.machine_settings import (
    PROFILES,
    drop_in,
    kernel_results,
    sysctl_results,
)

DEFAULTS = {
    "net.core.rmem_default": "212992",
    "net.core.wmem_default": "212992",
    "net.core.rmem_max": "212992",
    "net.core.wmem_max": "212992",
    "net.core.netdev_max_backlog": "1000",
    "net.ipv4.tcp_rmem": "4096\t131072\t6291456",
    "net.ipv4.tcp_wmem": "4096\t16384\t4194304",
    "net.ipv4.tcp_fin_timeout": "60",
    "net.ipv4.tcp_slow_start_after_idle": "1",
    "net.ipv4.tcp_mtu_probing": "0",
}
"""Of Linux 6.1, with tabs between numbers as /proc/sys has them."""


def proc_sys(root: Path, values: dict[str, str]) -> Path:
    for name, value in values.items():
        path = root.joinpath("sys", *name.split("."))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")
    return root


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_n6_each_wrong_value_is_listed_once(name: str, tmp_path: Path) -> None:
    """N6: with what it is and what is wanted."""
    profile = PROFILES[name]
    tabbed = "\t".join(profile.values["net.ipv4.tcp_rmem"].split())
    right = {"net.core.netdev_max_backlog": "300000", "net.ipv4.tcp_rmem": tabbed}
    results = sysctl_results(profile, proc_sys(tmp_path, {**DEFAULTS, **right}))
    assert [one.about for one in results] == list(profile.values), "each once"
    for one in results:
        assert one.wanted == profile.values[one.about]
        assert one.verdict == ("ok" if one.about in right else "warning")
        assert one.found == " ".join({**DEFAULTS, **right}[one.about].split())


def test_n6_the_two_profiles_differ_as_their_sources_do() -> None:
    """N6: XCP's own documents use 16777216 and a fin_timeout of 10."""
    paper, docs = PROFILES["netapp-100g"].values, PROFILES["netapp-xcp-docs"].values
    assert (paper["net.core.rmem_max"], docs["net.core.rmem_max"]) == ("268435456", "16777216")
    assert (paper["net.ipv4.tcp_fin_timeout"], docs["net.ipv4.tcp_fin_timeout"]) == ("7", "10")
    assert paper["net.ipv4.tcp_wmem"] == "4096 1342177 134217728"
    assert docs["net.ipv4.tcp_wmem"] == "4096 1342177 16777216"


def test_n6_the_drop_in_is_ready_and_leaves_out_what_this_kernel_does_not_have(tmp_path: Path) -> None:
    """N6."""
    profile = PROFILES["netapp-100g"]
    values = {name: value for name, value in DEFAULTS.items() if name != "net.ipv4.tcp_mtu_probing"}
    results = sysctl_results(profile, proc_sys(tmp_path, values))
    (missing,) = (one for one in results if one.verdict == "note")
    assert missing.about == "net.ipv4.tcp_mtu_probing"
    lines = drop_in(profile, results).splitlines()
    assert lines[0].startswith("# ")
    assert lines[1:] == [f"{k} = {v}" for k, v in profile.values.items() if k != "net.ipv4.tcp_mtu_probing"]
    tuned = sysctl_results(profile, proc_sys(tmp_path / "tuned", dict(profile.values)))
    assert drop_in(profile, tuned) == ""


def host(root: Path, cmdline: str, files: dict[str, str], folders: tuple[str, ...] = ()) -> tuple[Path, Path]:
    """(proc, sys)"""
    (root / "proc").mkdir(parents=True)
    (root / "proc/cmdline").write_text(cmdline + "\n")
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name in folders:
        (root / name).mkdir(parents=True)
    return root / "proc", root / "sys"


NUMA, SMT = "proc/sys/kernel/numa_balancing", "sys/devices/system/cpu/smt/active"
IOMMUS = ("sys/class/iommu/dmar0", "sys/kernel/iommu_groups/0", "sys/kernel/iommu_groups/1")


@pytest.mark.parametrize(
    ("cmdline", "files", "folders", "verdicts", "words"),
    [
        (
            "BOOT_IMAGE=/vmlinuz ro numa_balancing=disable intel_iommu=off nosmt",
            {NUMA: "0\n", SMT: "0\n"}, (), ["ok", "ok", "ok"],
            ["kernel.numa_balancing is 0", "none is in use", "off"],
        ),
        (
            "BOOT_IMAGE=/vmlinuz ro quiet", {NUMA: "1\n", SMT: "1\n"}, IOMMUS, ["note", "note", "note"],
            ["is 1; the command line does not set it", "1 in use, 2 groups", "on"],
        ),
        ("ro numa_balancing=enable numa_balancing=disable", {NUMA: "0\n"}, (), ["ok", "ok", "note"],
         ["has numa_balancing=disable", "does not set intel_iommu", "not known"]),
        ("ro intel_iommu=off", {SMT: "0\n"}, IOMMUS, ["ok", "note", "ok"],
         ["this kernel has none", "1 in use, 2 groups of devices; the command line has intel_iommu=off",
         "off"]),
    ],
)  # fmt: skip
def test_l9_the_kernel_gives_notes_only(
    tmp_path: Path,
    cmdline: str,
    files: dict[str, str],
    folders: tuple[str, ...],
    verdicts: list[str],
    words: list[str],
) -> None:
    """L9: `numa_balancing=disable`, `intel_iommu=off`, hyper-threading off; nothing of it stops or warns."""
    results = kernel_results(*host(tmp_path, cmdline, files, folders))
    assert [one.about for one in results] == ["NUMA balancing", "IOMMU", "hyper-threading"]
    assert [one.verdict for one in results] == verdicts
    for one, word in zip(results, words, strict=True):
        assert word in one.found
        assert bool(one.mend) == (one.verdict == "note" and not one.found.startswith("not known"))


def test_n6_the_command_prints_a_table_and_a_drop_in_and_needs_no_configuration(tmp_path: Path) -> None:
    """N6: nothing is written, either."""
    done = penstock("preflight", "--sysctl", "netapp-100g", "--kernel-cmdline", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    wrong = [one for one in sysctl_results(PROFILES["netapp-100g"]) if one.verdict != "ok"]
    for one in wrong:
        assert len([line for line in done.stdout.splitlines() if f"  {one.about}  " in line]) == 1
    if any(one.verdict == "warning" for one in wrong):
        assert "/etc/sysctl.d/90-netapp-100g.conf" in done.stdout
        assert "net.core.rmem_max = 268435456" in done.stdout
    assert "NUMA balancing" in done.stdout
    assert os.listdir(tmp_path) == []
    done = penstock("preflight", "--sysctl", "netapp-xcp-docs", "--json", cwd=tmp_path)
    told = json.loads(done.stdout)
    assert told["sysctl"]["profile"] == "netapp-xcp-docs"
    assert {row["about"] for row in told["sysctl"]["results"]} == set(PROFILES["netapp-xcp-docs"].values)
    assert "kernel" not in told


def test_the_command_names_the_profiles(tmp_path: Path) -> None:
    done = penstock("preflight", "--sysctl", "fastest", cwd=tmp_path)
    assert done.returncode == 2
    for name in machine_settings.PROFILES:
        assert name in done.stderr
        assert name in penstock("preflight", "--help", cwd=tmp_path).stdout
    done = penstock("preflight", "--kernel-cmdline", "imagenet", cwd=tmp_path)
    assert done.returncode == 2
    assert "look at this host" in done.stderr


def test_the_page_has_the_tables_of_the_code() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/host-tuning.md").read_text()
    for profile in PROFILES.values():
        assert f"`{profile.name}`" in page
        for name, value in profile.values.items():
            assert f"`{name}`" in page
            assert f"`{value}`" in page
