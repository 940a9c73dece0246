"""Kinds, durability and mounts by their tables."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.fs.capabilities import durability_of, facts, passable
from penstock.fs.kinds import kind_of, named_kind
from penstock.host.kernel_facts import (
    Mount,
    mount_of,
    mount_of_device,
    mounts,
)

_MOUNTS = r"""22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,errors=remount-ro
30 22 0:25 / /mnt/beegfs rw,relatime - beegfs beegfs_nodev rw,cfgFile=/etc/beegfs/beegfs-client.conf
31 22 0:26 / /mnt/weka rw,relatime master:3 - wekafs default rw,writecache,inode_bits=auto
32 22 0:27 / /mnt/with\040space rw - nfs4 server:/x\040y rw,vers=4.2
33 32 0:28 / /mnt/with\040space rw - fuse.sshfs host: rw,user_id=0
torn line
"""


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mountinfo").write_text(_MOUNTS)
    return tmp_path


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/", ("ext4", "/dev/vda")),
        ("/mnt/beegfsX", ("ext4", "/dev/vda")),
        ("/mnt/beegfs", ("beegfs", "beegfs_nodev")),
        ("/mnt/weka/a/b", ("wekafs", "default")),
        ("/mnt/with space/a", ("fuse.sshfs", "host:")),
    ],
)
def test_the_mount_of_a_path(path: str, expected: tuple[str, str], proc: Path) -> None:
    mount = mount_of(path, proc)
    assert (mount.type, mount.device) == expected


@pytest.mark.parametrize(
    ("point", "root", "path", "inside"),
    [
        ("/", "/", "/a/b", "/a/b"),
        ("/mnt", "/", "/mnt/a", "/a"),
        ("/mnt", "/", "/mnt/..a", "/..a"),
        ("/mnt", "/", "/mnt", "/"),
        ("/mnt", "/labs/one", "/mnt", "/labs/one"),
        ("/mnt", "/labs/one", "/mnt/a", "/labs/one/a"),
        ("/mnt", "/labs/one", "/mnts/a", None),
    ],
)
def test_where_a_path_lies_in_the_file_system(
    point: str, root: str, path: str, inside: str | None, tmp_path: Path
) -> None:
    """Below a bind mount the path below the mount point is not the path in the file system."""
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mountinfo").write_text(f"31 22 0:26 {root} {point} rw - wekafs default rw\n")
    (mount,) = mounts(tmp_path)
    assert mount.root == root
    assert mount.inside(path) == inside


def test_mount_options_hold_both_kinds(proc: Path) -> None:
    assert mount_of("/mnt/weka", proc).options == "rw,relatime,rw,writecache,inode_bits=auto"


def test_no_mount_table_is_no_mount(tmp_path: Path) -> None:
    assert mount_of("/x", tmp_path) == Mount()


def test_the_mount_of_a_device(proc: Path) -> None:
    assert mount_of_device(os.makedev(0, 26), proc).type == "wekafs"
    assert mount_of_device(os.makedev(0, 99), proc) == Mount()


@pytest.mark.parametrize(
    ("magic", "fstype", "kind"),
    [
        (0xEF53, "ext3", "ext4"),
        (0x19830326, "beegfs", "beegfs"),
        (0x12345, "wekafs", "wekafs"),
        (0x6969, "nfs4", "nfs"),
        (0x65735546, "fuse.sshfs", "fuse"),
        (0x794C7630, "overlay", "overlay"),
        (0x0BD00BD0, "", "lustre"),
        (0x12345, "", "unknown-12345"),
        (0x12345, "fuse.sshfs", "fuse"),
        (0x12345, "newfs", "newfs"),
        (0xEF53, "beegfs", "ext4"),
        (0x12345, "ext4", "ext4"),
    ],
)
def test_kinds(magic: int, fstype: str, kind: str) -> None:
    assert kind_of(magic, fstype).name == kind


@pytest.mark.parametrize(
    ("kind", "release", "durability"),
    [
        ("ext4", "6.1.0-13-amd64", "syncfs"),
        ("ext4", "4.18.0-553.el8_10.x86_64", "fsync"),
        ("tmpfs", "4.18.0", "syncfs"),
        ("wekafs", "5.14.0-427.el9", "syncfs"),
        ("lustre", "5.8.0", "fsync"),
        ("lustre", "6.12.0", "fsync"),
        ("xfs", "5.7.19", "fsync"),
        ("xfs", "odd", "fsync"),
        ("beegfs", "6.1.0", "fsync"),
        ("nfs", "6.1.0", "fsync"),
        ("fuse", "6.1.0", "fsync"),
        ("overlay", "6.1.0", "fsync"),
    ],
)
def test_durability(kind: str, release: str, durability: str) -> None:
    assert durability_of(named_kind(kind), release) == durability


@pytest.mark.parametrize(
    ("kind", "can"),
    [
        *((kind, True) for kind in ("ext4", "xfs", "btrfs", "wekafs", "lustre", "beegfs", "nfs", "ceph")),
        *((kind, False) for kind in ("fuse", "overlay", "tmpfs", "ramfs", "zfs", "gpfs", "9p", "unknown-1")),
    ],
)
def test_where_a_read_can_pass_all_caches(kind: str, can: bool) -> None:
    assert passable(kind) is can


def test_facts_of_this_machine(folder: Path) -> None:
    seen, space = facts(folder), os.statvfs(folder)
    assert 0 < seen.free_bytes <= space.f_blocks * space.f_frsize
    assert not seen.read_only
    assert facts(folder / "not" / "yet").device == seen.device
    shm = facts(Path("/dev/shm"))
    assert (shm.kind, shm.durability, shm.direct) == ("tmpfs", "syncfs", False)


def test_a_file_system_without_a_number_is_known_by_the_mount_table(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    line = "22 1 254:0 / / rw,relatime - wekafs default rw,writecache"
    (tmp_path / "self/mountinfo").write_text(f"{line}\n")
    seen = facts(folder, tmp_path)
    assert (seen.kind, seen.device, seen.mount_options) == ("wekafs", "default", "rw,relatime,rw,writecache")
    assert seen.passable
    assert not seen.traits.preallocate
    assert not seen.traits.local
