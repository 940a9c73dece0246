"""A BeeGFS that is described in a file, and the stand-ins of its commands on PATH. No BeeGFS is behind it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.fs import kinds
from penstock.fs.capabilities import facts
from penstock.fs.kinds import Kind
from penstock.host.kernel_facts import mount_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

STAND_IN = Path(__file__).with_name("stand_in_beegfs.py")
PROGRAMS = {7: ("beegfs-ctl", "beegfs-df", "beegfs-check-servers"), 8: ("beegfs",)}
GIB, TIB = 1 << 30, 1 << 40


def target(number: int, *, role: str = "storage", **changes: Any) -> dict[str, Any]:
    """One target in order, with 20 TiB and 4,000 M inodes, half of them free."""
    made = {
        "role": role,
        "id": number,
        "alias": f"{role}_{number}",
        "node": f"{'meta' if role == 'metadata' else 'stor'}{number // 100:02d}",
        "node_id": number // 100,
        "pool": 1,
        "total": 20 * TIB,
        "free": 10 * TIB,
        "inodes": 4_000_000_000,
        "ifree": 2_000_000_000,
        "capacity": "normal",
        "reachability": "Online",
        "consistency": "Good",
        "answers": True,
    }
    return made | changes


class Cluster:
    """The description, written anew by `write`; and the log of calls."""

    def __init__(self, folder: Path, version: int = 7) -> None:
        self.folder, self.version = folder, version
        self.bin = folder / "bin"
        self.log = folder / "calls.jsonl"
        self.path = folder / "beegfs.json"
        self.description: dict[str, Any] = {
            "version": "7.4.7" if version == 7 else "8.3.1",
            "licensed": True,  # version 8; else each command says so behind its rows, and ends with 1
            "secret": True,  # whether accounts other than root may read version 8's conn.auth
            "management": True,
            "root": os.geteuid() == 0,
            "uid": os.geteuid(),
            "gid": os.getegid(),
            "allow_user_pattern": True,
            "pools": {"1": "Default", "2": "fast"},
            "pattern": {"kind": "raid0", "chunk": 512 << 10, "targets": 4, "pool": 1},
            "patterns": {},
            "owners": {},
            "quotas": [],
            "targets": [target(1, role="metadata", total=2 * TIB, free=TIB)]
            + [target(number) for number in (101, 102, 201, 202)]
            + [target(number, pool=2) for number in (301, 302, 401, 402)],
            "servers": [
                self.server("management", "mgmt", 1),
                self.server("metadata", "meta00", 1),
                *(self.server("storage", f"stor{number:02d}", number) for number in (1, 2, 3, 4)),
            ],
        }
        self.bin.mkdir(parents=True)
        self.install(PROGRAMS[version])
        self.write()

    @staticmethod
    def server(role: str, name: str, number: int, *, reachable: bool = True) -> dict[str, Any]:
        route = f"10.0.0.{number}:8003 (protocol: RDMA)"
        return {"role": role, "name": name, "id": number, "reachable": reachable, "route": route}

    def install(self, programs: Iterable[str]) -> None:
        """Put stand-ins of these commands into `bin`."""
        for program in programs:
            made = self.bin / program
            command = f'exec {sys.executable} -S -E {STAND_IN} {program} {self.path} {self.log} "$@"'
            made.write_text(f"#!/bin/sh\n# STAND-IN, not BeeGFS' own\n{command}\n")
            made.chmod(0o755)

    def write(self, **changes: Any) -> None:
        """Change the description and write it."""
        self.description |= changes
        self.path.write_text(json.dumps(self.description), encoding="utf-8")

    def change(self, number: int, **changes: Any) -> None:
        """Change one target."""
        next(one for one in self.description["targets"] if one["id"] == number).update(changes)
        self.write()

    def server_down(self, name: str) -> None:
        next(one for one in self.description["servers"] if one["name"] == name)["reachable"] = False
        self.write()

    def calls(self) -> list[dict[str, Any]]:
        """Each call so far: `argv`, the entries of the folder that it named last, and its environment."""
        if not self.log.exists():
            return []
        return [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines()]

    def patterns(self) -> dict[str, Any]:
        """What the stand-ins keep of the patterns that were set."""
        kept: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8"))["patterns"]
        return kept


def mounted(monkeypatch: pytest.MonkeyPatch, folder: Path, tools: str = "beegfs") -> None:
    """The file system of `folder` goes as one whose vendor has these commands; it can do what it can."""
    here, name = mount_of(os.path.realpath(folder)).type, f"{tools}-stand-in"
    row = Kind(name, types=(here,))._replace(
        **(
            facts(folder).traits._asdict()
            | {"name": name, "types": (here,), "product": tools, "commands": True}
        )
    )
    monkeypatch.setattr(kinds, "TABLE", (row, *kinds.TABLE))
    assert facts(folder).kind == name
