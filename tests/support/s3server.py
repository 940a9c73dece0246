"""The demo server as a context manager, over HTTP or over TLS with an authority of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

CHECKOUT = Path(__file__).resolve().parents[2]
DEADLINE = 60.0


class Logged(NamedTuple):
    """One request, as the server logged it before it answered."""

    method: str
    key: str
    query: str
    range: str
    status: int
    bytes: int


class S3Server:
    """`with S3Server(folder) as server:` serves `folder` as bucket `server.bucket`.

    `access_key` and `secret_key` ask for signed requests; `tls=True` serves https under a
    certificate for 127.0.0.1 whose authority is the file `server.ca`.
    """

    def __init__(
        self,
        root: Path,
        *,
        bucket: str = "bucket",
        processes: int = 1,
        tls: bool = False,
        access_key: str = "",
        secret_key: str = "",
        options: Sequence[str] = (),
    ) -> None:
        self.root, self.bucket = root, bucket
        self._tls, self._processes, self._options = tls, processes, list(options)
        self._pair = (access_key, secret_key)
        self._process: subprocess.Popen[bytes] | None = None
        self.endpoint = ""
        self.port = 0
        self.ca: Path | None = None

    def start(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="s3server-")
        folder = Path(self._folder.name)
        self._log = folder / "requests.jsonl"
        port_file = folder / "port"
        command = [sys.executable, "-m", "tests.demo.server", "--root", str(self.root)]
        command += ["--bucket", self.bucket, "--port-file", str(port_file), "--log", str(self._log)]
        command += ["--processes", str(self._processes), "--with-parent", str(os.getpid()), *self._options]
        if self._pair[0]:
            credentials = folder / "credentials"
            access_key, secret_key = self._pair
            credentials.write_text(
                f"[default]\naws_access_key_id = {access_key}\naws_secret_access_key = {secret_key}\n"
            )
            command += ["--credentials-file", str(credentials)]
        if self._tls:
            certificate, key, self.ca = make_certificates(folder)
            command += ["--tls-cert", str(certificate), "--tls-key", str(key)]
        self._process = subprocess.Popen(command, cwd=CHECKOUT)
        deadline = time.monotonic() + DEADLINE
        while not port_file.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError("the demo server did not start")
            time.sleep(0.01)
        self.port = int(port_file.read_text())
        self.endpoint = f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"
        return self

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(DEADLINE)
            self._process = None
            self._folder.cleanup()

    @property
    def pid(self) -> int:
        """Of the process that started those that serve."""
        assert self._process is not None
        return self._process.pid

    def requests(self) -> list[Logged]:
        """Every request so far, in the order of the log."""
        if not self._log.exists():
            return []
        lines: list[dict[str, Any]] = [json.loads(line) for line in self._log.read_text().splitlines()]
        return [Logged(*(line[name] for name in Logged._fields)) for line in lines]

    def url(self, prefix: str = "") -> str:
        return f"s3://{self.bucket}/{prefix}"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def make_certificates(
    folder: Path, *, days: int = 2, names: str = "IP:127.0.0.1,DNS:localhost"
) -> tuple[Path, Path, Path]:
    """(certificate, key, authority) for these names, by the openssl program; `days`: from now on."""
    ca, ca_key = folder / "ca.pem", folder / "ca.key"
    key, request, certificate = folder / "tls.key", folder / "tls.csr", folder / "tls.pem"
    extensions = folder / "extensions"
    extensions.write_text(
        f"subjectAltName={names}\nbasicConstraints=CA:FALSE\n"
        "authorityKeyIdentifier=keyid\nsubjectKeyIdentifier=hash\n"
    )
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    usage = ["-addext", "keyUsage=critical,keyCertSign,cRLSign", "-subj", "/CN=Test CA"]
    _openssl("req", "-x509", *curve, "-keyout", ca_key, "-out", ca, "-days", "2", *usage)
    _openssl("req", *curve, "-keyout", key, "-out", request, "-subj", "/CN=127.0.0.1")
    signing = ["-CA", str(ca), "-CAkey", str(ca_key), "-CAcreateserial", "-days", str(days)]
    _openssl("x509", "-req", "-in", request, "-extfile", extensions, *signing, "-out", certificate)
    return certificate, key, ca


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
