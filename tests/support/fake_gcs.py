"""A server that speaks Google Cloud Storage's JSON API, for tests: fake-gcs-server, built once into the
repository's cache.

What it does otherwise than Google (v1.56.1, seen): a wrong `ifGenerationMatch` is ignored by a GET; a listing
of a bucket that is not there and a read of an object that is not there are both 404, the second without JSON;
no request is ever refused for its credentials.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import threading
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

from tests.support.go_servers import UnavailableError, built

if TYPE_CHECKING:
    from pathlib import Path

VERSION = "v1.56.1"
MODULE = f"github.com/fsouza/fake-gcs-server@{VERSION}"
DEADLINE = 60.0


def binary() -> Path:
    """The server's program, built when it is not there yet."""
    return built(f"fake-gcs-server-{VERSION}", MODULE)


class FakeGcs:
    """`with FakeGcs() as server:`; everything in memory, gone at its end."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ""
        """Host and port."""

    @property
    def endpoint(self) -> str:
        return f"http://{self.address}"

    def start(self) -> Self:
        program = binary()
        for _ in range(5):  # another process may take the port between the look and the start
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            self.address = f"127.0.0.1:{port}"
            self._process = subprocess.Popen(
                [str(program), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port),
                 "-backend", "memory", "-log-level", "error", "-public-host", self.address],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
            if self._answers():
                return self
            self.stop()
        raise UnavailableError("fake-gcs-server does not start here")

    def _answers(self) -> bool:
        assert self._process is not None
        pause = threading.Event()
        for _ in range(int(DEADLINE / 0.05)):
            if self._process.poll() is not None:
                return False
            with contextlib.suppress(OSError, http.client.HTTPException):
                return self.request("GET", "/storage/v1/b?project=p")[0] == 200
            pause.wait(0.05)
        return False

    def request(self, method: str, path: str, body: bytes = b"", kind: str = "") -> tuple[int, bytes]:
        """Status and body of one request."""
        connection = http.client.HTTPConnection(self.address, timeout=30)
        try:
            connection.request(method, path, body or None, {"Content-Type": kind} if kind else {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def make_bucket(self, name: str) -> None:
        status, _ = self.request(
            "POST", "/storage/v1/b", json.dumps({"name": name}).encode(), "application/json"
        )
        assert status == 200, status

    def put(self, bucket: str, name: str, data: bytes) -> None:
        path = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(name, safe='')}"
        status, _ = self.request("POST", path, data, "application/octet-stream")
        assert status == 200, status

    def remove(self, bucket: str, name: str) -> None:
        status, _ = self.request("DELETE", f"/storage/v1/b/{bucket}/o/{quote(name, safe='')}")
        assert status in (200, 204), status

    def stop(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(DEADLINE)
            self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
