"""Audits as readings: a file that an audit found as published need not be read back for the next release.

`verify.linked` bounds how long such a reading counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.core.errors import FailedError, NewerFormatError
from penstock.core.grades import STORAGE_GRADES, storage_rank
from penstock.dataset import seals
from penstock.fs import small_files
from penstock.jobs import audit_store
from penstock.jobs.sample_draw import drawn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.core.audit_documents import AuditSelection
    from penstock.core.layout import DatasetLayout


@dataclass(frozen=True)
class CountedReadings:
    """When audits read which files."""

    audits: Sequence[tuple[int, AuditSelection]]  # each one's begin (epoch seconds) and choice
    giant: int  # bytes above which a file is drawn by parts: only an audit of everything counts

    @property
    def whole(self) -> bool:
        return any(choice.kind == "whole" for _, choice in self.audits)

    def __call__(
        self, paths: Sequence[bytes], sizes: Sequence[int], soon: Sequence[bool], /
    ) -> Sequence[int]:
        """Return when each of these files was read last, in seconds since the epoch; 0: by no audit. `soon`:
        which files were read back soon for the release (`core.grades.is_soon`)."""
        times = [0] * len(paths)
        for began, choice in self.audits:
            for place in drawn(choice, paths, soon):
                if choice.kind == "whole" or sizes[place] <= self.giant:
                    times[place] = max(times[place], began)
        return times


def of(layout: DatasetLayout, release: str) -> CountedReadings | None:
    """Return the readings of a release that count; None without any, or without a readable seal and audits.

    Only audits by the dataset's owner are read.

    | the audit                                              | counts |
    |--------------------------------------------------------|--------|
    | has not ended, or is of another seal of that name      | no     |
    | found anything, or left files out                      | no     |
    | read from memory what publish demanded a cold read of  | no     |
    | any other                                              | yes    |
    """
    try:
        stored = seals.find(layout, release)
        audits = list(audit_store.audits(layout, release))
    except (FailedError, NewerFormatError, OSError):
        return None
    if stored is None:
        return None
    seal = stored.seal
    required = seal.evidence.required_storage
    counted = []
    for audit, ended in audits:
        if not ended or audit.look or (audit.release, audit.seal) != (release, stored.digest):
            continue
        try:
            result = small_files.read_json(audit.layout(layout).result)
        except (OSError, ValueError):
            continue
        grade = str(result.get("grade", "")).partition(",")[0]
        enough = grade in STORAGE_GRADES and (
            required not in STORAGE_GRADES or storage_rank(grade) >= storage_rank(required)
        )
        if result.get("status") == "PASSED" and enough:
            began = datetime.strptime(audit.created, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
            counted.append((int(began.timestamp()), audit.choice))
    return CountedReadings(counted, seal.part_bytes or max(0, seal.bytes)) if counted else None
