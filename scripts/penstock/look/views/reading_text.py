"""What a seal says of the readings of its files, in words."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.core import human
from penstock.core.grades import SOON


def carried(amount: object) -> str:
    """Describe the seal's `carried`; "" if every file was read.

    >>> carried({"files": 989010, "bytes": 1, "oldest_read": "2026-11-02T03:04:05Z"})
    'carried 989,010 files, the oldest reading of 2026-11-02'
    """
    if not isinstance(amount, Mapping) or not isinstance(files := amount.get("files"), int) or not files:
        return ""
    day = str(amount.get("oldest_read", ""))[:10]
    return f"carried {human.counted(files, 'file')}, the oldest reading of {day}"


def delay(read_after: object, *, servers: bool = False) -> str:
    """Describe the seal's `evidence.read_after`; "" if unknown. `servers`: their memory may answer such
    reads.

    >>> delay({"least": 190, "median": 2500, "soon": 7}, servers=True)
    'read back 3 min after writing at least, 41 min in the median'
    >>> delay({"least": 4, "median": 70, "soon": 7}, servers=True).partition("; ")[2]
    "a server's memory may have answered: `penstock audit --fraction` reads such files first"
    """
    if not isinstance(read_after, Mapping):
        return ""
    least, median = (human.age(read_after[name]) for name in ("least", "median"))
    text = f"read back {least} after writing at least, {median} in the median"
    if servers and read_after["median"] < SOON:
        text += "; a server's memory may have answered: `penstock audit --fraction` reads such files first"
    return text
