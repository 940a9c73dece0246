"""What the last audits and repairs of a release said, and which findings stand: `audits/<release>.json`
beside the releases, for whoever asks at the gate. Its owner writes it, everybody may read it.

A finding stands until an audit that looked there finds nothing, a repair mends it, or its owner overrules it:

| what ended                        | earlier findings of bytes   | earlier findings of shape, | its own   |
|                                   | (changed, unread)           | permissions, manifest      |           |
|-----------------------------------|-----------------------------|----------------------------|-----------|
| an audit of everything            | fall                        | fall                       | stand     |
| an audit of a sample or a slice   | stand                       | fall: all were compared    | stand     |
| an audit that could compare       | stand                       | those of the manifest fall | stand     |
| nothing (manifest or data gone)   |                             |                            |           |
| a repair                          | fall                        | fall                       | what was  |
|                                   |                             |                            | left does |
| overruled                         | fall                        | fall                       |           |
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from penstock.core.format_versions import refuse_newer
from penstock.errors import FailedError
from penstock.storage import durable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.core.audit_selection import Choice
    from penstock.core.documents.seal import Seal
    from penstock.core.layout import DatasetLayout

FORMAT = 1
BYTES = frozenset({"changed", "unread"})
"""Kinds of findings that only reading finds; the others are compared by every audit."""
MANIFEST = "manifest"

LAST = ("audit", "began", "choice", "status", "counts", "files", "of_files", "bytes", "seconds", "promise")
"""What is kept of an audit's result."""

Verdict = dict[str, Any]
"""{format, dataset, release, seal, last, stands, read, repair, overruled}: docs/formats.md."""


def read(layout: DatasetLayout, release: str) -> Verdict | None:
    """None when the release was never audited. Raises FailedError when it is damaged, NewerFormatError."""
    path = layout.verdict(release)
    try:
        found = durable.read_json(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise FailedError(
            "what the last audit said cannot be read", where=str(path), why=str(error), hint="audit again"
        ) from error
    if not isinstance(found, dict):
        raise FailedError("what the last audit said is damaged", where=str(path), hint="audit again")
    refuse_newer("what the last audit said", found.get("format"), FORMAT, path)
    return found


def write(layout: DatasetLayout, verdict: Verdict) -> None:
    """Durable on return. To be called under the lock of audits."""
    path = layout.verdict(verdict["release"])
    durable.make_dirs(path.parent, 0o755)
    durable.write_json(path, verdict, mode=0o644)


def forget(layout: DatasetLayout, release: str) -> None:
    """Of a release that is about to be published: what was said of another one of its name is void."""
    path = layout.verdict(release)
    if os.path.lexists(path):
        path.unlink()
        durable.fsync_dir(path.parent)


def standing(verdict: Mapping[str, Any] | None) -> dict[str, int]:
    """Kind to the number of findings that stand."""
    counts: dict[str, int] = {}
    for one in (verdict or {}).get("stands", ()):
        for kind, count in one["counts"].items():
            counts[kind] = counts.get(kind, 0) + int(count)
    return counts


def advice(dataset: str, counts: Iterable[str]) -> str:
    """What to do about findings of these kinds.

    | kinds                          | advice                                              |
    |--------------------------------|-----------------------------------------------------|
    | manifest among them            | a new release: nothing can be repaired by it        |
    | any that a repair mends        | a repair                                            |
    | extra alone                    | nothing is deleted that penstock did not write      |
    """
    if MANIFEST in counts:
        return (
            "nothing can be repaired by a manifest or a seal that is damaged: stage the same content as a "
            f"new release, `penstock run --new-release {dataset}`"
        )
    if set(counts) - {"extra"}:
        return f"`penstock repair {dataset}` mends what is damaged"
    return "what was not published is left to you: remove it by hand, then audit again"


def told(counts: Mapping[str, int]) -> str:
    """`3 changed, 1 missing`."""
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))


def new(layout: DatasetLayout, release: str, seal: str) -> Verdict:
    """Of a release of which nothing was said yet; `seal` is the digest of its seal."""
    return {
        "format": FORMAT, "dataset": layout.dataset, "release": release, "seal": seal, "stands": [],
        "read": {"whole": None, "slices": {}},
    }  # fmt: skip


def audited(
    verdict: Verdict, result: Mapping[str, Any], choice: Choice, *, compared: bool, by: str
) -> Verdict:
    """After an audit with this result. `compared`: its manifest and its tree were there to be compared."""

    def falls(kind: str) -> bool:
        if not compared:
            return kind == MANIFEST
        return choice.kind == "whole" or kind not in BYTES

    stands = []
    for one in verdict["stands"]:
        counts = {kind: count for kind, count in one["counts"].items() if not falls(kind)}
        if counts and one["audit"] != result["audit"]:
            stands.append({**one, "counts": counts})
    if result["counts"]:
        stands.append({"audit": result["audit"], "at": result["began"], "counts": dict(result["counts"])})
    last = {key: result[key] for key in LAST}
    return {
        **verdict,
        "stands": stands,
        "last": {**last, "ended": now(), "by": by},
        "read": _read(verdict["read"], result["began"], choice) if compared else verdict["read"],
    }


def _read(before: Mapping[str, Any], began: str, choice: Choice) -> dict[str, Any]:
    """When all bytes, and when each slice of a rotation, were last read: the moment that the audit began."""
    slices = {turns: dict(turn) for turns, turn in before["slices"].items()}
    if choice.kind == "slice":
        slices.setdefault(str(choice.turns), {})[str(choice.turn)] = began
    return {"whole": began if choice.kind == "whole" else before["whole"], "slices": slices}


def repaired(verdict: Verdict, audit: str, left: Iterable[str], repaired: int) -> Verdict:
    """After a repair by the release's audits; `left` holds the kind of each finding that is left."""
    counts: dict[str, int] = {}
    for kind in left:
        counts[kind] = counts.get(kind, 0) + 1
    stands = [{"audit": audit, "at": now(), "counts": counts}] if counts else []
    told = {"at": now(), "audit": audit, "repaired": repaired, "left": sum(counts.values())}
    return {**verdict, "stands": stands, "repair": told}


def overruled(verdict: Verdict, why: str, by: str) -> Verdict:
    """After somebody said that the findings need not stand in the way."""
    told = {"at": now(), "by": by, "why": why, "counts": standing(verdict)}
    return {**verdict, "stands": [], "overruled": told}


def read_since(verdict: Mapping[str, Any] | None, seal: Seal) -> datetime | None:
    """Since when every byte was read back and compared, by one audit, by all slices of a rotation, or by
    verify before the release was published; the latest of them, None if it never was."""
    found: list[datetime] = []
    if seal.sealed and seal.evidence.all_read:
        found.append(_time(seal.sealed))
    read = (verdict or {}).get("read") or {}
    if read.get("whole"):
        found.append(_time(read["whole"]))
    for turns, seen in (read.get("slices") or {}).items():
        if len(seen) == int(turns):
            found.append(min(map(_time, seen.values())))
    return max(found, default=None)


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _time(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
