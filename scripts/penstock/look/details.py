"""One release in detail: what its seal, verdict, history and audits say."""

from __future__ import annotations

import contextlib
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.core import audit_documents as verdict_document
from penstock.core import seal as seal_document
from penstock.core.errors import ConfigError, FindingsError, PenstockError, PreflightError
from penstock.core.grades import EVIDENCE_GRADES, SOURCE_GRADES
from penstock.core.layout import SIGNATURE
from penstock.dataset import gate, seals, verdicts
from penstock.look import history_lines
from penstock.look.releases import release_row
from penstock.look.untrusted_folder import Folder
from penstock.target import dataset_folders

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.core.catalogue_rows import (
        GradeAmount,
        HistoryRow,
        ReleaseShown,
        ShownManifest,
    )
    from penstock.core.layout import DatasetLayout
    from penstock.core.seal import Amount, Seal
    from penstock.dataset.seals import Stored
    from penstock.look.holders import Holders
    from penstock.look.releases import Read


def shown(
    layout: DatasetLayout,
    release: str | None,
    holders: Holders,
    now: datetime | None = None,
    *,
    owners: Sequence[str] | None = None,
) -> ReleaseShown:
    """Return the named release or the current one, judged as in `dataset_row`. Raises ConfigError for an
    unknown release, PreflightError if nothing is published, FindingsError if `current` leads nowhere or
    folders are damaged."""
    now = now or datetime.now(UTC)
    try:
        with Folder(layout.folder) as folder:
            name, current = named(folder, layout, release)
            held = holders(layout).get(name)
            read = release_row(layout, name, current, held, now, owners=owners)
            manifests = _manifests(folder, layout, read)
    except OSError as error:
        raise unreadable(layout, error) from None
    lines = history_lines.history(layout)
    stored, verdict = read.judgement.stored, read.judgement.verdict
    findings = read.row["findings"]
    since = verdicts.read_since(verdict, stored.seal) if stored else None
    return {
        "dataset": layout.dataset,
        "row": read.row,
        "owner": read.owner,
        "seal": seal_document.RELEASE_SEAL.to_json(stored.seal) if stored else None,
        "seal_digest": stored.digest if stored else "",
        "seal_in_history": _in_history(
            lines["lines"], name, stored.digest if stored else "", lines["problem"]
        ),
        "signature": _signature(layout, name, stored) if stored else "",
        "source_evidence": _amounts(SOURCE_GRADES, stored.seal.evidence.source) if stored else [],
        "storage_evidence": _amounts(EVIDENCE_GRADES, stored.seal.evidence.storage) if stored else [],
        "manifests": manifests,
        "read_back": since.strftime("%Y-%m-%dT%H:%M:%SZ") if since else None,
        "verdict": verdict_document.VERDICT.to_json(verdict) if verdict else None,
        "advice": verdicts.advice(layout.dataset, findings) if findings else "",
        "history": _of(lines["lines"], name),
        "audits": _of(history_lines.audits(layout)["lines"], name),
    }


def named(folder: Folder, layout: DatasetLayout, release: str | None) -> tuple[str, str | None]:
    """Return the wanted release, and the one that `current` names. Raises as `shown`, and OSError."""
    dataset_folders.check_shape(layout)
    try:
        current = gate.current(layout)
    except gate.NothingPublishedError as error:
        if release is None:
            raise PreflightError(
                error.what,
                where=error.where,
                why=error.why,
                hint=f"name a release: `penstock releases {layout.dataset}` lists them",
            ) from None
        current = None
    except (FindingsError, PreflightError):
        if release is None:
            raise
        current = None
    if release is None:
        return str(current), current
    if "/" in release or release.startswith("."):
        raise ConfigError(
            "this is no release's name", where=release, hint="`penstock releases` lists the names"
        )
    try:
        folder.lstat(f"{layout.releases.name}/{release}")
    except FileNotFoundError:
        raise ConfigError(
            f"{layout.dataset} has no such release",
            where=release,
            hint=f"`penstock releases {layout.dataset}` lists them",
        ) from None
    return release, current


def unreadable(layout: DatasetLayout, error: OSError) -> ConfigError | PreflightError:
    """Return the error for a dataset's folder that cannot be opened."""
    if isinstance(error, FileNotFoundError):
        return ConfigError(
            f"there is no dataset {layout.dataset}",
            where=str(layout.folder),
            hint="`penstock releases` lists those that are there",
        )
    return PreflightError(
        "the dataset cannot be read by this account",
        where=str(layout.folder),
        why=str(error.strerror),
        hint="ask its owner for the group that may read it",
    )


def _in_history(lines: Sequence[HistoryRow], release: str, digest: str, problem: str) -> str:
    if problem == history_lines.OWNERS_ALONE:
        return "unreadable"
    for line in lines:
        if line["event"] == "publish" and line["release"] == release:
            return "same" if line["line"].get("seal") == digest else "differs"
    return "none"


def _signature(layout: DatasetLayout, release: str, stored: Stored) -> str:
    if layout.signing.signers is None:
        exists = os.path.lexists(layout.release(release) / SIGNATURE)
        return f"{SIGNATURE} is there, and not verified: that needs `target.signers`" if exists else ""
    try:
        why = seals.problem(layout, release, stored)
    except (PenstockError, OSError) as error:
        return f"not verified: {error}"
    return f"DOES NOT HOLD: {why}" if why else "holds, by `target.signers`"


def _of(lines: Sequence[HistoryRow], release: str) -> list[HistoryRow]:
    """Return the lines that name the release."""
    about = ("release", "from", "previous")
    return [line for line in lines if release in (line["line"].get(key) for key in about)]


def _amounts(order: Sequence[str], amounts: Mapping[str, Amount]) -> list[GradeAmount]:
    """Return amounts, strongest grade first; unknown grades come last."""
    ordered = [grade for grade in reversed(order) if grade in amounts]
    grades = ordered + sorted(set(amounts) - set(ordered))
    return [
        {"grade": grade, "files": amounts[grade].files, "bytes": amounts[grade].bytes} for grade in grades
    ]


def _manifests(folder: Folder, layout: DatasetLayout, read: Read) -> list[ShownManifest]:
    seal: Seal | None = read.judgement.stored.seal if read.judgement.stored else None
    manifests: list[ShownManifest] = []
    for name, sealed in (seal.manifests if seal else {}).items():
        size = None
        with contextlib.suppress(OSError):
            size = folder.lstat(f"{layout.releases.name}/{read.row['release']}/{name}").st_size
        manifests.append({"name": name, "bytes": size, "sha256": sealed.sha256})
    return manifests
