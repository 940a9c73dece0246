"""A dataset staged step by step in this process, and what must be true."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.support.staging_runs import context_for, events_of

from penstock.config.settings import EngineConfig, PlanConfig
from penstock.run import copy_step, list_step, permissions_step, plan_step, publish_step, verify_step
from penstock.tables.manifest import read_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from penstock.core.model import Record
    from penstock.dataset.context import Context

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


@contextmanager
def staging(tmp_path: Path, source: Path | str, **changes: Any) -> Iterator[Context]:
    """A context whose elements end with it. `local=True`: they are processes of their own."""
    changes.setdefault("plan", SMALL)
    context = context_for(tmp_path, source, **changes)
    context.config = replace(context.config, engine=EngineConfig(workers=1))
    cluster = context.cluster
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
