"""The verdict of a release, `audits/<release>.json`: the results of its last audits and repairs, and the
findings that stand. The dataset's owner writes it; everybody may read it, and `dataset.gate` does.

A finding is a deviation that an audit found, such as a missing, changed or unread file. It *stands* until an
audit that checked the file finds nothing, a repair restores the file, or the owner overrules it. Then it
*falls*:

| event                             | earlier findings of bytes   | earlier findings of shape, | its own   |
|                                   | (changed, unread)           | permissions, manifest      |           |
|-----------------------------------|-----------------------------|----------------------------|-----------|
| an audit of everything            | fall                        | fall                       | stand     |
| an audit of everything, not all   | stand if found by an audit  | fall                       | stand     |
| read from the servers' disks      | with `disk`; else fall      |                            |           |
| an audit of a sample or a slice   | stand                       | fall: all were compared    | stand     |
| an audit that could compare       | stand                       | those of the manifest fall | stand     |
| nothing (manifest or data gone)   |                             |                            |           |
| any audit that skipped files,     | stand                       | fall                       | stand     |
| since their data is not here      |                             |                            |           |
| a repair                          | fall                        | fall                       | stand, if |
|                                   |                             |                            | any left  |
| overruled                         | fall                        | fall                       |           |
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.core import findings as document
from penstock.core.errors import FailedError, FindingsError
from penstock.core.findings import (
    NONE_FIRST,
    AuditShown,
    LastRepair,
    Overruling,
    ReadBack,
    StandingFindings,
    Verdict,
)
from penstock.core.human import brief
from penstock.target import notices

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.core.findings import AuditSelection, LastAudit
    from penstock.core.layout import DatasetLayout
    from penstock.core.seal import Seal

# kinds of findings that only reading finds; every audit checks all files for the other kinds
BYTES = frozenset({"changed", "unread"})
MANIFEST = "manifest"  # the kind of a damaged manifest


def read(layout: DatasetLayout, release: str) -> Verdict | None:
    """Return the verdict; None if the release was never audited. Raises FindingsError if it is damaged,
    NewerFormatError, PermissionError if this account may not read it, FailedError if the file system
    hangs."""
    path = layout.verdict(release)
    try:
        return document.VERDICT.from_json(notices.read_notice(path), path)
    except FileNotFoundError:
        return None
    except PermissionError:
        raise
    except OSError as error:
        raise FailedError(
            "what the last audit said cannot be read",
            where=str(path),
            why=str(error),
            hint="`penstock audit` writes it anew",
        ) from error
    except (FailedError, ValueError) as error:
        raise FindingsError(
            "what the last audit said is damaged",
            where=str(path),
            why=error.why if isinstance(error, FailedError) else str(error),
            hint=f"nobody knows which findings stand: move it away, then `penstock audit {layout.dataset}`",
        ) from error


def write(layout: DatasetLayout, verdict: Verdict) -> None:
    """Write the verdict durably. Requires the audits' lock. Raises as `write_notice`."""
    notices.write_notice(layout.verdict(verdict.release), document.VERDICT.to_json(verdict))


def forget(layout: DatasetLayout, release: str) -> None:
    """Remove the verdict of an earlier release of the same name, before the new one is published."""
    notices.forget_notice(layout.verdict(release))


def standing(verdict: Verdict | None) -> dict[str, int]:
    """Return the number of standing findings by kind."""
    counts: Counter[str] = Counter()
    for findings in verdict.stands if verdict else ():
        counts.update(findings.counts)
    return dict(counts)


def last(verdict: Verdict | None) -> AuditShown | None:
    """Return the last audit, for views. `closed` is set if its findings no longer stand."""
    if verdict is None or verdict.last is None:
        return None
    closed, repair, overruled = "", verdict.repair, verdict.overruled
    if verdict.last.counts and not standing(verdict) and (repair or overruled):
        repaired_at, overruled_at = repair.at if repair else "", overruled.at if overruled else ""
        by_repair = repaired_at >= overruled_at
        closed = f"repaired {repaired_at}" if by_repair else f"overruled {overruled_at}"
    return AuditShown(verdict.last, closed)


def advice(dataset: str, counts: Iterable[str]) -> str:
    """Return advice about findings of the kinds `counts`.

    | kinds                          | advice                                              |
    |--------------------------------|-----------------------------------------------------|
    | "manifest" is among them       | a repair of text manifests, an audit of what was    |
    |                                | signed since; else a new release                    |
    | any that a repair fixes        | a repair                                            |
    | extra alone                    | nothing is deleted that penstock did not write      |
    """
    if MANIFEST in counts:
        return (
            f"`penstock repair {dataset}` makes text manifests again; after `penstock sign`, audit again; "
            "nothing can be repaired by a manifest.parquet or a seal that is damaged: stage the same content "
            f"as a new release, `penstock run --new-release {dataset}`"
        )
    if set(counts) - {"extra"}:
        return f"`penstock repair {dataset}` restores what is damaged"
    return "what was not published is left to you: remove it by hand, then audit again"


def counts_text(counts: Mapping[str, int]) -> str:
    """Format counts: `3 changed, 1 missing`. Kinds are escaped, since another account may have written
    them."""
    return ", ".join(f"{count} {brief(kind)}" for kind, count in sorted(counts.items()))


def new(layout: DatasetLayout, release: str, seal: str) -> Verdict:
    """Return the verdict of a release that was never audited; `seal` is the digest of its seal."""
    return Verdict(layout.dataset, release, seal)


def audited(verdict: Verdict, audit: LastAudit, choice: AuditSelection, *, compared: bool) -> Verdict:
    """Return the verdict after an audit, by the module's table. `compared`: the audit could compare the
    release's manifest and tree."""

    def falls(kind: str, from_disks: bool) -> bool:
        if not compared:
            return kind == MANIFEST
        looked = choice.kind == "whole" and not audit.skipped and audit.from_disks >= from_disks
        return looked or kind not in BYTES

    stands = []
    for findings in verdict.stands:
        counts = {
            kind: count for kind, count in findings.counts.items() if not falls(kind, findings.from_disks)
        }
        if counts and findings.audit != audit.audit:
            stands.append(findings._replace(counts=counts))
    if audit.counts:
        stands.append(StandingFindings(audit.audit, audit.began, audit.counts, audit.from_disks))
    read = _read(verdict.read, audit, choice) if compared and not audit.skipped else verdict.read
    return verdict._replace(stands=stands, last=audit, read=read)


def _read(before: ReadBack, audit: LastAudit, choice: AuditSelection) -> ReadBack:
    """Add the files that an audit of this choice read."""
    if choice.kind == "whole":
        return before._replace(whole=audit.began)
    if choice.kind != "slice":
        return before
    turns, soon_first = choice.turns, dict(before.soon_first)
    same = soon_first.pop(turns, NONE_FIRST) == choice.soon_first
    turn = {**(before.slices.get(turns, {}) if same else {}), choice.turn: audit.began}
    if choice.soon_first.share:
        soon_first[turns] = choice.soon_first
    return before._replace(slices={**before.slices, turns: turn}, soon_first=soon_first)


def repaired(verdict: Verdict, audit: str, left: Iterable[str], repaired: int) -> Verdict:
    """Return the verdict after a repair of the findings of audit `audit`. `left`: the kind of each remaining
    finding. `repaired`: number of files."""
    counts = Counter(left)
    stands = [StandingFindings(audit, now(), counts)] if counts else []
    return verdict._replace(stands=stands, repair=LastRepair(now(), audit, repaired, counts.total()))


def mended(verdict: Verdict, audit: str, fell: Mapping[str, Mapping[str, int]], repaired: int) -> Verdict:
    """Return the verdict after a repair of another release restored files shared with this release. `audit`
    is the audit whose findings were repaired. `fell`: for each of this release's audits, how many findings of
    each kind were repaired."""
    stands = []
    for findings in verdict.stands:
        gone = fell.get(findings.audit, {})
        counts = {kind: left for kind, n in findings.counts.items() if (left := n - gone.get(kind, 0)) > 0}
        if counts:
            stands.append(findings._replace(counts=counts))
    left = sum(sum(findings.counts.values()) for findings in stands)
    return verdict._replace(stands=stands, repair=LastRepair(now(), audit, repaired, left))


def overruled(verdict: Verdict, why: str, by: str) -> Verdict:
    return verdict._replace(stands=(), overruled=Overruling(now(), by, why, standing(verdict)))


def read_since(verdict: Verdict | None, seal: Seal) -> datetime | None:
    """Return a moment since which every byte of the release was read back and compared; None if never. A
    single audit, audits of all slices (fractions read in turn), or the check before publication may have done
    so. The latest of these counts, with the date of the file that it read first."""
    moments: list[datetime] = []
    if seal.evidence.oldest_read:
        moments.append(_time(seal.evidence.oldest_read))
    read = verdict.read if verdict else ReadBack()
    if read.whole:
        moments.append(_time(read.whole))
    for turns, audited_at in read.slices.items():
        if len(audited_at) == turns:
            moments.append(min(map(_time, audited_at.values())))
    return max(moments, default=None)


def now() -> str:
    """Return the time in UTC, ISO 8601, whole seconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _time(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
