from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import FailedError
from penstock.core.layout import (
    SHOWN,
    Conflicts,
    Offenders,
    all_good,
    check_key,
)

LONG = "x" * 255

GOOD = [
    "a", "a/b", " ", "a b/c", "line\nfeed", "tab\t", "quo'te\"", "$(touch x)", "`x`", "%41/%2e%2e", "-rf",
    "--", "~", "...", "..a", "a..", ".hidden", "ü/日本", os.fsdecode(b"\xff\xfe"), LONG, f"{LONG}/{LONG}",
    "é" * 127,
    "\x1b[31m", "a\\b", "C:", "*?[]", ".p.", ".p.0123456789abcde", ".p.0123456789abcdeg", "#", ";", "a\r",
]  # fmt: skip
BAD = {
    "": "empty segment",
    "/abs": "slash",
    "//": "slash",
    "a//b": "empty segment",
    "a/": "empty segment",
    ".": 'segment "."',
    "..": 'segment ".."',
    "../x": 'segment ".."',
    "a/../b": 'segment ".."',
    "a/./b": 'segment "."',
    "a/..": 'segment ".."',
    "nul\0": "NUL",
    "a/\0/b": "NUL",
    "x" * 256: "256 bytes",
    "é" * 128: "256 bytes",
    "a/" + "y" * 300 + "/b": "300 bytes",
    "/".join(["d" * 200] * 20): "4019 bytes",
    ".p.0123456789abcdef": "temporary",
    "a/.p.00000000000000ff/b": "temporary",
}


@pytest.mark.parametrize("key", GOOD)
def test_odd_names_are_kept_as_they_are(key: str) -> None:
    assert check_key(key) is None
    assert check_key(f"folder/{key}") is None


@pytest.mark.parametrize("key", BAD)
def test_what_cannot_be_a_path_is_refused_with_its_reason(key: str) -> None:
    assert BAD[key] in str(check_key(key))
    assert not all_good(["fine", key, "fine too"])


def test_good_batches_pass_the_fast_look() -> None:
    assert all_good([key for key in GOOD if not key.startswith(".p.")])
    assert all_good([])


segments = st.sampled_from(
    ["a", "b", "..", ".", "", "\0", "x" * 255, "x" * 256, ".p.0123456789abcdef", "é", "\n"]
)
keys = st.lists(segments, min_size=1, max_size=4).map("/".join)


@pytest.mark.parametrize("key", ["#own#", "a/#own#", "#own#/b", "a/#own#/b"])
def test_a_name_that_the_file_system_keeps_for_itself_is_refused(key: str) -> None:
    assert "the target's file system keeps for itself" in str(check_key(key, ["#own#"]))
    assert not all_good(["fine", key, "fine too"], ["#own#"])
    assert check_key(key) is None
    assert all_good([f"x{key.replace('/', '-')}x", "x#own#/#own#x"], ["#own#"])


@settings(deadline=None, max_examples=200)
@given(st.lists(keys, max_size=6))
def test_the_fast_look_never_passes_what_the_close_look_refuses(batch: list[str]) -> None:
    assert not all_good(batch) or all(check_key(key) is None for key in batch)


def conflicts(paths: list[str], page: int = 2) -> list[str]:
    found: list[str] = []
    checker = Conflicts()
    for start in range(0, len(paths), page):
        found.extend(path for path, _ in checker.add(paths[start : start + page]))
    return found


def in_order(paths: list[str]) -> list[str]:
    return sorted(paths, key=os.fsencode)


@pytest.mark.parametrize("page", [1, 2, 100])
def test_a_file_that_is_also_a_folder_is_found_across_what_lies_between(page: int) -> None:
    assert conflicts(["a", "a-b", "a-b-c", "a.txt", "a/b", "a/c", "b"], page) == ["a/b", "a/c"]


@pytest.mark.parametrize("page", [1, 2, 100])
def test_a_doubled_path_is_found(page: int) -> None:
    assert conflicts(["a", "a", "b", "b", "b", "c/d", "c/d"], page) == ["a", "b", "b", "c/d"]


def test_a_listing_out_of_order_is_an_error() -> None:
    checker = Conflicts()
    checker.add(["b"])
    with pytest.raises(FailedError, match="not in ascending order"):
        list(checker.add(["a"]))


def test_order_is_that_of_bytes_not_of_characters() -> None:
    paths = in_order([os.fsdecode(b"\xff"), "\U0001f600", "z", os.fsdecode(b"\xf0"), os.fsdecode(b"\xf0/x")])
    assert conflicts(paths) == [os.fsdecode(b"\xf0/x")]


tree_paths = st.lists(
    st.lists(st.sampled_from(["a", "a-", "a.", "b", "é", "\udcff"]), min_size=1, max_size=4).map("/".join),
    max_size=25,
)


@settings(deadline=None, max_examples=200)
@given(tree_paths, st.integers(1, 5))
def test_conflicts_are_those_of_the_naive_check(paths: list[str], page: int) -> None:
    ordered = in_order(paths)
    files = set(ordered)
    expected = []
    for at, path in enumerate(ordered):
        parents = ["/".join(path.split("/")[:n]) for n in range(1, path.count("/") + 1)]
        if (at and ordered[at - 1] == path) or files.intersection(parents):
            expected.append(path)
    assert sorted(set(conflicts(ordered, page))) == sorted(set(expected))


def test_all_offenders_are_counted_and_the_first_ones_shown_escaped() -> None:
    offenders = Offenders()
    for number in range(SHOWN + 5):
        offenders.add(f"\x1b{number}", "is odd")
    lines = offenders.lines()
    assert offenders.total == SHOWN + 5
    assert len(lines) == SHOWN + 1
    assert lines[0] == r'"\x1b0" is odd'
    assert lines[-1] == "and 5 more"
