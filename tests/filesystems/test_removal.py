"""Trees are removed where NFS keeps a file that a process of this node has open, under a name of its own."""

from __future__ import annotations

import os
import re
import threading

import pytest
from tests.filesystems.bed import Bed

from penstock.core.errors import FailedError
from penstock.target import tree_removal
from penstock.target.tree_removal import remove_tree


@pytest.mark.parametrize("named", ["nfs3", "nfs4"])
def test_a_file_that_is_closed_soon_is_waited_for_and_one_that_is_not_is_named(
    named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Bed(named=named) as bed:
        tree = bed.nodes[0] / "tree"
        (tree / "a/b").mkdir(parents=True)
        (tree / "a/b/other").write_text("1")
        held = (tree / "a/b/held").open("w")
        closing = threading.Timer(0.5, held.close)
        closing.start()
        try:
            remove_tree(tree)
        finally:
            closing.join()
        assert not tree.exists()
        assert os.listdir(bed.store) == []

        monkeypatch.setattr(tree_removal, "AGAIN", (0.01,))
        (tree / "a").mkdir(parents=True)
        with (tree / "a/held").open("w"):
            with pytest.raises(FailedError) as told:
                remove_tree(tree)
            assert re.fullmatch(rf"{tree}/a/\.nfs[0-9a-f]+", told.value.where)
            assert "has the file open" in told.value.why
            assert "fuser" in told.value.hint
        remove_tree(tree)
        assert not tree.exists()
