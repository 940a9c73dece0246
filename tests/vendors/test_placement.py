"""What comes to lie on one target, and which targets take it: the rows of the tables of `placement`."""

from __future__ import annotations

import pytest

from penstock.fs.placement import (
    GIB,
    TIB,
    SizeClasses,
    chunk_files,
    eligible,
    load,
    room,
)
from penstock.fs.stores import Pattern, Target

MIB = 1 << 20
PATTERN = Pattern("raid0", MIB, 4, "1")
MIRRORED = PATTERN._replace(kind="mirrored")


@pytest.mark.parametrize(
    ("sizes", "pattern", "among", "bytes_"),
    [
        # All its bytes, and the margin.
        ([GIB] * 64, PATTERN, 64, GIB * 110 // 100),
        ([3 * GIB] * 4, PATTERN, 4, 3 * GIB * 110 // 100),
        ([GIB] * 64, MIRRORED, 64, 2 * GIB * 110 // 100),
        # Its largest file.
        ([64 * GIB], PATTERN, 64, 16 * GIB),
        ([64 * GIB], MIRRORED, 64, 16 * GIB),
        ([8 * GIB, 1], PATTERN._replace(targets=1), 64, 8 * GIB),
        ([3 * MIB], PATTERN, 64, MIB),
        ([1], PATTERN, 64, 1),
        ([], PATTERN, 64, 0),
        ([0, 0], PATTERN, 64, 0),
        ([GIB], PATTERN, 0, GIB * 110 // 100),
    ],
)
def test_rows_of_what_comes_to_a_target(sizes: list[int], pattern: Pattern, among: int, bytes_: int) -> None:
    assert load(SizeClasses(sizes), pattern, among).bytes == pytest.approx(bytes_, abs=1)


def test_objects_of_a_target() -> None:
    """In the mean; an empty file has none, but on Lustre."""
    sizes = SizeClasses([0, 1, 2 * MIB, 100 * MIB])
    assert load(sizes, PATTERN, 16).chunk_files == (1 + 2 + 4) / 16
    assert load(sizes, PATTERN._replace(objects_of_empty=True), 16).chunk_files == 1
    assert load(sizes, PATTERN._replace(targets=0xFFFF, objects_of_empty=True), 16).chunk_files == 4


def test_classes_keep_numbers_and_bytes() -> None:
    sizes = [0, 1, 15, 16, 17, 1000, 1023, 1024, 10**12]
    classes = SizeClasses(sizes)
    assert (classes.files, classes.bytes, classes.largest) == (9, sum(sizes), 10**12)
    assert sum(count * mean for count, mean in classes) == pytest.approx(sum(sizes))
    assert SizeClasses([5] * 10 + [10**6]).half_of_the_bytes() == 10**6
    assert SizeClasses().half_of_the_bytes() == 0


def test_a8_chunk_files_are_what_quotas_count() -> None:
    """A8: an empty file has none, a small one one, a large one as many as its pattern is wide."""
    sizes = SizeClasses([0, 1, MIB, MIB + MIB // 2, 100 * MIB])
    assert chunk_files(sizes, PATTERN) == 0 + 1 + 1 + 2 + 4
    assert chunk_files(sizes, PATTERN._replace(kind="mirrored")) == 16


def of(*pools: str) -> list[Target]:
    return [Target("storage", str(at), capacity=pool) for at, pool in enumerate(pools)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pools", "wanted", "chosen"),
    [
        (("normal", "normal", "low", "emergency"), 2, "01"),
        (("normal", "unknown", "low"), 2, "01"),
        (("normal", "normal", "low", "emergency"), 3, "012"),
        (("normal", "normal", "low", "emergency"), 4, "0123"),
        (("normal", "low"), 8, "01"),
    ],
)
def test_rows_of_eligible(pools: tuple[str, ...], wanted: int, chosen: str) -> None:
    assert "".join(target.id for target in eligible(of(*pools), wanted)) == chosen
    offline = [target._replace(reachability="offline") for target in of(*pools)]
    assert eligible(offline, wanted) == []


@pytest.mark.parametrize(
    ("free", "capacity", "there"),
    [
        (3 * TIB, "normal", (2 * TIB, TIB)),
        (TIB, "normal", (TIB - 20 * GIB, 20 * GIB)),
        (3 * TIB, "low", (3 * TIB - 20 * GIB, 20 * GIB)),
        (10 * GIB, "normal", (10 * GIB, 0)),
        (0, "emergency", (0, 0)),
        (None, "normal", None),
    ],
)
def test_rows_of_room(free: int | None, capacity: str, there: tuple[int, int] | None) -> None:
    assert room(Target("storage", "1", free_bytes=free, capacity=capacity)) == there  # type: ignore[arg-type]
