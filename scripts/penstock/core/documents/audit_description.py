"""`audits/<id>/audit.json`: what an audit reads of which release, and why. Pure; an audit writes it when it
begins; the audit that goes on, its elements and repair read it."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.

from typing import NamedTuple

from penstock.core.audit_selection import AuditSelection
from penstock.core.documents.typed_json import Document, Utc
from penstock.core.layout import DatasetLayout, RunLayout


class Audit(NamedTuple):
    """One audit of one release."""

    id: str
    dataset: str
    release: str
    seal: str
    """`sha256:<hex>` of the release's seal when the audit began: another seal, another audit."""
    created: Utc
    """UTC, ISO 8601."""
    choice: AuditSelection
    limit: int | None = None
    """Bytes per second, of all elements together."""
    recall: int = 0
    """Bytes of tiered files that may be fetched back to be read, of all elements together."""
    filesystem: str = "auto"
    """As `target.filesystem`."""
    direct: str = "unshared"
    """As `verify.direct`."""
    look: bool = False
    """Whether it is the look of `gate --mend`, which is never continued."""

    def layout(self, layout: DatasetLayout) -> RunLayout:
        """The paths of the audit's state, which has the shape of a run's."""
        return RunLayout(layout.audits / self.id)


AUDIT = Document(Audit, "an audit's description")
