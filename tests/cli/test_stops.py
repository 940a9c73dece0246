"""A signal ends each wait at once: a table of what commands wait for, by the built command."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.support.commands import ROOT, penstock, started, until
from tests.support.injected import python
from tests.support.silent_server import LISTING, Server, busy, page

from penstock.cluster.slurm import client
from penstock.core.errors import InterruptedRunError, TransientError
from penstock.dataset import holder as holders
from penstock.host import command, waits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

WITHIN = 10.0
"""Seconds from the signal to the end on a loaded machine; on a calm one it is less than 2."""
BUSY = busy(500)
PAGE = b"<html><title>Index of /d/</title><h1>Index of /d/</h1><pre>%s</pre></html>" % b"".join(
    b'<a href="f%d">f%d</a>\n' % (number, number) for number in range(5)
)
S3 = "s3://bucket/\n    storage_options: {{endpoint_url: 'http://127.0.0.1:{port}', region: e, anon: true}}"
WEB = "http://127.0.0.1:{port}/d/"
NOTICE = "notify: {{command: ['{stub}'], events: [published]}}\n"
LIST = ("step", "list", "data")


DEAF = """
import ctypes, pathlib, socket
def getaddrinfo(*_, **__):
    pathlib.Path("waits").touch()
    lock, mutex = ctypes.CDLL(None).pthread_mutex_lock, ctypes.create_string_buffer(64)
    lock(mutex), lock(mutex)
socket.getaddrinfo = getaddrinfo
"""
"""A call of the C library that no signal ends."""


class Store:
    """A bucket of one object, which it sends until it is silent. It answers listings always."""

    def __init__(self) -> None:
        self.silent = False

    def __call__(self, head: bytes) -> bytes:
        if b"list-type" in head:
            return page(LISTING, b"application/xml")
        return b"" if self.silent else page(b"\0" * 9, b'binary/octet-stream\r\nETag: "e"')


class Wait(NamedTuple):
    """What waits, and for what."""

    words: Sequence[str]
    """Of the command."""
    source: str = "{folder}/source"
    answer: Callable[[bytes], bytes] | None = None
    drip: bytes = b""
    more: str = ""
    """Of the configuration."""
    stub: str = ""
    """A program that hangs: found first on PATH by this name, and named by `{stub}`."""
    environment: Mapping[str, str] = {}
    lines: str = ""
    """What its interpreter runs first."""
    waits: str = "server"
    """What shows that it waits: the server, the program that hangs, or this text in its output."""
    before: Callable[[Path, Wait], None] = lambda folder, wait: None
    """Makes what the command finds."""


def _after(*answers: bytes, then: bytes = b"") -> Callable[[bytes], bytes]:
    left = [*answers]
    return lambda _: left.pop(0) if left else then


def published(folder: Path, wait: Wait) -> None:
    """A release of the store, which is silent from then on."""
    ended = penstock("run", "data", cwd=folder)
    assert ended.returncode == 0, ended.stderr
    assert isinstance(wait.answer, Store)
    wait.answer.silent = True


def damaged(folder: Path, wait: Wait) -> None:
    """The same, with a file that an audit found damaged."""
    published(folder, wait)
    (file,) = folder.glob("target/data/releases/*/data/a")
    file.chmod(0o644)
    file.write_bytes(b"damaged..")
    assert penstock("audit", "data", cwd=folder).returncode == 4


def paused(folder: Path, wait: Wait) -> None:
    published(folder, wait)
    (folder / "target/PAUSE").write_text("maintenance\n")


def locked(folder: Path, wait: Wait) -> None:
    """The dataset, listed before, by a process of another machine."""
    assert penstock(*LIST, cwd=folder).returncode == 0
    me = holders.this_process("0123456789abcdef", "copy")
    holder = dataclasses.replace(me, host="elsewhere", boot="b", job="")
    (folder / "target/data/.penstock/lock").write_bytes(holder.to_json())


WAITS = {
    "a store that asks for a pause": Wait(LIST, S3, lambda _: BUSY),
    "the same in preflight": Wait(("preflight",), S3, lambda _: BUSY),
    "a web server that asks for a pause": Wait(LIST, WEB, _after(page(PAGE, b"text/html"), then=BUSY)),
    "a store that is silent": Wait(LIST, S3, _after()),
    "a store's second answer": Wait(LIST, S3, _after(page(LISTING, b"application/xml"))),
    "a web page": Wait(LIST, WEB, _after()),
    "files of a web page": Wait(LIST, WEB, lambda head: page(PAGE, b"text/html") if b"/d/ " in head else b""),
    "an answer's head, byte by byte": Wait(LIST, WEB, drip=b"x"),
    "a TLS handshake": Wait(LIST, "https://127.0.0.1:{port}/d/"),
    "an FTP greeting": Wait(LIST, "ftp://127.0.0.1:{port}/d/"),
    "an FTP greeting without end": Wait(LIST, "ftp://127.0.0.1:{port}/d/", drip=b"220-x\r\n"),
    "a copied object": Wait(
        ("run", "data"),
        S3,
        lambda head: page(LISTING, b"application/xml") if b"list-type" in head else b"",
        waits="copy",
    ),
    "a name server": Wait(LIST, WEB, lines=DEAF, waits="stub"),
    "a profile's program": Wait(
        LIST,
        "s3://bucket/\n    storage_options: {{profile: p}}",
        stub="keys",
        waits="stub",
        environment={"AWS_CONFIG_FILE": "{folder}/aws"},
    ),
    "SLURM in preflight": Wait(("--backend", "slurm", "preflight"), stub="scontrol", waits="stub"),
    "a FIFO that nobody empties": Wait(("metrics", "--out", "{folder}/fifo"), waits="fifo"),
    "a PAUSE": Wait(LIST, waits="PAUSE"),
    "a dataset's lock": Wait(LIST, waits="the lock is taken over when", before=locked),
    "a repaired object": Wait(("repair", "data"), S3, Store(), before=damaged),
    "a PAUSE before an audit": Wait(("audit", "data"), S3, Store(), waits="PAUSE stands", before=paused),
    "a rehearsed object": Wait(("rehearse", "data"), S3, _after(page(LISTING, b"application/xml"))),
    "a notice": Wait(
        ("run", "data"),
        more="notify: {{command: ['{stub}'], events: [published]}}\n",
        stub="hangs",
        waits="stub",
    ),
}


def configured(folder: Path, wait: Wait, port: int) -> None:
    (folder / "target").mkdir()
    (folder / "source").mkdir()
    (folder / "source/file").write_text("x")
    (folder / "bin").mkdir()
    if wait.stub:
        program = folder / "bin" / wait.stub
        program.write_text(f"#!/bin/sh\n: >{folder}/waits\nexec sleep 1000\n")
        program.chmod(0o755)
    (folder / "aws").write_text(f"[profile p]\nregion = e\ncredential_process = {folder}/bin/keys\n")
    if wait.waits == "PAUSE":
        (folder / "target/PAUSE").write_text("maintenance\n")
    filled = {"folder": folder, "port": port, "stub": folder / "bin" / wait.stub}
    (folder / "penstock.yaml").write_text(
        f"target: {{root: {folder}/target}}\n{wait.more.format(**filled)}"
        f"datasets:\n  data:\n    source: {wait.source.format(**filled)}\n"
    )


def _has_open(pid: int, path: Path) -> bool:
    """Whether a process has this file open."""
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if descriptor.readlink() == path:
                return True
    return False


@pytest.mark.parametrize("name", WAITS)
def test_a_signal_ends_each_wait(tmp_path: Path, name: str) -> None:
    wait = WAITS[name]
    with Server(wait.answer, wait.drip) as server:
        configured(tmp_path, wait, server.port)
        wait.before(tmp_path, wait)
        shown = tmp_path / "shown"
        fifo = tmp_path / "fifo"
        if wait.waits == "fifo":
            os.mkfifo(fifo)
            full = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
            with contextlib.suppress(BlockingIOError):
                while os.write(full, bytes(1 << 16)):
                    pass
        signs: dict[str, Callable[[], bool]] = {
            "server": server.waited.is_set,
            "stub": (tmp_path / "waits").exists,
            "copy": lambda: server.waited.is_set() and "data copy: started" in shown.read_text(),
        }
        words = [word.format(folder=tmp_path) for word in wait.words]
        environment = {
            "PENSTOCK_AS_ROOT": "1",
            "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
            **{key: value.format(folder=tmp_path) for key, value in wait.environment.items()},
        }
        line = f'exec "$0" -m penstock "$@" >{shown} 2>&1'
        interpreter = python(tmp_path / "environment", wait.lines) if wait.lines else sys.executable
        with started("sh", "-c", line, interpreter, *words, cwd=tmp_path, env=environment) as process:
            signs["fifo"] = lambda: _has_open(process.pid, fifo)
            shows = signs.get(wait.waits, lambda: wait.waits in shown.read_text())
            until(lambda: process.poll() is not None or (shown.exists() and shows()), name)
            assert process.poll() is None, shown.read_text()
            began = time.monotonic()
            os.kill(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(WITHIN)
            seconds = time.monotonic() - began
        if wait.waits == "fifo":
            os.close(full)
    said = shown.read_text()
    print(f"@@ {name}: {seconds:.2f} s, {process.returncode}\n{said}")
    assert (process.returncode, seconds < WITHIN) == (143, True), said
    assert "stopped by SIGTERM" in said


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("metrics", "--out", "fifo"), 1),
        (("--log", "fifo", "metrics"), 2),
        (("--receipt", "fifo", "step", "list", "data"), 1),
    ],
)
def test_a_fifo_that_nothing_reads_is_refused(tmp_path: Path, words: Sequence[str], status: int) -> None:
    configured(tmp_path, Wait(words), 0)
    os.mkfifo(tmp_path / "fifo")
    ended = penstock(*words, cwd=tmp_path)
    assert ended.returncode == status, ended.stderr
    assert "no process reads this FIFO" in ended.stderr


def test_what_tidies_up_after_a_signal_has_a_second() -> None:
    stop = waits.Stop()
    stop.set(signal.SIGTERM)
    with waits.obeying(stop):
        with pytest.raises(InterruptedRunError):
            command.run(["true"])
        with waits.tidying():
            assert command.run(["true"]).ok
            assert command.run(["sleep", "1000"]).why == "no answer within 1 s"
            with pytest.raises(TransientError):
                client.call("sleep", "1000")


WAITING = {
    "cli/commands/run.py": "for Snakemake, which gets the signal",
    "cli/run_results.py": "a thread that shows",
    "cluster/registry.py": "for an element that has ended",
    "dataset/dataset_lock.py": "0.2 s; else its heartbeat's thread",
    "dataset/context.py": "in steps of half a second; the thread that says what is waited for",
    "doctor/selftest.py": "for a process that was killed",
    "doctor/selftest_two_nodes.py": "less after a signal",
    "engine/change_following.py": "in steps, with a look at the stop flag",
    "engine/journal_flusher.py": "for what was written to become durable",
    "engine/stream.py": "in a worker, which the element ends",
    "engine/pool.py": "for a worker that has to end, or was killed",
    "fs/readahead.py": "for a helper whose socket is closed",
    "fs/watched_facts.py": "half a second for a process that was killed",
    "host/waits.py": "the one place; threads that show that a process lives, and look at calls in the kernel",
    "jobs/shares.py": "a thread that holds a share",
    "keep/audit_step.py": "for a thread that looks at the stop flag",
    "look/views/live_view.py": "a thread that draws",
    "run/adopted_tree.py": "for what was written to become durable",
    "sources/s3_listing.py": "in steps, inside `waits.interruptible`, or in a thread of its own",
    "target/modes.py": "for what was written to become durable",
}
"""Modules that wait by other means than `host.waits`, and why a signal does not wait for them."""


def test_every_other_wait_is_one_of_a_few() -> None:
    package = ROOT / "scripts/penstock"
    waiting = set()
    for path in package.rglob("*.py"):
        code = path.read_text()
        assert "time.sleep" not in code, f"{path}: no signal ends it, `waits.pause` is ended by one"
        if re.search(r"(?<!stop)\.wait\(", code):
            waiting.add(str(path.relative_to(package)))
    assert waiting == {*WAITING}
