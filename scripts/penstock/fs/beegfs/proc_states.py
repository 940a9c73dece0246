"""BeeGFS: servers and targets by its client, in /proc/fs/beegfs/<client>/, open to any account.

Formats of 7.4.7, and of 8.3.1 where it differs:

    storage_target_state, meta_target_state   [Target ID: 101] @ beegfs-storage stor1 [ID: 1]: Online / Good
      8.3.1                                   [Target ID: 101] @ stor1 [beegfs-storage:1]: Online / Good
    storage_nodes, meta_nodes, mgmt_nodes     stor1 [ID: 1]
                                                 Connections: TCP: 2 (10.9.9.1:8003);
    client_info                               + bee0[ip addr: 10.9.9.1; type: TCP]

The client gets states from the management service every 30 s (`sysUpdateTargetStatesSecs`). The service waits
minutes before it calls a server offline, and a connection stays listed until a call needs it. So a server
that ended just now still looks well. `connect` finds out: it opens a TCP connection to each listed address,
and closes it. `<none>` as connections says nothing: a client connects when a call needs it.
"""

from __future__ import annotations

import contextlib
import errno
import re
import select
import socket
import time
from typing import TYPE_CHECKING, NamedTuple, cast

from penstock.fs.stores.facts import Role, Server, StoreStatus, Target
from penstock.host.proc import PROC

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence

    from penstock.fs.stores.facts import Consistency, Reachability

SYS = "/sys"
CLIENTS = "fs/beegfs"  # below /proc; holds a folder for each client
PRODUCT = "BeeGFS"
ANSWER = 3.0  # seconds that servers have to take a connection, all together
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
    """Open connections of the client to an address of a server."""

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
    """What a client shows."""

    targets: tuple[Target, ...] = ()
    nodes: tuple[Node, ...] = ()
    rdma: bool | None = None  # whether it uses RDMA; None: nothing shows it


def view(client: str, proc: str | os.PathLike[str] = PROC) -> ClientView:
    """Read what the client of this id shows. Unreadable parts are left out."""
    folder = f"{proc}/{CLIENTS}/{client}"
    targets = [row for name, role in _TARGETS.items() for row in read_targets(role, _text(folder, name))]
    nodes = [node for name, role in _NODES.items() for node in read_nodes(role, _text(folder, name))]
    return ClientView(tuple(targets), tuple(nodes), uses_rdma(nodes, _text(folder, "client_info")))


def read_targets(role: Role, text: str) -> list[Target]:
    """Parse the targets of `storage_target_state` or `meta_target_state`; skip lines of another form."""
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
    """Parse the servers of `storage_nodes`, `meta_nodes` or `mgmt_nodes`, each with its connections."""
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
    """Return whether the client's connections are by RDMA. `connUseRDMA` does not show it: it is on by
    default, even without RDMA in client or network.

    | connections        | interfaces of `client_info` | RDMA      |
    |--------------------|-----------------------------|-----------|
    | any by RDMA        | any                         | yes       |
    | some, none by RDMA | any                         | no        |
    | none               | any of type RDMA            | yes       |
    | none               | others alone                | no        |
    | none               | none listed                 | not known |
    """
    protocols = {connection.protocol for node in nodes for connection in node.connections}
    if not protocols:
        protocols = set(re.findall(r"type: (\w+)\]", client_info))
    return "RDMA" in protocols if protocols else None


def status(views: Sequence[ClientView]) -> StoreStatus:
    """Return the status of the file system that these clients share. Waits up to `ANSWER` seconds.

    | TCP connections of a server | a new connection | its targets                        | reached   |
    |-----------------------------|------------------|------------------------------------|-----------|
    | some                        | is taken         | any                                | yes       |
    | some                        | is not           | any                                | no        |
    | none                        |                  | all `offline`, `probably-offline`  | no        |
    | none                        |                  | none, or others                    | not known |

    Where all targets are `probably-offline`, the client has no news from the management service: that is
    away, and the targets' states are unknown. A client of version 8 goes on for some minutes. With version 7
    each call on the mount waits (measured on 7.4.7), as `mount.shown_servers` reports.
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
    """Return the version of the kernel's client, such as `7.4.2` (MODULE_VERSION in its source); "":
    unknown."""
    try:
        with open(f"{sys}/module/beegfs/version", encoding="utf-8", errors="replace") as stream:
            return stream.read().strip()
    except OSError:
        return ""


def connect(addresses: Iterable[tuple[str, int]], seconds: float = ANSWER) -> dict[tuple[str, int], bool]:
    """Try TCP connections to all addresses at once, and close them; return which succeeded. False: it was
    refused, has no route, or did not answer within `seconds`. Never raises."""
    taken: dict[tuple[str, int], bool] = dict.fromkeys(addresses, False)
    with contextlib.ExitStack() as opened:
        poll, waiting = select.poll(), {}
        for host, port in taken:
            with contextlib.suppress(OSError):
                family = socket.AF_INET6 if ":" in host else socket.AF_INET
                tried = opened.enter_context(socket.socket(family, socket.SOCK_STREAM))
                tried.setblocking(False)
                # An immediate failure, as on this machine, is not waited for: its error is not kept.
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
    """Read a file; "" where it cannot be read."""
    try:
        with open(f"{folder}/{name}", encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""
