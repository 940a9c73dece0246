"""What comes to lie on one target: the sum over classes of size against targets that are drawn."""

from __future__ import annotations

import math
import random
import time

import pytest

from penstock.vendors.facts import Component, Pattern, Target
from penstock.vendors.placement import GIB, TIB, Load, SizeClasses, chunk_files, eligible, load, room

MIB = 1 << 20
PATTERN = Pattern("raid0", MIB, 4, "1")


def drawn(sizes: list[int], pattern: Pattern, among: int, seed: int) -> tuple[list[float], list[int]]:
    """Bytes and chunk files on each target, targets drawn for each file and chunks laid in turn."""
    draw = random.Random(seed)
    places = among // pattern.copies
    wide = min(pattern.targets, places)
    lies, files = [0.0] * places, [0] * places
    for size in sizes:
        chosen = draw.sample(range(places), wide)
        for at in range(min(wide, math.ceil(size / pattern.chunk_bytes))):
            files[chosen[at]] += 1
        whole, rest = divmod(size, pattern.chunk_bytes)
        for at in range(wide):
            lies[chosen[at]] += pattern.chunk_bytes * (whole // wide + (at < whole % wide))
        lies[chosen[whole % wide]] += rest
    return lies, files


@pytest.mark.parametrize("pattern", [PATTERN, PATTERN._replace(targets=16), PATTERN._replace(targets=1)])
@pytest.mark.parametrize("kind", ["raid0", "mirrored"])
def test_the_bound_holds_where_targets_are_drawn(pattern: Pattern, kind: str) -> None:
    pattern = pattern._replace(kind=kind)
    draw = random.Random(1)
    sizes = [int(draw.lognormvariate(12, 2)) for _ in range(3000)] + [0] * 50 + [2 * GIB + 1, 3 * GIB]
    seen = load(SizeClasses(sizes), pattern, 16)
    for seed in range(5):
        lies, files = drawn(sizes, pattern, 16, seed)
        assert sum(lies) == sum(sizes)
        mean = sum(lies) / len(lies)
        assert seen.expected == pytest.approx(mean, rel=0.001)
        assert seen.chunk_files == pytest.approx(sum(files) / len(files), rel=0.02)
        # A chunk for each giant: its last chunks are not spread.
        assert max(lies) <= seen.most + 2 * pattern.chunk_bytes
    assert seen.most <= sum(sizes)


def test_the_bound_holds_for_progressive_layouts() -> None:
    """Each range of a file is drawn by itself; a small file has the objects of its first range alone."""
    layout = (Component(16 * MIB, 1, MIB), Component(GIB, 4, MIB), Component(None, 8, 4 * MIB))
    pattern = Pattern("raid0", 4 * MIB, 8, layout=layout, objects_of_empty=True)
    draw = random.Random(3)
    sizes = [0, 1, *(int(draw.lognormvariate(17, 3)) for _ in range(500)), 5 * GIB]
    seen = load(SizeClasses(sizes), pattern, 16)
    assert seen.expected == pytest.approx(sum(sizes) / 16, rel=0.001)
    for seed in range(5):
        lies, draws = [0.0] * 16, random.Random(seed)
        for size in sizes:
            start = 0
            for one in layout:
                here = max(0, min(size, one.end or size) - start)
                for at in draws.sample(range(16), one.targets):
                    lies[at] += here / one.targets
                start = one.end or 0
        assert max(lies) <= seen.most + 8 * MIB
    wide = sum(size > 16 * MIB for size in sizes), sum(size > GIB for size in sizes)
    assert chunk_files(SizeClasses(sizes), pattern) == pytest.approx(
        len(sizes) + 4 * wide[0] + 8 * wide[1], rel=0.02
    )
    assert load(SizeClasses([0, 0]), pattern, 16).chunk_files == pytest.approx(2 / 16)


def test_one_giant_can_fall_on_any_target() -> None:
    seen = load(SizeClasses([64 * GIB]), PATTERN, 64)
    assert seen.most == 16 * GIB
    assert seen.expected == GIB


def test_nothing_takes_nothing() -> None:
    assert load(SizeClasses(), PATTERN, 64) == Load(0.0, 0, 0.0)
    assert load(SizeClasses([0, 0]), PATTERN, 64) == Load(0.0, 0, 0.0)


def test_classes_keep_numbers_and_bytes() -> None:
    sizes = [0, 1, 15, 16, 17, 1000, 1023, 1024, 10**12]
    classes = SizeClasses(sizes)
    assert (classes.files, classes.bytes, classes.largest) == (9, sum(sizes), 10**12)
    assert sum(count * mean for count, mean in classes) == pytest.approx(sum(sizes))
    classes.remove([1000, 0])
    assert (classes.files, classes.bytes) == (7, sum(sizes) - 1000)
    assert SizeClasses([5] * 10 + [10**6]).half_of_the_bytes() == 10**6
    assert SizeClasses().half_of_the_bytes() == 0


def test_a8_chunk_files_are_what_quotas_count() -> None:
    """A8: an empty file has none, a small one one, a large one as many as its pattern is wide."""
    sizes = SizeClasses([0, 1, MIB, MIB + MIB // 2, 100 * MIB])
    assert chunk_files(sizes, PATTERN) == 0 + 1 + 1 + 2 + 4
    assert chunk_files(sizes, PATTERN._replace(kind="mirrored")) == 16


def test_a_hundred_thousand_files_take_less_than_a_second() -> None:
    draw = random.Random(2)
    sizes = [draw.randrange(10 * MIB) for _ in range(100_000)] + [2 * TIB] * 4
    started = time.perf_counter()
    seen = load(SizeClasses(sizes), PATTERN._replace(targets=64), 64)
    assert time.perf_counter() - started < 1
    assert seen.expected == pytest.approx(sum(sizes) / 64, rel=0.001)


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
