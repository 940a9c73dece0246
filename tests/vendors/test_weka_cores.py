"""Which cores WEKA's client holds on a machine (S28, L4), by all ways that an account has; and
isolate_cpusets in both files (L5)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.fs.test_weka_client import process
from tests.support import machines

from penstock.cluster.registry import constrained_cores
from penstock.core.node_answer import FileValue, HeldCores
from penstock.doctor import preflight_results
from penstock.fs import weka as cores
from penstock.host.command import Answer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

RESOURCES = {
    "ips": ["10.0.0.1"],
    "net_devices": [{"device": "0000:4b:00.0", "name": "ib0", "gateway": "", "netmask": 19}],
    "nodes": {
        "0": {"core_id": 65535, "dedicate_core": False, "roles": ["MANAGEMENT"]},
        "1": {"core_id": 57, "dedicate_core": True, "roles": ["FRONTEND"]},
        "2": {"core_id": 56, "dedicate_core": True, "roles": ["FRONTEND"]},
    },
}


def mounted(proc: Path, *options: str) -> Path:
    """A /proc with these mounts of WEKA."""
    (proc / "self").mkdir(parents=True)
    lines = [
        f"{30 + at} 25 0:{40 + at} / /mnt/weka{at} rw - wekafs backend/fs{at} rw,{text}\n"
        for at, text in enumerate(options)
    ]
    (proc / "self/mountinfo").write_text("25 1 8:1 / / rw - ext4 /dev/sda1 rw\n" + "".join(lines))
    return proc


def silent(argv: Sequence[str]) -> Answer:
    return Answer(tuple(argv), 1, "", "error: this command must be run as root")


def test_s28_the_command_goes_before_what_the_mount_asked_for(tmp_path: Path) -> None:
    """S28, L4: it is asked for each container by name."""
    proc = mounted(tmp_path, "core=3,net=ib9,container_name=client")
    asked: list[Sequence[str]] = []

    def ask(argv: Sequence[str]) -> Answer:
        asked.append(argv)
        return Answer(tuple(argv), 0, json.dumps(RESOURCES))

    assert cores.held_cores(proc, tmp_path, ask) == [
        HeldCores("client", (56, 57), "weka local resources", ("ib0",))
    ]
    assert asked == [["weka", "local", "resources", "-C", "client", "-J"]]


@pytest.mark.parametrize(
    "out",
    ["", "{}", "[]", "3", '{"nodes": 3}', '{"nodes": {"0": {"core_id": 1, "roles": ["MANAGEMENT"]}}}',
     '{"nodes": {"1": {"core_id": 65535, "roles": ["FRONTEND"]}}}', '{"nodes": {"1": {"core_id": true}}}'],
)  # fmt: skip
def test_s28_what_the_command_does_not_say(out: str) -> None:
    """S28: a managing process, and a core that is chosen later, are no cores that are held."""
    assert cores.read_resources(out) is None
    assert cores.read_resources('{"nodes": [{"core_id": 4}], "net_devices": [3]}') == HeldCores(
        "", (4,), "weka local resources"
    )


def test_s28_without_rights_the_options_and_the_processes_say_it(tmp_path: Path) -> None:
    """S28: mount options `core=` and `net=`, else where a container's processes may run; each by its name."""
    options = (
        "core=17,core=35,net=ib0/10.0.0.9/24,container_name=first",
        "container_name=first",
        "num_cores=2,net=udp,container_name=second",
        "num_cores=1,container_name=third",
    )
    proc = mounted(tmp_path / "proc", *options)
    process(proc, 1, "/sbin/init", "0-35")
    process(proc, 50, "/weka/wekanode --slot 1 --container-name second", "0-35", "16", "34")
    assert cores.held_cores(proc, tmp_path, silent) == [
        HeldCores("first", (17, 35), "mount options", ("ib0",)),
        HeldCores("second", (16, 34), "its processes", sure=False),
    ]


def test_s28_one_container_without_a_name_is_that_of_the_mount(tmp_path: Path) -> None:
    """S28."""
    proc = mounted(tmp_path / "proc", "net=ib0")
    process(proc, 1, "/sbin/init", "0-35")
    process(proc, 50, "/weka/wekanode --slot 1 --container-name default", "0-35", "4")
    assert cores.held_cores(proc, tmp_path, silent) == [
        HeldCores("default", (4,), "its processes", ("ib0",), sure=False)
    ]


@pytest.mark.parametrize(
    "name",
    [
        "fs/cgroup/cpuset/weka-client/cpuset.effective_cpus",
        "fs/cgroup/cpuset/weka-client/cpuset.cpus",
        "fs/cgroup/weka.slice/cpuset.cpus.effective",
    ],
)
def test_s28_cpusets_of_both_versions_say_it_where_nothing_else_does(tmp_path: Path, name: str) -> None:
    """S28: where /proc hides the processes of others."""
    path = tmp_path / "sys" / name
    path.parent.mkdir(parents=True)
    path.write_text("24-27\n")
    folder = path.parent.name
    wanted = [HeldCores("", (24, 25, 26, 27), f"the cpuset {folder}", sure=False)]
    assert cores.held_cores(mounted(tmp_path / "proc", "net=ib0"), tmp_path / "sys", silent) == wanted
    path.write_text("\n")
    assert cores.held_cores(tmp_path / "proc", tmp_path / "sys", silent) == []


@pytest.mark.parametrize(
    ("weka", "service", "values"),
    [
        (None, "[agent]\nisolate_cpusets = false\n", [None, "false"]),
        ("isolate_cpusets=true # was false\n", "#isolate_cpusets=false\n", ["true", None]),
        ("Isolate_CPUsets='false'\nisolate_cpusets=true\n", None, ["true", None]),
    ],
)
def test_l5_isolate_cpusets_is_read_in_both_files(
    tmp_path: Path, weka: str | None, service: str | None, values: list[str | None]
) -> None:
    """L5: Lenovo's brief names the one, WEKA's documentation the other."""
    (tmp_path / "etc/wekaio").mkdir(parents=True)
    for name, text in (("weka.conf", weka), ("service.conf", service)):
        if text is not None:
            (tmp_path / "etc/wekaio" / name).write_text(text)
    found = cores.isolation(tmp_path)
    assert [one.path for one in found] == [
        f"{tmp_path}/etc/wekaio/weka.conf",
        f"{tmp_path}/etc/wekaio/service.conf",
    ]
    assert [(one.value, one.error) for one in found] == [(value, "") for value in values]


def test_what_a_node_says_of_its_cores(tmp_path: Path) -> None:
    """L3, L4, L5: all of it, from one machine; without WEKA its shape and SLURM's file alone."""
    sys = machines.sys_tree(tmp_path / "sys", machines.quarters())
    (tmp_path / "etc/slurm").mkdir(parents=True)
    (tmp_path / "etc/slurm/cgroup.conf").write_text("ConstrainCores = yes\n")
    proc = mounted(tmp_path / "proc")
    plain = preflight_results.of_this_node(proc, sys, tmp_path)
    assert (len(plain.machine.cores), plain.weka, plain.held, plain.isolate_cpusets) == (56, False, (), ())
    (tmp_path / "etc/wekaio").mkdir()
    proc = mounted(tmp_path / "other", "core=26,core=27,net=ib0", "num_cores=0,net=udp,container_name=b")
    full = preflight_results.of_this_node(proc, sys, tmp_path)
    assert (full.weka, full.udp, len(full.isolate_cpusets)) == (True, True, 2)
    assert full.machine == plain.machine


def test_a_machine_that_sys_says_nothing_of_is_asked_of_lscpu(tmp_path: Path) -> None:
    """L3: `lscpu -J`, where /sys lacks it."""
    assert preflight_results.of_this_node(mounted(tmp_path / "proc"), tmp_path, tmp_path).machine.cores


def test_constrain_cores_of_a_nodes_own_file(tmp_path: Path) -> None:
    """L1: beside the slurm.conf that SLURM_CONF names, else where it usually lies."""
    assert constrained_cores({}, tmp_path) is None
    path = tmp_path / "run/slurm/conf/cgroup.conf"
    path.parent.mkdir(parents=True)
    path.write_text("# ConstrainCores=no\nconstraincores=Yes\n")
    assert constrained_cores({}, tmp_path) == FileValue(str(path), "Yes")
    mine = tmp_path / "mine/cgroup.conf"
    mine.parent.mkdir()
    mine.write_text("CgroupPlugin=disabled\n")
    given = {"SLURM_CONF": str(tmp_path / "mine/slurm.conf")}
    assert constrained_cores(given, tmp_path) == FileValue(str(mine), None)
