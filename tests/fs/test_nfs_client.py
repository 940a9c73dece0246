"""What an NFS mount says: N5 and S20."""

from __future__ import annotations

import pytest

from penstock.fs.nfs_mount import (
    NfsMount,
    judge,
    parse_mount,
    proof,
)
from penstock.host.kernel_facts import Mount

GOOD = (
    "rw,noatime,nodiratime,rw,vers=4.2,rsize=1048576,wsize=1048576,namlen=255,hard,proto=tcp,sec=sys,"
    "local_lock=none,addr=10.0.0.1,acdirmax=0"
)


def line(options: str, kind: str = "nfs4") -> Mount:
    return Mount("0:32", "/nfs/data", kind, options, "filer.example:/vol/data")


def verdicts(options: str, *, source: bool, groups: int = 2, kind: str = "nfs4") -> list[tuple[str, str]]:
    return [
        (one.verdict, one.found)
        for one in judge(parse_mount(line(options, kind)), source=source, groups=groups)
    ]


def test_a_line_becomes_facts() -> None:
    assert parse_mount(line(GOOD)) == NfsMount(
        point="/nfs/data",
        server="filer.example",
        export="/vol/data",
        version="4.2",
        security="sys",
        noatime=True,
        read_only=False,
        soft=False,
        local_lock="none",
        local_cache=False,
        directory_seconds=0,
    )
    old = parse_mount(Mount("0:32", "/x", "nfs", "ro,relatime,ro,vers=3,soft,fsc,acdirmax=5", "[fe80::1]:/x"))
    assert (old.server, old.version, old.read_only, old.soft, old.local_cache) == (
        "[fe80::1]",
        "3",
        True,
        True,
        True,
    )
    assert (old.directory_seconds, parse_mount(line("rw")).directory_seconds) == (5, 60)
    assert (parse_mount(line("rw")).version, parse_mount(line("rw", "nfs")).version) == ("4", "")


def changed(given: str, other: str) -> str:
    assert given in GOOD
    return GOOD.replace(given, other)


@pytest.mark.parametrize(
    ("options", "word", "as_source", "as_target"),
    [
        (GOOD, "", None, None),
        (changed("vers=4.2", "vers=3"), "version 3", "warning", "note"),
        (changed("vers=4.2", "vers=4.0"), "", None, None),
        (changed("rw,noatime,nodiratime", "rw,relatime"), "without noatime", "note", None),
        (changed("rw,noatime,nodiratime", "ro,relatime"), "", None, None),
        (changed("hard", "soft"), "soft", "warning", "warning"),
        (changed("sec=sys", "sec=krb5p"), "sec=krb5p: each node needs a ticket", "note", "note"),
        (changed("local_lock=none", "local_lock=all"), "local_lock=all", None, "note"),
        (changed(",acdirmax=0", ""), "up to 60 s", None, "note"),
        (f"{GOOD},fsc", "fsc", "note", "note"),
    ],
)
def test_n5_each_row_of_the_judgement(
    options: str, word: str, as_source: str | None, as_target: str | None
) -> None:
    for source, wanted in ((True, as_source), (False, as_target)):
        found = [(verdict, text) for verdict, text in verdicts(options, source=source) if verdict != "ok"]
        assert [verdict for verdict, _ in found] == ([wanted] if wanted else []), found
        assert all(word in text for _, text in found)


def test_n5_what_is_wanted_can_be_pasted() -> None:
    results = judge(parse_mount(line(changed("vers=4.2", "vers=3"))), source=True)
    warned = next(one for one in results if one.verdict == "warning")
    assert (warned.wanted, "`-o vers=4.2,noatime,nodiratime,hard`" in warned.mend) == ("4.2", True)


def test_n5_an_unknown_version_is_a_note() -> None:
    found = [text for verdict, text in verdicts("ro", source=True, kind="nfs") if verdict != "ok"]
    assert found == ["the protocol's version is not known"]


@pytest.mark.parametrize(
    ("security", "groups", "warned"),
    [("sys", 16, False), ("sys", 17, True), ("krb5", 17, False), ("", 17, True)],
)
def test_s20_auth_sys_carries_sixteen_groups(security: str, groups: int, warned: bool) -> None:
    options = changed("sec=sys", f"sec={security}" if security else "rw")
    found = [text for verdict, text in verdicts(options, source=True, groups=groups) if verdict == "warning"]
    assert any("AUTH_SYS" in text for text in found) is warned


@pytest.mark.parametrize(("options", "method"), [(GOOD, "synced"), (f"{GOOD},fsc", "direct")])
def test_the_cold_read_follows_the_mount(options: str, method: str) -> None:
    assert proof(parse_mount(line(options))).method == method


@pytest.mark.parametrize(("security", "said"), [("sys", 1), ("", 1), ("krb5p", 0)])
@pytest.mark.parametrize("source", [True, False])
def test_s20_root_is_squashed_by_most_exports(security: str, said: int, source: bool) -> None:
    """S20."""
    mount = parse_mount(Mount("0:1", "/x", "nfs4", f"rw,vers=4.2{security and ',sec=' + security}", "s:/x"))
    found = [one for one in judge(mount, source=source, root=True) if "no_root_squash" in one.found]
    assert [one.verdict for one in found] == ["note"] * said
    assert [one for one in judge(mount, source=source) if "no_root_squash" in one.found] == []
