"""The way to a server, and the NUMA node of its network device, from a /proc and /sys of the test's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.config.settings import DatasetConfig, SourceConfig
from penstock.engine.source_route import numa_node_of_sources
from penstock.runtime.network_route import interface_toward, numa_node_of, numa_node_toward
from penstock.sources.s3.credentials import S3Credentials
from penstock.sources.server_host import server_host

if TYPE_CHECKING:
    from pathlib import Path

ROUTES = """\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eno1\t00000000\t0101010A\t0003\t0\t0\t100\t00000000\t0\t0\t0
bond0.7\t0000100A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
ib0\t0001100A\t00000000\t0001\t0\t0\t300\t00FFFFFF\t0\t0\t0
ib1\t0001100A\t00000000\t0001\t0\t0\t200\t00FFFFFF\t0\t0\t0
gone\t0002100A\t00000000\t0000\t0\t0\t0\t00FFFFFF\t0\t0\t0
*\t0003100A\t00000000\t0201\t0\t0\t0\t00FFFFFF\t0\t0\t0
torn\t00
"""
"""10.16.0.0/16 by a VLAN on a bond, 10.16.1.0/24 by InfiniBand, the rest by Ethernet."""
ROUTES_6 = """\
fd000000000000000000000000000000 40 {0} 00 {0} 00000100 00000001 00000000 00000001     ib0
{0} 00 {0} 00 fd000000000000000000000000000001 00000400 00000003 00000000 00000003     eno1
{0} 00 {0} 00 {0} ffffffff 00000001 00000000 00200200       lo
fd000000000000000000000000000002 80 {0} 00 {0} 00000000 00000004 00000000 80200001     ib1
""".replace("{0}", "0" * 32)


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Folders `proc` and `sys` of a machine with two sockets."""
    for path, text in {
        "proc/net/route": ROUTES,
        "proc/net/ipv6_route": ROUTES_6,
        "sys/class/net/eno1/device/numa_node": "0\n",
        "sys/class/net/ib0/device/numa_node": "1\n",
        "sys/class/net/ib1/device/numa_node": "-1\n",
        "sys/class/net/ens2/device/numa_node": "1\n",
        "sys/class/net/ens3/device/numa_node": "1\n",
        "sys/class/net/lo/mtu": "65536\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    below = {"bond0.7": ["bond0"], "bond0": ["ens2", "ens3"], "apart": ["eno1", "ens2"], "ring": ["ring"]}
    for name, parts in below.items():
        (tmp_path / "sys/class/net" / name).mkdir()
        for part in parts:
            (tmp_path / "sys/class/net" / name / f"lower_{part}").symlink_to(f"../{part}")
    return tmp_path


@pytest.mark.parametrize(
    ("address", "interface"),
    [
        ("8.8.8.8", "eno1"),
        ("10.16.9.9", "bond0.7"),
        ("10.16.1.9", "ib1"),
        ("10.16.2.9", "bond0.7"),
        ("10.16.3.9", "bond0.7"),
        ("fd00::9", "ib0"),
        ("fd00::2", "ib0"),
        ("2001:db8::1", "eno1"),
        ("fe80::1%ib0", "eno1"),
        ("127.0.0.1", ""),
        ("::1", ""),
        ("a.host", ""),
    ],
)
def test_the_route_that_fits_best(host: Path, address: str, interface: str) -> None:
    assert interface_toward(address, host / "proc") == interface


@pytest.mark.parametrize(
    ("interface", "node"),
    [("eno1", 0), ("ib0", 1), ("ib1", None), ("bond0.7", 1), ("apart", None), ("ring", None), ("lo", None),
     ("none", None)],
)  # fmt: skip
def test_the_node_of_a_device_and_of_what_is_made_of_several(
    host: Path, interface: str, node: int | None
) -> None:
    assert numa_node_of(interface, host / "sys") == node


def test_nothing_is_known_without_tables(tmp_path: Path) -> None:
    assert numa_node_toward("10.0.0.1", tmp_path, tmp_path) is None


MOUNTS = """\
40 1 0:50 / /nfs rw - nfs4 store:/export rw,vers=4.2,addr=10.16.1.5
41 1 0:51 / /nfs/old rw - nfs [fd00::7]:/export rw
42 1 8:1 / / rw - ext4 /dev/sda1 rw
"""


@pytest.mark.parametrize(
    ("url", "options", "secrets", "host_name"),
    [
        ("s3://bucket/a/", {"endpoint_url": "http://10.16.1.4:9000"}, None, "10.16.1.4"),
        ("s3://bucket/a/", {}, S3Credentials(None, "eu-west-1", "https://rgw.site:7480"), "rgw.site"),
        ("s3://bucket/a/", {}, S3Credentials(None, "eu-west-1", ""), "s3.eu-west-1.amazonaws.com"),
        ("s3://bucket/a/", {"proxy": "http://10.16.9.1:3128"}, None, "10.16.9.1"),
        ("gs://bucket/a/", {}, None, "storage.googleapis.com"),
        ("https://data.site/a/", {}, None, "data.site"),
        ("sftp://me@store.site/a/", {}, None, "store.site"),
        ("/nfs/set", {}, None, "10.16.1.5"),
        ("/nfs/old/set", {}, None, "fd00::7"),
        ("file:///data/set", {}, None, ""),
    ],
)
def test_the_host_of_a_source(
    tmp_path: Path, url: str, options: dict[str, str], secrets: object, host_name: str
) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mountinfo").write_text(MOUNTS)
    assert server_host(SourceConfig(url=url, storage_options=options), secrets, tmp_path) == host_name


def test_the_node_toward_a_dataset_s_sources(host: Path) -> None:
    """Where two sources are reached by devices of two nodes, there is no side that is nearer."""

    def toward(*addresses: str) -> int | None:
        sources = [
            SourceConfig(url="s3://b/", storage_options={"endpoint_url": f"http://{one}"})
            for one in addresses
        ]
        secrets = [None for _ in sources]
        return numa_node_of_sources(
            DatasetConfig("a", sources=tuple(sources)), secrets, host / "proc", host / "sys"
        )

    assert toward("10.16.9.9") == 1
    assert toward("10.16.9.9", "[fd00::9]") == 1
    assert toward("10.16.9.9", "8.8.8.8") is None
    assert toward("10.16.1.9") is None, "its device does not say"
    assert toward("no host at all") is None
