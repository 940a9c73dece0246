"""The datasets below a root as Prometheus series, for node_exporter's textfile collector.

It reads only the target, as any account may, and queries no scheduler. A counter sums over a dataset's
history, which no command shortens, so it never falls. A run's progress is a gauge, since a run may be given
up. Samples have no timestamps, since the collector rejects them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics, generate_latest

from penstock.cluster.registry import open_cluster
from penstock.config.settings import ClusterConfig, Config, TargetConfig
from penstock.core.dataset_documents import Publication, Repair
from penstock.core.errors import PenstockError
from penstock.core.human import SECOND, nanoseconds, printable
from penstock.core.layout import SEAL
from penstock.dataset import gate, release_records, staging_notice
from penstock.dataset.context import Context
from penstock.fs import capabilities
from penstock.jobs import dataset_state
from penstock.look.releases import current_judged
from penstock.target import notices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.core.layout import DatasetLayout
    from penstock.dataset.gate import Judgement

# {name of a series with only the label `root`, without the prefix `penstock_`: help text}
ROOT = {
    "root_free_bytes": "Bytes that this account may still fill.",
    "root_size_bytes": "Bytes that the root's file system has.",
    "root_free_inodes": "Files that this account may still make; no series where the file system says none.",
    "root_paused": "1 while a PAUSE stands at the root.",
    "metrics_generated_timestamp_seconds": "When these series were made.",
}
STATE = {"state": "1, with the state as `penstock status` has it as a label."}
# {name of a series with the labels `root` and `dataset`, without the prefix: help text}; STATE also has the
# label `state`
DATASET = {
    "dataset_readable": "1 where this account may read the dataset's state; else there are fewer series.",
    "last_success_timestamp_seconds": "When a run last ended with 0, also by finding its release unchanged.",
    "current_published_timestamp_seconds": "When the current release was sealed.",
    "current_files": "Files of the current release.",
    "current_bytes": "Bytes of the current release.",
    "last_audit_timestamp_seconds": "End of the current release's last audit; no series before the first.",
    "audit_findings": "Findings that stand against the current release.",
    "holds": "Lines of HOLD that close the dataset, or a release of it.",
    "waiting_seconds": "For how long the run has waited for SLURM; 0: it does not wait.",
    "run_files": "Files of the run that is not published yet.",
    "run_bytes": "Bytes of the run that is not published yet.",
    "run_copied_bytes": "Bytes of that run that copy has done, linked ones included.",
    "run_verified_bytes": "Bytes of that run that were read back, also while others are copied.",
    "releases_published_total": "Releases that were published.",
    "copied_files_total": "Files of published releases that came from the source.",
    "copied_bytes_total": "Bytes of published releases that came from the source.",
    "retries_total": "Calls to the source that were made again, for published releases.",
    "repaired_files_total": "Files that repairs fetched anew.",
}
# {name of a series, without the prefix: value}; an unknown value is None, and is left out
Values = dict[str, float | None]


def text(target: TargetConfig, layouts: Sequence[DatasetLayout], owners: Sequence[str] | None) -> bytes:
    """Return the series of these datasets below one root, as UTF-8. `owners` as in
    `look.releases.dataset_row`. A dataset's damage raises no error. Raises OSError if the root is
    unresponsive."""
    root, now, registry = printable(str(target.root)), time.time(), CollectorRegistry()
    context = Context(Config(target, {}), open_cluster(ClusterConfig()))
    disable_created_metrics()  # the library's `_created` metrics would be meaningless gauges
    families: dict[str, Counter | Gauge] = {}
    for names, *labels in ((ROOT,), (STATE, "dataset", "state"), (DATASET, "dataset")):
        for name, what in names.items():
            kind = Counter if name.endswith("_total") else Gauge
            families[name] = kind(f"penstock_{name}", what, ["root", *labels], registry=registry)

    def add(values: Values, *labels: str) -> None:
        for name, value in values.items():
            if value is not None:
                families[name].labels(root, *labels).inc(max(0, value))

    room = capabilities.facts(target.root)
    add({"root_free_bytes": room.free_bytes, "root_size_bytes": room.total_bytes})
    add(
        {
            "root_free_inodes": room.free_inodes,
            "root_paused": notices.look_for_pause(target.root).pause is not None,
        }
    )
    add({"metrics_generated_timestamp_seconds": now})
    for layout in layouts:
        try:
            state, values = _dataset(context, layout, owners)
        except Exception:  # one dataset's bug must not hide the other series
            logging.getLogger("penstock").exception("the series of %s", layout.dataset)
            state, values = gate.UNREADABLE, {"dataset_readable": 0}
        add({"state": 1}, layout.dataset, state)
        add(values, layout.dataset)
    return generate_latest(registry)


def _dataset(context: Context, layout: DatasetLayout, owners: Sequence[str] | None) -> tuple[str, Values]:
    """Return the dataset's state and its series."""
    judgement = current_judged(layout, owners)
    status = dataset_state.read(context, judgement)
    values = _published(judgement) | {"dataset_readable": 0, "waiting_seconds": status.waits or None}
    # If the state is damaged or another account's, only the facts that everybody may see are known.
    with contextlib.suppress(OSError, PenstockError):
        if os.path.lexists(layout.state):
            os.listdir(layout.state)
            values |= _history(layout) | {"dataset_readable": 1, "waiting_seconds": status.waits}
    if status.run is not None and "copy" in status.work:
        copy, verify, plan = status.work["copy"], status.work["verify"], status.run.plan
        values |= {"run_files": plan.files, "run_bytes": plan.bytes}
        values |= {"run_copied_bytes": copy["bytes"], "run_verified_bytes": verify["bytes"]}
    return status.state, values


def _published(judgement: Judgement) -> Values:
    """Return the series of the current release and of HOLD."""
    values = Values(holds=len(notices.of_dataset(judgement.layout)))
    if judgement.stored is not None:
        seal, sealed = judgement.stored.seal, _seconds(judgement.stored.seal.sealed) or 0
        # The sealing host's clock may have been ahead of the file system's clock.
        with contextlib.suppress(OSError):
            sealed = min(sealed, (judgement.data.parent / SEAL).lstat().st_mtime)
        values |= {"current_files": seal.files, "current_bytes": seal.bytes}
        values |= {"current_published_timestamp_seconds": sealed, "last_success_timestamp_seconds": sealed}
        values["audit_findings"] = sum(judgement.findings.values())
    if judgement.verdict is not None and judgement.verdict.last is not None:
        values["last_audit_timestamp_seconds"] = _seconds(judgement.verdict.last.ended)
    return values


def _history(layout: DatasetLayout) -> Values:
    """Return the counters and the last success. If a release became current again, the history has a second
    line with its seal."""
    published: dict[str, Publication] = {}
    repaired = 0
    for line in release_records.history_lines(layout):
        if isinstance(line, Publication):
            published.setdefault(line.seal, line)
        elif isinstance(line, Repair):
            repaired += line.counts.repaired
    return {
        "last_success_timestamp_seconds": staging_notice.last_success(layout),
        "releases_published_total": len(published),
        "copied_files_total": sum(line.copied_files for line in published.values()),
        "copied_bytes_total": sum(line.copied_bytes for line in published.values()),
        "retries_total": sum(line.retries for line in published.values()),
        "repaired_files_total": repaired,
    }


def _seconds(moment: str) -> float | None:
    with contextlib.suppress(ValueError):
        return nanoseconds(moment) / SECOND
    return None
