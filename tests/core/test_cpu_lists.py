from __future__ import annotations

import pytest

from penstock.core.range_lists import cpus, listed


@pytest.mark.parametrize(
    ("text", "found"),
    [("", ()), ("3-4,19\n", (3, 4, 19)), ("0-10:2/4", (0, 1, 4, 5, 8, 9)), ("7,7,2", (2, 7))],
)
def test_the_cpus_of_a_list(text: str, found: tuple[int, ...]) -> None:
    assert cpus(text) == found
    assert cpus(listed(found)) == found


@pytest.mark.parametrize("text", ["0-3:1/0", "5-3", "1_0", "-3", "3-", "x", "0-3:1", "²"])
def test_what_is_no_list_of_cpus(text: str) -> None:
    with pytest.raises(ValueError):
        cpus(text)
