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
from penstock.core.layout import MANIFEST, SEAL
from penstock.errors import FailedError, LockedError
from penstock.storage import clearing, permissions, publishing, target

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.layout import DatasetLayout

_FILES = ("storage/publishing.py", "storage/durable.py", "storage/target.py", "storage/beneath.py")


def stage(layout: DatasetLayout, release: str) -> None:
    data = target.open_staging(layout, release, 0o2550, None)
    with make_writer(data) as writer:
        put(writer, "d/f", release.encode())
    permissions.mend(layout.staging(release), PermissionsConfig(), None)
    for name in (SEAL, MANIFEST):
        (layout.staging(release) / name).write_text("{}")
        (layout.staging(release) / name).chmod(0o600)


def publish(layout: DatasetLayout, release: str) -> None:
    publishing.reveal(layout, release, nobody)
    publishing.point(layout, release, nobody)


def whole(layout: DatasetLayout, release: str) -> bool:
    folder = layout.release(release)
    return (folder / "data/d/f").read_text() == release and (folder / SEAL).exists()


def test_killed_at_every_line_and_done_again(layout: DatasetLayout) -> None:
    stage(layout, "r0")
    publish(layout, "r0")
    for line in range(1, 1000):
        release = f"r{line}"
        stage(layout, release)
        before = target.current(layout)
        killed = killed_at_line(functools.partial(publish, layout, release), _FILES, line)
        pointed = target.current(layout)
        assert pointed in (before, release)
        assert whole(layout, str(pointed))
        publish(layout, release)
        assert target.current(layout) == release
        assert whole(layout, release)
        assert not layout.staging(release).exists()
        assert sorted(os.listdir(layout.folder)) == [".penstock", "current", "releases"]
        assert stat.S_IMODE(layout.release(release).stat().st_mode) == 0o2550
        assert stat.S_IMODE((layout.release(release) / SEAL).stat().st_mode) == 0o440
        if not killed:
            break
        clearing.remove_tree(layout.release(str(before)))
    assert not killed
    assert line > 40


def test_a_release_is_never_replaced(layout: DatasetLayout) -> None:
    stage(layout, "r")
    layout.release("r").mkdir()  # empty: rename(2) would replace it without a word
    with pytest.raises(FailedError, match="both a release and its staging"):
        publishing.reveal(layout, "r", nobody)
    with pytest.raises(FailedError, match="published already"):
        target.open_staging(layout, "r", 0o2550, None)
    layout.release("r").rmdir()
    layout.release("r").symlink_to("elsewhere")
    with pytest.raises(FailedError, match="taken by something else"):
        publishing.reveal(layout, "r", nobody)


def test_what_is_not_sealed_is_never_shown(layout: DatasetLayout) -> None:
    stage(layout, "r")
    (layout.staging("r") / SEAL).unlink()
    with pytest.raises(FailedError, match="not sealed"):
        publishing.reveal(layout, "r", nobody)
    assert target.releases(layout) == []
    with pytest.raises(FailedError, match="no staging"):
        publishing.reveal(layout, "none", nobody)
    with pytest.raises(FailedError, match="no such release"):
        publishing.point(layout, "none", nobody)
    (layout.releases / "bare").mkdir()
    with pytest.raises(FailedError, match="not sealed"):
        publishing.point(layout, "bare", nobody)


def test_leftovers_of_killed_writes_are_not_published(layout: DatasetLayout) -> None:
    stage(layout, "r")
    (layout.staging("r") / ".0123456789abcdef.tmp").write_text("torn")
    publish(layout, "r")
    assert sorted(os.listdir(layout.release("r"))) == ["data", MANIFEST, SEAL]
    stage(layout, "r2")
    (layout.staging("r2") / "link").symlink_to("/etc/passwd")
    with pytest.raises(FailedError):
        publishing.reveal(layout, "r2", nobody)


@pytest.mark.parametrize("text", ["/etc", "../x", "releases/a/b", "releases/.r.staging", "releases/"])
def test_a_pointer_that_leads_elsewhere(layout: DatasetLayout, text: str) -> None:
    layout.current.symlink_to(text)
    with pytest.raises(FailedError, match="leads elsewhere"):
        target.current(layout)


def test_a_pointer_that_is_a_folder(layout: DatasetLayout, folder: Path) -> None:
    stage(layout, "r")
    publishing.reveal(layout, "r", nobody)
    layout.current.mkdir()
    with pytest.raises(FailedError, match="not a symbolic link"):
        publishing.point(layout, "r", nobody)


def test_a_run_that_was_overtaken_leaves_no_link_behind(layout: DatasetLayout) -> None:
    """One that was frozen between its two renames makes its link after all others were removed."""
    for release in ("r0", "r1"):
        stage(layout, release)
        publishing.reveal(layout, release, nobody)
    publishing.point(layout, "r0", nobody)

    def overtaken() -> None:
        raise LockedError("overtaken")

    with pytest.raises(LockedError, match="overtaken"):
        publishing.point(layout, "r1", overtaken)
    assert target.current(layout) == "r0"
    assert sorted(os.listdir(layout.folder)) == [".penstock", "current", "releases"]
