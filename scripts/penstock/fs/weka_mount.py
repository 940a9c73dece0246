"""WEKA: parses and judges the mount options of wekafs. Finds the cores that WEKA's containers (sets of WEKA
processes) occupy, from the kernel's data on these processes. For `fs.mount_checks`.
"""

from __future__ import annotations

import os
import types
from typing import TYPE_CHECKING, NamedTuple

from penstock.core import range_lists
from penstock.core.human import counted, printable
from penstock.core.run_steps import CheckResult
from penstock.fs.kinds import IN_WORDS, MountProof, number, one_of
from penstock.host.kernel_facts import PROC, mounts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.fs.kinds import Method
    from penstock.host.kernel_facts import Mount


# Which cores WEKA's containers occupy, according to /proc, which any account may read unless `hidepid` is
# set.
#
# The command line of a container's process is `/weka/wekanode --slot N --container-name NAME`. Slot 0 is the
# managing process, which runs anywhere. The other processes do the I/O, with threads pinned to the
# container's cores (weka/tools, install/scripts.d/950_wekanode_cpu_affinity.sh, and commands of WEKA's
# operator). A cpuset of a cgroup, v1 or v2, limits the CPUs that the kernel lets a thread use. This was not
# run on WEKA.

PROGRAM = "wekanode"


def cores_of_containers(proc: str | os.PathLike[str] = PROC) -> dict[str, str]:
    """Return {container's name: CPUs that its I/O processes may use}, with lists in the kernel's form
    (`3-4,19`). A container without a name has "". A thread with the same CPUs as this host's first process is
    not pinned, and is skipped. Returns {} if nothing can be read."""
    anywhere = _allowed(f"{proc}/1/status")
    cpus: dict[str, set[int]] = {}
    for process in _numbers(str(proc)):
        words = _words(f"{proc}/{process}/cmdline")
        if not words or os.path.basename(words[0]) != PROGRAM or _given(words, "--slot") in ("", "0"):
            continue
        for thread in _numbers(f"{proc}/{process}/task"):
            allowed = _allowed(f"{proc}/{process}/task/{thread}/status")
            if allowed and allowed != anywhere:
                cpus.setdefault(_given(words, "--container-name"), set()).update(allowed)
    return {name: range_lists.listed(cores) for name, cores in cpus.items()}


def _numbers(folder: str) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if name.isdecimal()]
    except OSError:
        return []


def _words(path: str) -> list[str]:
    try:
        with open(path, "rb") as stream:
            return os.fsdecode(stream.read(4096)).split("\0")
    except OSError:
        return []


def _given(words: list[str], option: str) -> str:
    """Return the value of `--option VALUE` or `--option=VALUE`, or "" if the option is not given."""
    for word, after in zip(words, [*words[1:], ""], strict=True):
        if word == option:
            return after
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return ""


def _allowed(path: str) -> set[int]:
    """Read Cpus_allowed_list. Returns an empty set if it cannot be read."""
    try:
        with open(path, encoding="ascii", errors="replace") as stream:
            line = next((row for row in stream if row.startswith("Cpus_allowed_list:")), "")
        return set(range_lists.cpus(line.partition(":")[2]))
    except (OSError, ValueError):
        return set()


# The mount options of wekafs, parsed and judged.
#
# The formats come from the fixtures of csi-wekafs (pkg/wekafs/utilities_test.go), the options and modes from
# docs.weka.io 4.4, mounting filesystems.

# Each cache mode (a mount has exactly one), with the method by which a read avoids this node's cache. No
# present manual says what `coherent` caches on a node, so with that mode reads need O_DIRECT.
METHODS: dict[str, Method] = {
    "forcedirect": "any",
    "readcache": "dropped",
    "writecache": "synced",
    "coherent": "direct",
}
_MASKS = ("file_create_mask", "directory_create_mask", "force_file_mode", "force_directory_mode")


class WekaMount(NamedTuple):
    point: str
    filesystem: str  # the file system's name in the cluster
    backends: str = ""  # the part of the mount's device before the file system's name; "" if there is none
    modes: tuple[str, ...] = ()  # the cache modes among the mount's options
    sync_on_close: bool = False
    acl: bool = False
    obs_direct: bool = False
    # the options that change the modes of new files and folders, with their values
    masks: tuple[tuple[str, str], ...] = ()
    # the node's cores that the client occupies (`core=`); None if not given
    cores: tuple[int, ...] | None = None
    # number of cores that the client occupies (`num_cores=`, or counted from `core=`); None if not given
    core_count: int | None = None
    net: tuple[str, ...] = ()
    container: str = ""

    @property
    def mode(self) -> str:
        """The cache mode; "" if the options contain none or several."""
        return self.modes[0] if len(self.modes) == 1 else ""


def parse_mount(mount: Mount) -> WekaMount:
    """Parse a line of the mount table. Options that are not understood are skipped."""
    values = mount.values
    backends, _, filesystem = mount.device.rpartition("/")
    listed = [number(core) for core in values.get("core", ())]
    cores = tuple(core for core in listed if core is not None) if listed and None not in listed else None
    return WekaMount(
        point=mount.point,
        filesystem=filesystem,
        backends=backends,
        modes=tuple(mode for mode in METHODS if mode in values),
        sync_on_close="sync_on_close" in values,
        acl="acl" in values,
        obs_direct="obs_direct" in values,
        masks=tuple((name, one_of(values[name])) for name in _MASKS if name in values),
        cores=cores,
        core_count=len(cores) if cores else number(one_of(values.get("num_cores"))),
        net=values.get("net", ()),
        container=one_of(values.get("container_name")),
    )


def proof(mount: WekaMount) -> MountProof:
    """Return the proof that the mount's cache mode gives for reads.

    | cache mode       | method    | reason                                                   |
    |------------------|-----------|----------------------------------------------------------|
    | forcedirect      | `any`     | neither reads nor writes use the page cache              |
    | readcache        | `dropped` | reads alone use the page cache                           |
    | writecache       | `synced`  | writes wait in the page cache until an fsync             |
    | coherent         | `direct`  | no present manual says what it caches                    |
    | none, or several | `direct`  | the mode is not known                                    |
    """
    return MountProof(METHODS.get(mount.mode, "direct"))


def proof_of(mount: Mount, _: object) -> MountProof:
    """Return the mount's proof, as `mount_checks.MountModule` requires."""
    return proof(parse_mount(mount))


def check(mount: Mount, proc: str | os.PathLike[str], *, source: bool) -> list[CheckResult]:
    """Judge the mount and the node's further WEKA mounts and containers (see `mount_checks.MountModule`)."""
    # A bind mount is the same mount at another path, and has the same device number.
    further = {entry.number: entry for entry in mounts(proc) if entry.type == mount.type}
    further.pop(mount.number, None)
    others = [parse_mount(entry) for entry in further.values()]
    return judge(parse_mount(mount), others, source=source, cores=cores_of_containers(proc))


def judge(
    mount: WekaMount,
    others: Sequence[WekaMount] = (),
    *,
    source: bool = False,
    cores: Mapping[str, str] = types.MappingProxyType({}),
) -> list[CheckResult]:
    """Judge the mount. `others` are the further WEKA mounts of this node. `cores` are the cores that the
    node's WEKA containers may use (`cores_of_containers`).

    | finding                                         | verdict                                           |
    |-------------------------------------------------|---------------------------------------------------|
    | exactly one cache mode, or any other number     | ok, or note                                       |
    | writecache, as a target                         | note: errors come with fsync; syncfs is unproven  |
    | writecache with sync_on_close                   | ok                                                |
    | another mount of the same file system           | warning: the mounts are not coherent              |
    | masks or forced modes, as a target              | note                                              |
    | no acl, as a target                             | note                                              |
    | obs_direct                                      | note                                              |
    | no cores, net=udp                               | note: UDP mode, by the kernel's network           |
    | cores named by the options, or by processes     | ok                                                |
    | cores not known                                 | note with the command for root                    |
    | several containers on this node                 | a note for each, even if it has no mount          |
    """
    about = f"WEKA mount {printable(mount.point)}"
    results = []
    if mount.mode:
        results.append(CheckResult(about, f"{mount.mode}: {IN_WORDS[METHODS[mount.mode]]}"))
    else:
        named = " and ".join(mount.modes) or "no cache mode"
        results.append(
            CheckResult(
                about, f"its options name {named}: {IN_WORDS['direct']}", "note", " or ".join(METHODS)
            )
        )
    twins = [printable(twin.point) for twin in others if twin.filesystem == mount.filesystem]
    if twins:
        results.append(
            CheckResult(
                about,
                f"the same file system is mounted at {', '.join(twins)} too: the two are not coherent on "
                "one node",
                "warning",
                "one mount of it on each node",
                "name one of the mounts everywhere in the configuration",
            )
        )
    if not source:
        results += _judge_target(about, mount)
    if mount.obs_direct:
        results.append(
            CheckResult(about, "obs_direct: what is written goes to the object store at once", "note")
        )
    results += _judge_cores(about, [mount, *others], cores)
    return results


def _judge_target(about: str, mount: WekaMount) -> Iterable[CheckResult]:
    if mount.mode == "writecache" and mount.sync_on_close:
        yield CheckResult(about, "sync_on_close: quota and write errors come with close and fsync")
    elif mount.mode == "writecache":
        yield CheckResult(
            about,
            "writecache: quota and write errors come with fsync alone, and whether syncfs reports them was "
            "never tried on WEKA",
            "note",
            "an error for each file",
            "the mount option `sync_on_close`",
        )
    if mount.masks:
        texts = ", ".join(f"{name}={printable(value)}" for name, value in mount.masks)
        yield CheckResult(about, f"{texts}: new files and folders get other modes than asked for", "note")
    if not mount.acl:
        yield CheckResult(about, "mounted without acl: POSIX ACLs have no effect here", "note")


def _judge_cores(
    about: str, mounts: Sequence[WekaMount], running: Mapping[str, str]
) -> Iterable[CheckResult]:
    named = {entry.container for entry in mounts if entry.container}
    # cores of the only container, if no mount's options contain a container's name; "" in any other case
    alone = next(iter(running.values())) if len(running) == 1 and not named else ""
    beside = {name: cores for name, cores in running.items() if name not in named} if not alone else {}
    several = len({entry.container for entry in mounts}) + len(beside) > 1
    containers = set()
    for mount in mounts:
        if mount.container in containers:
            continue
        containers.add(mount.container)
        name = f"container {printable(mount.container)}" if mount.container else "its container"
        where = f"{about}, {name}" if several else about
        if mount.core_count == 0 and "udp" in mount.net:
            yield CheckResult(
                where,
                "no core of its own and net=udp: it runs by the kernel's network, far slower than with cores",
                "note",
                "1 or 2 cores",
            )
        elif mount.cores is not None:
            cores = ", ".join(map(str, mount.cores))
            net = f", net {', '.join(map(printable, mount.net))}" if mount.net else ""
            yield CheckResult(where, f"{name} keeps core {cores}{net}", "note" if several else "ok")
        elif by_process := running.get(mount.container, alone if not mount.container else ""):
            text = f"{name} keeps core {printable(by_process)} (where its processes may run)"
            yield CheckResult(where, text, "note" if several else "ok")
        elif mount.core_count is not None:
            yield CheckResult(
                where, f"{name} keeps {counted(mount.core_count, 'core')}", "note" if several else "ok"
            )
        else:
            yield CheckResult(
                where,
                f"which cores {name} keeps is not known",
                "note",
                "",
                "as root on a node: `weka local resources -J`",
            )
    for container, cores in sorted(beside.items()):
        name = f"container {printable(container)}" if container else "a container without a name"
        text = f"{name} keeps core {printable(cores)} (where its processes may run); no mount names it"
        yield CheckResult(f"{about}, {name}", text, "note")
