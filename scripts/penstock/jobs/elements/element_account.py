"""What a worker uses (CPU time, memory, hours), measured over its process's life and kept for the report."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from penstock.core.element_documents import ELEMENT_USAGE, ElementUsage
from penstock.dataset.receipts import replace_figures
from penstock.engine.workers.sizing import cpus
from penstock.fs import small_files
from penstock.host import heartbeat, resources
from penstock.host.resources import host_name
from penstock.jobs.elements.element import attempt_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.core.layout import RunLayout


@contextlib.contextmanager
def accounting(run: RunLayout, step: str, array: str, number: int) -> Iterator[None]:
    """Keep a file of what this process used since its start.

    A thread replaces it once in a HEARTBEAT, as does the end of the block; it is never durable. A failed
    write is ignored. The engine's processes must end within the block: their peaks of memory are read right
    before.
    """
    job = resources.current_job()
    usage = ElementUsage(
        array, number, job.restarts, host_name(), cpus=cpus(job)[0], node_cpus=os.cpu_count() or 0
    )
    meter = resources.Meter(job.cgroup)
    path = run.usage(step) / f"{attempt_name()}.json"

    def write() -> None:
        with contextlib.suppress(OSError):
            small_files.make_dirs(path.parent)
        replace_figures(path, ELEMENT_USAGE.to_json(meter.used(usage)))

    write()
    resources.enter_meter(meter)
    try:
        with heartbeat.beating(write, "usage"):
            yield
    finally:
        resources.enter_meter(None)
        write()
