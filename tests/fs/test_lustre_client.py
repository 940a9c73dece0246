"""What a Lustre mount says."""

from __future__ import annotations

import pytest

from penstock.fs.lustre_mount import (
    LustreMount,
    judge,
    parse_mount,
    proof,
)
from penstock.host.kernel_facts import Mount


def line(options: str) -> Mount:
    return Mount("0:33", "/lustre", "lustre", options, "10.0.0.1@o2ib:10.0.0.2@o2ib:/scratch")


def test_a_line_becomes_facts() -> None:
    assert parse_mount(
        line("rw,relatime,rw,checksum,flock,user_xattr,lruresize,lazystatfs,encrypt")
    ) == LustreMount(
        point="/lustre",
        servers="10.0.0.1@o2ib:10.0.0.2@o2ib",
        filesystem="scratch",
        locks="nodes",
        user_xattr=True,
        read_only=False,
    )
    assert proof(parse_mount(line("rw"))).method == "synced"


@pytest.mark.parametrize(
    ("options", "locks", "notes"),
    [
        ("rw,flock,user_xattr", "nodes", []),
        ("rw,localflock,user_xattr", "machine", ["localflock"]),
        ("ro,user_xattr", "nobody", ["without flock"]),
        ("rw,flock,nouser_xattr", "nodes", ["without user_xattr"]),
    ],
)
def test_each_row_of_the_judgement(options: str, locks: str, notes: list[str]) -> None:
    seen = parse_mount(line(options))
    assert seen.locks == locks
    found = [one.found for one in judge(seen) if one.verdict == "note"]
    assert len(found) == len(notes)
    assert all(word in text for word, text in zip(notes, found, strict=True))
    assert {one.verdict for one in judge(seen)} <= {"ok", "note"}
