"""What a WEKA mount says: L6, L7, S28, by the lines of csi-wekafs' own fixtures and the options of its
manual."""

from __future__ import annotations

import pytest

from penstock.filesystem.clients.proof import IN_WORDS
from penstock.filesystem.clients.weka import WekaMount, judge, parse_mount, proof
from penstock.filesystem.mounts import Mount

OPTIONS = (
    "rw,relatime,{},inode_bits=auto,readahead_kb=32768,dentry_max_age_positive=1000,dentry_max_age_negative=0,"
    "container_name=client"
)


def line(options: str, device: str = "default", point: str = "/mnt/weka") -> Mount:
    return Mount("0:31", point, "wekafs", options, device)


def verdicts(options: str, *others: WekaMount, source: bool = False) -> dict[str, str]:
    return {one.found: one.verdict for one in judge(parse_mount(line(options)), others, source=source)}


def test_a_line_becomes_facts() -> None:
    text = (
        OPTIONS.format("writecache")
        + ",sync_on_close,acl,obs_direct,file_create_mask=0027,force_directory_mode=2750,"
        "core=3,core=4,net=ib0/10.1.0.7/16"
    )
    assert parse_mount(line(text, "10.108.97.126/default")) == WekaMount(
        point="/mnt/weka",
        filesystem="default",
        backends="10.108.97.126",
        modes=("writecache",),
        sync_on_close=True,
        acl=True,
        obs_direct=True,
        masks=(("file_create_mask", "0027"), ("force_directory_mode", "2750")),
        cores=(3, 4),
        core_count=2,
        net=("ib0/10.1.0.7/16",),
        container="client",
    )
    assert parse_mount(line("rw,core=3-5")).cores is None
    assert parse_mount(line("rw", "a,b/data")).filesystem == "data"


@pytest.mark.parametrize(
    ("mode", "method"),
    [
        ("forcedirect", "any"),
        ("readcache", "dropped"),
        ("writecache", "synced"),
        ("coherent", "direct"),
        ("inode_bits=auto", "direct"),
        ("readcache,writecache", "direct"),
    ],
)
def test_l6_four_mount_lines_give_four_methods(mode: str, method: str) -> None:
    assert proof(parse_mount(line(OPTIONS.format(mode)))).method == method


def test_l6_o_direct_passes_in_all_of_them() -> None:
    assert len(set(IN_WORDS.values())) == len(IN_WORDS) == 4
    assert all("O_DIRECT" in text or text.startswith("each read") for text in IN_WORDS.values())


@pytest.mark.parametrize(
    ("options", "word", "as_target", "as_source"),
    [
        ("forcedirect,acl,core=3", "", None, None),
        ("acl,core=3", "name no cache mode", "note", "note"),
        ("readcache,coherent,acl,core=3", "name readcache and coherent", "note", "note"),
        ("writecache,acl,core=3", "errors come with fsync alone", "note", None),
        ("writecache,sync_on_close,acl,core=3", "", None, None),
        ("forcedirect,acl,force_file_mode=0644,core=3", "force_file_mode=0644", "note", None),
        ("forcedirect,core=3", "without acl", "note", None),
        ("forcedirect,acl,obs_direct,core=3", "obs_direct", "note", "note"),
        ("forcedirect,acl,num_cores=2", "", None, None),
        ("forcedirect,acl", "which cores its container keeps is not known", "note", "note"),
    ],
)
def test_each_row_of_the_judgement(
    options: str, word: str, as_target: str | None, as_source: str | None
) -> None:
    for source, wanted in ((False, as_target), (True, as_source)):
        found = {
            text: verdict for text, verdict in verdicts(options, source=source).items() if verdict != "ok"
        }
        assert list(found.values()) == ([wanted] if wanted else []), found
        assert all(word in text for text in found)


@pytest.mark.parametrize(
    ("options", "verdict", "word"),
    [
        ("num_cores=0,net=udp", "note", "no core of its own and net=udp"),
        ("num_cores=1,net=ib0", "ok", "keeps 1 core(s)"),
        ("num_cores=2,net=ib0", "ok", "keeps 2 core(s)"),
        ("core=17,core=35,net=ib0", "ok", "keeps core 17, 35, net ib0"),
    ],
)
def test_l7_cores_that_the_client_keeps(options: str, verdict: str, word: str) -> None:
    found = {text: one for text, one in verdicts(f"forcedirect,acl,{options}").items() if "core" in text}
    assert list(found.values()) == [verdict]
    assert word in next(iter(found))


def test_s28_each_container_is_named_and_unknown_cores_are_said_to_be() -> None:
    other = parse_mount(line("forcedirect,core=9,container_name=second", "fast", "/mnt/fast"))
    results = judge(parse_mount(line("forcedirect,acl,container_name=first")), [other])
    told = {one.found: one for one in results if "core" in one.found}
    unknown = told["which cores container first keeps is not known"]
    assert unknown.mend == "as root on a node: `weka local resources -J`"
    assert told["container second keeps core 9"].verdict == "note"


def test_two_mounts_of_one_file_system_are_not_coherent() -> None:
    twin = parse_mount(line("forcedirect,core=3", point="/mnt/twin"))
    found = verdicts("forcedirect,acl,core=3", twin)
    assert [text for text, verdict in found.items() if verdict == "warning"] == [
        "the same file system is mounted at /mnt/twin too: the two are not coherent on one node"
    ]
