"""A dataset staged step by step in this process, with real local elements; and what must be true."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.support.staging_runs import context_for

from penstock.cluster.local import LocalCluster
from penstock.config.model import PlanConfig
from penstock.steps import copying, listing, permissions, planning, publishing, verifying

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from penstock.steps.context import Context

STEPS = {
    "list": listing.run,
    "plan": planning.run,
    "copy": copying.run,
    "permissions": permissions.run,
    "verify": verifying.run,
    "publish": publishing.run,
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
    """A context whose elements end with it."""
    changes.setdefault("plan", SMALL)
    context = context_for(tmp_path, source, **changes)
    try:
        yield context
    finally:
        if isinstance(context.cluster, LocalCluster):
            context.cluster.close()


def go(context: Context, *, upto: str = "publish", after: str = "") -> dict[str, Any]:
    """The steps in order, up to one of them (and only those after another); the last one's receipt."""
    names = list(STEPS)
    receipt: dict[str, Any] = {}
    for name in names[names.index(after) + 1 if after else 0 : names.index(upto) + 1]:
        receipt = STEPS[name](context, "data")
    return receipt


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
