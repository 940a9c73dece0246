"""A device that returns an error for some blocks: the kernel's own EIO, not a stand-in."""

from __future__ import annotations

import errno
import mmap
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.images import BLOCK, blocks, mounted
from tests.support.published import content, damage, data_of, flip, publish
from tests.support.staging_runs import context_for, tree

from penstock.config.settings import EngineConfig, PlanConfig
from penstock.keep import audit_step, repair_step

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
FILES = {f"f{i}": content(i, 100_000) for i in range(4)} | {"giant": content(9, 8 * MIB)}


def last_block(point: Path) -> tuple[int, Path, int]:
    """The last used block, the file that it belongs to, and which of its blocks it is."""
    files = (path for path in point.rglob("*") if path.is_file() and not path.is_symlink())
    return max((block, path, at) for path in files for at, block in enumerate(blocks(path)))


def lose_the_last_block(image: Path, point: Path, path: Path) -> int:
    """Give the file a place behind all others, and cut the image where its last block begins: reading it
    is an error from then on. Returns which of the file's blocks that is."""
    for number in range(5):

        def move(file: Path, number: int = number) -> None:
            content = file.read_bytes()
            file.rename(point / f"before-{number}")
            file.write_bytes(content)

        damage(path, move)
        block, found, at = last_block(point)
        if found == path:
            os.truncate(image, block * BLOCK)
            return at
    raise AssertionError("no place behind all others")


def test_a_read_error_is_a_finding_and_the_audit_goes_on(tmp_path: Path) -> None:
    with mounted(tmp_path) as (image, point):
        source = tree(tmp_path / "source", FILES)
        context = context_for(tmp_path, source, plan=PlanConfig(giant_bytes=4 * MIB, part_bytes=MIB))
        # Nothing is written to the broken device while it is read.
        context.config = replace(
            context.config,
            target=replace(context.config.target, root=point / "root", state_root=tmp_path / "state"),
            engine=EngineConfig(attempts=2),
        )
        try:
            point.chmod(0o755)
            (tmp_path / "state").mkdir()
            publish(context)
            data = data_of(context)
            flip(data / "f1", 77)
            at = lose_the_last_block(image, point, data / "giant")
            fd = os.open(data / "giant", os.O_RDONLY | os.O_DIRECT)
            with pytest.raises(OSError) as caught:
                os.preadv(fd, [mmap.mmap(-1, BLOCK)], at * BLOCK)
            os.close(fd)
            assert caught.value.errno == errno.EIO

            result = audit_step.run(context, "data")
            found = {(f.kind, f.path, tuple(f.parts)) for f in result["findings"]}
            assert found == {("changed", "f1", ()), ("unread", "giant", (at * BLOCK // MIB,))}
            (unread,) = (f for f in result["findings"] if f.kind == "unread")
            assert os.strerror(errno.EIO) in unread.why
            assert result["rows"] == len(FILES) - 1 + 8

            assert repair_step.run(context, "data")["status"] == "REPAIRED"
            assert {name: (data / name).read_bytes() for name in FILES} == FILES
        finally:
            context.cluster.close()
