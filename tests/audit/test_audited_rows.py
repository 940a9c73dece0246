"""What an audit's element saw so far, as it is kept on disk."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from penstock.core.model import AuditedRow
from penstock.core.run_documents import ShardInfo
from penstock.engine.shard_readings import AuditedRows

if TYPE_CHECKING:
    from pathlib import Path

SHARD = ShardInfo(0, 6, 6, 60, 0, "sha256:00")
WRITTEN = {
    "shard": "sha256:00",
    "ranges": [[0, 2], [4, 5]],
    "bad": [[1, "other bytes", False], [4, "no right", True]],
    "methods": {"direct": 1},
    "files": 3,
    "bytes": 30,
}
"""As d98f93c wrote it."""


def test_what_was_seen_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "00000.json"
    path.write_text(json.dumps(WRITTEN))
    seen = AuditedRows.read(path, SHARD)
    assert seen.bad == [AuditedRow(1, why="other bytes"), AuditedRow(4, why="no right", unread=True)]
    assert (list(seen.rows), seen.left) == ([1, 1, 0, 0, 1, 0], 3)
    assert (seen.methods, seen.files, seen.bytes) == (Counter(direct=1), 3, 30)
    seen.write(path)
    assert json.loads(path.read_text()) == WRITTEN


@pytest.mark.parametrize(
    "content",
    [
        json.dumps({**WRITTEN, "shard": "sha256:11"}),
        json.dumps({**WRITTEN, "bad": [[1, "two alone"]]}),
        json.dumps({name: value for name, value in WRITTEN.items() if name != "files"}),
        "{",
    ],
    ids=["another shard", "a row too short", "no count", "torn"],
)
def test_of_another_shard_or_damaged_nothing_was_seen(tmp_path: Path, content: str) -> None:
    path = tmp_path / "00000.json"
    path.write_text(content)
    assert AuditedRows.read(path, SHARD) == AuditedRows(SHARD.digest, bytearray(6))
    assert AuditedRows.read(tmp_path / "absent.json", SHARD).left == 6
