"""What an attempt of an element uses: measured on its node while it runs, added to what earlier attempts
used.

`jobs.elements.element` makes one for each attempt and writes the figures into progress file and receipt. This
module reads the job's environment and the kernel's counters of this process and its job; it writes nothing.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from penstock.core.documents.element_usage import EarlierUsage, ElementUsage
from penstock.engine.workers.sizing import cpus
from penstock.host import job_environment, resource_usage
from penstock.host.job_environment import host_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.host.resource_usage import Meter


class AttemptUsage:
    """What this attempt uses. The caller sets `earlier`: what earlier attempts used."""

    def __init__(self, meter: Meter, attempt: str) -> None:
        self._meter, self._attempt = meter, attempt
        self._here = job_environment.current()
        self._ended = False
        self.array = self._here.array
        self.earlier = EarlierUsage()

    @contextlib.contextmanager
    def measuring(self) -> Iterator[None]:
        """To be entered while the engine works, which then lets `meter` measure its workers before they end.
        Once it was left, the figures stay as they are."""
        resource_usage.enter(self._meter)
        try:
            yield
        finally:
            resource_usage.enter(None)
            self._ended = True

    def so_far(self) -> ElementUsage:
        used = self._meter.final() if self._ended else self._meter.used()
        return ElementUsage(
            attempt=self._attempt,
            array=self.array,
            restarts=self._here.restarts,
            host=host_name(),
            began=round(used.began, 3),
            seconds=round(used.seconds, 3),
            cpu_seconds=round(used.cpu_seconds, 3),
            cpus=cpus(self._here)[0],
            node_cpus=os.cpu_count() or 0,
            memory_peak=used.memory_peak,
            processes=used.processes,
            job_memory_peak=used.job_memory_peak,
            job_memory_file=used.job_memory_file,
            earlier=self.earlier,
        )
