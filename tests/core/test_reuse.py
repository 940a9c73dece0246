from __future__ import annotations

import pytest

from penstock.core.model import Reuse

DIGEST = "xxh3_128:" + "0" * 32


@pytest.mark.parametrize(
    "there",
    [
        Reuse(DIGEST),
        Reuse(DIGEST, "full", "md5:full:00", -5, "node7"),
        Reuse(DIGEST, "size", "", 0, "node7"),
        Reuse("parts/16777216:" + "0" * 32, "size", "full sha256:full:00", None, "", "0123456789abcdef"),
    ],
)
def test_what_a_linked_file_brings_along_comes_back(there: Reuse) -> None:
    assert Reuse.parse(str(there)) == there
    assert Reuse.is_taken(str(there)) == bool(there.staging)


def test_several_writers_are_no_writer_that_is_known() -> None:
    assert Reuse.parse(str(Reuse(DIGEST, host="a b"))).host == ""
