"""The server under the benchmark: s3d, built from Go; without a Go toolchain the demo server."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Self

HERE = Path(__file__).resolve().parent
BUCKET = "bench"


class Server:
    """Serves `root` as bucket `bench` while the context lasts; over TLS when `tls`; to each connection
    `rate` bytes of objects a second, where that is not 0; to all of them together where it is `shared`.
    `made`: so many objects that it makes up, in place of a folder, each `changed`-th in another version where
    that is not 0, listed in no order where they are `mixed`. s3d alone can do the last five."""

    def __init__(
        self, root: Path, scratch: Path, *, tls: bool, go: str, rate: int = 0, made: int = 0,
        changed: int = 0, mixed: bool = False, shared: bool = False,
    ) -> None:  # fmt: skip
        self._root, self._scratch, self._tls, self._go, self._rate = root, scratch, tls, go, rate
        self._made = ["--made", str(made), "--changed", str(changed)] if made else []
        self._made += ["--mixed"] if mixed else []
        self._made += ["--shared"] if shared else []
        self.kind = "s3d" if go else "demo"
        self.endpoint = ""
        self.ca: Path | None = None

    def __enter__(self) -> Self:
        name = "tls" if self._tls else "http"
        port_file = self._scratch / f"port-{name}"
        port_file.unlink(missing_ok=True)
        if self._go:
            program = self._scratch / "s3d"
            subprocess.run([self._go, "build", "-o", str(program), "."], cwd=HERE / "s3d", check=True)
            command = [str(program), "--rate", str(self._rate), *self._made]
        else:
            command = [sys.executable, "-m", "tests.demo.server", "--processes", str(os.cpu_count() or 2)]
            command += ["--with-parent", str(os.getpid())]
        command += [
            "--root",
            str(self._root),
            "--bucket",
            BUCKET,
            "--port-file",
            str(port_file),
            "--checksums",
        ]
        if self._tls:
            certificate, key, self.ca = certificates(self._scratch)
            command += ["--tls-cert", str(certificate), "--tls-key", str(key)]
        self._process = subprocess.Popen(command, cwd=HERE.parent)
        while not port_file.exists():
            if self._process.poll() is not None:
                raise SystemExit("the benchmark's server did not start")
            time.sleep(0.05)
        scheme = "https" if self._tls else "http"
        self.endpoint = f"{scheme}://127.0.0.1:{int(port_file.read_text())}"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()

    def sent(self) -> int:
        """Bytes of objects that it has sent, by s3d's own count."""
        with urllib.request.urlopen(f"{self.endpoint}/-/sent") as answer:
            return int(answer.read())

    def cpu(self) -> float:
        """CPU seconds that it has used itself."""
        if self._go and not self._tls:
            with urllib.request.urlopen(f"{self.endpoint}/-/cpu") as answer:
                return float(answer.read())
        ticks = 0
        tree = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        for pid in [self._process.pid, *map(int, tree)]:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")


def certificates(scratch: Path) -> tuple[Path, Path, Path]:
    """(certificate, key, authority) for 127.0.0.1."""
    ca, ca_key = scratch / "ca.pem", scratch / "ca.key"
    key, request, certificate = scratch / "tls.key", scratch / "tls.csr", scratch / "tls.pem"
    if certificate.exists():
        return certificate, key, ca
    extensions = scratch / "extensions"
    extensions.write_text("subjectAltName=IP:127.0.0.1\nauthorityKeyIdentifier=keyid\n")
    curve: list[str | Path] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    signing: list[str | Path] = ["-CA", ca, "-CAkey", ca_key, "-CAcreateserial", "-days", "30"]
    commands: list[list[str | Path]] = [
        ["req", "-x509", *curve, "-keyout", ca_key, "-out", ca, "-days", "30", "-subj", "/CN=bench"],
        ["req", *curve, "-keyout", key, "-out", request, "-subj", "/CN=127.0.0.1"],
        ["x509", "-req", "-in", request, "-extfile", extensions, *signing, "-out", certificate],
    ]
    for command in commands:
        subprocess.run(["openssl", *map(str, command)], check=True, capture_output=True)
    return certificate, key, ca


def find_go(peers: Path) -> str:
    """A Go toolchain on PATH or among the benchmark's own packages; "" when there is none."""
    return shutil.which("go") or shutil.which("go", path=str(peers / "bin")) or ""
