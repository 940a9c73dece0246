"""Rows of the table in `vendors.space`, and show 3."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.dataset_documents import StillToWrite
from penstock.core.run_steps import gravest
from penstock.fs import placement
from penstock.fs.placement import GIB, TIB, SizeClasses
from penstock.fs.quotas import Quota
from penstock.fs.stores import (
    FillRules,
    Pattern,
    StoreStatus,
    Target,
)

MIB = 1 << 20
PATTERN = Pattern("raid0", MIB, 4, "1", "Default")


def targets(number: int, *, pool: str = "1", free: int = 10 * TIB, first: int = 101) -> tuple[Target, ...]:
    made = Target("storage", "", pool=pool, total_bytes=20 * TIB, free_bytes=free, total_inodes=10**9)
    made = made._replace(free_inodes=10**9, capacity="normal", reachability="online", consistency="good")
    return tuple(made._replace(id=str(first + at)) for at in range(number))


def status(storage: tuple[Target, ...], **changes: Any) -> StoreStatus:
    meta = Target("metadata", "1", total_bytes=TIB, free_bytes=TIB, total_inodes=10**9, free_inodes=10**9)
    return StoreStatus("BeeGFS 8", (meta, *storage), pattern=PATTERN)._replace(**changes)


def other(size: int, files: int, **changes: Any) -> StillToWrite:
    return StillToWrite(size, files, uid=1000, gid=2000, pool="1")._replace(**changes)


@pytest.mark.parametrize(
    ("changes", "taken"),
    [
        ({}, True),
        ({"pool": ""}, True),
        ({"pool": "Default"}, True),
        ({"pool": "2"}, False),
    ],
)
def test_s17_what_other_runs_of_the_pool_will_write_is_taken_from_its_targets(
    changes: dict[str, str], taken: bool
) -> None:
    """S17: by the pool's number or name; of an unknown pool from all."""
    here = status((*targets(4), *targets(2, pool="2", first=901)), pools=(("1", "Default"),))
    quota = Quota("user", 1000, "1", used=TIB, limit=2 * TIB, used_files=5)
    others = [other(2 * TIB, 1000, **changes), other(2 * TIB, 1000, uid=1, **changes)]
    seen = placement.beside(here._replace(quotas=(quota,)), others)
    of_pool = [target.free_bytes for target in seen.in_pool()]
    assert of_pool == [9 * TIB if taken else 10 * TIB] * 4
    assert seen.targets[1].free_inodes == 10**9 - (500 if taken else 0)
    assert seen.targets[0].free_bytes == TIB - placement.metadata_need(2000, 0, FillRules())[0]
    assert seen.quotas[0].used == (3 * TIB if taken else TIB)
    assert seen.quotas[0].used_files == (1005 if taken else 5)


@pytest.mark.parametrize(
    ("scope", "number", "taken"),
    [("user", 1000, True), ("user", 2000, False), ("group", 2000, True), ("group", 1000, False)],
)
def test_s17_a_quota_is_filled_by_runs_of_its_own_account(scope: Any, number: int, taken: bool) -> None:
    """S17: what is not known stays so."""
    here = status(targets(4), quotas=(Quota(scope, number, used=5, limit=TIB),))
    (quota,) = placement.beside(here, [other(7, 1)]).quotas
    assert (quota.used, quota.used_files) == (12 if taken else 5, None)
    assert placement.beside(here, ()) is here


def test_s17_quotas_of_chunk_files_count_what_a_run_says_of_them() -> None:
    """S17: one for each file where it says nothing; on Lustre quotas count files, targets objects."""
    quota = Quota("user", 1000, used=0, used_files=5)
    here = status(targets(4), quotas=(quota,))
    others = [other(7, 10, chunk_files=40), other(7, 8)]
    seen = placement.beside(here, others)
    assert seen.quotas[0].used_files == 5 + 40 + 8
    assert seen.in_pool()[0].free_inodes == 10**9 - 48 // 4
    lustre = here._replace(rules=FillRules(objects="objects", quota_counts="files"))
    seen = placement.beside(lustre, others)
    assert seen.quotas[0].used_files == 5 + 18
    assert seen.in_pool()[0].free_inodes == 10**9 - 48 // 4


SHOW_3 = SizeClasses([3 * MIB] * 100_000 + [4 * TIB] * 4)


def test_show_3_the_target_that_the_pattern_would_overfill() -> None:
    """Show 3, A1: 100,000 files and four giants onto 64 targets of which one is nearly full."""
    full = targets(1, free=30 * GIB, first=117)[0]._replace(capacity="low")
    storage = (*targets(16), full, *targets(47, first=118))
    wide = status(storage, pattern=PATTERN._replace(targets=64))
    (stop,) = placement.placed(wide, SHOW_3)
    assert stop.verdict == "stop"
    assert stop.about == "BeeGFS 8 storage target 117"
    missing = -(-SHOW_3.bytes * 110 // 6400) - 10 * GIB
    assert f"it takes 10.0 GiB until 20.0 GiB are left: {missing:,} bytes are missing" in stop.found
    assert "have the target's folder striped over fewer targets" in stop.mend
    # Over eight, none comes to it: BeeGFS leaves targets in the pool `low` out where others suffice.
    (fits,) = placement.placed(status(storage, pattern=PATTERN._replace(targets=8)), SHOW_3)
    assert fits.verdict == "ok"
    assert "a file lies on up to 8 of 63 targets, in chunks of 1.00 MiB; about 512 GiB come to" in fits.found
    # In the capacity pool `normal` any pattern can hit it.
    normal = (*storage[:16], full._replace(capacity="normal"), *storage[17:])
    (stop,) = placement.placed(status(normal), SHOW_3)
    assert stop.about == "BeeGFS 8 storage target 117"


def test_a1_more_than_all_targets_take() -> None:
    """A1: 40 TiB onto three targets of 10226.7 GiB, with the margin."""
    size = int(10226.7 * GIB)
    storage = targets(3, free=size)
    found = placement.placed(status(storage, pattern=PATTERN._replace(targets=3)), SizeClasses([40 * TIB]))
    assert [one.about for one in found] == [f"BeeGFS 8 storage target {number}" for number in (101, 102, 103)]
    for one in found:
        assert one.verdict == "stop"
        assert "about 14.7 TiB (16,126,170,540,715 bytes) of this plan" in one.found
        assert f"{16_126_170_540_715 - (size - TIB):,} bytes are missing" in one.found
        assert "administrator" in one.mend
    many = placement.placed(status(targets(20, free=TIB), pattern=PATTERN), SizeClasses([40 * TIB] * 9))
    assert len(many) == placement.NAMED + 1
    assert "12 further targets" in many[-1].found


def test_inodes_of_a_target() -> None:
    storage = targets(4)
    few = (storage[0]._replace(free_inodes=100), *storage[1:])
    (stop,) = placement.placed(status(few), SizeClasses([1] * 1000))
    assert stop.verdict == "stop"
    assert "about 250 chunk files come to it, and 100 inodes are free" in stop.found
    unknown = (storage[0]._replace(free_inodes=None), *storage[1:])
    assert gravest(placement.placed(status(unknown), SizeClasses([1] * 1000))) == "ok"


def test_space_that_is_not_known_is_a_note() -> None:
    storage = targets(4)
    unknown = (storage[0]._replace(free_bytes=None), *storage[1:])
    (note,) = placement.placed(status(unknown), SizeClasses([1] * 1000))
    assert (note.verdict, "the room of 1 targets is not known" in note.found) == ("note", True)
    assert placement.placed(status(storage, pattern=None), SizeClasses([1])) == []


def test_a5_what_metadata_needs() -> None:
    """A5: 10 million files are within the rule of 0.3 to 0.5 % where they have 1 MB each."""
    need, inodes = placement.metadata_need(10**7, 0, FillRules())
    assert 0.003 <= need / (10**7 * 10**6) <= 0.005
    assert inodes == 10**7
    assert placement.metadata_need(150 * 10**6, 0, FillRules())[0] == 500 * 10**9
    assert placement.metadata_need(0, 1000, FillRules())[1] == 4000


@pytest.mark.parametrize(
    ("free", "inodes", "verdict", "words"),
    [
        (TIB, 10**9, "ok", "need about 31.0 GiB, 0.33 % of the data"),
        (35 * GIB, 10**9, "stop", "25.0 GiB are left above the limits"),
        (TIB, 10**6, "stop", "1,000,000 are free"),
        (TIB, None, "ok", ""),
        (None, None, "note", "not known of every target"),
    ],
)
def test_a5_metadata_rows(free: int | None, inodes: int | None, verdict: str, words: str) -> None:
    """A5"""
    sizes = SizeClasses([10**6] * 10**5)
    sizes._counts, sizes._sums = (  # a hundred times as many
        type(sizes._counts)(int, {key: 100 * count for key, count in sizes._counts.items()}),
        type(sizes._sums)(int, {key: 100 * count for key, count in sizes._sums.items()}),
    )
    meta = Target("metadata", "1", total_bytes=free, free_bytes=free, total_inodes=inodes, free_inodes=inodes)
    (seen,) = placement.metadata(StoreStatus("BeeGFS 8", (meta,)), sizes, 1000)
    assert seen.verdict == verdict
    assert words in seen.found


QUOTA = Quota("group", 50, "1", used=10 * GIB, limit=20 * GIB, used_files=100, file_limit=1000)


@pytest.mark.parametrize(
    ("changes", "sizes", "verdict", "words"),
    [
        ({}, [], "ok", "10.0 GiB of 20.0 GiB used"),
        ({}, [GIB], "ok", "1.00 GiB more, the limit is 20.0 GiB"),
        ({}, [10 * GIB + 5], "stop", "5 bytes are missing"),
        ({}, [1] * 901, "stop", "1 chunk files are missing"),
        ({}, [4 * MIB] * 226, "stop", "4 chunk files are missing"),
        ({"used": 20 * GIB}, [], "stop", "20.0 GiB used"),
        ({"used": None}, [GIB], "note", "what is used is not known"),
        ({"limit": None, "file_limit": None}, [TIB], "ok", ""),
        ({"soft_limit": 11 * GIB}, [2 * GIB], "warning", "the grace time begins then"),
        ({"soft_limit": 9 * GIB, "grace": 3600.0}, [GIB], "warning", "3,600 s of grace are left"),
        ({"soft_limit": 9 * GIB, "grace": 0.0}, [GIB], "stop", "its grace is over"),
    ],
)
def test_a8_rows_of_quotas(changes: dict[str, Any], sizes: list[int], verdict: str, words: str) -> None:
    """A8: they count chunk files, and a mirror's bytes twice."""
    found = placement.quotas(status(targets(4), quotas=(QUOTA._replace(**changes),)), SizeClasses(sizes))
    assert gravest(found) == verdict
    assert words in " ".join(one.found for one in found)
    assert all(one.about == "BeeGFS 8 quota of group 50 in pool 1" for one in found)


def test_a8_a_mirror_counts_twice() -> None:
    """A8"""
    mirrored = status(targets(4), pattern=PATTERN._replace(kind="mirrored"), quotas=(QUOTA,))
    found = placement.quotas(mirrored, SizeClasses([6 * GIB]))
    assert gravest(found) == "stop"
