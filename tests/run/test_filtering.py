from __future__ import annotations

import os

import pytest

from penstock.core.errors import ConfigError
from penstock.core.model import Listed
from penstock.listing.outside_lists import Filter

NAMES = ["a", "a/b", "train/x.jpg", "train/deep/y.jpg", "val/z.png", "a/.DS_Store", ".DS_Store", "n\nl/q.jpg",
         os.fsdecode(b"\xff/z.jpg"), "train.txt"]  # fmt: skip


@pytest.mark.parametrize(
    ("include", "exclude", "kept"),
    [
        (["**"], [], NAMES),
        (["**"], ["**/.DS_Store"], [n for n in NAMES if not n.endswith(".DS_Store")]),
        (["**"], [".DS_Store"], [n for n in NAMES if not n.endswith(".DS_Store")]),
        (["*.jpg"], [], [n for n in NAMES if n.endswith(".jpg")]),
        (["train/"], [], ["train/x.jpg", "train/deep/y.jpg"]),
        (["/train/*.jpg"], [], ["train/x.jpg"]),
        (["**", "!*.jpg"], [], [n for n in NAMES if not n.endswith(".jpg")]),
        (["train/**", "val/**"], ["*.png"], ["train/x.jpg", "train/deep/y.jpg"]),
        (["nothing"], [], []),
    ],
)
def test_patterns_are_those_of_gitignore(include: list[str], exclude: list[str], kept: list[str]) -> None:
    batch = [Listed(name, 1, "", 0) for name in NAMES]
    chosen = Filter(include, exclude)
    assert [listed.key for listed in chosen.keep(batch)] == kept
    assert [name for name in NAMES if chosen.accepts(name)] == kept


def test_nothing_to_filter_costs_nothing() -> None:
    batch = [Listed("a", 1, "", 0)]
    assert Filter(["**"], []).keep(batch) is batch


def test_a_pattern_that_is_none_is_told() -> None:
    with pytest.raises(ConfigError, match="pattern"):
        Filter(["**"], ["!"])


@pytest.mark.parametrize(
    ("include", "exclude", "wanted"),
    [
        (["**"], [], True),
        (["**"], ["secret/"], False),
        (["**"], ["secret"], False),
        (["**"], ["secret/**"], False),
        (["**"], ["**/secret/**"], False),
        (["**"], ["secret/*.jpg"], True),
        (["**"], ["secret/", "!secret/one"], True),
        (["*.jpg"], [], True),
    ],
)
def test_a_folder_is_left_out_only_for_sure(include: list[str], exclude: list[str], wanted: bool) -> None:
    found = Filter(include, exclude)
    assert found.wants("secret/") is wanted
    assert found.wants("secret/x.jpg") is found.accepts("secret/x.jpg")
