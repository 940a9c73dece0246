# ruff: noqa: E501 (output stands as it is printed)
"""`lfs`' output, by the formats of lustre-release (`lustre/utils/lfs.c`) and by what sites print."""

from __future__ import annotations

import pytest

from penstock.fs import lustre
from penstock.fs.quotas import Quota
from penstock.fs.stores import Target

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
DF = """\
UUID                   1K-blocks        Used   Available Use% Mounted on
users-MDT0000_UUID       5872025       46899     5242880   1% /mnt/my users[MDT:0]
users-OST0000_UUID       9646899       37990     9122611   0% /mnt/my users[OST:0] f
users-OST0001_UUID       9646899     9646899           0 100% /mnt/my users[OST:1] SD
users-OST0002_UUID  : inactive device
users-OST000a_UUID  : Cannot send after transport endpoint shutdown

filesystem_summary:     55300000      222900    52000000   0% /mnt/my users

"""
DF_INODES = """\
UUID                      Inodes       IUsed       IFree IUse% Mounted on
users-MDT0000_UUID       1048576         300     1048276   1% /users[MDT:0]
users-OST0000_UUID         65536         277       65259   1% /users[OST:0]

filesystem_summary:        65559         300       65259   1% /users

"""


def test_rows_of_df() -> None:
    up = Target("storage", "users-OST0000", capacity="unknown", reachability="online")
    up = up._replace(total_bytes=9646899 * KIB, free_bytes=9122611 * KIB)
    full = up._replace(id="users-OST0001", free_bytes=0, capacity="closed")
    meta = up._replace(
        role="metadata", id="users-MDT0000", total_bytes=5872025 * KIB, free_bytes=5242880 * KIB
    )
    taken_out = Target("storage", "users-OST0002", capacity="closed", reachability="inactive")
    away = Target("storage", "users-OST000a", reachability="offline")
    assert lustre.read_targets(DF) == [meta, up, full, taken_out, away]
    assert lustre.read_inodes(DF_INODES) == {
        "users-MDT0000": (1048576, 1048276),
        "users-OST0000": (65536, 65259),
    }
    assert lustre.read_targets("") == []


def test_targets_that_df_leaves_out_are_named_by_the_lists() -> None:
    names = lustre.read_listed(
        "OBDS:\n0: users-OST0000_UUID ACTIVE\n7: users-OST0007_UUID ACTIVE\n8: a-OST0008_UUID INACTIVE\n"
    )
    assert names == {"users-OST0000": True, "users-OST0007": True, "a-OST0008": False}
    seen = list(lustre.states(names, lustre.read_targets(DF), "storage"))
    assert [(one.id, one.reachability, one.capacity) for one in seen] == [
        ("users-OST0007", "unknown", "unknown"),
        ("a-OST0008", "inactive", "closed"),
    ]


def test_pools() -> None:
    assert lustre.read_pools("Pools from users:\nusers.flash\nusers.disk\n") == ["users.flash", "users.disk"]
    members = lustre.read_members("Pool: users.flash\nusers-OST0000_UUID\nusers-OST001f_UUID\n")
    assert members == ["users-OST0000", "users-OST001f"]


HEAD = "Disk quotas for usr bob (uid 1000):\n"
OLD = "     Filesystem  kbytes   quota   limit   grace   files   quota   limit   grace\n"
NEW = "     Filesystem  kbytes  bquota  blimit  bgrace   files  iquota  ilimit  igrace\n"


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        (
            HEAD + OLD + "    /mnt/testfs    100  307200  309200       -       7   10000   11000       -\n",
            Quota("user", 1000, "", 100 * KIB, 309200 * KIB, 7, 11000, 307200 * KIB, 10000),
        ),
        (
            HEAD
            + NEW
            + "    /mnt/testfs 309000*  307200  309200 6d23h59m58s       7       0       0       -\n",
            Quota("user", 1000, "", 309000 * KIB, 309200 * KIB, 7, None, 307200 * KIB, None, 604798.0),
        ),
        (
            HEAD + NEW + "    /mnt/testfs 309000* 307200 309200 expired 12* 10 0 none\n",
            Quota("user", 1000, "", 309000 * KIB, 309200 * KIB, 12, None, 307200 * KIB, 10, 0.0, 0.0),
        ),
        # A long name, as Isambard-AI prints it.
        (
            "Disk quotas for prj 14 (pid 14):\n" + OLD + "/lus/lfs1aip2/projects/b5ak\n"
            "                78173842908       0 214748364800       - 4044325       0 51200000       -\n",
            Quota("user", 1000, "", 78173842908 * KIB, 214748364800 * KIB, 4044325, 51200000),
        ),
        # A target did not answer: the figure is no true one, the limit is.
        (
            HEAD
            + OLD
            + "        /univ_1 [10200224]       0     500       -   17724       0       0       -\n"
            "Some errors happened when getting quota info. Some devices may be not working or deactivated. "
            'The data in "[]" is inaccurate.\n',
            Quota("user", 1000, "", None, 500 * KIB, 17724),
        ),
        (
            HEAD + OLD + "/mnt/my files 1 0 0 - 2 0 0 -\nuid 1000 is using default file quota setting\n",
            Quota("user", 1000, "", KIB, None, 2, None),
        ),
        (HEAD + OLD, None),
        ("", None),
        ("user quotas are not enabled.\n", None),
    ],
)
def test_a8_rows_of_a_quota(text: str, seen: Quota | None) -> None:
    """A8: exact figures, others, and what is left of a grace."""
    assert lustre.read_quota("user", 1000, text) == seen


COMPOSITE = """\
/mnt/users/d
  lcm_layout_gen:    0
  lcm_mirror_count:  1
  lcm_entry_count:   3
    lcme_id:             N/A
    lcme_mirror_id:      N/A
    lcme_flags:          0
    lcme_extent.e_start: 0
    lcme_extent.e_end:   65536
      stripe_count:  0       stripe_size:   65536       pattern:       mdt       stripe_offset: -1

    lcme_id:             N/A
    lcme_mirror_id:      N/A
    lcme_flags:          0
    lcme_extent.e_start: 65536
    lcme_extent.e_end:   16777216
      stripe_count:  1       stripe_size:   1048576       pattern:       raid0       stripe_offset: -1       pool:          disk

    lcme_id:             N/A
    lcme_mirror_id:      N/A
    lcme_flags:          0
    lcme_extent.e_start: 16777216
    lcme_extent.e_end:   EOF
      stripe_count:  -1       stripe_size:   4194304       pattern:       raid0       stripe_offset: -1       pool:          disk

"""


def test_layouts() -> None:
    seen = lustre.read_pattern("stripe-dir\nstripe_count:  4 stripe_size:   1048576 stripe_offset: 10\n")
    assert seen is not None
    assert (seen.kind, seen.targets, seen.chunk_bytes, seen.pool, seen.objects_of_empty) == (
        "raid0", 4, MIB, "", True,
    )  # fmt: skip
    seen = lustre.read_pattern(
        "/d\nstripe_count:  1 stripe_size:   4194304 pattern:       raid0 stripe_offset: -1 pool:          flash\n\n"
    )
    assert seen is not None
    assert (seen.targets, seen.chunk_bytes, seen.pool, seen.pool_name) == (1, 4 * MIB, "flash", "flash")
    seen = lustre.read_pattern(COMPOSITE)
    assert seen is not None
    assert (seen.kind, seen.objects_of_empty) == ("composite", False)
    assert (seen.targets, seen.chunk_bytes, seen.pool) == (lustre.ALL, 4 * MIB, "disk")
    assert lustre.read_pattern("lfs getstripe: cannot open '/d': Permission denied") is None


def test_commands() -> None:
    """Sizes are binary."""
    assert lustre.set_stripe("/d", 4, MIB) == ["lfs", "setstripe", "-c", "4", "-S", "1M", "/d"]
    pooled = lustre.set_stripe("/d", 1, 64 * KIB, "flash")
    assert pooled == ["lfs", "setstripe", "-c", "1", "-S", "64K", "-p", "flash", "/d"]
    assert lustre.quota("project", 5, "/d") == ["lfs", "quota", "-p", "5", "/d"]
    assert lustre.df("/d", inodes=True) == ["lfs", "df", "--lazy", "-v", "-i", "/d"]
