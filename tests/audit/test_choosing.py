"""Which files an audit reads: what a sample promises holds, and a rotation covers everything."""

from __future__ import annotations

import itertools
import random
from hashlib import blake2b
from typing import Any

import pytest

from penstock.core.findings import (
    AuditSelection,
    SoonFirst,
    parse_fraction,
    parse_turns,
)
from penstock.core.grades import is_soon
from penstock.core.model import Record
from penstock.jobs.audits_and_adoptions import takes
from penstock.keep.audit_plan import rows
from penstock.tables.manifest import Files

EMPTY: dict[str, Any] = (
    dict.fromkeys(Record._fields, "")
    | dict.fromkeys(("size", "modified_ns", "source", "mtime_ns", "inode", "read_at", "carried", "shared"), 0)
    | {"ctime_ns": 4900 * 10**9}
)
PATHS = [f"folder{i % 17}/file{i:05d}" for i in range(2000)]


@pytest.mark.parametrize(("share", "damaged"), [(0.01, 1), (0.01, 100), (0.05, 20), (0.2, 5), (0.5, 3)])
def test_a_sample_finds_damage_as_often_as_it_says(share: float, damaged: int) -> None:
    chance = random.Random(f"{share} {damaged}")
    rounds = 1000
    hits = 0
    for number in range(rounds):
        choice = AuditSelection("sample", share, f"{share} {number}")
        hits += any(takes(choice, path) for path in chance.sample(PATHS, damaged))
    told = AuditSelection("sample", share).detects(damaged)
    # Four standard deviations of a binomial count.
    margin = 4 * (told * (1 - told) / rounds) ** 0.5
    assert told - margin <= hits / rounds <= told + margin


def test_a_sample_takes_about_its_share_and_always_the_same() -> None:
    choice = AuditSelection("sample", 0.1, "seed")
    taken = [path for path in PATHS if takes(choice, path)]
    assert 130 <= len(taken) <= 270
    assert taken == [path for path in PATHS if takes(AuditSelection("sample", 0.1, "seed"), path)]
    assert taken != [path for path in PATHS if takes(AuditSelection("sample", 0.1, "other"), path)]


@pytest.mark.parametrize("turns", [1, 2, 7, 30])
def test_a_rotation_takes_everything_exactly_once(turns: int) -> None:
    slices = [AuditSelection("slice", turn=turn, turns=turns) for turn in range(turns)]
    for path in PATHS[:300]:
        assert sum(takes(choice, path) for choice in slices) == 1
        assert sum(takes(choice, path, 3) for choice in slices) == 1


@pytest.mark.parametrize(("every", "turns"), [(100, 7), (10, 7), (3, 7), (2, 30), (3, 1)])
@pytest.mark.parametrize("start", [0.0, 0.37, 0.999])
def test_what_was_read_back_soon_comes_first_and_slices_keep_their_size(
    every: int, turns: int, start: float
) -> None:
    soon = {path: number % every == 0 for number, path in enumerate(PATHS)}
    share = sum(soon.values()) / len(PATHS)
    cut = SoonFirst(share, start)
    slices = [
        [(path, part) for path in PATHS for part in (-1, 3) if takes(choice, path, part, soon=soon[path])]
        for choice in (
            AuditSelection("slice", turn=turn, turns=turns, soon_first=cut) for turn in range(turns)
        )
    ]
    read = [unit for of in slices for unit in of]
    assert len(read) == len(set(read)) == 2 * len(PATHS)
    most = 2 * len(PATHS) / turns
    assert all(abs(len(of) - most) <= 5 * most**0.5 for of in slices)
    # The last soon one is read by the slice in which the first `share` of all ends.
    assert not any(soon[path] for of in slices[int(share * turns) + 1 :] for path, _ in of)
    assert all(soon[path] for of in slices[: int(share * turns)] for path, _ in of)


def test_the_other_files_go_on_where_the_last_slice_ended() -> None:
    """Of releases that follow one another, each with other files that were read back soon."""
    end, read = 0.0, []
    for share in (0.05, 0.02, 0.08, 0.0625):
        choice = AuditSelection("slice", turn=0, turns=4, soon_first=SoonFirst(share, end % 1))
        read.append({path for path in PATHS if takes(choice, path)})
        end = choice.end
    assert not any(one & other for one, other in itertools.combinations(read, 2))
    assert 0.75 < end < 0.85
    assert abs(sum(map(len, read)) / len(PATHS) - end) < 0.05
    assert AuditSelection("slice", turn=2, turns=4).end == 0.75
    assert AuditSelection("slice", turn=0, turns=4, soon_first=SoonFirst(0.9, 0.3)).end == 0.3


def test_slices_are_cut_as_they_ever_were() -> None:
    """A rotation that another version began still reads everything."""
    for path in PATHS[:50]:
        digest = blake2b(b"rotation\0-1\0" + path.encode(), digest_size=8).digest()
        assert takes(AuditSelection("slice", turn=int.from_bytes(digest) % 30, turns=30), path)


def test_parts_of_a_giant_are_drawn_one_by_one() -> None:
    choice = AuditSelection("slice", turn=0, turns=4)
    taken = {part for part in range(400) if takes(choice, "giant", part)}
    assert 50 < len(taken) < 150


def test_what_is_promised() -> None:
    assert AuditSelection().promise() == "every byte is read: any damage is found"
    assert AuditSelection().promise("the servers") == (
        "every byte is read: the memory of the servers may have answered, "
        "and damage on the disks below it shows later"
    )
    assert "found with" in AuditSelection("sample", 0.01).promise("this node")
    assert "; the memory of this node may have" in AuditSelection("sample", 0.01).promise("this node")
    assert AuditSelection().detects(1) == 1
    assert "95%" in AuditSelection("sample", 0.01).promise()
    assert "299 or more" in AuditSelection("sample", 0.01).promise()
    assert "slice 3 of 30" in AuditSelection("slice", turn=2, turns=30).promise()
    first = AuditSelection("slice", turns=30, soon_first=SoonFirst(0.5)).promise()
    assert first.startswith("slice 1 of 30, first what was read back soon after its writing: all slices")
    assert takes(AuditSelection("sample", 1.0), "anything")


def test_shares_and_turns_are_parsed_strictly() -> None:
    assert parse_fraction("1%") == parse_fraction("0.01") == 0.01
    assert parse_turns("1/30") == 30
    for text in ("0", "0%", "101%", "-1%", "nan", "", "x", "1e9"):
        with pytest.raises(ValueError):
            parse_fraction(text)
    for text in ("2/30", "1/0", "30", "1/", "1/x", "1/99999", "1/-3"):
        with pytest.raises(ValueError):
            parse_turns(text)


@pytest.mark.parametrize(
    "choice",
    [
        AuditSelection(),
        AuditSelection("sample", 0.01, "a"),
        AuditSelection("sample", 0.6, "b"),
        AuditSelection("sample", 1.0, "c"),
        AuditSelection("slice", turn=2, turns=30),
        AuditSelection("slice", turn=0, turns=2),
        AuditSelection("slice", turn=0, turns=7, soon_first=SoonFirst(0.2, 0.5)),
        AuditSelection("slice", turn=1, turns=7, soon_first=SoonFirst(0.2, 0.5)),
    ],
)
def test_rows_of_columns_are_those_of_each_record(choice: AuditSelection) -> None:
    """Many at once, and giants by their parts."""
    part = 1 << 20
    records = []
    for number in range(3000):
        giant = number % 50 == 7
        size = 3 * part + 5 if giant else number
        digest = f"xxh3_128/{part}:{number:032x}" if giant else f"xxh3_128:{number:032x}"
        told: dict[str, Any] = {"path": f"d/{number:05d}-\udcff", "size": size, "digest": digest}
        told["parts"] = bytes(range(64)) if giant else b""
        told["read_at"] = 5000 if number % 5 == 2 else 0
        records.append(Record(*(told.get(name, EMPTY[name]) for name in Record._fields)))
    wanted = [
        (one.path, number, one.size)
        for one in records
        for number in (range(4) if one.parts else (-1,))
        if takes(choice, one.path, number, soon=is_soon(one.size, one.ctime_ns, one.read_at, one.shared))
    ]
    found = [(row.path, row.part, row.size) for of in rows(choice, Files.of(records)) for row in of]
    assert found == wanted
    assert len({row.digest for of in rows(choice, Files.of(records)) for row in of}) > len(wanted) // 5
