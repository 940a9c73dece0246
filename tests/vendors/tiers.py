"""`lfs` or `weka` on PATH, as a stand-in that knows where the data of some files is."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest

STAND_IN = Path(__file__).with_name("stand_in_tiers.py")
RELEASED = 0xD
"""Lustre: released, exists, archived."""


class Tiers:
    """The description, written anew by `write`; and the log of calls."""

    def __init__(self, folder: Path, program: str, monkeypatch: pytest.MonkeyPatch) -> None:
        folder.mkdir()
        self._path, self._log = folder / "states.json", folder / "calls.jsonl"
        made = folder / program
        command = f'exec {sys.executable} -S -E {STAND_IN} {program} {self._path} {self._log} "$@"'
        made.write_text(f"#!/bin/sh\n# STAND-IN, not the vendor's own\n{command}\n")
        made.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        self.write({})

    def write(self, states: Mapping[Path | str, Any]) -> None:
        """What it knows, by path, or by name wherever that is; other files are local."""
        described = {
            os.path.realpath(path) if isinstance(path, Path) else path: state
            for path, state in states.items()
        }
        self._path.write_text(json.dumps(described), encoding="utf-8")

    def calls(self) -> list[list[str]]:
        if not self._log.exists():
            return []
        return [json.loads(line) for line in self._log.read_text(encoding="utf-8").splitlines()]
