"""Revealing and pointing: killed at every line and done again, and what they refuse."""

from __future__ import annotations

import functools
import os
import stat
from typing import TYPE_CHECKING

import pytest
from tests.contracts.storage_contract import make_writer, put
from tests.support.forked import killed_at_line, nobody

from penstock.config.settings import PermissionsConfig
from penstock.core.errors import FailedError, LockedError
from penstock.core.layout import MANIFEST, SEAL
from penstock.target import dataset_folders, modes, reveal, tree_removal

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.layout import DatasetLayout

_FILES = ("target/reveal.py", "fs/small_files.py", "target/dataset_folders.py", "fs/safe_open.py")


def stage(layout: DatasetLayout, release: str) -> None:
    data = dataset_folders.open_staging(layout, release, 0o2550, None)
    with make_writer(data) as writer:
        put(writer, "d/f", release.encode())
    modes.set_permissions(layout.staging(release), PermissionsConfig(), None)
    for name in (SEAL, MANIFEST):
        (layout.staging(release) / name).write_text("{}")
        (layout.staging(release) / name).chmod(0o600)


def publish(layout: DatasetLayout, release: str) -> None:
    reveal.reveal(layout, release, nobody)
    reveal.point(layout, release, nobody)


def whole(layout: DatasetLayout, release: str) -> bool:
    folder = layout.release(release)
    return (folder / "data/d/f").read_text() == release and (folder / SEAL).exists()


def test_killed_at_every_line_and_done_again(layout: DatasetLayout) -> None:
    stage(layout, "r0")
    publish(layout, "r0")
    for line in range(1, 1000):
        release = f"r{line}"
        stage(layout, release)
        before = dataset_folders.current(layout)
        killed = killed_at_line(functools.partial(publish, layout, release), _FILES, line)
        pointed = dataset_folders.current(layout)
        assert pointed in (before, release)
        assert whole(layout, str(pointed))
        publish(layout, release)
        assert dataset_folders.current(layout) == release
        assert whole(layout, release)
        assert not layout.staging(release).exists()
        assert sorted(os.listdir(layout.folder)) == [".penstock", "current", "releases"]
        assert stat.S_IMODE(layout.release(release).stat().st_mode) == 0o2550
        assert stat.S_IMODE((layout.release(release) / SEAL).stat().st_mode) == 0o440
        if not killed:
            break
        tree_removal.remove_tree(layout.release(str(before)))
    assert not killed
    assert line > 40


def test_a_release_is_never_replaced(layout: DatasetLayout) -> None:
    stage(layout, "r")
    layout.release("r").mkdir()  # empty: rename(2) would replace it without a word
    with pytest.raises(FailedError, match="both a release and its staging"):
        reveal.reveal(layout, "r", nobody)
    with pytest.raises(FailedError, match="published already"):
        dataset_folders.open_staging(layout, "r", 0o2550, None)
    layout.release("r").rmdir()
    layout.release("r").symlink_to("elsewhere")
    with pytest.raises(FailedError, match="taken by something else"):
        reveal.reveal(layout, "r", nobody)


def test_what_is_not_sealed_is_never_shown(layout: DatasetLayout) -> None:
    stage(layout, "r")
    (layout.staging("r") / SEAL).unlink()
    with pytest.raises(FailedError, match="not sealed"):
        reveal.reveal(layout, "r", nobody)
    assert dataset_folders.releases(layout) == []
    with pytest.raises(FailedError, match="no staging"):
        reveal.reveal(layout, "none", nobody)
    with pytest.raises(FailedError, match="no such release"):
        reveal.point(layout, "none", nobody)
    (layout.releases / "bare").mkdir()
    with pytest.raises(FailedError, match="not sealed"):
        reveal.point(layout, "bare", nobody)


def test_leftovers_of_killed_writes_are_not_published(layout: DatasetLayout) -> None:
    stage(layout, "r")
    (layout.staging("r") / ".0123456789abcdef.tmp").write_text("torn")
    publish(layout, "r")
    assert sorted(os.listdir(layout.release("r"))) == ["data", MANIFEST, SEAL]
    stage(layout, "r2")
    (layout.staging("r2") / "link").symlink_to("/etc/passwd")
    with pytest.raises(FailedError):
        reveal.reveal(layout, "r2", nobody)


@pytest.mark.parametrize("text", ["/etc", "../x", "releases/a/b", "releases/.r.staging", "releases/"])
def test_a_pointer_that_leads_elsewhere(layout: DatasetLayout, text: str) -> None:
    layout.current.symlink_to(text)
    with pytest.raises(FailedError, match="does not lead to a release"):
        dataset_folders.current(layout)


def test_a_pointer_that_is_a_folder(layout: DatasetLayout, folder: Path) -> None:
    stage(layout, "r")
    reveal.reveal(layout, "r", nobody)
    layout.current.mkdir()
    with pytest.raises(FailedError, match="not a symbolic link"):
        reveal.point(layout, "r", nobody)


def test_a_run_that_was_overtaken_leaves_no_link_behind(layout: DatasetLayout) -> None:
    """One that was frozen between its two renames makes its link after all others were removed."""
    for release in ("r0", "r1"):
        stage(layout, release)
        reveal.reveal(layout, release, nobody)
    reveal.point(layout, "r0", nobody)

    def overtaken() -> None:
        raise LockedError("overtaken")

    with pytest.raises(LockedError, match="overtaken"):
        reveal.point(layout, "r1", overtaken)
    assert dataset_folders.current(layout) == "r0"
    assert sorted(os.listdir(layout.folder)) == [".penstock", "current", "releases"]
