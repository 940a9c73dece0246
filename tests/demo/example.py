"""The example of config.yaml as one command: serve the installed packages over S3, stage them, stop.

`python -m tests.demo.example [--config config.yaml]`, in the checkout, is what `make run` calls.
Guarantee: the server listens on loopback only and ends with this process, however that ends. When
the port of the configuration is taken, a free one is used and the configuration is copied with it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.errors import FailedError, PenstockError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CHECKOUT = Path(__file__).resolve().parents[2]
BUCKET = "installed"
PATIENCE = 60.0
"""Seconds until the server must be listening; it takes one or two."""
_ENDPOINT = re.compile(r"(http://127\.0\.0\.1:)(\d+)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status of `penstock run`."""
    parser = argparse.ArgumentParser(prog="tests.demo.example", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--config", type=Path, default=Path("config.yaml"))
    options = parser.parse_args(arguments)
    # Ctrl-C reaches the whole group: penstock stops tidily, and this process waits for it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    folder = Path("demo")
    folder.mkdir(exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            text = options.config.read_text(encoding="utf-8")
            with serving_folder(_packages(), BUCKET, Path(scratch), _port(text)) as port:
                config = _with_port(options.config, text, port, folder)
                print(f"Serving {_packages()} as s3://{BUCKET}/ on 127.0.0.1:{port}", flush=True)
                code = _penstock(config, "run").returncode
                return code or _tell(config)
    except (PenstockError, OSError) as error:
        sys.stderr.write(f"penstock: {error}\n")
        return 1


@contextlib.contextmanager
def serving_folder(root: Path, bucket: str, scratch: Path, wanted: int) -> Iterator[int]:
    """The port of a server of this folder that runs while inside: `wanted` if it is free."""
    port_file = scratch.absolute() / "port"
    words = ["-m", "tests.demo.server", "--root", str(root), "--bucket", bucket]
    words += ["--port", str(wanted if _is_free(wanted) else 0), "--port-file", str(port_file)]
    words += ["--checksums", "--processes", "2", "--with-parent", str(os.getpid())]
    process = subprocess.Popen([sys.executable, *words], cwd=CHECKOUT)
    try:
        yield _listening(process, port_file)
    finally:
        process.terminate()
        process.wait()


def _listening(process: subprocess.Popen[bytes], port_file: Path) -> int:
    ended = os.pidfd_open(process.pid)
    try:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if port_file.exists():
                return int(port_file.read_text(encoding="ascii"))
            if select.select([ended], [], [], 0.05)[0]:
                raise FailedError("the example's server did not start", why=f"exit {process.wait()}")
    finally:
        os.close(ended)
    raise FailedError("the example's server did not start", why=f"not within {PATIENCE:.0f} s")


def _packages() -> Path:
    return Path(sysconfig.get_path("platlib"))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As the server itself binds: a port in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _port(text: str) -> int:
    match = _ENDPOINT.search(text)
    return int(match[2]) if match else 0


def _with_port(config: Path, text: str, port: int, folder: Path) -> Path:
    if _port(text) == port:
        return config
    print(f"Port {_port(text)} is taken: {folder / config.name} says {port} instead.", flush=True)
    changed = folder / config.name
    changed.write_text(_ENDPOINT.sub(rf"\g<1>{port}", text), encoding="utf-8")
    return changed


def _penstock(config: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    # In a container people are root, and the example's data is theirs to own.
    command = [sys.executable, "-m", "penstock", "--config", str(config), "--as-root", *words]
    return subprocess.run(command, check=False, stdout=None if words[0] == "run" else subprocess.PIPE)


def _tell(config: Path) -> int:
    """The two things that a newcomer looks for."""
    found = _penstock(config, "path")
    if found.returncode:
        return found.returncode
    release = os.fsdecode(found.stdout).strip()
    reports = sorted(Path("results").glob("*/*/report.json"), key=lambda path: path.stat().st_mtime)
    print(f"\nA training job reads  {release}")
    for path in reports[-1:]:
        html = json.loads(path.read_text(encoding="utf-8")).get("report") or path.with_suffix(".html")
        print(f"The report is         {html}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
