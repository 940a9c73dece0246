"""What a release claims of its files, counted while the records pass, and what is too little.

Empty files prove themselves: their size is all there is. What can never be enough is told as soon as
it can be known: `beyond` before anything begins, `unprovable` by the listing, the copy by what the
source states when a row is opened; publish looks at every record, last.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.core.model import SOURCE_GRADES, STORAGE_GRADES, Claim
from penstock.engine.checks import COMBINABLE
from penstock.storage.cold import CACHED_ONLY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.config.model import VerifyConfig
    from penstock.core.model import Entry, Record

Amounts = dict[str, dict[str, int]]
"""Grade to {"files", "bytes"}."""


@dataclass
class Evidence:
    """Counts of the grades, and what is required."""

    minimum: str
    """The weakest storage grade that is allowed."""
    proven: bool
    """Whether a checksum of the source must have proven every file."""
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
        if self.proven and record.source_grade == SOURCE_GRADES[0]:
            return f"{record.path!r}: no checksum of its source proved it"
        return ""

    def to_json(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "storage": self.storage,
            "methods": self.methods,
            "weakest_source": _weakest(SOURCE_GRADES, self.source),
            "weakest_storage": _weakest(STORAGE_GRADES, self.storage),
            "required_storage": self.minimum,
            "required_source": "any checksum" if self.proven else "none",
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


def beyond(verify: VerifyConfig, *, kind: str, alone: bool, stated: bool) -> str:
    """Why `minimum_grade` can never be reached, or "". `kind` is the target's file system; `alone`: this
    machine does everything; `stated`: the source may state checksums.

    minimum_grade   | reread                   | target       | alone | can be reached
    auto, written   | any                      | any          | any   | yes
    reread and more | sample of less than all  | any          | any   | no: the rest is `written`
    reread and more | unproven, stated         | any          | any   | no: what is proven is `written`
    cold and more   | else                     | memory alone | any   | no
    cold-other-node | else                     | any          | yes   | no
    else            | else                     | any          | any   | perhaps
    """
    minimum = verify.minimum_grade
    if minimum in ("auto", "written"):
        return ""
    if (verify.reread == "sample" and verify.sample < 1) or (verify.reread == "unproven" and stated):
        return f"with `verify.reread: {verify.reread}` some files are not read back at all"
    if minimum != "reread" and kind in CACHED_ONLY:
        return f"{kind} has its bytes nowhere but in memory"
    if minimum == "cold-other-node" and alone:
        return "who writes and who reads back is the same machine"
    return ""


def unprovable(entry: Entry, *, stated: bool, giant: bool, later: Sequence[str]) -> str:
    """Why no checksum of its source can ever prove this file, or "". `stated`: whether its source may
    state one when it is read; `later`: digests that verify makes of giants as a whole.

    | the listing or a checksum file has | source may state | giant | can be proven |
    |------------------------------------|------------------|-------|---------------|
    | anything                           | yes              | any   | perhaps       |
    | nothing                            | no               | any   | no            |
    | a checksum                         | no               | no    | yes           |
    | a CRC, or one of `later`           | no               | yes   | yes           |
    | another one                        | no               | yes   | no            |
    """
    if stated or not entry.size:
        return ""
    if not entry.checksum:
        return "nothing states a checksum of it"
    algorithm = Claim.parse(entry.checksum).algorithm
    if giant and algorithm not in COMBINABLE and algorithm not in later:
        return (
            f"its parts cannot prove {algorithm} together (verify.whole_file_digest and verify.digests may)"
        )
    return ""


def short(sealed: Mapping[str, Any], verify: VerifyConfig) -> str:
    """Why a release that is sealed has less evidence (its seal's account of it) than is asked for by name
    now, or "". Empty files need none."""
    lacking = []
    if verify.source_checksum == "require" and _bytes(sealed, "source", SOURCE_GRADES[0]):
        lacking.append("files that no checksum of the source proved")
    if verify.minimum_grade != "auto":
        weaker = STORAGE_GRADES[: STORAGE_GRADES.index(verify.minimum_grade)]
        lacking += [
            f"files of which is known no more than `{g}`" for g in weaker if _bytes(sealed, "storage", g)
        ]
    return " and ".join(lacking)


def _bytes(sealed: Mapping[str, Any], kind: str, grade: str) -> int:
    return int(sealed.get(kind, {}).get(grade, {}).get("bytes", 0))


def _count(amounts: Amounts, grade: str, size: int) -> None:
    amount = amounts.setdefault(grade, {"files": 0, "bytes": 0})
    amount["files"] += 1
    amount["bytes"] += size


def _weakest(order: Sequence[str], amounts: Amounts) -> dict[str, Any]:
    for grade in order:
        if grade in amounts:
            return {"grade": grade, **amounts[grade]}
    return {"grade": "", "files": 0, "bytes": 0}
