"""A real S3 server for tests: versitygw over a folder, built once into the repository's cache."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import threading
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from tests.support.go_servers import UnavailableError, built

if TYPE_CHECKING:
    from pathlib import Path

VERSION = "v1.8.0"
MODULE = f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"
DEADLINE = 60.0
ACCESS, SECRET = "testaccess", "testsecret"


def binary() -> Path:
    """The server's program, built when it is not there yet."""
    return built(f"versitygw-{VERSION}", MODULE)


class Versity:
    """`with Versity(folder) as server:`; buckets are the folders below `folder`. `log`: the file that gets
    a line for each request, as S3's access logs have it. `versions`: a folder for older versions, which
    lets buckets be versioned."""

    def __init__(self, folder: Path, *, log: Path | None = None, versions: Path | None = None) -> None:
        self.folder, self.log, self.versions = folder, log, versions
        self._process: subprocess.Popen[bytes] | None = None
        self.endpoint = ""

    def start(self) -> Self:
        program = binary()
        for _ in range(5):  # another process may take the port between the look and the start
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            self._process = subprocess.Popen(
                [str(program), "--access", ACCESS, "--secret", SECRET, "--port", f"127.0.0.1:{port}",
                 *(["--access-log", str(self.log)] if self.log else []),
                 "--keep-alive", "--quiet", "posix",
                 *(["--versioning-dir", str(self.versions)] if self.versions else []), str(self.folder)],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
            if self._answers(port):
                self.endpoint = f"http://127.0.0.1:{port}"
                return self
            self.stop()
        raise UnavailableError("versitygw does not start here")

    @cached_property
    def client(self) -> Any:
        """botocore's, by which tests fill buckets; one for all, since each takes 0.25 s of CPU to make. It
        ends with the server."""
        import botocore.session

        return botocore.session.Session().create_client(
            "s3",
            "us-east-1",
            endpoint_url=self.endpoint,
            aws_access_key_id=ACCESS,
            aws_secret_access_key=SECRET,
        )

    def _answers(self, port: int) -> bool:
        assert self._process is not None
        pause = threading.Event()
        for _ in range(int(DEADLINE / 0.05)):
            if self._process.poll() is not None:
                return False
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
                try:
                    connection.request("GET", "/")
                    return b"<" in connection.getresponse().read()
                finally:
                    connection.close()
            pause.wait(0.05)
        return False

    def stop(self) -> None:
        if "client" in vars(self):
            vars(self).pop("client").close()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(DEADLINE)
            self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
