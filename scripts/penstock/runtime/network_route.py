"""Through which network device an address is reached, and on which NUMA node that device hangs.

`proc` and `sys` are the folders to read: tests give some of their own. The kernel's main routing table is
read (/proc/net/route, /proc/net/ipv6_route); rules that choose another table for some packets are not
followed.
"""

from __future__ import annotations

import ipaddress
import os
import struct
from typing import TYPE_CHECKING, NamedTuple

from penstock.runtime.numa_nodes import SYS
from penstock.runtime.proc import PROC, Root

if TYPE_CHECKING:
    from collections.abc import Iterator

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_UP, _REJECT, _LOCAL = 0x1, 0x200, 0x80000000
"""Of a route's flags (linux/route.h, linux/ipv6_route.h): usable, refuses, to this machine itself."""


class Route(NamedTuple):
    """One line of a table."""

    network: Network
    metric: int
    interface: str


def numa_node_toward(address: str, proc: Root = PROC, sys: Root = SYS) -> int | None:
    """The NUMA node of the device through which packets for an IP address leave. None where it is not known,
    and for loopback."""
    interface = interface_toward(address, proc)
    return numa_node_of(interface, sys) if interface else None


def interface_toward(address: str, proc: Root = PROC) -> str:
    """The interface of the route that fits best: the longest prefix, and of those the lowest metric. "" where
    there is none, and for what is no IP address."""
    try:
        wanted = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    if wanted.is_loopback:
        return ""
    table = _routes_4(proc) if wanted.version == 4 else _routes_6(proc)
    fitting = [route for route in table if wanted in route.network]
    best = max(fitting, key=lambda route: (route.network.prefixlen, -route.metric), default=None)
    return best.interface if best else ""


def numa_node_of(interface: str, sys: Root = SYS) -> int | None:
    """The node of a network device. Of one that is made of others (a bond, a bridge, a VLAN) the node on
    which all of these hang; None where they hang on several, and where the kernel does not say."""
    return _node(f"{sys}/class/net", interface, set())


def _node(folder: str, interface: str, seen: set[str]) -> int | None:
    if interface in seen:
        return None
    seen.add(interface)
    try:
        with open(f"{folder}/{interface}/device/numa_node", encoding="ascii") as stream:
            # -1 is the kernel's word for "not known".
            number = int(stream.read())
        return number if number >= 0 else None
    except (OSError, ValueError):
        pass
    try:
        names = os.listdir(f"{folder}/{interface}")
    except OSError:
        return None
    below = [name.removeprefix("lower_") for name in names if name.startswith("lower_")]
    nodes = {_node(folder, one, seen) for one in below}
    return nodes.pop() if len(nodes) == 1 else None


def _routes_4(proc: Root) -> Iterator[Route]:
    for line in _lines(f"{proc}/net/route")[1:]:
        fields = line.split()
        try:
            name, flags, metric = fields[0], int(fields[3], 16), int(fields[6])
            # As the processor holds them, not in the network's order.
            address, mask = (ipaddress.IPv4Address(struct.pack("=L", int(fields[n], 16))) for n in (1, 7))
            network = ipaddress.IPv4Network(f"{address}/{mask}", strict=False)
        except (ValueError, IndexError, struct.error):
            continue
        if flags & _UP and not flags & _REJECT:
            yield Route(network, metric, name)


def _routes_6(proc: Root) -> Iterator[Route]:
    for line in _lines(f"{proc}/net/ipv6_route"):
        fields = line.split()
        try:
            flags, metric = int(fields[8], 16), int(fields[5], 16)
            network = ipaddress.IPv6Network((int(fields[0], 16), int(fields[1], 16)), strict=False)
        except (ValueError, IndexError):
            continue
        if flags & _UP and not flags & (_REJECT | _LOCAL):
            yield Route(network, metric, fields[9])


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="ascii", errors="replace") as stream:
            return stream.read().splitlines()
    except OSError:
        return []
