"""Seals for tests that look at a few fields of them."""

from __future__ import annotations

import json
from typing import Any

from penstock.core import seal as document
from penstock.core.row_codec import ALWAYS, sealed_fields
from penstock.core.seal import (
    Seal,
    SealedEvidence,
    SealedManifest,
    SealedPermissions,
    SealedRecords,
)

PLAIN = Seal(
    dataset="data",
    release="r",
    run="0123456789abcdef",
    sealed="2026-01-02T03:04:05Z",
    penstock="1.0.0",
    files=0,
    bytes=0,
    giants=0,
    part_bytes=None,
    sources=(),
    listing="sha256:aa",
    include=("**",),
    exclude=(),
    scanned=0,
    ignored={},
    hard_links={},
    base=None,
    unchanged=0,
    permissions=SealedPermissions(0o644, 0o755, None, 0),
    records=SealedRecords("sha256:bb", 0, sealed_fields(ALWAYS)),
    manifests={"manifest.parquet": SealedManifest("sha256:cc", records=0, bytes=0)},
    evidence=SealedEvidence({}, {}, {}, "cold", "none"),
)
"""Of a release without files; `_replace` says what a test is about."""


def written(**fields: Any) -> str:
    """The file of such a release's seal, with these fields."""
    return json.dumps(document.RELEASE_SEAL.to_json(PLAIN._replace(**fields)))
