"""`penstock selftest` on the test bed: the table expected on each named set, row by row, where two nodes of
the bed stand in for a cluster's; its cost by the file system's own count; a quota that is full."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.cli.test_selftest import ALONE, MEASURED, found_in, result_of
from tests.filesystems.bed import Bed
from tests.filesystems.sets import SETS
from tests.fs.test_probe import EVERYWHERE, EXPECTED_SETS
from tests.support.commands import penstock

from penstock.core.run_documents import ABILITIES
from penstock.doctor import selftest, selftest_measurements, selftest_two_nodes
from penstock.doctor.selftest_measurements import Budget
from penstock.doctor.selftest_two_nodes import ABOUT, Peers
from penstock.fs.capabilities import facts

if TYPE_CHECKING:
    from pathlib import Path

IN_CI = ("beegfs8", "weka-writecache")
MIB = 1 << 20
ONCE, LATER, NEVER = "seen at once", r"seen (at once|after [\d.]+ s)", r"not seen within \d+ s"
"""What depends on the machine's speed is in no table: a node that is slow to look sees at once what its
caches have just forgotten, and MEASURED leaves open what is measured."""
_THERE = {trial.about: ONCE for trial in selftest_two_nodes.TRIALS} | {"lock": "refused, as on one machine"}
"""What the second of two nodes sees where no node has a cache of its own."""
_ENTRIES = {"a removed name": LATER, "a link that names another release": LATER}
_CLOSED = {"other bytes, kept open": NEVER}
_LOCAL = {"lock": "given: locks hold on one node alone"}
_NFS = _ENTRIES | _CLOSED | {"a new name": LATER, "a larger size": LATER}
EXPECTED_THERE = {
    "beegfs7": _ENTRIES | _CLOSED | _LOCAL,
    "beegfs8": _ENTRIES | _CLOSED | _LOCAL,
    "weka-writecache": _ENTRIES | _CLOSED,
    "weka-forcedirect": _ENTRIES,
    # FUSE learns of other bytes by a file's times, of which this set has whole seconds.
    "lustre": {"other bytes, kept open": f"{ONCE}|{LATER}|{NEVER}"} | _LOCAL,
    "nfs3": _NFS,
    "nfs4": _NFS,
}
"""The rows in which the sets differ from that: by how long a node believes a name, whether it keeps the bytes
of an open file, and how far its locks reach."""


def rows_there(named: str) -> dict[str, str]:
    seen = _THERE | EXPECTED_THERE[named]
    return {
        ABOUT: "n1 writes, n2 reads",
        **{f"{trial.about}, on the other node": seen[trial.about] for trial in selftest_two_nodes.TRIALS},
        "O_EXCL of a name that the other node made": r"no \(EEXIST\)",
        "flock of a file that the other node has locked": seen["lock"],
    }


def rows_of(named: str) -> dict[str, str]:
    """The whole table of a set, in order."""
    wanted = {
        ABILITIES[name]: re.escape(answer) for name, answer in (EVERYWHERE | EXPECTED_SETS[named]).items()
    }
    wanted |= {ABILITIES[name]: ALONE for name in ABILITIES if name.endswith("_between_trees")}
    wanted[ABILITIES["syncfs"]] = r"yes|not tried: it had not returned after .+"
    wanted |= MEASURED | {
        "reading back past the caches": r"(cached|dropped|direct), .+: as the table of file systems says, .+",
        "what verify proved": r"reread: 49 files",
    }
    if named == "beegfs7":  # no hard links between folders
        del wanted["calls on a linked file"]
    if SETS[named].get("statvfs_zero"):
        wanted["inodes"] = "not known: statvfs says 0 of 0"
    del wanted[ABOUT]
    return wanted | rows_there(named)


def peers(bed: Bed, place: Path) -> list[subprocess.Popen[bytes]]:
    """Two nodes of the bed, at the path of the first."""
    words = [sys.executable, "-m", "penstock", "selftest-peer", str(place)]
    return [
        subprocess.Popen(
            bed.on(number, *words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "SLURMD_NODENAME": f"n{number}", "SLURM_JOB_ID": "1"},
        )
        for number in (1, 2)
    ]


def compared(rows: dict[str, str], wanted: dict[str, str]) -> None:
    assert list(rows) == list(wanted)
    assert {about: rows[about] for about in rows if not re.fullmatch(wanted[about], rows[about])} == {}


def judged_on(named: str) -> None:
    with Bed(nodes=3, named=named) as bed:
        result = selftest.run(bed.nodes[0], time.sleep, lambda _: None, lambda place: peers(bed, place))
        assert os.listdir(bed.nodes[0]) == []
        asked = Counter(one.name for one in bed.operations())
    rows = {check.about: re.sub(r"\.nfs\w+", ".nfs", check.found) for check in result["results"]}
    compared(rows, rows_of(named))
    loud = {check.about: check.verdict for check in result["results"] if check.verdict not in ("ok", "note")}
    refused = ABILITIES["link_between_folders"]
    assert loud == ({refused: "warning"} if named == "beegfs7" else {})
    assert (result["kind"], result["contradicts"]) == ("fuse", 0)
    cheap(result, asked)


def cheap(result: Any, asked: Counter[str]) -> None:
    """S21, by the file system's own count, without reads and writes, and without what FUSE asks for each part
    of a path (getattr, lookup), which real clients keep for a second."""
    assert result["seconds"] < selftest_measurements.WITHIN
    assert asked["create"] + asked["mkdir"] + asked["symlink"] < selftest_measurements.MOST_FILES
    calls = sum(asked.values()) - sum(asked[name] for name in ("getattr", "lookup", "read", "write"))
    assert calls / result["seconds"] <= selftest_measurements.PER_SECOND


@pytest.mark.parametrize("named", IN_CI)
def test_each_row_is_as_expected_on_a_named_set(named: str) -> None:
    judged_on(named)


@pytest.mark.every_set
@pytest.mark.parametrize("named", [name for name in SETS if name not in IN_CI])
def test_and_on_the_other_sets(named: str) -> None:
    judged_on(named)


def test_every_named_set_has_its_table() -> None:
    assert EXPECTED_THERE.keys() == SETS.keys()


def test_a_node_that_does_not_see_the_folder_is_named(tmp_path: Path) -> None:
    blind = "from penstock.doctor import selftest_two_nodes as two_nodes; import pathlib, sys; "
    blind += (
        "two_nodes.FOLDER_WITHIN = 0.1; two_nodes.serve(pathlib.Path(sys.argv[1]), sys.stdin, sys.stdout)"
    )
    processes = started(sys.executable, "-c", blind, str(tmp_path / "none"), count=2)
    (row,) = with_peers(processes)
    assert (row.found, row.verdict) == ("not tried further: the folder is not there on n1, n2", "note")


def test_what_the_nodes_command_said_is_the_row() -> None:
    (row,) = with_peers(started("sh", "-c", "echo 'srun: error: no such partition' >&2; exit 1", count=1))
    assert (row.found, row.verdict) == ("not tried further: srun: error: no such partition", "note")


def started(*words: str, count: int) -> list[subprocess.Popen[bytes]]:
    return [
        subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "SLURMD_NODENAME": f"n{number}", "SLURM_JOB_ID": "1"},
        )
        for number in range(1, count + 1)
    ]


def with_peers(processes: list[subprocess.Popen[bytes]]) -> list[Any]:
    cost = Budget(time.sleep)
    with Peers(processes, cost) as made:
        return list(selftest_two_nodes.caches(made, cost))


@pytest.mark.parametrize(
    ("tempers", "found"),
    [
        (
            {"quota_bytes": 40 * MIB},
            r"EDQUOT by write after 4\d\.?\d* MiB, .+; what was synced before is whole",
        ),
        (
            {"quota_bytes": 40 * MIB, "cache": "close-to-open", "late_errors": "fsync"},
            r"EDQUOT by fsync after 48\.0 MiB, .+; what was synced before is whole",
        ),
    ],
)
def test_a_full_quota_is_reported_by_the_call_that_learns_of_it(tempers: dict[str, Any], found: str) -> None:
    with Bed(**tempers) as bed:
        full, again = selftest.filled(bed.nodes[0], 40 * MIB, Budget(lambda _: None))
        assert re.fullmatch(found, full.found), full
        assert (full.verdict, again.verdict) == ("ok", "ok")


@pytest.mark.parametrize(
    ("wrong", "ended", "verdict"),
    [
        (["3"], selftest.WritesEnd("write", "EDQUOT"), "stop"),
        (["3"], selftest.WritesEnd(), "stop"),
        ([], selftest.WritesEnd(), "warning"),
        ([], selftest.WritesEnd("fsync", "EDQUOT"), "ok"),
        ([], selftest.WritesEnd("write", "ENOSPC"), "ok"),
        ([], selftest.WritesEnd("write", "EIO"), "stop"),
    ],
)
def test_how_a_full_quota_is_judged(wrong: list[str], ended: selftest.WritesEnd, verdict: str) -> None:
    assert selftest._judged(50, 40, ended, 4, wrong).verdict == verdict


def test_a_quota_larger_than_the_budget_is_not_filled(tmp_path: Path) -> None:
    (row,) = selftest.filled(tmp_path, selftest_measurements.MOST_BYTES, Budget(lambda _: None))
    assert (row.verdict, row.mend) == ("note", "name a folder with a smaller quota")
    assert not os.listdir(tmp_path)


def test_s21_a_quota_is_filled_with_the_flag_alone_and_in_a_folder_of_its_own() -> None:
    """As WEKA shows the quota of a folder. (The tests' kernel may have no quotas of its own.)"""
    quota = 256 * MIB
    with Bed(named="weka-writecache", quota_trees=["own"], quota_bytes=quota, quota_shown=True) as bed:
        root, own = bed.nodes[0], bed.nodes[0] / "own"
        own.mkdir()
        done = penstock("selftest", str(root), "--fill-quota", cwd=bed.store)
        assert (done.returncode, "this folder has none of its own" in done.stderr) == (3, True)
        assert os.listdir(root) == ["own"]
        rows = found_in(result_of(own, "--fill-quota")["results"])
        assert rows["quota"] == f"256 MiB: this folder has a size of its own within {root}"
        assert re.fullmatch(r"EDQUOT by (write|fsync) after .+; what was .+ is whole", rows[selftest.ABOUT])
        assert rows["room after what filled it was removed"] == "at once"
        assert os.listdir(own) == []
        assert facts(own).free_bytes == quota
