"""A folder of this machine, mounted as several nodes of a cluster would see it (`temperfs`, by FUSE).

Only root mounts; a machine that cannot is named in the one message that skips. Nothing outlives a `Bed`: its
program ends when its standard input does, also where this process was killed, and takes the mounts along.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self
from urllib.parse import unquote_to_bytes

import pytest
from tests.filesystems.sets import SETS
from tests.support.go_servers import UnavailableError, built_here

if TYPE_CHECKING:
    from tests.filesystems.sets import Tempers

SOURCE = Path(__file__).parent / "temperfs"
DEADLINE = 60.0
PENSTOCK = (sys.executable, "-m", "penstock")


class Operation(NamedTuple):
    """A line of the log: which node asked what of which file, and the errno of the answer."""

    node: int
    name: str
    path: str
    errno: int


class Bed:
    """`with Bed(nodes=2, cache="close-to-open") as bed:` mounts one store at each of `bed.nodes`.

    `named` is a set (`sets.SETS`), to which the further tempers are added. `power`: it can be cut.
    """

    def __init__(self, *, nodes: int = 1, named: str = "", power: bool = False, **tempers: object) -> None:
        self.tempers: Tempers = {**(SETS[named] if named else {}), **tempers}
        self.named, self.power = named, power
        self._count = nodes
        self._ordering = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        program = _program()
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-bed-", dir="/dev/shm")
        base = Path(self._folder.name)
        base.chmod(0o755)
        self.store, self._log, self._options = base / "store", base / "log", base / "options.json"
        self.nodes = [base / f"node{number}" for number in range(self._count)]
        for folder in (self.store, *self.nodes):
            folder.mkdir()
        self.store.chmod(0o755)
        options = {
            "store": str(self.store), "side": str(base / "side"), "log": str(self._log),
            "mounts": [str(node) for node in self.nodes], "name": self.named or "tempers",
            "power": self.power, **self.tempers,
        }  # fmt: skip
        self._options.write_text(json.dumps(options))
        try:
            self._start(program)
        except BaseException:
            self.__exit__()
            raise
        return self

    @property
    def pid(self) -> int:
        """Of its program."""
        assert self._process is not None
        return self._process.pid

    def _start(self, program: Path) -> None:
        self._process = subprocess.Popen(
            [str(program), str(self._options)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._answer()

    def __exit__(self, *_: object) -> None:
        try:
            self._stop()
        finally:
            if self._folder is not None:
                self._folder.cleanup()

    def _stop(self) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            assert process.stdin is not None
            assert process.stdout is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            try:
                process.wait(DEADLINE)
            finally:
                process.kill()
                process.wait()
                process.stdout.close()
        mounted = Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
        for node in self.nodes:
            if f" {node} " in mounted:
                subprocess.run(["umount", "--lazy", node], check=True)

    def order(self, do: str, **what: object) -> None:
        """One command of the program (`main.go`), done on return. Several threads may call it: each reads the
        answer to its own order."""
        assert self._process is not None
        assert self._process.stdin is not None
        with self._ordering:
            self._process.stdin.write(json.dumps({"do": do, **what}) + "\n")
            self._process.stdin.flush()
            self._answer()

    def _answer(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError("the file system ended: what it said stands above")
        error = json.loads(line).get("error")
        assert not error, error

    def again(self) -> None:
        """Every node started anew; with `power` after a power cut. Nobody may have a file open here."""
        if self.power:
            self.order("cut")
        self._stop()
        self._start(_program())

    def on(self, node: int, *command: str) -> list[str]:
        """A command that sees the store by this node's mount, under the path of the first node's: as on a
        cluster, where all nodes mount it at one path."""
        if node == 0:
            return [*command]
        here, there = str(self.nodes[node]), str(self.nodes[0])
        if command[: len(PENSTOCK)] == PENSTOCK:  # starts warm
            return [sys.executable, "-m", "tests.support.on_mount", here, there, *command[len(PENSTOCK) :]]
        bind = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
        return ["unshare", "--mount", "sh", "-c", bind, "sh", here, there, *command]

    def operations(self) -> list[Operation]:
        """Everything that was asked of the file system so far."""
        found = []
        for line in self._log.read_text().splitlines():
            node, name, path, _, number = line.split("\t")
            found.append(Operation(int(node), name, os.fsdecode(unquote_to_bytes(path)), int(number)))
        return found

    def asked(self, name: str, path: str = "") -> list[Operation]:
        """The operations of one name, on one path if it is given."""
        return [one for one in self.operations() if one.name == name and path in ("", one.path)]


def _program() -> Path:
    if os.geteuid() != 0:
        pytest.skip("only root mounts")
    if not os.path.exists("/dev/fuse"):
        pytest.skip("this machine has no FUSE: there is no /dev/fuse")
    try:
        return built_here(SOURCE)
    except UnavailableError as error:
        pytest.skip(str(error))
