"""Queries WEKA's only command, `weka`, about the cluster, files whose data is only in the object store, and
the cores of WEKA's client here. Also has command lines, and parsers of the output.

This module is written from WEKA's documentation (4.4), WEKA's own CSI driver (`weka/csi-wekafs`, `apiclient`)
and outputs of sites. Nothing here was run on a live WEKA. No setting is changed, since only the
organization's administrator may set quotas.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.core import range_lists
from penstock.core.human import printable
from penstock.core.node_answer import HeldCores
from penstock.core.run_steps import ADMINISTRATOR, CheckResult
from penstock.fs.quotas import Quota
from penstock.fs.stores import DEADLINE, DataState, FillRules, Said, StatusQueries, StoreStatus
from penstock.fs.weka_mount import cores_of_containers, parse_mount
from penstock.host import command
from penstock.host.kernel_facts import (
    PROC,
    Root,
    mount_of,
    mounts,
)
from penstock.host.machine_settings import SYS, setting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from penstock.core.node_answer import FileValue
    from penstock.fs.stores import Ask
    from penstock.fs.weka_mount import WekaMount
    from penstock.host.command import Answer
    from penstock.host.kernel_facts import Mount


# Command lines of `weka`, and parsers of its output.
#
# `-J` and `--format json -R` print JSON, with sizes in bytes. None and "" are unknown. Keys are those of the
# REST API (`weka/csi-wekafs`, `apiclient/filesystem.go`: `available_total`, `used_total`, `total_budget`).
# For quotas, older releases print `hardLimitBytes` instead of `hard_limit_bytes`, so keys are compared
# without underscores and case. A figure may be a number or a string of digits.

PRODUCT = "WEKA"
WEKA = "weka"
# limits of this value or more mean no limit; for no limit, the CSI driver sets 2^64 - 4096
UNLIMITED = 1 << 62


def show_status() -> list[str]:
    return [WEKA, "status", "-J"]


def list_file_systems() -> list[str]:
    return [WEKA, "fs", "--format", "json", "-R"]


def list_quotas(file_system: str) -> list[str]:
    """List all quotas of a file system. Without `--all`, only exceeded quotas are listed."""
    return [WEKA, "fs", "quota", "list", file_system, "--all", "-f", "json"]


class ActiveCount(NamedTuple):
    """How many things of a kind (drives or servers) are active."""

    noun: str
    active: int
    total: int


class WekaCluster(NamedTuple):
    """What `weka status` reports. None and "" are unknown."""

    name: str = ""
    io_status: str = ""
    active_counts: tuple[ActiveCount, ...] = ()
    unavailable_percent: float | None = None
    rebuilding: bool = False  # whether some data has lost a part of its redundancy
    fill: str = ""  # fill level of the drives, in WEKA's words, such as `Normal`
    licence: str = ""  # the mode of the licence: `Classic`, `PAYG`, `Unlicensed`
    may_start: bool | None = None  # whether the licence allows I/O to be started


class FileSystem(NamedTuple):
    """A line of `weka fs`."""

    name: str
    ready: bool = True
    available: int | None = None
    max_files: int | None = None


def read_status(out: str) -> WekaCluster | None:
    """Parse the output of `weka status`. Returns None if it is not a JSON object with a status."""
    try:
        status = json.loads(out)
    except ValueError:
        return None
    if not isinstance(status, dict) or "io_status" not in status:
        return None
    rebuild, licence = _object(status, "rebuild"), _object(status, "licensing")
    states = rebuild.get("protectionState")
    failures = (
        [failure for failure in states if isinstance(failure, dict)] if isinstance(states, list) else []
    )
    kinds = (
        ("drives", _object(status, "drives")),
        ("I/O processes", _object(status, "io_nodes")),
        ("servers", _object(_object(status, "servers"), "backends")),
    )
    percent, eligible = rebuild.get("unavailablePercent"), licence.get("io_start_eligibility")
    return WekaCluster(
        name=str(status.get("name", "")),
        io_status=str(status["io_status"]),
        active_counts=tuple(
            ActiveCount(noun, active, total)
            for noun, counts in kinds
            if (active := _count(counts, "active")) is not None
            and (total := _count(counts, "total")) is not None
        ),
        unavailable_percent=float(percent) if isinstance(percent, int | float) else None,
        rebuilding=any(_count(failure, "numfailures") and _count(failure, "mib") for failure in failures),
        fill=str(_object(status, "buckets_info").get("reportedRaidFillLevelSeverity", "")),
        licence=str(licence.get("mode", "")),
        may_start=eligible if isinstance(eligible, bool) else None,
    )


def read_file_systems(out: str) -> list[FileSystem]:
    """Parse the output of `weka fs`, which lists the file systems that this account may see."""
    return [
        FileSystem(
            name=str(row["name"]),
            ready=str(row.get("status", "READY")).upper() == "READY",
            available=_count(row, "availabletotal"),
            max_files=_count(row, "maxfiles"),
        )
        for row in rows(out)
        if "name" in row
    ]


def read_quotas(out: str, file_system: str, folder: str) -> list[Quota]:
    """Parse the quotas of `folder` (a path in the file system) and of all folders above it. Quotas of other
    folders are skipped. The output does not show when a soft limit was passed."""
    quotas = []
    for row in rows(out):
        name, _, path = str(row.get("path", "")).rpartition(":")
        path = "/" + path.strip("/")
        inside = folder == path or folder.startswith(path.rstrip("/") + "/")
        if not row.get("path") or name not in ("", file_system) or not inside:
            continue
        quotas.append(
            Quota(
                "folder",
                0,
                path=path,
                used=_count(row, "totalbytes", "usedbytes"),
                limit=_limit(row, "hardlimitbytes"),
                soft_limit=_limit(row, "softlimitbytes"),
            )
        )
    return quotas


def has_rows(out: str) -> bool:
    """Return whether `out` is a list, even an empty list."""
    try:
        return isinstance(json.loads(out), list)
    except ValueError:
        return False


def rows(out: str) -> list[dict[str, Any]]:
    """Parse the objects of a list. Their keys are changed to lower case, without underscores."""
    try:
        value = json.loads(out)
    except ValueError:
        return []
    listed = value if isinstance(value, list) else []
    return [
        {str(key).lower().replace("_", ""): field for key, field in row.items()}
        for row in listed
        if isinstance(row, dict)
    ]


def _object(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    field = value.get(key)
    return field if isinstance(field, dict) else {}


def _count(row: Mapping[str, Any], *names: str) -> int | None:
    by_name = {str(key).lower().replace("_", ""): field for key, field in row.items()}
    for name in names:
        value = by_name.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return int(value)
        if isinstance(value, str) and re.fullmatch(r"\d+(?: ?B)?", value):
            return int(value.removesuffix("B"))
    return None


def _limit(row: Mapping[str, Any], name: str) -> int | None:
    most = _count(row, name)
    return most if most and most < UNLIMITED else None


# Whether a WEKA cluster and one of its file systems are in order.
#
# | subject                  | finding                                       | verdict |
# |--------------------------|-----------------------------------------------|---------|
# | I/O                      | not `STARTED`                                 | stop    |
# | data                     | a part of it is not available                 | stop    |
# |                          | a part of its redundancy is lost              | warning |
# | drives, servers          | not all are active                            | warning |
# | fill level of the drives | not `Normal`                                  | warning |
# | licence                  | does not allow I/O to be started              | warning |
# |                          | `Unlicensed`                                  | note    |
# | the file system          | not ready                                     | stop    |
# | everything               | none of these findings                        | ok      |
#
# An expired licence is only a warning, since I/O continues until the cluster has to start it again.


def judge_cluster(cluster: WekaCluster | None, file_system: FileSystem | None) -> list[CheckResult]:
    """Return a result for each problem. If none of them is graver than a note, also return a result on the
    active parts. Returns [] if cluster and file system are unknown."""
    results = [*_file_system(file_system)]
    if cluster is not None:
        troubles = list(_cluster(cluster))
        results += troubles
        if all(result.verdict == "note" for result in results):
            active = ", ".join(
                f"{count.active:,} of {count.total:,} {count.noun}" for count in cluster.active_counts
            )
            results.append(
                CheckResult(
                    _about(cluster), f"I/O is started; {active} active" if active else "I/O is started"
                )
            )
    return results


def _about(cluster: WekaCluster) -> str:
    return printable(f"{PRODUCT} cluster {cluster.name}".strip())


def _file_system(file_system: FileSystem | None) -> Iterator[CheckResult]:
    if file_system is not None and not file_system.ready:
        about = f"{PRODUCT} file system {printable(file_system.name)}"
        yield CheckResult(about, "not ready", "stop", "READY", f"have it brought up: {ADMINISTRATOR}")


def _cluster(cluster: WekaCluster) -> Iterator[CheckResult]:
    about = _about(cluster)
    if cluster.io_status != "STARTED":
        mend = f"have I/O started: {ADMINISTRATOR}"
        yield CheckResult(
            about, f"I/O is not started: {printable(cluster.io_status)}", "stop", "STARTED", mend
        )
    if cluster.unavailable_percent:
        text = f"{cluster.unavailable_percent:g} % of the data are not available"
        yield CheckResult(about, text, "stop", "all of it", f"have it brought back: {ADMINISTRATOR}")
    elif cluster.rebuilding:
        text = "a part of the data has lost some of its redundancy, and is rebuilt"
        yield CheckResult(about, text, "warning", "", "nothing; a further fault could make data unavailable")
    for count in cluster.active_counts:
        if count.active < count.total:
            text = f"{count.active:,} of {count.total:,} {count.noun} active"
            yield CheckResult(about, text, "warning", "all", f"have the others brought back: {ADMINISTRATOR}")
    if cluster.fill not in ("", "Normal"):
        text = f"the fill level of its drives is {printable(cluster.fill)}"
        yield CheckResult(about, text, "warning", "Normal", f"have room made: {ADMINISTRATOR}")
    if cluster.may_start is False:
        mode = printable(cluster.licence) or "mode not known"
        text = f"its licence ({mode}) does not allow that I/O is started"
        yield CheckResult(f"{about}, licence", text, "warning", "", f"have it renewed: {ADMINISTRATOR}")
    elif cluster.licence == "Unlicensed":
        yield CheckResult(f"{about}, licence", "Unlicensed", "note")


PROGRAMS = (WEKA,)
RULES = FillRules((0,), (0,), 0.0, 1, objects="objects", quota_counts="files")


class Tools(NamedTuple):
    """Queries with `weka` for the file system of a mount."""

    mount: Mount
    # the file system's name, which follows the server's name in the mount's device (`10.0.0.1/default`)
    file_system: str
    product: str = PRODUCT

    @staticmethod
    def pattern(folder: str, budget: command.TimeBudget | None = None) -> None:
        """Return None, since the cluster itself spreads files over its drives."""
        del folder, budget

    def status(self, folder: str, uid: int, gid: int) -> StoreStatus:
        """Query the cluster, the file system, and the quotas of `folder` and of the folders above it. WEKA's
        quotas belong to folders. An unanswered query becomes a `Silence`. Never raises."""
        del uid, gid
        asking = StatusQueries()
        cluster = read_status(_json(asking, "cluster", show_status(), read_status))
        listed = read_file_systems(_json(asking, "file systems", list_file_systems(), has_rows))
        mine = next((entry for entry in listed if entry.name == self.file_system), None)
        out = _json(asking, "quotas", list_quotas(self.file_system), has_rows)
        # In a bind mount, a path below the mount point differs from the path in the file system, which quotas
        # show.
        inside = self.mount.inside(os.path.realpath(folder))
        quotas = [] if inside is None else read_quotas(out, self.file_system, inside)
        return StoreStatus(
            self.product,
            quotas=tuple(quotas),
            silences=tuple(asking.silences),
            rules=RULES,
            results=tuple(judge_cluster(cluster, mine)),
            max_files=mine.max_files if mine else None,
        )


def find_tools(proc: str | os.PathLike[str] = PROC, point: str = "") -> Tools | None:
    """Return the queries with `weka`, or None if it is not on PATH."""
    if not command.present(WEKA):
        return None
    mount = mount_of(point or "/", proc)
    return Tools(mount, mount.device.rpartition("/")[2])


def _json(asking: StatusQueries, about: str, argv: Sequence[str], useful: Callable[[str], object]) -> str:
    """Return the command's output, or "" if `useful` does not accept it."""
    answer = asking.ask(about, argv)
    if not answer.ok:
        return ""
    if useful(answer.out):
        return answer.out
    asking.silent(about, argv, "its output is not the JSON that was asked for")
    return ""


# How many bytes of a file are on the SSDs, and how many only in the object store (`weka fs tier location`).
#
# A read of a tiered file fetches it to the SSDs. The command's table has the columns `PATH`, `FILE TYPE`,
# `FILE SIZE`, `CAPACITY IN SSD (WRITE-CACHE)`, `CAPACITY IN SSD (READ-CACHE)`, `CAPACITY IN OBJECT STORAGE`
# and `CAPACITY IN REMOTE STORAGE`. The reference of the command line names them `path`, `file_type`,
# `file_size`, `ssd_write_cache_bytes`, `ssd_read_cache_bytes`, `object_storage_bytes` and
# `remote_storage_bytes`. The keys in JSON are not documented, so both kinds of names are accepted.


def ask_location(paths: Sequence[str]) -> Said:
    """Query the states of files. The parameter and the result are those of `stores.Ask`."""
    answer = command.run(location_argv(paths), deadline=DEADLINE)
    return Said.by(answer, read_location(answer.out, paths))


def location_argv(paths: Sequence[str]) -> list[str]:
    """Return the command that prints JSON with sizes in bytes."""
    return [WEKA, "fs", "tier", "location", "--json", "--raw-units", *paths]


def find_states(point: str, proc: str | os.PathLike[str]) -> Ask | None:  # noqa: ARG001 (it finds the mount itself)
    """Return the function that queries the command, or None if the command is missing."""
    return ask_location if command.present(WEKA) else None


def read_location(out: str, paths: Sequence[str]) -> dict[str, DataState]:
    """Parse the states of files, by path. Rows that are no JSON objects, or state no size, are skipped."""
    try:
        rows = json.loads(out)
    except ValueError:
        return {}
    asked, states = frozenset(paths), {}
    for row in rows if isinstance(rows, list) else [rows]:
        if not isinstance(row, dict):
            continue
        cells = {re.sub(r"[^a-z]", "", str(name).lower()): value for name, value in row.items()}
        sizes = [_bytes(cells, *names) for names in _SIZES]
        path = str(cells.get("path", ""))
        if path in asked and None not in sizes:
            states[path] = state_of(*(size or 0 for size in sizes))
    return states


_SIZES = (
    ("filesize",),
    ("ssdwritecachebytes", "capacityinssdwritecache"),
    ("ssdreadcachebytes", "capacityinssdreadcache"),
    ("objectstoragebytes", "capacityinobjectstorage"),
)


def _bytes(cells: dict[str, Any], *names: str) -> int | None:
    value = next((cells[name] for name in names if name in cells), None)
    number = re.fullmatch(r"(\d+)(?: ?B)?", str(value).strip())
    return int(number[1]) if number else None


def state_of(size: int, written: int, cached: int, stored: int) -> DataState:
    """Return the state of a file, from its size and its bytes in the SSDs' two caches (`written`, `cached`)
    and in the object store (`stored`).

    | bytes in the two caches       | bytes in the object store | state                               |
    |-------------------------------|---------------------------|-------------------------------------|
    | the file's size, or more      | any                       | local                               |
    | fewer                         | none                      | local, since holes take no room     |
    | fewer                         | some                      | tiered; a read fetches the rest     |
    """
    if written + cached >= size or not stored:
        return DataState("local")
    return DataState(
        "tiered", "in the object store" if not written + cached else "partly in the object store"
    )


# Which cores WEKA's client uses on this machine, as any account can find out.
#
# For each container (a set of WEKA processes), the first source that gives an answer counts:
#
# | source                            | accounts that may read it | answer                                   |
# |-----------------------------------|---------------------------|------------------------------------------|
# | `weka local resources -C NAME -J` | root, on most sites       | `core_id` of each process that does I/O  |
# | mount options `core=`, `net=`     | all                       | cores and devices that the mount claims  |
# | WEKA's processes                  | all, unless hidepid       | CPUs on which their threads may run      |
# | cpusets of WEKA's control groups  | all                       | CPUs of all containers together          |
#
# All CPU numbers are the kernel's. The last two sources show where WEKA may run, which can be more cores than
# it uses. None of this was run on WEKA. The keys of the command's JSON (`nodes`, by number, with `core_id`,
# `dedicate_core` and `roles`; `net_devices`) come from WEKA's operator (weka_runtime.py, resourcedoc.go). The
# paths of cpusets come from docs.weka.io.

TYPE = "wekafs"
SETTING = "isolate_cpusets"
# files that contain isolate_cpusets, one according to Lenovo's brief on WEKA, one to WEKA's documentation
FILES = ("etc/wekaio/weka.conf", "etc/wekaio/service.conf")
# patterns of the cpusets' paths below /sys, for cgroup v1 and v2
CPUSETS = (
    "fs/cgroup/cpuset/{name}/cpuset.effective_cpus",
    "fs/cgroup/cpuset/{name}/cpuset.cpus",
    "fs/cgroup/{name}/cpuset.cpus.effective",
)
# seconds for all commands together; the probe's job, which runs them, has a minute for everything
BUDGET = 6.0


def weka_mounts(proc: Root = PROC) -> list[WekaMount]:
    """List the WEKA mounts of this machine."""
    return [parse_mount(mount) for mount in mounts(proc) if mount.type == TYPE]


def held_cores(
    proc: Root = PROC, sys: Root = SYS, ask: Callable[[Sequence[str]], Answer] | None = None
) -> list[HeldCores]:
    """Find the cores that each container uses or may use. Returns [] if WEKA is absent, or nothing is known.
    `ask` runs a command. Never raises."""
    mounted, running = weka_mounts(proc), cores_of_containers(proc)
    if not mounted and not running:
        return _cpusets(sys)
    budget = command.TimeBudget(BUDGET)
    asked = ask or (lambda argv: command.run(argv, budget))
    # A container is made by its first mount; the options of further mounts may omit its cores.
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
    """Return the command that prints a container's resources. `container` may be "" if there is only one."""
    return [WEKA, "local", "resources", *(["-C", container] if container else []), "-J"]


def read_resources(out: str, container: str = "") -> HeldCores | None:
    """Parse the JSON of `resources`. Returns None for other text, or if there is no core. Cores that are
    chosen only when the container starts have no number, and are omitted."""
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
        # 65535 and similar numbers mean that the core is chosen when the container starts.
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
    """Return whether this machine has a WEKA mount, an I/O process of WEKA, or its configuration."""
    return bool(weka_mounts(proc) or cores_of_containers(proc)) or Path(root, "etc/wekaio").is_dir()


def _devices(mount: WekaMount) -> tuple[str, ...]:
    """Return the devices of the option `net`, such as ib0 for `net=ib0/10.0.0.1/24`."""
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
