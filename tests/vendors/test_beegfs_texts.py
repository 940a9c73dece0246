# ruff: noqa: E501 (the lines of the commands are as long as they are)
"""What BeeGFS' commands print, read: texts in the formats of their sources, of releases and states that
`test_beegfs_recorded` has no answers of a real one of."""

from __future__ import annotations

import pytest

from penstock.fs import beegfs_v7, beegfs_v8
from penstock.fs.quotas import Quota
from penstock.fs.stores import Pattern, Server, Target

GIB = 1 << 30
DF_OF_OLD = """\
METADATA SERVERS:
TargetID        Pool        Total         Free    %      ITotal       IFree    %
========        ====        =====         ====    =      ======       =====    =
       1      normal     767.6GiB     766.2GiB 100%      383.8M      383.8M 100%
       2      normal     767.6GiB     766.2GiB 100%      383.8M      383.8M 100%
       3      normal     767.6GiB     766.2GiB 100%      383.8M      383.8M 100%
       4      normal     767.6GiB     766.2GiB 100%      383.8M      383.8M 100%
       5      normal     767.6GiB     766.2GiB 100%      383.8M      383.8M 100%

STORAGE TARGETS:
TargetID        Pool        Total         Free    %      ITotal       IFree    %
========        ====        =====         ====    =      ======       =====    =
       1      normal   10226.7GiB   10225.9GiB 100%     1024.0M     1024.0M 100%
       2      normal   10226.7GiB   10225.9GiB 100%     1024.0M     1024.0M 100%
       3      normal   10226.7GiB   10225.9GiB 100%     1024.0M     1024.0M 100%
"""
TARGETS_7_4 = """\
librdma: some warning that taints the output
TargetID     Reachability  Consistency   St. Pool   Cap. Pool        Total         Free    %      ITotal       IFree    %   NodeID
========     ============  ===========   ========   =========        =====         ====    =      ======       =====    =   ======
     101           Online         Good          1      normal   20480.0GiB   10240.0GiB  50%     4000.0M     2000.0M  50%   beegfs-storage stor01 [ID: 1]
     102 Probably-offline needs-resync          1         low   20480.0GiB     900.0GiB   4%     4000.0M     2000.0M  50%   beegfs-storage stor01 [ID: 1]
     201          Offline    resyncing         12   emergency       0.0GiB       0.0GiB   0%        0.0M        0.0M   0%   beegfs-storage stor02 [ID: 2]
     202 <invalid_value>                         1     unknown   20480.0GiB   10240.0GiB  50%        0.0M        0.0M   0%   beegfs-storage stor02 [ID: 2]
"""
SERVERS = """\
Management
==========
mgmt [ID: 1]: reachable at 10.0.0.1:8008 (protocol: TCP)

Metadata
==========
meta01 [ID: 1]: reachable at 10.0.0.11:8005 (protocol: RDMA)
meta02 [ID: 2]: reachable at 10.0.0.12:8005 (protocol: RDMA)
meta03 [ID: 3]: reachable at 10.0.0.13:8005 (protocol: RDMA)
meta04 [ID: 4]: reachable at 10.0.0.14:8005 (protocol: RDMA)
meta05 [ID: 5]: reachable at 10.0.0.15:8005 (protocol: RDMA)

Storage
==========
stor01 [ID: 1]: reachable at 10.0.0.21:8003 (protocol: RDMA)
stor02 [ID: 2]: reachable at 10.0.0.22:8003 (protocol: RDMA)
stor03 [ID: 3]: reachable at 10.0.0.23:8003 (protocol: RDMA)

"""


def test_a1_the_table_of_beegfs_df() -> None:
    """A1: the older table, five metadata servers and three storage targets."""
    found = beegfs_v7.read_df(DF_OF_OLD)
    assert [(one.role, one.id) for one in found] == [
        *(("metadata", str(number)) for number in range(1, 6)),
        *(("storage", str(number)) for number in range(1, 4)),
    ]
    assert {one.total_inodes for one in found[:5]} == {383_800_000}
    assert {one.total_bytes for one in found[5:]} == {int(10226.7 * GIB)}
    assert {one.capacity for one in found} == {"normal"}
    assert {one.reachability for one in found} == {"unknown"}


def test_a1_the_table_of_7_4_is_read_from_its_right_end() -> None:
    """A1: states, storage pool and node stand in it, and lines of libraries; zeros are not known."""
    found = beegfs_v7.read_targets("storage", TARGETS_7_4)
    assert [one.id for one in found] == ["101", "102", "201", "202"]
    assert found[0] == Target(
        "storage", "101", "", "stor01", "1", 20480 * GIB, 10240 * GIB, 4 * 10**9, 2 * 10**9, "normal",
        "online", "good",
    )  # fmt: skip
    assert [one.reachability for one in found] == ["online", "probably-offline", "offline", "unknown"]
    assert [one.consistency for one in found] == ["good", "needs-resync", "resyncing", "unknown"]
    assert [one.capacity for one in found] == ["normal", "low", "emergency", "unknown"]
    assert [one.pool for one in found] == ["1", "1", "12", "1"]
    assert (found[2].total_bytes, found[2].free_bytes, found[2].free_inodes) == (None, None, None)
    assert found[3].free_bytes == 10240 * GIB
    assert (found[3].total_inodes, found[3].free_inodes) == (None, None)
    seed = "       7    [emergency]     20.0GiB      1.0GiB   5%       10.0M        5.0M  50%\n"
    assert beegfs_v7.read_targets("storage", seed)[0].capacity == "emergency"


@pytest.mark.parametrize("cut", range(0, len(TARGETS_7_4), 37))
def test_a_text_that_is_cut_off_is_no_error(cut: int) -> None:
    for role in ("storage", "metadata"):
        beegfs_v7.read_targets(role, TARGETS_7_4[:cut])  # type: ignore[arg-type]
    beegfs_v7.read_servers(SERVERS[:cut])
    beegfs_v7.read_pattern(TARGETS_7_4[cut:])
    list(beegfs_v8.rows(TARGETS_7_4[:cut] + '{"id":'))


def test_a2_nine_servers_are_reached() -> None:
    """A2: the text of beegfs-check-servers; one line that says UNREACHABLE names its server."""
    found = beegfs_v7.read_servers(SERVERS)
    assert len(found) == 9
    assert all(one.reachable for one in found)
    assert [one.role for one in found] == ["management", *["metadata"] * 5, *["storage"] * 3]
    assert found[0] == Server("management", "mgmt", "1", True, "10.0.0.1:8008 (protocol: TCP)")
    gone = SERVERS.replace(
        "stor02 [ID: 2]: reachable at 10.0.0.22:8003 (protocol: RDMA)", "stor02 [ID: 2]: UNREACHABLE"
    )
    assert [one.name for one in beegfs_v7.read_servers(gone) if not one.reachable] == ["stor02"]


def test_patterns_of_version_7() -> None:
    text = (
        "Entry type: directory\nEntryID: 0-5E9E76DD-C9\nMetadata buddy group: 1\nCurrent primary metadata node: "
        "node201 [ID: 201]\nStripe pattern details:\n+ Type: RAID0\n+ Chunksize: 512K\n+ Number of storage "
        "targets: desired: 4\n+ Storage Pool: 1 (Default)\n"
    )
    assert beegfs_v7.read_pattern(text) == Pattern("raid0", 512 << 10, 4, "1", "Default")
    other = (
        text.replace("512K", "1M")
        .replace("desired: 4", "desired: 8; actual: 4")
        .replace("RAID0", "Buddy Mirror")
    )
    assert beegfs_v7.read_pattern(other) == Pattern("mirrored", 1 << 20, 8, "1", "Default")
    assert beegfs_v7.read_pattern("Unable to stat path") is None


def test_a8_quotas_of_version_7() -> None:
    """A8: the CSV form; files are chunk files. Both columns of limits are called `hard`."""
    text = "name,id,size,hard,files,hard\nalice,1001,1073741824,10737418240,1000,unlimited\n"
    assert beegfs_v7.read_quotas("user", text, "1") == [
        Quota("user", 1001, "1", 1 << 30, 10 << 30, 1000, None)
    ]
    pools = (
        "\nQuota information for storage pool Default (ID: 1):\n\nname,id,size,hard,files,hard\n"
        "team, a,50,0 Byte,unlimited,-,unlimited\n"
        "\nQuota information for storage pool fast (ID: 2):\n\nname,id,size,hard,files,hard\nb,50,7,9,12+,20\n"
    )
    assert beegfs_v7.read_quotas("group", pools) == [
        Quota("group", 50, "1", 0, None, None, None),
        Quota("group", 50, "2", 7, 9, 12, 20),
    ]


def test_a1_targets_of_version_8() -> None:
    """A1: lines of JSON with 8.4's and 8.0's names; `-` is not known; remarks and lists are no hindrance."""
    out = (
        '{"id":{"num_id":101,"node_type":"storage"},"type":"storage","alias":"st_101","node":"stor01",'
        '"storage_pool":"fast","reachability":"Online","last_contact":"3s ago","consistency":"Needs-resync",'
        '"sync_state":"Resyncing","cap_pool":"Low","space":"1000","space_used":"123 (12.30%)","space_free":"877",'
        '"inodes":"50","inodes_used":"5 (10.00%)","inodes_free":"45"}\n'
        "INFO: a remark for people\n"
        '[{"id":"m:1","alias":"meta_1","on node":"meta01","pool":"n/a","reachability":"Offline","consistency":'
        '"Bad","capacity pool":"Emergency","space":"-","sused":"-","sfree":"-","inodes":"0","ifree":"0"}]\n'
    )
    assert beegfs_v8.read_targets(out, {"fast": "2"}) == [
        Target("storage", "101", "st_101", "stor01", "2", 1000, 877, 50, 45, "low", "online", "resyncing"),
        Target(
            "metadata", "1", "meta_1", "meta01", "", None, None, None, None, "emergency", "offline", "bad"
        ),
    ]


def test_a2_nodes_of_version_8() -> None:
    """A2: a node is reached by any of its addresses; clients are left out."""
    out = (
        '{"id":{"num_id":1,"node_type":"management"},"type":"management","alias":"mgmt","nics":"a","reachable":"yes"}\n'
        '{"id":{"num_id":2,"node_type":"storage"},"type":"storage","alias":"stor02","nics":"a\\nb","reachable":"no\\nno"}\n'
        '{"id":{"num_id":3,"node_type":"storage"},"type":"storage","alias":"stor03","nics":"a\\nb","reachable":"no\\nyes"}\n'
        '{"id":{"num_id":9,"node_type":"client"},"type":"client","alias":"c9","nics":"a","reachable":"no"}\n'
        '{"id":{"num_id":4,"node_type":"meta"},"type":"meta","alias":"meta04","nics":"a","reachable":"?"}\n'
    )
    found = [(one.role, one.name, one.reachable) for one in beegfs_v8.read_servers(out)]
    assert found == [
        ("management", "mgmt", True), ("storage", "stor02", False), ("storage", "stor03", True),
        ("metadata", "meta04", None),
    ]  # fmt: skip


def test_patterns_of_version_8() -> None:
    raw = '{"path":"/a","storage_pool":"Default (1)","stripe_pattern":"RAID0 (4x1048576)"}'
    assert beegfs_v8.read_pattern(raw) == Pattern("raid0", 1 << 20, 4, "1", "Default")
    assert beegfs_v8.read_pattern(raw.replace("4x1048576", "4x1M")) == Pattern(
        "raid0", 1 << 20, 4, "1", "Default"
    )
    mirrored = raw.replace("RAID0", "Buddy Mirror")
    assert beegfs_v8.read_pattern(mirrored) == Pattern("mirrored", 1 << 20, 4, "1", "Default")
    assert beegfs_v8.read_pattern("") is None


def test_a8_quotas_of_version_8() -> None:
    """A8: `?` is not known, the sign of infinity is no limit, and so is the largest number of 63 bits."""
    out = (
        '{"name":"alice","id":1001,"type":"user","pool":"Default","space":"1024/2048","inode":"?/10"}\n'
        '{"name":"team","id":"50","type":"group","pool":"fast","space":"7/∞","inode":"3/9223372036854775807"}\n'
    )
    assert beegfs_v8.read_quotas(out, {"Default": "1"}) == [
        Quota("user", 1001, "1", 1024, 2048, None, 10),
        Quota("group", 50, "fast", 7, None, 3, None),
    ]


def test_o1_the_command_that_stripes() -> None:
    """O1: the command for each version."""
    assert beegfs_v7.set_pattern("/d", 4) == ["beegfs-ctl", "--setpattern", "--numtargets=4", "/d"]
    assert beegfs_v8.set_pattern("/d", 4) == ["beegfs", "entry", "set", "--num-targets=4", "/d"]
    chunk = 1 << 20
    assert beegfs_v7.set_pattern("/d", 4, chunk)[2:] == ["--numtargets=4", "--chunksize=1048576", "/d"]
    assert beegfs_v8.set_pattern("/d", 4, chunk)[3:] == ["--num-targets=4", "--chunk-size=1048576", "/d"]
