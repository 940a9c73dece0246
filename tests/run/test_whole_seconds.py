"""A target that keeps whole seconds, as BeeGFS and Lustre do: ext4 with inodes of 128 bytes."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.images import mounted
from tests.support.staging_runs import tree
from tests.support.whole_way import content, go, staging

from penstock.config.settings import PlanConfig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.dataset.context import Context

FILES = {f"d{i % 3}/{i:03d}": bytes([i]) * 700_000 for i in range(60)}
TIME = 1_700_000_000_123_456_789


@pytest.fixture
def source(tmp_path: Path) -> Path:
    made = tree(tmp_path / "source", FILES)
    for name in FILES:
        os.utime(made / name, ns=(TIME, TIME))
    return made


@pytest.fixture
def context(tmp_path: Path, source: Path) -> Iterator[Context]:
    """64 MiB, of which each release takes 42."""
    with mounted(tmp_path, "-I", "128") as (_, point), staging(tmp_path, source, plan=PlanConfig()) as made:
        made.config = replace(made.config, target=replace(made.config.target, root=point / "root"))
        yield made


def test_a_delta_links_what_is_unchanged_and_the_room_is_right(context: Context, source: Path) -> None:
    layout = context.layout("data")
    first = go(context)["release"]
    kept = (layout.release(first) / "data/d0/000").stat()
    assert kept.st_mtime_ns == TIME - TIME % 10**9
    before = os.statvfs(layout.root)
    # Three more releases of 42 MB each would not fit.
    for turn in range(3):
        (source / f"new{turn}").write_bytes(b"n" * 5000)
        plan = go(context, upto="plan")
        assert (plan["unchanged"], plan["files"]) == (len(FILES) + turn, len(FILES) + turn + 1)
        (room,) = [text for text in plan["why"] if text.startswith("takes ")]
        assert re.match(r"takes 8\.00 KiB of ", room)
        receipt = go(context, upto="copy")
        assert (receipt["linked"], receipt["copied_rows"]) == (len(FILES) + turn, 1)
        assert go(context, after="copy")["moved"]
        assert content(layout.current / "data") == content(source)
        assert (layout.current / "data/d0/000").stat().st_ino == kept.st_ino
    after = os.statvfs(layout.root)
    assert (before.f_bfree - after.f_bfree) * before.f_frsize < 4 << 20
