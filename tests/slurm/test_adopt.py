"""A tree that rsync made is compared by an array of SLURM's, and becomes a release."""

from __future__ import annotations

import pwd
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.cluster.place import job_user
from tests.support.published import flip

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.place import Place

pytestmark = pytest.mark.slurm


def inodes(tree: Path) -> dict[str, int]:
    return {str(path.relative_to(tree)): path.stat().st_ino for path in tree.rglob("*.bin")}


def test_a_killed_comparison_meets_its_array_again_and_the_tree_becomes_a_release(place: Place) -> None:
    place.fill("a", 200)
    place.configure(["a"], cluster={"max_elements": 4}, plan={"shard_files": 50, "shard_bytes": "4MiB"})
    copy = place.folder / "copy"
    group = pwd.getpwnam(job_user()).pw_gid
    # Its owner is the account that adopts it.
    subprocess.run(
        ["rsync", "-a", f"--chown={job_user()}:{group}", f"{place.source}/a/", f"{copy}/"],
        check=True,
        timeout=120,
    )
    flip(copy / "000/file 000007.bin", 11)
    (copy / "001/file 000123.bin").unlink()
    before = inodes(copy)
    place.give(place.folder)
    first = place.penstock("adopt", "a", str(copy), "--read-source", "--seal")
    place.until(lambda: place.arrays("adopt"), "an array of the comparison", first)
    place.kill(first)
    submitted = place.arrays("adopt")
    said = place.ends(place.penstock("adopt", "a", str(copy), "--read-source", "--seal"))
    assert place.arrays("adopt") == submitted, "the array that ran on was met again"
    assert "* 000/file 000007.bin" in said
    assert "- 001/file 000123.bin" in said
    after = inodes(place.published("a"))
    right = before.keys() - {"000/file 000007.bin"}
    assert {name: after[name] for name in right} == {name: before[name] for name in right}
    assert after.keys() - right == {"000/file 000007.bin", "001/file 000123.bin"}
    assert "PASSED" in place.ends(place.penstock("audit", "a"))
