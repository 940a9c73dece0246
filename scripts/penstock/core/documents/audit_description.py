"""`audits/<id>/audit.json`: what an audit reads of which release, and why."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.

from typing import NamedTuple

from penstock.core.audit_selection import AuditSelection
from penstock.core.documents.typed_json import Document, Utc
from penstock.core.layout import DatasetLayout, RunLayout


class Audit(NamedTuple):
    """An audit of a release."""

    id: str
    dataset: str
    release: str
    seal: str  # `sha256:<hex>` of the release's seal at the audit's beginning: another seal is another audit
    created: Utc  # UTC, ISO 8601
    choice: AuditSelection
    limit: int | None = None  # bytes a second, of all elements together
    recall: int = 0  # bytes of tiered files that all elements together may fetch back to read
    filesystem: str = "auto"  # as `target.filesystem`
    direct: str = "unshared"  # as `verify.direct`
    look: bool = False  # the look of `gate --mend`, which is never resumed

    def layout(self, layout: DatasetLayout) -> RunLayout:
        """Return the paths of the audit's state, which has the shape of a run's."""
        return RunLayout(layout.audits / self.id)


AUDIT = Document(Audit, "an audit's description")
