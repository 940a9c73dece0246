"""Reads the configuration, servers and targets that BeeGFS' client shows to any account, in
/proc/fs/beegfs/<client>/ and in the mount table. For `fs.mount_checks`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import socket
import time
from typing import TYPE_CHECKING, NamedTuple, cast

from penstock.core.human import printable
from penstock.core.run_steps import CheckResult
from penstock.fs.kinds import IN_WORDS, MountProof, flag, number, one_of, weakest
from penstock.fs.stores import Role, Server, StoreStatus, Target
from penstock.host.kernel_facts import PROC

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.fs.stores import Consistency, Reachability
    from penstock.host.kernel_facts import Mount


# Servers and targets as the client shows them, in /proc/fs/beegfs/<client>/.
#
# Formats of 7.4.7, and of 8.3.1 if it differs:
#
#     storage_target_state, meta_target_state   [Target ID: 101] @ beegfs-storage stor1 [ID: 1]: Online / Good
#       8.3.1                                   [Target ID: 101] @ stor1 [beegfs-storage:1]: Online / Good
#     storage_nodes, meta_nodes, mgmt_nodes     stor1 [ID: 1]
#                                                  Connections: TCP: 2 (10.9.9.1:8003);
#     client_info                               + bee0[ip addr: 10.9.9.1; type: TCP]
#
# The client gets states from the management service every 30 s (`sysUpdateTargetStatesSecs`). The service
# waits minutes before it reports a server as offline, and a dead connection is listed until a call needs it.
# So a server that ended just now still seems to run. To detect this, `connect` opens a TCP connection to each
# listed address, and closes it. A server that shows `<none>` as its connections may still run, since a client
# connects only when a call needs the server.

SYS = "/sys"
CLIENTS = "fs/beegfs"  # path below /proc, with a folder for each client
PRODUCT = "BeeGFS"
ANSWER = 3.0  # seconds within which all servers must accept a connection, as all are tried at once
_TARGETS: dict[str, Role] = {"meta_target_state": "metadata", "storage_target_state": "storage"}
_NODES: dict[str, Role] = {
    "mgmt_nodes": "management",
    "meta_nodes": "metadata",
    "storage_nodes": "storage",
}
_TARGET = re.compile(
    r"\[Target ID: (?P<id>\d+)\](?: @ (?:beegfs-\S+ )?(?P<node>.+?) \[(?:ID: |beegfs-\w+:)\d+\])?: "
    r"(?P<reach>[\w-]+) / (?P<state>[\w-]+)\s*"
)
_NODE = re.compile(r"(?P<name>\S.*?) \[ID: (?P<id>[^\]]+)\]\s*")
_CONNECTION = re.compile(r"(?P<protocol>[A-Z]+): \d+ \((?P<host>[^()\s]+):(?P<port>\d+)[^()]*\)")
_REACHABILITY = ("online", "probably-offline", "offline")
_CONSISTENCY = ("good", "needs-resync", "bad")


class Connection(NamedTuple):
    """The open connections of the client to one address of a server."""

    protocol: str  # TCP or RDMA
    host: str
    port: int


class Node(NamedTuple):
    """A server process, as the client shows it."""

    role: Role
    name: str
    id: str
    connections: tuple[Connection, ...] = ()


class ClientView(NamedTuple):
    """Targets and servers that a client shows."""

    targets: tuple[Target, ...] = ()
    nodes: tuple[Node, ...] = ()
    rdma: bool | None = None  # whether the client's connections use RDMA; None if not known


def view(client: str, proc: str | os.PathLike[str] = PROC) -> ClientView:
    """Read the targets and servers that the client with this id shows. Unreadable parts are omitted."""
    folder = f"{proc}/{CLIENTS}/{client}"
    targets = [row for name, role in _TARGETS.items() for row in read_targets(role, _text(folder, name))]
    nodes = [node for name, role in _NODES.items() for node in read_nodes(role, _text(folder, name))]
    return ClientView(tuple(targets), tuple(nodes), uses_rdma(nodes, _text(folder, "client_info")))


def read_targets(role: Role, text: str) -> list[Target]:
    """Parse the targets in `storage_target_state` or `meta_target_state`. Lines in other forms are
    skipped."""
    targets = []
    for line in text.splitlines():
        row = _TARGET.fullmatch(line.strip())
        if row is not None:
            targets.append(
                Target(
                    role,
                    row["id"],
                    node=row["node"] or "",
                    reachability=cast("Reachability", _known(row["reach"], _REACHABILITY)),
                    consistency=cast("Consistency", _known(row["state"], _CONSISTENCY)),
                    sized=False,
                )
            )
    return targets


def read_nodes(role: Role, text: str) -> list[Node]:
    """Parse the servers in `storage_nodes`, `meta_nodes` or `mgmt_nodes`, each with its connections."""
    nodes: list[Node] = []
    for line in text.splitlines():
        head = _NODE.fullmatch(line)
        if head is not None:
            nodes.append(Node(role, head["name"], head["id"]))
        elif nodes and line.strip().startswith("Connections:"):
            listed = [
                Connection(match["protocol"], match["host"].strip("[]"), int(match["port"]))
                for match in _CONNECTION.finditer(line)
            ]
            nodes[-1] = nodes[-1]._replace(connections=tuple(listed))
    return nodes


def uses_rdma(nodes: Iterable[Node], client_info: str) -> bool | None:
    """Return whether the client's connections use RDMA. `connUseRDMA` does not show this, since it is on by
    default, even if client or network have no RDMA.

    | connections         | interfaces in `client_info` | RDMA      |
    |---------------------|-----------------------------|-----------|
    | at least one RDMA   | yes or no                   | yes       |
    | some, none is RDMA  | yes or no                   | no        |
    | none                | at least one RDMA           | yes       |
    | none                | some, none is RDMA          | no        |
    | none                | none                        | not known |
    """
    protocols = {connection.protocol for node in nodes for connection in node.connections}
    if not protocols:
        protocols = set(re.findall(r"type: (\w+)\]", client_info))
    return "RDMA" in protocols if protocols else None


def status(views: Sequence[ClientView]) -> StoreStatus:
    """Return the status of the file system that these clients share. Waits up to `ANSWER` seconds.

    | server's TCP connections    | new connection   | server's targets                   | reached   |
    |-----------------------------|------------------|------------------------------------|-----------|
    | some                        | succeeds         | any                                | yes       |
    | some                        | fails            | any                                | no        |
    | none                        | not tried        | all `offline`, `probably-offline`  | no        |
    | none                        | not tried        | none, or in other states           | not known |

    If all targets are `probably-offline`, the client gets no news from the management service. In that case
    the service is away, and the targets' states are unknown. A client of version 8 works for some more
    minutes. With version 7, each call on the mount waits (measured on 7.4.7); `shown_servers` reports that.
    """
    targets = {(target.role, target.id): target for shown in views for target in shown.targets}
    nodes: dict[tuple[Role, str], Node] = {}
    for node in (node for shown in views for node in shown.nodes):
        earlier = nodes.get((node.role, node.id), node)
        nodes[node.role, node.id] = node._replace(connections=earlier.connections or node.connections)
    without_news = bool(targets) and {target.reachability for target in targets.values()} == {
        "probably-offline"
    }
    if without_news:
        targets = {key: target._replace(reachability="unknown") for key, target in targets.items()}
    tried = {node: [at for at in node.connections if at.protocol == "TCP"] for node in nodes.values()}
    answers = connect({(at.host, at.port) for listed in tried.values() for at in listed})
    servers = []
    for node, listed in tried.items():
        reached = any(answers[at.host, at.port] for at in listed) if listed else None
        its = [
            target.reachability
            for target in targets.values()
            if (target.role, target.node) == (node.role, node.name)
        ]
        if not listed and its and all("offline" in state for state in its):
            reached = False
        if without_news and node.role == "management":
            reached = False
        route = ", ".join(f"{at.host}:{at.port} ({at.protocol})" for at in node.connections)
        servers.append(Server(node.role, node.name, node.id, reached, route))
    return StoreStatus(PRODUCT, tuple(targets.values()), tuple(servers))


def client_version(sys: str = SYS) -> str:
    """Return the version of the kernel's client, such as `7.4.2` (its MODULE_VERSION), or "" if unknown."""
    try:
        with open(f"{sys}/module/beegfs/version", encoding="utf-8", errors="replace") as stream:
            return stream.read().strip()
    except OSError:
        return ""


def connect(addresses: Iterable[tuple[str, int]], seconds: float = ANSWER) -> dict[tuple[str, int], bool]:
    """Try TCP connections to all addresses at once, close them, and return which succeeded. A connection
    fails if it is refused, has no route, or gets no answer within `seconds`. Never raises."""
    taken: dict[tuple[str, int], bool] = dict.fromkeys(addresses, False)
    with contextlib.ExitStack() as opened:
        poll, waiting = select.poll(), {}
        for host, port in taken:
            with contextlib.suppress(OSError):
                family = socket.AF_INET6 if ":" in host else socket.AF_INET
                tried = opened.enter_context(socket.socket(family, socket.SOCK_STREAM))
                tried.setblocking(False)
                # A connection that fails at once, as one to this machine may, needs no wait.
                if tried.connect_ex((host, port)) in (0, errno.EINPROGRESS):
                    waiting[tried.fileno()] = (tried, (host, port))
                    poll.register(tried, select.POLLOUT)
        end = time.monotonic() + seconds
        while waiting and (left := end - time.monotonic()) > 0:
            for number, _ in poll.poll(1000 * left):
                tried, address = waiting.pop(number)
                poll.unregister(number)
                taken[address] = tried.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    return taken


def _known(word: str, words: tuple[str, ...]) -> str:
    return word.lower() if word.lower() in words else "unknown"


def _text(folder: str, name: str) -> str:
    """Return a file's text, or "" if it cannot be read."""
    try:
        with open(f"{folder}/{name}", encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


# The live configuration of BeeGFS' clients (/proc/fs/beegfs/<client>/config), and the mount table's line.
#
# The format is that of `ProcFsHelper_readV2_config` (client_module/source/filesystem) in 7.1 to 8.3, which
# prints switches as 0 and 1. BeeOND mounts with `mount -t beegfs beegfs_ondemand` (beeond/source/beeond). A
# mount does not show its client. So any client's configuration that does not contradict the mount's options
# may be that of the mount. If there are several such configurations, the weakest setting counts.

ON_DEMAND = "beegfs_ondemand"  # device name of the file system that beeond makes and mounts for a job

_PROOFS = {
    "buffered": MountProof("dropped", direct_from_disks=True, direct_harms=True),
    "native": MountProof("synced", direct_from_disks=True),
    "none": MountProof("any", direct_from_disks=True, direct_harms=True),
}
_UNKNOWN = MountProof("direct", direct_harms=True)


class Client(NamedTuple):
    """A client's live configuration. A value that is not stated is None or ""."""

    name: str  # the client's id, the name of its folder in /proc
    config_file: str = ""
    management: str = ""  # `sysMgmtdHost`
    cache: str = ""  # `tuneFileCacheType`: buffered, native or none
    remote_fsync: bool | None = None
    global_file_locks: bool | None = None
    global_append_locks: bool | None = None
    xattrs: bool | None = None
    acls: bool | None = None
    links_are_symlinks: bool | None = None  # `sysCreateHardlinksAsSymlinks`
    ebusy_as_xdev: bool | None = None  # `sysRenameEbusyAsXdev`
    quota: bool | None = None
    # `connUseRDMA`; also False if the connections or interfaces are known, and none of these uses RDMA
    rdma: bool | None = None
    rdma_buffers: int | None = None
    rdma_buffer_size: int | None = None  # bytes
    # `connCommRetrySecs`: seconds for which a call waits for an unreachable server; 0 means for ever
    retry_seconds: int | None = None
    # `sysTargetOfflineTimeoutSecs`: seconds for which the client works without reaching the management
    # service
    offline_seconds: int | None = None
    # whether the long-lived metadata cache of 8.4 is on; None if the configuration has no such key
    metadata_cache: bool | None = None

    @property
    def rdma_bytes(self) -> int | None:
        """The size in bytes of all RDMA buffers of a connection."""
        if self.rdma_buffers is None or self.rdma_buffer_size is None:
            return None
        return self.rdma_buffers * self.rdma_buffer_size


class BeegfsMount(NamedTuple):
    """A mount, with the live configurations of the clients that it may use."""

    point: str
    device: str
    config_file: str  # the mount option `cfgFile`; "" for the default file
    management: str  # the mount option `sysMgmtdHost`; "" if the configuration file states it
    clients: tuple[Client, ...] = ()

    @property
    def on_demand(self) -> bool:
        """Whether beeond made this file system, which then ends with its job.

        | device            | a folder named beeond in mount point or `cfgFile` | on demand |
        |-------------------|---------------------------------------------------|-----------|
        | `beegfs_ondemand` | any                                               | yes       |
        | another           | yes                                               | yes       |
        | another           | no                                                | no        |
        """
        named = any(
            "beeond" in name.lower() for path in (self.point, self.config_file) for name in path.split("/")
        )
        return self.device == ON_DEMAND or named


def parse_config(text: str, name: str) -> Client:
    """Parse lines `key = value`. For missing keys and unknown values, the client's fields are None."""
    settings: dict[str, str] = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals:
            settings[key.strip()] = value.strip()
    cached = [
        flag(value)
        for key, value in settings.items()
        if "metacach" in key.lower() or "metadatacach" in key.lower()
    ]
    return Client(
        name=name,
        config_file=settings.get("cfgFile", ""),
        management=settings.get("sysMgmtdHost", ""),
        cache=settings.get("tuneFileCacheType", "").lower(),
        remote_fsync=flag(settings.get("tuneRemoteFSync")),
        global_file_locks=flag(settings.get("tuneUseGlobalFileLocks")),
        global_append_locks=flag(settings.get("tuneUseGlobalAppendLocks")),
        xattrs=flag(settings.get("sysXAttrsEnabled")),
        acls=flag(settings.get("sysACLsEnabled")),
        links_are_symlinks=flag(settings.get("sysCreateHardlinksAsSymlinks")),
        ebusy_as_xdev=flag(settings.get("sysRenameEbusyAsXdev")),
        quota=flag(settings.get("quotaEnabled")),
        rdma=flag(settings.get("connUseRDMA")),
        rdma_buffers=number(settings.get("connRDMABufNum")),
        rdma_buffer_size=number(settings.get("connRDMABufSize")),
        retry_seconds=number(settings.get("connCommRetrySecs")),
        offline_seconds=number(settings.get("sysTargetOfflineTimeoutSecs")),
        metadata_cache=any(cached) if cached else None,
    )


def with_file(client: Client, text: str) -> Client:
    """Add to the client, from its configuration file, the values that its live configuration lacks: the
    deadline without the management service, and 8.4's metadata cache. The file may have changed since the
    mount, so its other values do not count."""
    written = parse_config(text, client.name)
    return client._replace(
        offline_seconds=written.offline_seconds if client.offline_seconds is None else client.offline_seconds,
        metadata_cache=written.metadata_cache if client.metadata_cache is None else client.metadata_cache,
    )


def live_clients(proc: str | os.PathLike[str] = PROC) -> list[Client]:
    """Read the readable clients of all BeeGFS mounts of this node, sorted by id. Values that their live
    configuration lacks come from the client's configuration file, if readable."""
    folder = f"{proc}/{CLIENTS}"
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    clients = []
    for name in names:
        live = _file_text(f"{folder}/{name}/config")
        if live is not None:
            client = parse_config(live, name)
            if client.rdma and view(name, proc).rdma is False:
                client = client._replace(rdma=False)
            written = _file_text(client.config_file) if client.config_file.startswith("/") else None
            clients.append(client if written is None else with_file(client, written))
    return clients


def _file_text(path: str) -> str | None:
    """Return a file's text, or None if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as stream:
            return stream.read()
    except OSError:
        return None


def shown_servers(mount: Mount, proc: str | os.PathLike[str]) -> StoreStatus | None:
    """Return the status of this mount's servers and targets, as its client shows it (`status`); None if the
    client is unknown. Makes no call on the mount. Waits up to `ANSWER` seconds."""
    clients = parse_mount(mount, live_clients(proc)).clients
    if len({client.management for client in clients}) != 1:
        return None
    shown = status([view(client.name, proc) for client in clients])
    return shown._replace(management_holds=client_version().startswith("7."))


def proof_of(mount: Mount, proc: str | os.PathLike[str]) -> MountProof:
    """Return the mount's proof, as `mount_checks.MountModule` requires."""
    return proof(parse_mount(mount, live_clients(proc)))


def check(mount: Mount, proc: str | os.PathLike[str], *, source: bool) -> list[CheckResult]:
    """Judge the mount, as `mount_checks.MountModule` requires."""
    return judge(parse_mount(mount, live_clients(proc)), source=source)


def parse_mount(mount: Mount, clients: Iterable[Client]) -> BeegfsMount:
    """Combine the mount with those of `clients` that it may use.

    | option in the mount        | client's value | the mount may use it |
    |----------------------------|----------------|----------------------|
    | none                       | any            | yes                  |
    | `cfgFile`, `sysMgmtdHost`  | the same       | yes                  |
    | `cfgFile`, `sysMgmtdHost`  | none           | yes                  |
    | `cfgFile` or `sysMgmtdHost`| another        | no                   |
    """
    values = mount.values
    config_file, management = one_of(values.get("cfgFile")), one_of(values.get("sysMgmtdHost"))
    fitting = tuple(
        client
        for client in clients
        if client.config_file in ("", config_file or client.config_file)
        and client.management in ("", management or client.management)
    )
    return BeegfsMount(mount.point, mount.device, config_file, management, fitting)


def proof(mount: BeegfsMount) -> MountProof:
    """Return the proof that the client's cache mode gives for reads.

    | tuneFileCacheType | method    | reason                                                             |
    |-------------------|-----------|--------------------------------------------------------------------|
    | none              | `any`     | reads and writes go to the servers                                 |
    | buffered          | `dropped` | each open file has its own buffer, which a new open does not share |
    | native            | `synced`  | files use the page cache, which is written back later              |
    | other, or unknown | `direct`  | in every mode O_DIRECT means no caching (`beegfs_read_iter`)       |

    | tuneFileCacheType | a direct read comes from the disks | a direct read harms other readers      |
    |-------------------|------------------------------------|----------------------------------------|
    | buffered, none    | yes                                | yes: the client has one handle for all |
    |                   |                                    | readers of an inode (`FhgfsInode.c`)   |
    | native            | yes                                | no                                     |
    | other, or unknown | no, since not measured             | yes, since not measured                |

    Measured on 7.4.7 and 8.3.1: after a client read a chunk file with O_DIRECT, the storage server's memory
    had none of its pages (mincore). After other reads it had all of them. Only reads with O_DIRECT showed a
    byte that was flipped on the target's disk. The handle's first reader decides how the server opens the
    chunk. While the chunk was open with O_DIRECT, `pread(fd, 1000, 3)` of another process on the node failed
    with EREMOTEIO, but multiples of 512 worked.

    | tuneRemoteFSync | an fsync makes data reach                        |
    |-----------------|--------------------------------------------------|
    | true, unknown   | the servers' disks (the default)                 |
    | false           | only the servers' memory                         |
    """
    proofs = []
    for client in mount.clients:
        ends = (
            "in the storage servers' memory (tuneRemoteFSync=false)" if client.remote_fsync is False else ""
        )
        proofs.append(_PROOFS.get(client.cache, _UNKNOWN)._replace(fsync_ends=ends))
    return weakest(proofs or [_UNKNOWN])


def judge(mount: BeegfsMount, *, source: bool = False) -> list[CheckResult]:
    """Judge the mount.

    | finding                                  | verdict                                                  |
    |------------------------------------------|----------------------------------------------------------|
    | BeeOND                                   | warning                                                  |
    | no client's configuration fits           | note                                                     |
    | several clients' configurations fit      | note with their names; the rows below apply to each      |
    | cache type known, or not known           | ok, or note                                              |
    | tuneRemoteFSync false                    | warning, as a target                                     |
    | sysCreateHardlinksAsSymlinks true        | warning, as a target                                     |
    | the metadata cache of 8.4 is on          | warning                                                  |
    | connCommRetrySecs 0, or larger           | warning, or ok                                           |
    | sysRenameEbusyAsXdev true                | note, as a target                                        |
    | quotaEnabled true                        | note, as a target: statvfs does not know quotas          |
    | RDMA in use                              | as `judge_chunk` finds                                   |
    | locks, xattrs, ACLs, offline deadline    | ok, since no decision depends on these facts             |
    """
    about = f"BeeGFS mount {printable(mount.point)}"
    results = []
    if mount.on_demand:
        text = "BeeOND: this file system was made for a job, and is removed with it"
        mend = "stage while that job runs" if source else "name another `target.root` for releases that last"
        results.append(CheckResult(about, text, "warning", "a file system that lasts", mend))
    if not mount.clients:
        results.append(
            CheckResult(
                about,
                f"no configuration in /proc/{CLIENTS} fits this mount: its cache type and its "
                "fsync are not known",
                "note",
            )
        )
    elif len(mount.clients) > 1:
        names = ", ".join(printable(client.name) for client in mount.clients)
        results.append(
            CheckResult(
                about,
                f"{len(mount.clients)} clients fit this mount ({names}); the weakest of each setting holds",
                "note",
            )
        )
    for client in mount.clients:
        where = about if len(mount.clients) == 1 else f"{about}, client {printable(client.name)}"
        results += _judge_client(where, client)
        if not source:
            results += _judge_target(where, client)
    return results


def _judge_client(about: str, client: Client) -> Iterable[CheckResult]:
    if client.cache in _PROOFS:
        proof = _PROOFS[client.cache]
        yield CheckResult(about, f"tuneFileCacheType={client.cache}: {IN_WORDS[proof.method]}")
        if proof.direct_from_disks and proof.direct_harms:
            yield CheckResult(
                about,
                "a read by O_DIRECT comes from the targets' disks, and meanwhile other reads of that file "
                "fail on the same node (EREMOTEIO): `verify.direct` says whether released files are read so",
            )
    else:
        yield CheckResult(
            about,
            f"tuneFileCacheType is {printable(client.cache) or 'not known'}: {IN_WORDS['direct']}",
            "note",
            ", ".join(sorted(_PROOFS)),
        )
    if client.metadata_cache:
        yield CheckResult(
            about,
            "the long-lived metadata cache is on: another node may see `current` name the earlier release "
            "for longer than a second",
            "warning",
            "off",
            "resolve `current` once in each job's batch script by `penstock path`; or have it switched off",
        )
    if client.retry_seconds == 0:
        yield CheckResult(
            about,
            "connCommRetrySecs=0: a call waits for ever for a server that is away",
            "warning",
            "600 s, the default",
            "have an administrator set connCommRetrySecs in the client's configuration",
        )
    elif client.retry_seconds is not None:
        yield CheckResult(about, f"a call waits up to {client.retry_seconds} s for a server that is away")
    if client.offline_seconds is not None:
        yield CheckResult(
            about,
            f"without the management service targets count as offline after {client.offline_seconds} s "
            "(sysTargetOfflineTimeoutSecs)",
        )
    if client.rdma:
        yield judge_chunk(about, client)
    kept = {
        "tuneUseGlobalFileLocks": client.global_file_locks,
        "tuneUseGlobalAppendLocks": client.global_append_locks,
        "sysXAttrsEnabled": client.xattrs,
        "sysACLsEnabled": client.acls,
    }
    texts = [f"{name}={'true' if value else 'false'}" for name, value in kept.items() if value is not None]
    if texts:
        yield CheckResult(about, ", ".join(texts))


def _judge_target(about: str, client: Client) -> Iterable[CheckResult]:
    if client.remote_fsync is False:
        yield CheckResult(
            about,
            "tuneRemoteFSync=false: an fsync ends in the storage servers' memory, and a power cut there "
            "loses what was reported as durable; seals say so",
            "warning",
            "tuneRemoteFSync=true",
            "have an administrator set it in the client's configuration of all nodes",
        )
    if client.links_are_symlinks:
        yield CheckResult(
            about,
            "sysCreateHardlinksAsSymlinks=true: a hard link becomes a symbolic one, so unchanged files are "
            "copied again for each release",
            "warning",
            "sysCreateHardlinksAsSymlinks=false",
            "have an administrator set it in the client's configuration of all nodes",
        )
    if client.ebusy_as_xdev:
        yield CheckResult(
            about, "sysRenameEbusyAsXdev=true: the rename of a file in use fails as if across devices", "note"
        )
    if client.quota:
        yield CheckResult(
            about, "quotas are on, and the free space that statvfs states knows none of them", "note"
        )


def judge_chunk(about: str, client: Client, chunk: int | None = None) -> CheckResult:
    """Judge whether a stripe's chunk fits in a connection's RDMA buffers. The rule in beegfs-client.conf is
    "the largest commonly used chunk size should be < connRDMABufNum * connRDMABufSize".

    | buffers   | chunk                    | verdict |
    |-----------|--------------------------|---------|
    | not known | any                      | note    |
    | known     | not known                | ok      |
    | known     | smaller than the buffers | ok      |
    | known     | not smaller              | warning |
    """
    room = client.rdma_bytes
    if room is None:
        return CheckResult(about, "RDMA is in use, and the size of its buffers is not known", "note")
    buffers = f"{client.rdma_buffers} x {client.rdma_buffer_size} = {room} bytes of RDMA buffers a connection"
    if chunk is None:
        return CheckResult(about, f"{buffers}: chunks below {room >> 10} KiB fit")
    if chunk < room:
        return CheckResult(about, f"{buffers}, chunks of {chunk} bytes fit")
    needed = chunk // max(1, client.rdma_buffer_size or 1) + 1
    return CheckResult(
        about,
        f"{buffers}, and chunks of {chunk} bytes do not fit",
        "warning",
        f"buffers of more than {chunk} bytes in all",
        f"a smaller chunk, or connRDMABufNum={needed} in the configuration of clients and servers",
    )
