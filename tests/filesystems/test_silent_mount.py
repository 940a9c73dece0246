"""A mount whose server is away: the path that is waited for is named."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest
from tests.filesystems.bed import Bed
from tests.support.commands import started, until

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("command", ["selftest", "metrics"])
def test_a_call_on_a_silent_mount_is_named(tmp_path: Path, command: str) -> None:
    """One of a selftest that has begun, by a descriptor; and the first one of a command, by its path."""
    shown = tmp_path / "shown"
    shown.touch()
    with Bed() as bed, contextlib.ExitStack() as goes_on:
        root = bed.nodes[0]

        def hang() -> None:
            os.kill(bed.pid, signal.SIGSTOP)
            goes_on.callback(os.kill, bed.pid, signal.SIGCONT)

        words = ("selftest", str(root)) if command == "selftest" else ("metrics", "--root", str(root))
        line = f'exec "$0" -m penstock "$@" >{shown} 2>&1'
        if command == "metrics":
            hang()
        with started("sh", "-c", line, sys.executable, *words, cwd=tmp_path) as process:
            if command == "selftest":
                until(lambda: any(root.iterdir()), "the selftest's folder")
                hang()
            until(lambda: "its file system has not answered" in shown.read_text(), "a word")
            assert process.poll() is None
            assert f"penstock: waiting for {root}" in shown.read_text()
            goes_on.close()
