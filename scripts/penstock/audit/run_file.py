"""`run.json` and `probe.json` of an audit or a repair: what their elements read, in the form of a run's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core import run_documents
from penstock.core.documents.probe_report import PROBE_REPORT
from penstock.errors import NewerFormatError
from penstock.state import documents

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
    8601, `config` as `run_config.freeze` makes it, `counts` are files, bytes, and objects scanned. Before it
    `probe.json` is written, where the run that published the release has one. Raises OSError."""
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
    _hand_on_probe(layout.run(seal.run), folder)
    documents.write(run_documents.RUN, folder.run_file, info)
    return info


def _hand_on_probe(published: RunLayout, folder: RunLayout) -> None:
    """What plan saw of the file system. One that cannot be read is left out: then the table of file systems
    counts alone."""
    try:
        report = documents.load(PROBE_REPORT, published.probe)
    except (OSError, ValueError, NewerFormatError):
        return
    documents.write(PROBE_REPORT, folder.probe, report)
