"""What a WEKA mount says: L6, L7, S28, by the lines of csi-wekafs' own fixtures and the options of its
manual."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.engine import sizing
from penstock.engine.stream import BLOCK
from penstock.fs import kinds
from penstock.fs.kinds import IN_WORDS
from penstock.fs.weka_mount import (
    WekaMount,
    cores_of_containers,
    judge,
    parse_mount,
    proof,
)
from penstock.host.kernel_facts import Mount

if TYPE_CHECKING:
    from pathlib import Path

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
        ("num_cores=1,net=ib0", "ok", "keeps 1 core"),
        ("num_cores=2,net=ib0", "ok", "keeps 2 cores"),
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


def process(proc: Path, number: int, words: str, *threads: str) -> None:
    """A process of a /proc of the test's own, with the CPUs that each of its threads may use."""
    for thread, cpus in enumerate(threads):
        task = proc / f"{number}/task/{number + thread}"
        task.mkdir(parents=True)
        (task / "status").write_text(f"Name:\twekanode\nCpus_allowed:\tff\nCpus_allowed_list:\t{cpus}\n")
    (proc / f"{number}/status").write_text(f"Cpus_allowed_list:\t{threads[0]}\n")
    (proc / f"{number}/cmdline").write_bytes(words.replace(" ", "\0").encode() + b"\0")


def test_s28_the_cores_of_a_container_are_where_its_processes_may_run(tmp_path: Path) -> None:
    """S28: what any account may read of the processes, cpusets of both versions of cgroups included."""
    assert cores_of_containers(tmp_path) == {}
    process(tmp_path, 1, "/sbin/init", "0-35")
    process(tmp_path, 40, "/weka/wekanode --slot 0 --container-name client", "0-2")
    process(tmp_path, 50, "/weka/wekanode --slot 1 --container-name client", "0-35", "17", "17")
    process(tmp_path, 60, "/weka/wekanode --slot=2 --container-name=client", "16", "16-17")
    process(tmp_path, 70, "/weka/wekanode --slot 1 --container-name drives0", "30-31,34")
    process(tmp_path, 80, "sh -c /weka/wekanode --slot 1", "5")
    process(tmp_path, 90, "/weka/wekanode --slot 1 --container-name loose", "0-35")
    (tmp_path / "99").mkdir()
    assert cores_of_containers(tmp_path) == {"client": "16-17", "drives0": "30-31,34"}


@pytest.mark.parametrize(
    ("options", "cores", "told"),
    [
        ("container_name=client", {"client": "3-4"}, {"container client keeps core 3-4": "ok"}),
        ("", {"client": "3-4"}, {"its container keeps core 3-4": "ok"}),
        ("container_name=client,core=9", {"client": "3"}, {"container client keeps core 9": "ok"}),
        ("container_name=client,num_cores=2", {"client": "3"}, {"container client keeps core 3": "ok"}),
        (
            "container_name=client",
            {"drives0": "5"},
            {
                "which cores container client keeps is not known": "note",
                "container drives0 keeps core 5": "note",
            },
        ),
        (
            "container_name=client",
            {"client": "3", "drives0": "5"},
            {"container client keeps core 3": "note", "container drives0 keeps core 5": "note"},
        ),
        ("container_name=client", {}, {"which cores container client keeps is not known": "note"}),
    ],
)
def test_s28_processes_name_the_cores_where_the_options_do_not(
    options: str, cores: dict[str, str], told: dict[str, str]
) -> None:
    """S28: the rows of `weka.judge`."""
    results = judge(parse_mount(line(f"forcedirect,acl,{options}")), cores=cores)
    found = {one.found.partition(" (")[0]: one for one in results if "core" in one.found}
    assert {text: one.verdict for text, one in found.items()} == told
    assert all(one.mend for text, one in found.items() if "not known" in text)


def sized(cpus: int, *, local: bool) -> sizing.Sizing:
    """What the engine chooses for many files of 100 MiB."""
    rows, size = 100_000, 100 << 20
    return sizing.size(
        cpus=cpus, cpus_from="the test", memory=64 << 30, local=local, rows=rows, total=rows * size,
        each=sizing.EACH,
    )  # fmt: skip


def test_l8_wekafs_gets_thirty_streams_and_writes_of_1_mib() -> None:
    """L8: Lenovo's brief measures 30 threads a node. Nothing is configured for it, since the row says that
    calls leave the machine: 4 streams for each CPU at first, up to 64."""
    row = kinds.named_kind("wekafs")
    chosen = sized(8, local=row.local)
    assert (chosen.workers, chosen.streams, chosen.most) == (8, 32, 64)
    assert "32 streams at first, up to 64 (calls that wait for a network or an fsync)" in chosen.why
    assert sized(4, local=row.local).most == 64
    assert sized(4, local=True).most == 16
    assert BLOCK == 1 << 20
