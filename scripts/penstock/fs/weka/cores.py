"""Which cores WEKA's client holds on this machine, as any account can find out.

For each container the first source that answers counts:

| what is asked                     | who may ask         | what it says                                   |
|-----------------------------------|---------------------|------------------------------------------------|
| `weka local resources -C NAME -J` | root, on most sites | `core_id` of each process but the managing one |
| mount options `core=`, `net=`     | all                 | what the mount asked for                       |
| WEKA's processes                  | all, unless hidepid | the CPUs that their threads may run on         |
| cpusets of WEKA's control groups  | all                 | the CPUs of all containers together            |

All numbers are the kernel's. The last two show where WEKA may run, which can be more than it holds. Not run
on WEKA: the keys of the command's JSON (`nodes`, by number, with `core_id`, `dedicate_core` and `roles`;
`net_devices`) are those of WEKA's operator (weka_runtime.py, resourcedoc.go), the paths of cpusets those of
docs.weka.io.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core import range_lists
from penstock.core.human import printable
from penstock.core.node_answer import HeldCores
from penstock.fs.weka import cli
from penstock.fs.weka.mount import parse_mount
from penstock.fs.weka.processes import cores_of_containers
from penstock.host import command
from penstock.host.machine_settings import SYS, setting
from penstock.host.proc import PROC, Root, mounts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.core.node_answer import FileValue
    from penstock.fs.weka.mount import WekaMount
    from penstock.host.command import Answer

TYPE = "wekafs"
SETTING = "isolate_cpusets"
# Files of isolate_cpusets: by Lenovo's brief on WEKA, and by WEKA's own documentation.
FILES = ("etc/wekaio/weka.conf", "etc/wekaio/service.conf")
# below /sys, under cgroup v1 and v2; `name` begins with `weka`
CPUSETS = (
    "fs/cgroup/cpuset/{name}/cpuset.effective_cpus",
    "fs/cgroup/cpuset/{name}/cpuset.cpus",
    "fs/cgroup/{name}/cpuset.cpus.effective",
)
BUDGET = 6.0  # seconds for all commands: the probe's job has a minute for everything


def weka_mounts(proc: Root = PROC) -> list[WekaMount]:
    """List the WEKA mounts of this machine."""
    return [parse_mount(mount) for mount in mounts(proc) if mount.type == TYPE]


def held(
    proc: Root = PROC, sys: Root = SYS, ask: Callable[[Sequence[str]], Answer] | None = None
) -> list[HeldCores]:
    """Find the held cores by container; [] where WEKA is absent, or nothing is known. `ask` runs a command.
    Never raises."""
    mounted, running = weka_mounts(proc), cores_of_containers(proc)
    if not mounted and not running:
        return _cpusets(sys)
    budget = command.TimeBudget(BUDGET)
    asked = ask or (lambda argv: command.run(argv, budget))
    # The first of a container's mounts made it: the others may leave its cores out.
    by_name = {entry.container: entry for entry in sorted(mounted, key=lambda entry: entry.cores is not None)}
    names = sorted({*by_name, *running} - {""}) or [""]
    holders = []
    for name in names:
        mount = by_name.get(name) or (by_name.get("") if len(names) == 1 else None)
        holder = read_resources(asked(resources(name)).out, name)
        if holder is None and mount is not None and mount.cores is not None:
            holder = HeldCores(name, mount.cores, "mount options")
        if holder is None and (cpus := running.get(name) or (running.get("") if len(running) == 1 else "")):
            holder = HeldCores(name, range_lists.cpus(cpus), "its processes", sure=False)
        if holder is not None:
            holders.append(holder._replace(net=holder.net or (_devices(mount) if mount is not None else ())))
    return holders or _cpusets(sys)


def resources(container: str) -> list[str]:
    """Return the command that prints what a container holds; "": the only one."""
    return [cli.WEKA, "local", "resources", *(["-C", container] if container else []), "-J"]


def read_resources(out: str, container: str = "") -> HeldCores | None:
    """Parse the JSON of `resources`; None for other text, or without a core. A core chosen at the container's
    start has no number, and is left out."""
    try:
        answer = json.loads(out)
        nodes = answer["nodes"]
        processes = list(nodes.values()) if isinstance(nodes, dict) else list(nodes)
        devices = answer.get("net_devices") or []
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    cores = set()
    for process in processes:
        if not isinstance(process, dict) or "MANAGEMENT" in (process.get("roles") or ()):
            continue
        core = process.get("core_id")
        # 65535 and the like stand for "chosen at the start".
        if isinstance(core, int) and not isinstance(core, bool) and 0 <= core < 0xFFFF:
            cores.add(core)
    if not cores:
        return None
    device_names = (
        device.get("name") or device.get("device") for device in devices if isinstance(device, dict)
    )
    net = tuple(printable(name) for name in device_names if isinstance(name, str))
    return HeldCores(container, tuple(sorted(cores)), "weka local resources", net)


def isolation(root: Root = "/") -> list[FileValue]:
    """Read isolate_cpusets in both files."""
    return [setting(Path(root, name), SETTING) for name in FILES]


def is_there(proc: Root = PROC, root: Root = "/") -> bool:
    """Return whether WEKA is on this machine: a mount, an I/O process, or its configuration."""
    return bool(weka_mounts(proc) or cores_of_containers(proc)) or Path(root, "etc/wekaio").is_dir()


def _devices(mount: WekaMount) -> tuple[str, ...]:
    """Return ib0 for `net=ib0/10.0.0.1/24`."""
    return tuple(printable(option.partition("/")[0]) for option in mount.net if option != "udp")


def _cpusets(sys: Root) -> list[HeldCores]:
    for pattern in CPUSETS:
        for path in sorted(Path(sys).glob(pattern.format(name="weka*"))):
            try:
                cpus = range_lists.cpus(path.read_text(encoding="ascii"))
            except (OSError, ValueError):
                continue
            if cpus:
                return [HeldCores("", cpus, f"the cpuset {printable(path.parent.name)}", sure=False)]
    return []
