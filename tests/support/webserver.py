"""A real web server for tests: Go's net/http over a folder (`webd`), built into the repository's cache."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path
from typing import Self

from tests.support.go_servers import built_here

SOURCE = Path(__file__).resolve().parent / "webd"


class WebServer:
    """`with WebServer(folder) as server:`; its files are below `server.url`."""

    def __init__(self, folder: Path) -> None:
        """Raises UnavailableError."""
        self._folder, self._program = folder, built_here(SOURCE)

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [str(self._program), str(self._folder)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}/"
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(60)
        assert self._process.stdout is not None
        self._process.stdout.close()
