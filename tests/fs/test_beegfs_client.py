"""What a BeeGFS mount says: O2, O5, A7 and L6's counterpart, by fixtures in the format of its client
module."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.fs.conftest import CLIENT, LIVE, changed

from penstock.fs import beegfs_mount as beegfs
from penstock.fs.beegfs_mount import (
    Client,
    judge,
    judge_chunk,
    parse_config,
    parse_mount,
    proof,
)
from penstock.fs.kinds import MountProof
from penstock.host.kernel_facts import Mount

if TYPE_CHECKING:
    from penstock.fs.kinds import Method

LINE = Mount(
    "0:30", "/mnt/beegfs", "beegfs", "rw,relatime,rw,cfgFile=/etc/beegfs/beegfs-client.conf", "beegfs_nodev"
)


def verdicts(*clients: Client, mount: Mount = LINE, **how: bool) -> list[tuple[str, str]]:
    return [(one.verdict, one.found) for one in judge(parse_mount(mount, clients), **how)]


def grave(*clients: Client, mount: Mount = LINE, **how: bool) -> list[str]:
    """What is more than in order."""
    return [found for verdict, found in verdicts(*clients, mount=mount, **how) if verdict != "ok"]


def test_the_live_configuration_becomes_facts() -> None:
    assert parse_config(LIVE, CLIENT) == Client(
        name=CLIENT,
        config_file="/etc/beegfs/beegfs-client.conf",
        management="mgmt01",
        cache="buffered",
        remote_fsync=True,
        global_file_locks=False,
        global_append_locks=False,
        xattrs=False,
        acls=False,
        links_are_symlinks=False,
        ebusy_as_xdev=False,
        quota=False,
        rdma=True,
        rdma_buffers=70,
        rdma_buffer_size=8192,
        retry_seconds=600,
    )


@pytest.mark.parametrize(
    "text", ["", "\n\n", "no line", "tuneRemoteFSync = perhaps\nconnRDMABufNum = -1\n= 3\n"]
)
def test_what_is_missing_or_not_understood_is_not_known(text: str) -> None:
    seen = parse_config(text, "c")
    assert seen == Client("c")
    assert seen.rdma_bytes is None


@pytest.mark.parametrize(
    ("text", "is_on"),
    [
        ("tuneMetaCacheEnabled = 1", True),
        ("sysMetadataCacheEnabled = false", False),
        ("tunePreferredMetaFile =", None),
    ],
)
def test_the_metadata_cache_is_known_by_the_words_in_its_key(text: str, is_on: bool | None) -> None:
    assert parse_config(text, "c").metadata_cache is is_on


@pytest.mark.parametrize(
    ("options", "fits"),
    [
        ("rw", "abc"),
        ("rw,cfgFile=/etc/a.conf", "ac"),
        ("rw,sysMgmtdHost=m2", "bc"),
        ("rw,cfgFile=/etc/a.conf,sysMgmtdHost=m2", "c"),
    ],
)
def test_a_mount_takes_the_clients_that_do_not_contradict_it(options: str, fits: str) -> None:
    clients = [Client("a", "/etc/a.conf", "m1"), Client("b", "/etc/b.conf", "m2"), Client("c")]
    seen = parse_mount(LINE._replace(options=options), clients)
    assert "".join(one.name for one in seen.clients) == fits


@pytest.mark.parametrize(
    ("cache", "method", "from_disks", "harms"),
    [
        ("buffered", "dropped", True, True),
        ("native", "synced", True, False),
        ("none", "any", True, True),
        ("hybrid", "direct", False, True),
        ("", "direct", False, True),
    ],
)
def test_the_cold_read_follows_the_cache_type(
    cache: str, method: Method, *, from_disks: bool, harms: bool
) -> None:
    client = parse_config(changed(tuneFileCacheType=cache), "c")
    assert proof(parse_mount(LINE, [client])) == MountProof(method, "", from_disks, harms)
    said = any("`verify.direct`" in found for verdict, found in verdicts(client) if verdict == "ok")
    assert said is (cache in ("buffered", "none"))


def test_the_weakest_of_several_clients_holds() -> None:
    fine, weak = (
        parse_config(LIVE, "a"),
        parse_config(changed(tuneFileCacheType="native", tuneRemoteFSync=0), "b"),
    )
    seen = proof(parse_mount(LINE, [fine, weak]))
    assert seen == MountProof(
        "synced",
        "in the storage servers' memory (tuneRemoteFSync=false)",
        direct_from_disks=True,
        direct_harms=True,
    )
    unknown = parse_config(changed(tuneFileCacheType="hybrid"), "c")
    assert not proof(parse_mount(LINE, [fine, unknown])).direct_from_disks
    assert proof(parse_mount(LINE, [])) == MountProof("direct", direct_harms=True)
    assert any("2 clients fit this mount (a, b)" in found for found in grave(fine, weak))


@pytest.mark.parametrize(
    ("values", "word", "as_target", "as_source"),
    [
        ({}, "", None, None),
        ({"tuneFileCacheType": "hybrid"}, "tuneFileCacheType is hybrid", "note", "note"),
        ({"tuneRemoteFSync": 0}, "tuneRemoteFSync=false", "warning", None),
        ({"tuneRemoteFSync": "false"}, "tuneRemoteFSync=false", "warning", None),
        ({"sysCreateHardlinksAsSymlinks": 1}, "sysCreateHardlinksAsSymlinks=true", "warning", None),
        ({"tuneMetaCacheEnabled": 1}, "metadata cache is on", "warning", "warning"),
        ({"connCommRetrySecs": 0}, "waits for ever", "warning", "warning"),
        ({"sysRenameEbusyAsXdev": 1}, "sysRenameEbusyAsXdev=true", "note", None),
        ({"quotaEnabled": 1}, "quotas are on", "note", None),
    ],
)
def test_each_row_of_the_judgement(
    values: dict[str, object], word: str, as_target: str | None, as_source: str | None
) -> None:
    client = parse_config(changed(**values), "c")
    for source, wanted in ((False, as_target), (True, as_source)):
        found = [(verdict, text) for verdict, text in verdicts(client, source=source) if verdict != "ok"]
        assert [verdict for verdict, _ in found] == ([wanted] if wanted else []), found
        assert all(word in text for _, text in found)


def test_settings_that_nothing_rests_on_are_shown() -> None:
    client = parse_config(changed(sysACLsEnabled=1, sysTargetOfflineTimeoutSecs=900), "c")
    texts = [found for verdict, found in verdicts(client) if verdict == "ok"]
    assert any("sysACLsEnabled=true" in text and "tuneUseGlobalFileLocks=false" in text for text in texts)
    assert any("up to 600 s" in text for text in texts)
    assert any("offline after 900 s (sysTargetOfflineTimeoutSecs)" in text for text in texts), "A7"


@pytest.mark.parametrize(
    ("values", "chunk", "verdict", "word"),
    [
        ({}, None, "ok", "70 x 8192 = 573440"),
        ({}, 512 << 10, "ok", "fit"),
        (
            {},
            1 << 20,
            "warning",
            "573440 bytes of RDMA buffers a connection, and chunks of 1048576 bytes do not fit",
        ),
        ({}, 573440, "warning", "do not fit"),
        ({"connRDMABufNum": 140}, 1 << 20, "ok", "140 x 8192 = 1146880"),
        ({"connRDMABufNum": ""}, 1 << 20, "note", "not known"),
    ],
)
def test_o2_a_chunk_fits_into_the_rdma_buffers(
    values: dict[str, object], chunk: int | None, verdict: str, word: str
) -> None:
    seen = judge_chunk("m", parse_config(changed(**values), "c"), chunk)
    assert seen.verdict == verdict
    assert word in seen.found


def test_o2_the_number_of_buffers_that_is_proposed_is_enough() -> None:
    client = parse_config(LIVE, "c")
    seen = judge_chunk("m", client, 1 << 20)
    assert "connRDMABufNum=129 " in seen.mend
    assert judge_chunk("m", client._replace(rdma_buffers=129), 1 << 20).verdict == "ok"
    assert judge_chunk("m", client._replace(rdma_buffers=128), 1 << 20).verdict == "warning"


@pytest.mark.parametrize(
    ("device", "point", "options", "is_beeond"),
    [
        ("beegfs_nodev", "/mnt/beegfs", "cfgFile=/etc/beegfs/beegfs-client.conf", False),
        ("beegfs_ondemand", "/scratch", "sysMgmtdHost=node01,connPortShift=1000", True),
        ("beegfs_nodev", "/mnt/beeond", "rw", True),
        ("beegfs_nodev", "/scratch/BeeOND-77/x", "rw", True),
        ("beegfs_nodev", "/scratch", "cfgFile=/tmp/beeond_77/beegfs-client.conf", True),
    ],
)
def test_o5_beeond_is_known_by_its_device_and_by_its_paths(
    device: str, point: str, options: str, is_beeond: bool
) -> None:
    mount = LINE._replace(device=device, point=point, options=options)
    assert parse_mount(mount, []).on_demand is is_beeond


def test_o5_beeond_is_a_warning() -> None:
    client, mount = parse_config(LIVE, "c")._replace(config_file=""), LINE._replace(device=beegfs.ON_DEMAND)
    for source in (False, True):
        warning = judge(parse_mount(mount, [client]), source=source)[0]
        assert (warning.verdict, "removed with it" in warning.found) == ("warning", True)


def test_without_a_configuration_that_fits_only_o_direct_counts() -> None:
    assert grave() == [
        "no configuration in /proc/fs/beegfs fits this mount: its cache type and its fsync are not known"
    ]
    assert not proof(parse_mount(LINE, [Client("c", "/etc/other.conf")])).drops_count
