"""A WEKA that is described in a file, and the stand-in of its command on PATH. No WEKA is behind it."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

STAND_IN = Path(__file__).with_name("stand_in_weka.py")
GIB, TIB = 1 << 30, 1 << 40
STATUS: dict[str, Any] = {
    "buckets_info": {"reportedRaidFillLevelSeverity": "Normal"},
    "capacity": {"total_bytes": 176253136637952, "unprovisioned_bytes": 174497352261632},
    "drives": {"active": 36, "total": 36},
    "io_nodes": {"active": 24, "total": 24},
    "io_status": "STARTED",
    "is_cluster": True,
    "licensing": {
        "io_start_eligibility": True,
        "mode": "Classic",
        "usage": {"drive_capacity_gb": 353348, "obs_capacity_gb": 0, "usable_capacity_gb": 176253},
    },
    "name": "weka-infra",
    "rebuild": {
        "movingData": False,
        "protectionState": [
            {"MiB": 4952064, "numFailures": 0, "percent": 100},
            {"MiB": 0, "numFailures": 1, "percent": 0},
            {"MiB": 0, "numFailures": 2, "percent": 0},
        ],
        "unavailablePercent": 0,
    },
    "release": "4.4.2.157",
    "servers": {"active": 10, "backends": {"active": 7, "degraded": 0, "total": 7}, "total": 11},
    "status": "OK",
}
"""Of `weka status --json`, 4.4.2, what is read and some of what is not."""


def quota(path: str, /, **changes: Any) -> dict[str, Any]:
    """One line of `weka fs quota list`."""
    made = {
        "fsName": "default",
        "path": f"default:{path}",
        "inode_id": 17,
        "owner": "",
        "grace_seconds": None,
        "hard_limit_bytes": 2 * TIB,
        "soft_limit_bytes": None,
        "total_bytes": TIB,
        "status": "ACTIVE",
    }
    return made | changes


class Weka:
    """The description, written anew by `write`; the log of calls; and `proc`, where `point` is its mount."""

    def __init__(self, folder: Path, point: Path) -> None:
        self.bin, self.log, self.path = folder / "bin", folder / "calls.jsonl", folder / "weka.json"
        self.proc = folder / "proc"
        self.description: dict[str, Any] = {
            "logged_in": True,
            "may_list_quotas": True,
            "status": copy.deepcopy(STATUS),
            "file_systems": [
                {"name": "other", "status": "READY", "available_total": TIB, "max_files": 1000},
                {
                    "name": "default",
                    "status": "READY",
                    "available_total": 5 * TIB,
                    "used_total": TIB,
                    "total_budget": 6 * TIB,
                    "max_files": 1_000_000,
                },
            ],
            "quotas": [],
        }
        self.bin.mkdir(parents=True)
        made = self.bin / "weka"
        command = f'exec {sys.executable} -S -E {STAND_IN} weka {self.path} {self.log} "$@"'
        made.write_text(f"#!/bin/sh\n# STAND-IN, not WEKA's own\n{command}\n")
        made.chmod(0o755)
        (self.proc / "self").mkdir(parents=True)
        self.mounted(("/", point))
        self.write()

    def mounted(self, *points: tuple[str, Path]) -> None:
        """The file system's mounts from now on: the folder of it that each shows, and where."""
        tail = "rw - wekafs 10.0.0.1/default rw,writecache\n"
        lines = [f"{number} 1 0:40 {root} {point} {tail}" for number, (root, point) in enumerate(points, 40)]
        (self.proc / "self" / "mountinfo").write_text("".join(lines))

    def write(self, **changes: Any) -> None:
        """Change the description and write it."""
        self.description |= changes
        self.path.write_text(json.dumps(self.description), encoding="utf-8")

    def status(self, **changes: Any) -> None:
        """Change what `weka status` says."""
        self.write(status=self.description["status"] | changes)

    def calls(self) -> list[dict[str, Any]]:
        """Each call so far: `argv` and its locale."""
        if not self.log.exists():
            return []
        return [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines()]
