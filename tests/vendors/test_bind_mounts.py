"""BeeGFS below a bind mount of a folder: version 8 looks paths up from the file system's root (beegfs-go,
`ctl/pkg/ctl/entry/entry.go`). The mount table is a fixture, the commands are stand-ins."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from penstock.fs import beegfs, store_checks
from penstock.fs.beegfs import CommandPaths
from penstock.fs.stores import DataState

if TYPE_CHECKING:
    from pathlib import Path

    from tests.vendors.beegfs_cluster import Cluster

WHOLE = "30 22 0:30 / /mnt/all rw - beegfs beegfs_nodev rw"
BOUND = "31 22 0:30 /labs/one /bound rw - beegfs beegfs_nodev rw"
OTHER = "32 22 0:32 / /mnt/other rw - beegfs beegfs_nodev rw"
HIDES = "33 30 0:33 / /mnt/all rw - tmpfs none rw"


def table(folder: Path, *lines: str) -> Path:
    (folder / "self").mkdir(parents=True)
    (folder / "self/mountinfo").write_text("".join(f"{line}\n" for line in lines))
    return folder


@pytest.mark.parametrize(
    ("lines", "point", "mount", "given"),
    [
        ([WHOLE], "/mnt/all", (), "/mnt/all/a"),
        ([WHOLE, OTHER], "/mnt/all", ("/mnt/all",), "/mnt/all/a"),
        ([], "/mnt/all", (), "/mnt/all/a"),
        ([WHOLE, BOUND], "/bound", (), "/mnt/all/labs/one/a"),
        ([WHOLE, BOUND, OTHER], "/bound", ("/mnt/all",), "/mnt/all/labs/one/a"),
        ([BOUND], "/bound", ("none",), "/labs/one/a"),
        ([BOUND, OTHER], "/bound", ("none",), "/labs/one/a"),
        ([WHOLE, HIDES, BOUND], "/bound", ("none",), "/labs/one/a"),
    ],
)
def test_o1_by_which_path_a_file_is_found(
    tmp_path: Path, lines: list[str], point: str, mount: tuple[str, ...], given: str
) -> None:
    """O1: the rows of `beegfs.find_paths`."""
    found = beegfs.find_paths(point, table(tmp_path, *lines))
    assert (found.mount, found.of(f"{point}/a")) == (mount, given)
    assert found.of("/elsewhere/a") == "/elsewhere/a"
    assert CommandPaths().of("/x") == "/x"


class Bound(NamedTuple):
    """`bound` stands for a bind mount of `whole`/labs/one; `whole`/target is another folder."""

    proc: Path
    folder: Path
    same: Path
    other: Path


def bound(cluster: Cluster, tmp_path: Path, *, whole: bool) -> Bound:
    made = Bound(
        tmp_path / "proc",
        tmp_path / "bound/target",
        tmp_path / "whole/labs/one/target",
        tmp_path / "whole/target",
    )
    for folder in made[1:]:
        folder.mkdir(parents=True)
    lines = [WHOLE.replace("/mnt/all", f"{tmp_path}/whole")] if whole else []
    table(made.proc, *lines, BOUND.replace("/bound", f"{tmp_path}/bound"))
    points = [str(tmp_path / name) for name in ("whole", "bound")]
    cluster.write(mounts=points, store=str(tmp_path / "whole"))
    return made


def set_on(cluster: Cluster) -> list[list[str]]:
    return [
        call["argv"] for call in cluster.calls() if "--setpattern" in call["argv"] or "set" in call["argv"]
    ]


def test_o1_the_folder_itself_is_striped_by_the_mount_of_the_whole(beegfs8: Cluster, tmp_path: Path) -> None:
    """O1: not the folder of the same path below the file system's root."""
    where = bound(beegfs8, tmp_path, whole=True)
    (result,) = store_checks.stripe(where.folder, 2, named="beegfs", proc=where.proc)
    assert result.verdict == "ok"
    assert set_on(beegfs8) == [["beegfs", "entry", "set", "--num-targets=2", str(where.same)]]
    assert [*beegfs8.patterns()] == [str(where.same)]


def test_o1_without_a_mount_of_the_whole_it_is_found_from_the_root(beegfs8: Cluster, tmp_path: Path) -> None:
    """O1: which the command allows root alone; others get the administrator's command."""
    where = bound(beegfs8, tmp_path, whole=False)
    command = ["beegfs", "entry", "set", "--num-targets=2", "--mount", "none", "/labs/one/target"]
    beegfs8.write(root=False)
    (result,) = store_checks.stripe(where.folder, 2, named="beegfs", proc=where.proc)
    assert (result.verdict, beegfs8.patterns()) == ("warning", {})
    assert "beegfs entry set --num-targets=2 --mount none /labs/one" in result.mend
    beegfs8.write(root=True)
    (result,) = store_checks.stripe(where.folder, 2, named="beegfs", proc=where.proc)
    assert result.verdict == "ok"
    assert set_on(beegfs8) == [command, command]
    assert [*beegfs8.patterns()] == [str(where.same)]


def test_o1_version_7_is_told_the_path_as_it_stands(beegfs7: Cluster, tmp_path: Path) -> None:
    """O1: it asks the client's kernel module."""
    where = bound(beegfs7, tmp_path, whole=True)
    store_checks.stripe(where.folder, 2, named="beegfs", proc=where.proc)
    assert set_on(beegfs7) == [["beegfs-ctl", "--setpattern", "--numtargets=2", str(where.folder)]]


@pytest.mark.parametrize("whole", [True, False])
def test_s16_a_stub_below_a_bind_mount_is_seen(beegfs8: Cluster, tmp_path: Path, *, whole: bool) -> None:
    """S16: and is not taken for the file of the same path below the file system's root."""
    where = bound(beegfs8, tmp_path, whole=whole)
    for folder in (where.folder, where.same, where.other):
        for name in ("stub", "here"):
            (folder / name).write_bytes(b"x" * 5000)
    beegfs8.write(states={str(where.same / "stub"): ("unlocked", "manual-restore")}, root=True)
    asked = store_checks.data_states(where.folder, "beegfs", where.proc)
    assert asked is not None
    found = asked.away(["stub", "here"])
    asked.close()
    assert found == {"stub": DataState("offline", "a stub (BeeGFS restores it: manual)")}
