"""FTP servers on loopback: vsftpd, and pyftpdlib in a thread, which can be made to lack commands."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tests.support.go_servers import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

DEADLINE = 30.0


class Pyftpd:
    """`with Pyftpd(folder, without={"MLSD"}) as server:`; anonymous, to read.

    `without`: commands that it does not have. `lines`: how LIST writes a folder of these names, a line an
    element; without it as pyftpdlib does, by `ls -l`. `fates`: by a file's name, what becomes of its bytes,
    as often as stated: `lost` (half of them, then 226), `cut` (half, then 426), `unsaid` (all, then 426),
    `longer` (one more than SIZE says). `closing` is the answer that ends each listing.
    `commands` is what was asked for, in order.
    """

    def __init__(
        self,
        folder: Path,
        *,
        without: Iterable[str] = (),
        lines: Callable[[Path, Sequence[str]], Iterable[str]] | None = None,
        fates: dict[str, tuple[str, int]] | None = None,
        closing: str = "",
    ) -> None:
        self.closing = closing
        self.folder, self.commands = folder, list[str]()
        self.fates = fates or {}
        self.connections: list[Any] = []
        self._without, self._lines = frozenset(without), lines

    def __enter__(self) -> Self:
        logging.getLogger("pyftpdlib").setLevel(logging.CRITICAL)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.11's, of asyncore
            from pyftpdlib.authorizers import DummyAuthorizer
            from pyftpdlib.filesystems import AbstractedFS
            from pyftpdlib.handlers import FTPHandler
            from pyftpdlib.ioloop import IOLoop
            from pyftpdlib.servers import FTPServer

        outer = self

        class Files(AbstractedFS):  # type: ignore[misc]
            def open(self, filename: str, mode: str) -> Any:
                return outer._opened(filename, super().open(filename, mode))

            def format_list(self, basedir: str, listing: list[str], ignore_err: bool = True) -> Any:
                if outer._lines is None:
                    return super().format_list(basedir, listing, ignore_err)
                written = outer._lines(Path(basedir), listing)
                return (f"{line}\r\n".encode("utf-8", "surrogateescape") for line in written)

        known = {word: how for word, how in FTPHandler.proto_cmds.items() if word not in self._without}

        class Handler(FTPHandler):  # type: ignore[misc]
            abstracted_fs = Files
            proto_cmds = known
            use_sendfile = False  # fates are in what is read

            def __init__(self, *arguments: Any, **more: Any) -> None:
                super().__init__(*arguments, **more)
                outer.connections.append(self)

            def pre_process_command(self, line: str, cmd: str, arg: str) -> None:
                outer.commands.append(line)
                super().pre_process_command(line, cmd, arg)

            def respond(self, resp: str, **more: Any) -> None:
                listed = outer.commands and outer.commands[-1].partition(" ")[0] in ("LIST", "MLSD")
                if outer.closing and listed and resp.startswith("226"):
                    resp = outer.closing
                super().respond(resp, **more)

        Handler.authorizer = DummyAuthorizer()
        Handler.authorizer.add_anonymous(str(self.folder))
        self._server = FTPServer(("127.0.0.1", 0), Handler, ioloop=IOLoop())
        self.url = f"ftp://127.0.0.1:{self._server.socket.getsockname()[1]}/"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        return self

    @property
    def held(self) -> int:
        """Sessions that are open."""
        return sum(connection.connected for connection in self.connections)

    def allow(self, connections: int) -> None:
        """How many there may be at once, the listening one included; others get 421."""
        self._server.max_cons = connections

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(DEADLINE)

    def _serve(self) -> None:
        while not self._stop.is_set():
            self._server.ioloop.loop(0.02, False)
        self._server.close_all()

    def _opened(self, path: str, file: Any) -> Any:
        fate, times = self.fates.get(os.path.basename(path), ("", 0))
        if not times:
            return file
        self.fates[os.path.basename(path)] = fate, times - 1
        return _Fated(file, fate, os.path.getsize(path))


class _Fated:
    """An open file whose bytes do not all come, or more of them."""

    def __init__(self, file: Any, fate: str, size: int) -> None:
        self._file, self._fate = file, fate
        self._end = size // 2 if fate in ("lost", "cut") else size

    def read(self, count: int) -> bytes:
        data: bytes = self._file.read(min(count, self._end - self._file.tell()))
        if data or self._fate == "lost":
            return data
        if self._fate == "longer":
            self._fate = "lost"
            return b"x"
        raise OSError("the disk has failed")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class Endless:
    """`with Endless(greeting=b"220-x\\r\\n") as server:`; a server that sends its greeting, or the listing of
    each folder, again and again, every `pause` seconds."""

    def __init__(self, *, greeting: bytes = b"", listing: bytes = b"", pause: float = 0.0) -> None:
        self._greeting, self._listing, self._pause = greeting, listing, pause
        self._ending = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"ftp://127.0.0.1:{self._listener.getsockname()[1]}/"
        self._begin(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(DEADLINE)
        self._listener.close()

    def _begin(self, target: Callable[..., None], *arguments: Any) -> None:
        self._threads.append(threading.Thread(target=target, args=arguments))
        self._threads[-1].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self._begin(self._serve, self._listener.accept()[0])

    def _send(self, sock: socket.socket, text: bytes) -> None:
        block = text if self._pause else text * (1 + (1 << 16) // len(text))
        while not self._ending.wait(self._pause):
            sock.sendall(block)

    def _serve(self, sock: socket.socket) -> None:
        data = socket.create_server(("127.0.0.1", 0))
        high, low = divmod(data.getsockname()[1], 256)
        answers = {b"PASV": b"227 (127,0,0,1,%d,%d)" % (high, low), b"FEAT": b"211-\r\n MLST\r\n211 end"}
        with sock, data, contextlib.suppress(OSError):
            sock.settimeout(DEADLINE)
            if self._greeting:
                self._send(sock, self._greeting)
            sock.sendall(b"220 hello\r\n")
            for line in sock.makefile("rb"):
                word = line.split()[0]
                sock.sendall(answers.get(word, b"150 comes" if word == b"MLSD" else b"230 yes") + b"\r\n")
                if word == b"MLSD":
                    with data.accept()[0] as sink:
                        self._send(sink, self._listing)


class Vsftpd:
    """`with Vsftpd() as server:`; anonymous, over `server.folder`, a process of its own. Settings of
    vsftpd.conf may be added."""

    def __init__(self, **settings: str) -> None:
        """Raises UnavailableError."""
        program = shutil.which("vsftpd", path=f"{os.environ['PATH']}:/usr/sbin")
        if program is None:
            raise UnavailableError("no vsftpd: apt-get install vsftpd")
        if os.getuid():
            raise UnavailableError("vsftpd shuts its users into their folder only as root")
        self._program, self._settings = program, settings

    def __enter__(self) -> Self:
        # The account of anonymous users has to reach it, and may not write to it.
        self._base = Path(tempfile.mkdtemp(prefix="vsftpd-", dir="/var/tmp"))
        self._base.chmod(0o755)
        self.folder = self._base / "root"
        (self._base / "empty").mkdir()
        self.folder.mkdir(mode=0o755)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        settings = {
            "listen": "YES", "listen_address": "127.0.0.1", "listen_port": str(port), "background": "NO",
            "anonymous_enable": "YES", "no_anon_password": "YES", "anon_root": str(self.folder),
            "anon_world_readable_only": "NO", "secure_chroot_dir": str(self._base / "empty"),
            "seccomp_sandbox": "NO", "isolate": "NO", "isolate_network": "NO", **self._settings,
        }  # fmt: skip
        conf = self._base / "vsftpd.conf"
        conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        conf.chmod(0o600)
        self._process = subprocess.Popen(
            [self._program, str(conf)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        self.url = f"ftp://127.0.0.1:{port}/"
        self._wait(port)
        return self

    def __exit__(self, *_: object) -> None:
        # A session ends when its client goes.
        self._process.terminate()
        self._process.wait(DEADLINE)
        shutil.rmtree(self._base)

    def _wait(self, port: int) -> None:
        until = time.monotonic() + DEADLINE
        while time.monotonic() < until:
            if self._process.poll() is not None:
                break
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as sock:
                if sock.recv(3) == b"220":
                    return
        self.__exit__()
        raise UnavailableError("vsftpd does not answer")
