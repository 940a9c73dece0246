from __future__ import annotations

from itertools import product

import pytest

from penstock.run.previous_release import choose

ANY = (True, False)


@pytest.mark.parametrize(
    ("reuse", "reflinks", "links", "other", "copy", "way"),
    [
        ("none", ANY, ANY, ANY, ANY, "none"),
        ("copy", ANY, ANY, ANY, ANY, "copy"),
        ("auto reflink", (True,), ANY, ANY, ANY, "reflink"),
        ("link", (True,), ANY, ANY, (True,), "reflink"),
        ("auto reflink link", (False,), ANY, ANY, (True,), "copy"),
        ("reflink", (False,), ANY, ANY, (False,), "refused"),
        ("link", ANY, ANY, (True,), (False,), "refused"),
        ("auto", (False,), ANY, (True,), (False,), "refused"),
        ("link", ANY, (True,), (False,), (False,), "link"),
        ("auto", (False,), (True,), (False,), (False,), "link"),
        ("link", ANY, (False,), (False,), (False,), "none"),
        ("auto", (False,), (False,), (False,), (False,), "none"),
    ],
)
def test_each_row_of_the_table(
    reuse: str,
    reflinks: tuple[bool, ...],
    links: tuple[bool, ...],
    other: tuple[bool, ...],
    copy: tuple[bool, ...],
    way: str,
) -> None:
    for word, one, two, three, four in product(reuse.split(), reflinks, links, other, copy):
        found = choose(word, reflinks=one, links=two, other_policy=three, copy_unchanged=four)
        assert found == way, (word, one, two, three, four)
