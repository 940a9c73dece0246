"""A dataset staged step by step in this process, and what must be true."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.staging_runs import context_for, events_of

from penstock.cluster.abilities import abilities_of
from penstock.cluster.local import LocalCluster
from penstock.cluster.port import State, Status
from penstock.config.settings import EngineConfig, PlanConfig
from penstock.formats.manifest import read_manifest
from penstock.state.context import Stop
from penstock.steps import copy_step, list_step, permissions_step, plan_step, publish_step, verify_step
from penstock.steps.element import run_element

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.cluster.abilities import Abilities
    from penstock.cluster.port import Accounted, ArraySpec, Visit
    from penstock.core.checks import CheckResult
    from penstock.core.documents.node_cores import NodeCores
    from penstock.core.model import Record
    from penstock.state.context import Context

STEPS = {
    "list": list_step.run,
    "plan": plan_step.run,
    "copy": copy_step.run,
    "permissions": permissions_step.run,
    "verify": verify_step.run,
    "publish": publish_step.run,
}
SMALL = PlanConfig(shard_bytes=150_000, shard_files=40, giant_bytes=100_000, part_bytes=30_000)
"""Some shards, giants and parts out of a few hundred kilobytes."""
FILES: Mapping[str, bytes] = {
    "a/one": b"1" * 10,
    "a/two": b"2" * 20_000,
    "b": b"",
    "deep/er/and/deeper": b"d" * 5,
    "giant": bytes(range(256)) * 500,
    "odd\nname $(x) \\ %41": b"odd",
    os.fsdecode(b"raw\xff\xfe"): b"raw",
    "z": b"z" * 70_000,
}


class InProcess:
    """A cluster whose elements are done by this process as soon as they are submitted, one by one."""

    kind = "local"
    way = ""

    def __init__(self) -> None:
        self._ended: dict[str, dict[int, Status]] = {}

    @property
    def abilities(self) -> Abilities:
        return abilities_of(self.kind)

    def name(self) -> str:
        return ""

    def remembers(self) -> float:
        return 0.0

    def check(self, steps: Sequence[str], visit: Visit | None = None, *, met: bool = False) -> Sequence[str]:
        return ()

    def start_results(self, steps: Sequence[str]) -> Sequence[CheckResult]:
        return ()

    def core_results(
        self, steps: Sequence[str], seen: Mapping[str, NodeCores | None]
    ) -> Mapping[str, Sequence[CheckResult]]:
        return {}

    def kept_out(self, steps: Sequence[str], arrays: Sequence[str] = ()) -> str:
        return ""

    def slots(self, step: str) -> int:
        return 1

    def asks(self, step: str) -> str:
        return ""

    def max_array(self) -> int:
        return 1000

    def max_elements(self) -> int:
        return 1000

    def submit(self, spec: ArraySpec) -> str:
        words = list(spec.command)
        folder = Path(words[words.index("--run") + 1])
        array = f"in-process-{len(self._ended)}"
        self._ended[array] = {}
        for index in spec.indices:
            began = time.time()
            code = run_element(folder, spec.step, index, "auto", Stop())
            state = State.FAILED if code else State.DONE
            self._ended[array][index] = Status(
                state, f"exit {code}", "here", began, time.time(), exit_code=code
            )
        return array

    def find(self, name: str) -> Sequence[str]:
        return ()

    def appears_within(self, *, ended: bool) -> float:
        return 0.0

    def recall(self, array: str, name: str, spec_cores: int | None = None) -> None:
        return

    def spec_cores(self, step: str) -> int | None:
        return None

    def states(self, array: str, indices: Sequence[int]) -> Mapping[int, Status]:
        return {i: self._ended.get(array, {}).get(i, Status(State.LOST)) for i in indices}

    def accounting(self, array: str) -> Sequence[Accounted]:
        return ()

    def states_of(self, arrays: Mapping[str, Sequence[int]]) -> Mapping[str, Mapping[int, Status]]:
        return {array: self.states(array, indices) for array, indices in arrays.items()}

    def cancel(self, array: str, indices: Sequence[int] | None = None) -> None:
        return

    def longest(self, step: str) -> float:
        return 0.0

    def longest_anywhere(self) -> float:
        return 0.0

    def spares(self, step: str, nodes: Sequence[str]) -> bool:
        return False

    def keep_off(self, array: str, step: str, nodes: Sequence[str]) -> None:
        return

    def interval(self, waited: float) -> float:
        return 0.001

    def holder_ended(self, job: str) -> bool:
        return False


@contextmanager
def staging(tmp_path: Path, source: Path | str, **changes: Any) -> Iterator[Context]:
    """A context whose elements end with it. `local=True`: they are processes of their own."""
    changes.setdefault("plan", SMALL)
    local = changes.pop("local", False)
    context = context_for(tmp_path, source, **changes)
    context.config = replace(context.config, engine=EngineConfig(workers=1))
    cluster = LocalCluster(context.config.cluster)
    context.cluster = cluster if local else InProcess()
    try:
        yield context
    finally:
        cluster.close()


def go(context: Context, *, upto: str = "publish", after: str = "") -> dict[str, Any]:
    """The steps in order, up to one of them (and only those after another); the last one's receipt."""
    names = list(STEPS)
    receipt: dict[str, Any] = {}
    for name in names[names.index(after) + 1 if after else 0 : names.index(upto) + 1]:
        receipt = STEPS[name](context, "data")
    return receipt


def texts(context: Context, kind: str = "warning") -> list[str]:
    """What was said by events of this kind, in their order."""
    return [str(event.data["text"]) for event in events_of(context) if event.kind == kind]


def records(context: Context) -> dict[str, Record]:
    """Path to record, of the release that `current` names."""
    manifest = context.layout("data").current / "manifest.parquet"
    return {record.path: record for batch in read_manifest(manifest) for record in batch}


def content(root: Path) -> dict[bytes, bytes | str]:
    """Every file below `root` by its own means, not penstock's: path to bytes; links by name."""
    found: dict[bytes, bytes | str] = {}
    top = os.fsencode(root)
    for folder, folders, files in os.walk(top):
        for name in files + [f for f in folders if os.path.islink(os.path.join(folder, f))]:
            path = os.path.join(folder, name)
            key = os.path.relpath(path, top)
            if os.path.islink(path):
                found[key] = f"link to {os.readlink(path)!r}"
            else:
                with open(path, "rb") as stream:
                    found[key] = stream.read()
    return found
