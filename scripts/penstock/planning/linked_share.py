"""Which linked files of a run verify will read back, and which may be carried over (`verify.linked`)."""

from __future__ import annotations

import secrets
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.layout import MANIFEST
from penstock.core.linked_reading import LinkedReading, share_due
from penstock.errors import FailedError, NewerFormatError
from penstock.formats.manifest import read_columns
from penstock.planning.reuse_choice import LINK
from penstock.state import receipts, seals
from penstock.views import human

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.config.settings import VerifyConfig
    from penstock.core.layout import DatasetLayout
    from penstock.planning.forecast import Totals
    from penstock.planning.previous_release import Base
    from penstock.state.run import Run

CARRIES = frozenset({"auto", "written"})
"""Values of `verify.minimum_grade` with which a file that was not read may be published."""


class LinkedShare(NamedTuple):
    """What plan decides, and the sentence that says so; "" where nothing is to be said."""

    rule: LinkedReading | None
    sentence: str = ""
    due_bytes: int = 0


def decide(
    run: Run, base: Base, totals: Totals, now: float, *, stable: bool, bytes_per_second: float
) -> LinkedShare:
    """`stable`: whether the file system shows a file under one inode number always.

    | what                                                      | linked files that are read    |
    |-----------------------------------------------------------|-------------------------------|
    | `verify.linked: all`, or nothing is linked                | all                           |
    | `verify.minimum_grade: reread` or more                    | all: who is not read has less |
    | files are reflinked or copied: inodes of their own        | all                           |
    | inode numbers change                                      | all                           |
    | the base's manifest is not the one that its seal states   | all                           |
    | else                                                      | by `LinkedReading`            |
    """
    verify, release = run.config.verify, base.release
    linked = verify.linked
    if linked.within is None or release is None or base.manifest is None or not totals.unchanged:
        return LinkedShare(None)
    if verify.minimum_grade not in CARRIES:
        return LinkedShare(
            None, f"all linked files are read back: `verify.minimum_grade` is {verify.minimum_grade}"
        )
    if base.way != LINK:
        return LinkedShare(None, f"all unchanged files are read back: they are new inodes ({base.way})")
    if not stable:
        return LinkedShare(None, "all linked files are read back: the inode numbers here change")
    try:
        stored = seals.find(run.layout, release)
        ages = _ages(base.manifest)
        whole = stored is not None and stored.seal.manifests[MANIFEST].sha256 == receipts.file_digest(
            base.manifest
        )
    except (FailedError, NewerFormatError, KeyError, OSError):
        stored, whole = None, False
    if stored is None or not whole:
        return LinkedShare(
            None, f"all linked files are read back: the manifest of release {release} is damaged"
        )
    last = _seconds(stored.seal.sealed)
    share = share_due(ages, now, last, linked.within, linked.limit, linked.sample)
    rule = LinkedReading(
        at=now,
        within=linked.within,
        sample=share.sample,
        until=share.until,
        share=share.share,
        salt=secrets.randbits(62),
    )
    total = sum(ages.values())
    within = human.duration(linked.within)
    if share.overdue_bytes:
        takes = human.duration(max(1.0, share.overdue_bytes / bytes_per_second))
        which = "all" if share.overdue_bytes == total else human.size(share.overdue_bytes)
        text = (
            f"verify reads {human.size(share.due_bytes)} of linked files back: of {which} of them the last "
            f"reading is older than `verify.linked.within` ({within}), or not known: about {takes} by one "
            "element"
        )
    else:
        text = (
            f"verify reads {human.size(share.due_bytes)} of {human.size(total)} of linked files back, and "
            f"{share.sample:.2%} of the others; what was read within {within} is carried over"
        )
    return LinkedShare(rule, text, share.due_bytes)


def all_overdue(
    layout: DatasetLayout, release: str, verify: VerifyConfig, now: float, bytes_per_second: float
) -> str:
    """The sentence that says so where all files of a release were last read longer ago than
    `verify.linked.within`; else "". By its seal alone: every file was read before it was sealed."""
    within = verify.linked.within
    if within is None or verify.minimum_grade not in CARRIES:
        return ""
    try:
        stored = seals.find(layout, release)
    except (FailedError, NewerFormatError):
        return ""
    if stored is None or now - _seconds(stored.seal.sealed) < within:
        return ""
    size = stored.seal.bytes
    return (
        f"the last reading of all files of release {release} is older than `verify.linked.within` "
        f"({human.duration(within)}): verify reads all that are linked from it, up to {human.size(size)}, "
        f"about {human.duration(max(1.0, size / bytes_per_second))} by one element"
    )


def _ages(manifest: Path) -> Counter[int]:
    """Bytes by the time of their last reading."""
    ages: Counter[int] = Counter()
    for batch in read_columns(manifest, ("read_at", "size")):
        sizes = batch["size"].to_pylist()
        times = batch["read_at"].to_pylist()
        if times.count(times[0]) == len(times):
            ages[times[0]] += sum(sizes)
            continue
        for read_at, size in zip(times, sizes, strict=True):
            ages[read_at] += size
    return ages


def _seconds(text: str) -> float:
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0
