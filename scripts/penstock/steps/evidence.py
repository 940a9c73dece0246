"""What a release claims of its files, counted while the records pass, and what is too little.

Empty files prove themselves: their size is all there is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.core.model import SOURCE_GRADES, STORAGE_GRADES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.config.model import VerifyConfig
    from penstock.core.model import Record

Amounts = dict[str, dict[str, int]]
"""Grade to {"files", "bytes"}."""


@dataclass
class Evidence:
    """Counts of the grades, and what is required."""

    minimum: str
    """The weakest storage grade that is allowed."""
    full: bool
    """Whether every file needs a full source checksum."""
    source: Amounts = field(default_factory=dict)
    storage: Amounts = field(default_factory=dict)
    methods: Amounts = field(default_factory=dict)

    def add(self, record: Record) -> str:
        """Count it; returns why it is too little, or ""."""
        _count(self.source, record.source_grade, record.size)
        _count(self.storage, record.storage_grade, record.size)
        _count(self.methods, record.method, record.size)
        if not record.size:
            return ""
        if STORAGE_GRADES.index(record.storage_grade) < STORAGE_GRADES.index(self.minimum):
            return f"{record.path!r}: {record.storage_grade} ({record.method}), required is {self.minimum}"
        if self.full and record.source_grade != "full":
            return f"{record.path!r}: source grade {record.source_grade}, required is full"
        return ""

    def to_json(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "storage": self.storage,
            "methods": self.methods,
            "weakest_source": _weakest(SOURCE_GRADES, self.source),
            "weakest_storage": _weakest(STORAGE_GRADES, self.storage),
            "required_storage": self.minimum,
            "required_source": "full" if self.full else "none",
        }


def required(verify: VerifyConfig, *, direct: bool) -> Evidence:
    """
    minimum_grade | reread           | direct reads | weakest grade allowed
    a grade       | any              | any          | that grade
    auto          | all              | honoured     | cold
    auto          | all              | not          | reread
    auto          | unproven, sample | any          | written
    """
    minimum = verify.minimum_grade
    if minimum == "auto":
        minimum = "written" if verify.reread != "all" else "cold" if direct else "reread"
    return Evidence(minimum, verify.source_checksum == "require")


def _count(amounts: Amounts, grade: str, size: int) -> None:
    amount = amounts.setdefault(grade, {"files": 0, "bytes": 0})
    amount["files"] += 1
    amount["bytes"] += size


def _weakest(order: Sequence[str], amounts: Amounts) -> dict[str, Any]:
    for grade in order:
        if grade in amounts:
            return {"grade": grade, **amounts[grade]}
    return {"grade": "", "files": 0, "bytes": 0}
