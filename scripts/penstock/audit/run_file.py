"""`run.json` of an audit or a repair: what their elements read of it, in the form of a run's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core import run_documents
from penstock.storage import durable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.core.documents.seal import Seal
    from penstock.core.layout import DatasetLayout, RunLayout
    from penstock.core.run_documents import PlanInfo, RunInfo


def write(
    layout: DatasetLayout,
    folder: RunLayout,
    seal: Seal,
    plan: PlanInfo,
    *,
    created: str,
    config: Mapping[str, object],
    counts: tuple[int, int, int],
) -> RunInfo:
    """Write it into `folder`, anew each time: the engine's settings may have changed. `created` is UTC, ISO
    8601, `config` as `run_config.freeze` makes it, `counts` are files, bytes, and objects scanned. Raises
    OSError."""
    files, size, scanned = counts
    info = run_documents.RunInfo(
        run=plan.run,
        dataset=layout.dataset,
        release=plan.release,
        created=created,
        listing_digest=seal.listing,
        files=files,
        bytes=size,
        scanned=scanned,
        root=str(layout.root),
        state_root=str(layout.state_root) if layout.state_root else None,
        config=config,
    )
    durable.write_json(folder.run_file, run_documents.to_json(info))
    return info
