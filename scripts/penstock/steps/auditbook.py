"""Where audits lie: `.penstock/audits/<id>/`, each laid out like a run, so that its elements run
like any others.

    audit.json       what is read of which release, and why: written once
    run.json, plan.json, shards/, receipts/audit/, arrays.jsonl: as in a run
    seen/NNNNN.json  what the elements saw so far
    findings.jsonl, result.json: at the end; an audit without result.json is open
"""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from penstock.core.choosing import Choice
from penstock.core.layout import RunLayout
from penstock.errors import FailedError
from penstock.storage import durable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.core.layout import DatasetLayout


@dataclass(frozen=True)
class Audit:
    """One audit of one release."""

    id: str
    dataset: str
    release: str
    seal: str
    """`sha256:<hex>` of the release's seal when the audit began: another seal, another audit."""
    created: str
    choice: Choice
    limit: int | None = None

    def layout(self, layout: DatasetLayout) -> RunLayout:
        return RunLayout(folder(layout) / self.id)


def folder(layout: DatasetLayout) -> Path:
    return layout.state / "audits"


def seen(run: RunLayout, index: int) -> Path:
    return run.folder / "seen" / f"{index:05d}.json"


def result(run: RunLayout) -> Path:
    return run.folder / "result.json"


def findings(run: RunLayout) -> Path:
    return run.folder / "findings.jsonl"


def begin(layout: DatasetLayout, release: str, seal: str, choice: Choice, limit: int | None) -> Audit:
    """A new audit, durable."""
    now = datetime.now(UTC)
    name = f"{now:%Y%m%dT%H%M%SZ}-{release}-{secrets.token_hex(3)}"
    if choice.kind == "sample" and not choice.seed:
        choice = Choice("sample", choice.share, secrets.token_hex(8))
    audit = Audit(name, layout.dataset, release, seal, f"{now:%Y-%m-%dT%H:%M:%SZ}", choice, limit)
    run = audit.layout(layout)
    durable.make_dirs(run.folder)
    durable.write_json(run.folder / "audit.json", asdict(audit))
    return audit


def audits(layout: DatasetLayout) -> Iterator[tuple[Audit, dict[str, Any] | None]]:
    """All audits that are there, newest first, each with its result (None: it is open)."""
    try:
        names = sorted((p.name for p in folder(layout).iterdir()), reverse=True)
    except FileNotFoundError:
        return
    for name in names:
        run = RunLayout(folder(layout) / name)
        try:
            raw = durable.read_json(run.folder / "audit.json")
            audit = Audit(**{**raw, "choice": Choice(**raw["choice"])})
        except FileNotFoundError:
            continue
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise FailedError(
                "an audit's description cannot be read",
                where=str(run.folder),
                why=str(error),
                hint="remove this folder; other audits are not concerned",
            ) from error
        try:
            yield audit, durable.read_json(result(run))
        except FileNotFoundError:
            yield audit, None
        except (OSError, ValueError):
            yield audit, None


def open_audit(layout: DatasetLayout, release: str, seal: str, choice: Choice) -> Audit | None:
    """The unfinished audit of the same release that asks the same, if there is one."""
    for audit, end in audits(layout):
        same = (audit.release, audit.seal) == (release, seal) and _alike(audit.choice, choice)
        if end is None and same:
            return audit
    return None


def next_turn(layout: DatasetLayout, release: str, turns: int) -> int:
    """The slice after the last finished one of this rotation."""
    for audit, end in audits(layout):
        choice = audit.choice
        if end is not None and audit.release == release and (choice.kind, choice.turns) == ("slice", turns):
            return (choice.turn + 1) % turns
    return 0


def last(layout: DatasetLayout, release: str) -> Audit | None:
    """The newest finished audit of a release: what a repair goes by."""
    for audit, end in audits(layout):
        if end is not None and audit.release == release:
            return audit
    return None


def _alike(old: Choice, new: Choice) -> bool:
    if (old.kind, new.kind) == ("sample", "sample"):
        # The open one keeps the seed that it drew.
        return old.share == new.share
    return old == new
