"""What a seal says of linked files that were carried over, in words."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.core import human


def words(carried: object) -> str:
    """For people, of the seal's `carried`; "" where every file was read.

    >>> words({"files": 989010, "bytes": 1, "oldest_read": "2026-11-02T03:04:05Z"})
    'carried 989,010 files, the oldest reading of 2026-11-02'
    """
    if not isinstance(carried, Mapping) or not isinstance(files := carried.get("files"), int) or not files:
        return ""
    day = str(carried.get("oldest_read", ""))[:10]
    return f"carried {human.counted(files, 'file')}, the oldest reading of {day}"
