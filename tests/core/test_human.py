from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core import human


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (1536, "1.50 KiB"),
        (110 << 20, "110 MiB"),
        (1023.7 * 1024, "1.00 MiB"),
        (99.96 * 1024, "100 KiB"),
        (9.999 * 1024, "10.0 KiB"),
        (5 << 60, "5.00 EiB"),
        (5 << 70, "5120 EiB"),
    ],
)
def test_sizes(value: float, text: str) -> None:
    assert human.size(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.00 s"),
        (0.42, "0.42 s"),
        (0.999, "1.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.6, "1 min 00 s"),
        (125, "2 min 05 s"),
        (3600, "1 h 00 min"),
        (11220, "3 h 07 min"),
        (86400 * 2 + 4 * 3600, "2 d 04 h"),
        (math.inf, "-"),
        (math.nan, "-"),
        (-1, "-"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert human.duration(seconds) == text


def test_the_rest() -> None:
    assert human.size_of(1 << 30, 3 << 30) == "1.00 of 3.00 GiB"
    assert human.size_of(5, 100) == "5 of 100 B"
    assert human.speed(100, 0) == "-"
    assert human.speed(3 << 20, 2) == "1.50 MiB/s"
    assert human.counted(1, "file") == "1 file"
    assert human.counted(2000, "file") == "2,000 files"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain name.bin", "plain name.bin"),
        ("naïve/日本", "naïve/日本"),
        ("a\x1b[31mb", "a\\x1b[31mb"),
        ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
        ("gpj\u202eexe", "gpj\\u202eexe"),
        ("\udcff", "\\xff"),
        ("\u2028", "\\u2028"),
        ("\x7f\x9b", "\\x7f\\x9b"),
    ],
)
def test_what_steers_a_terminal_is_escaped(text: str, shown: str) -> None:
    assert human.printable(text) == shown


@settings(deadline=None, max_examples=200)
@given(st.text(st.characters()))
def test_printable_is_printable(text: str) -> None:
    shown = human.printable(text)
    assert not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in shown)
    shown.encode()


def test_kinds_are_counted_in_the_singular_too() -> None:
    kinds = {"empty folders": 1, "links": 0, "filtered": 1, "outside the prefix": 1, "named twice": 1}
    assert human.of_kinds(kinds) == ["1 empty folder", "1 filtered", "1 outside the prefix", "1 named twice"]
    assert human.of_kinds({"links": 1, "archived (GLACIER)": 1}) == ["1 link", "1 archived (GLACIER)"]
    assert human.of_kinds({"page links with a query, such as ?x": 1}) == [
        "1 page link with a query, such as ?x"
    ]
    assert human.of_kinds({"empty folders": 2000}) == ["2,000 empty folders"]
