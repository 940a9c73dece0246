"""OpenSSH keys that tests make, by the real ssh-keygen, and an agent."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from typing import TYPE_CHECKING, NamedTuple

from tests.target.conftest import need

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Key(NamedTuple):
    private: Path
    public: Path

    def line(self, principal: str = "data@example.org", options: str = "") -> str:
        """Of a file of allowed signers."""
        kind, value = self.public.read_text().split()[:2]
        return " ".join(filter(None, (principal, options, kind, value))) + "\n"


def key(folder: Path, name: str = "key", passphrase: str = "") -> Key:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    words = (need("ssh-keygen"), "-q", "-t", "ed25519", "-N", passphrase, "-C", name, "-f", str(path))
    subprocess.run(words, check=True)
    return Key(path, path.with_suffix(".pub"))


def listens(path: Path) -> bool:
    """The name of a socket is there before it listens."""
    with socket.socket(socket.AF_UNIX) as one:
        try:
            one.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
    return True


@contextlib.contextmanager
def agent(folder: Path, made: Key, passphrase: str) -> Iterator[str]:
    """An ssh-agent that has the key; the path of its socket."""
    place = folder / "agent"
    child = subprocess.Popen(("ssh-agent", "-D", "-a", str(place)), stdout=subprocess.DEVNULL)
    try:
        answer = folder / "answer"
        answer.write_text(f"#!/bin/sh\necho '{passphrase}'\n")
        answer.chmod(0o700)
        environment = {
            **os.environ,
            "SSH_AUTH_SOCK": str(place),
            "SSH_ASKPASS": str(answer),
            "SSH_ASKPASS_REQUIRE": "force",
        }
        while not listens(place):
            assert child.poll() is None
        subprocess.run(("ssh-add", "-q", str(made.private)), env=environment, check=True)
        yield str(place)
    finally:
        child.send_signal(signal.SIGTERM)
        child.wait()
