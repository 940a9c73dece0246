"""`python -m tests.support.many_elements FOLDER SHARDS`: a step of so many shards over the port to SLURM,
with a scripted slurmctld; prints as JSON what following its workers cost.

At each query a worker that runs claims a shard, and proves the one that it claimed before. What counts is how
often the controller looks at their files.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cluster_port.test_slurm_rules import Scripted, cluster_of
from tests.support.staging_runs import context_for

from penstock.cluster.port import State, Status
from penstock.cluster.slurm.answers import SlurmElement
from penstock.core.element_documents import SHARD_CLAIM, ShardClaim
from penstock.core.layout import RunLayout
from penstock.host.kernel_facts import peak_memory
from penstock.jobs.array_runner import run_array

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.cluster.port import ArraySpec
    from penstock.config.settings import JobOptions

SLOTS = 1500
"""More than an array holds."""


@dataclass
class Busy(Scripted):
    """A slurmctld that forgets nothing while it is asked."""

    books: bool = False
    arrays: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    bases: dict[str, int] = field(default_factory=dict)
    at_once: dict[str, int] = field(default_factory=dict)
    queries: int = 0
    run: RunLayout | None = None
    names: dict[str, str] = field(default_factory=dict)
    shards: Iterator[int] = field(default_factory=lambda: iter(()))
    """Those that nobody claimed."""
    held: dict[tuple[str, int], int] = field(default_factory=dict)

    def submit_array(self, spec: ArraySpec, at_once: int, options: JobOptions, script: str) -> str:
        array = str(100 + len(self.arrays))
        self.arrays[array] = [(number, "PENDING") for number in spec.indices]
        self.bases[array], self.at_once[array], self.names[array] = spec.base, at_once, spec.name
        return array

    def find(self, name: str) -> list[int]:
        return []

    def throttle(self, array: str, at_once: int) -> None:
        self.at_once[array] = at_once

    def elements_of(self, arrays: Sequence[str]) -> dict[str, list[SlurmElement]]:
        self.queries += 1
        return {array: self._moved(array) for array in arrays}

    def _moved(self, array: str) -> list[SlurmElement]:
        """Those that run go on by a shard, or end where none is left; others run in their place."""
        after, free = [], self.at_once[array]
        for number, word in self.arrays[array]:
            now = word
            if word == "PENDING" and free:
                now = "RUNNING"
            elif word == "RUNNING" and not self._works(array, number):
                now = "COMPLETED"
            free -= now == "RUNNING"
            after.append((number, now))
        self.arrays[array] = after
        states = {"COMPLETED": State.DONE, "RUNNING": State.RUNNING, "PENDING": State.PENDING}
        return [SlurmElement(n, word, False, "2", Status(states[word], node="n1")) for n, word in after]

    def _works(self, array: str, number: int) -> bool:
        """Whether the worker claimed a further shard."""
        assert self.run is not None
        if (index := self.held.pop((array, number), None)) is not None:
            self.run.receipt("copy", index).write_text('{"format": 1, "files": 1, "bytes": 9}')
        index = next(self.shards, None)
        if index is None:
            return False
        self.held[array, number] = index
        claim = ShardClaim(f"{array}_{number}", self.names[array], number + self.bases[array], "call", "n1")
        self.run.claim("copy", index, 1).write_text(json.dumps(SHARD_CLAIM.to_json(claim)))
        return True


def main(folder: Path, shards: int) -> None:
    run = RunLayout(folder / "runs" / "0123456789abcdef")
    run.folder.mkdir(parents=True)
    slurm = Busy(run=run, shards=iter(range(shards)))
    context = context_for(folder, "/nowhere")
    context.cluster = cluster_of(slurm, slots=SLOTS, poll=0.001)
    looked = 0

    def ok(index: int) -> bool:
        nonlocal looked
        looked += 1
        return run.receipt("copy", index).exists()

    opened: Counter[str] = Counter()

    def count(event: str, arguments: tuple[object, ...]) -> None:
        if event in ("open", "os.listdir", "os.scandir") and str(run.folder) in str(arguments[0]):
            opened[str(arguments[0]).removeprefix(str(run.folder)).strip("/").partition("/")[0]] += 1

    sys.addaudithook(count)
    began, cpu = time.monotonic(), time.process_time()
    statuses = run_array(context, "data", run, "copy", range(shards), ok)
    told = {
        "arrays": [len(one) for one in slurm.arrays.values()],
        "done": sum(run.receipt("copy", index).exists() for index in range(shards)),
        "workers": sum(status.state is State.DONE for status in statuses.values()),
        "queries": slurm.queries,
        "looked": looked,
        "opened": opened,
        "cpu": round(time.process_time() - cpu, 2),
        "seconds": round(time.monotonic() - began, 2),
        "peak": peak_memory("self") >> 20,
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
