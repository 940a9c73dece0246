"""A Lustre that is described in a file, and the stand-in of its command on PATH. No Lustre is behind it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

STAND_IN = Path(__file__).with_name("stand_in_lfs.py")
GIB, TIB = 1 << 30, 1 << 40


def target(kind: str, index: int, **changes: Any) -> dict[str, Any]:
    """One target in order: 100 TiB, half of it free; a metadata target has 4 TiB and 1,000 M inodes."""
    size = 100 * TIB if kind == "OST" else 4 * TIB
    made = {
        "type": kind,
        "index": index,
        "name": f"demo-{kind}{index:04x}",
        "total": size,
        "free": size // 2,
        "inodes": 1_000_000_000,
        "ifree": 500_000_000,
        "flags": "",
        "state": "up",
    }
    return made | changes


def layout(*components: tuple[int | None, int, int], pool: str = "") -> dict[str, Any]:
    """Of components as (end, targets, stripe size)."""
    return {
        "components": [{"end": end, "count": count, "size": size} for end, count, size in components],
        "pool": pool,
    }


class Lustre:
    """The description, written anew by `write`; and the log of calls."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin, self.log, self.path = folder / "bin", folder / "calls.jsonl", folder / "lustre.json"
        self.description: dict[str, Any] = {
            "name": "demo",
            "point": "/mnt/demo",
            "root": os.geteuid() == 0,
            "uid": os.geteuid(),
            "gid": os.getegid(),
            "users_may_stripe": True,
            "pools": {
                "disk": [f"demo-OST{at:04x}" for at in range(8)],
                "flash": ["demo-OST0008", "demo-OST0009"],
            },
            "layout": layout((None, 1, 1 << 20)),
            "layouts": {},
            "owners": {},
            "enforced": ["usr", "grp", "prj"],
            "quotas": [],
            "targets": [target("MDT", 0), *(target("OST", at) for at in range(10))],
        }
        self.bin.mkdir(parents=True)
        made = self.bin / "lfs"
        command = f'exec {sys.executable} -S -E {STAND_IN} lfs {self.path} {self.log} "$@"'
        made.write_text(f"#!/bin/sh\n# STAND-IN, not Lustre's own\n{command}\n")
        made.chmod(0o755)
        self.write()

    def write(self, **changes: Any) -> None:
        """Change the description and write it."""
        self.description |= changes
        self.path.write_text(json.dumps(self.description), encoding="utf-8")

    def change(self, name: str, **changes: Any) -> None:
        """Change one target."""
        next(one for one in self.description["targets"] if one["name"] == name).update(changes)
        self.write()

    def calls(self) -> list[dict[str, Any]]:
        """Each call so far: `argv`, the entries of the folder that it named last, and its locale."""
        if not self.log.exists():
            return []
        return [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines()]

    def layouts(self) -> dict[str, Any]:
        """What the stand-in keeps of the layouts that were set."""
        kept: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8"))["layouts"]
        return kept
