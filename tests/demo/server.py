"""A read-only S3 server over one folder, for the example, the tests and the benchmark.

`python -m tests.demo.server --root DIR --bucket NAME --port 0 --port-file FILE`, in the checkout.

Guarantee: listens on loopback only, changes nothing below `--root`, and the port file appears
whole, once connections are accepted. It ends when it is told to (SIGTERM, SIGINT), with
`--with-parent` also when the process that started it is gone; no process of it stays behind.
"""

from __future__ import annotations

import argparse
import contextlib
import ipaddress
import os
import select
import signal
import socket
import ssl
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from tests.demo import s3auth, s3http
from tests.demo.s3index import Index
from tests.demo.s3sums import Sums, crc64nvme_base64, md5_hex

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    listener = socket.create_server((options.host, options.port), backlog=1024)
    site = s3http.Site(
        options.bucket,
        str(options.root),
        os.open(options.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC),
        Index(str(options.root)),
        md5=Sums(md5_hex) if options.md5_etags else None,
        crc=Sums(crc64nvme_base64) if options.checksums else None,
        keys=s3auth.read_credentials(options.credentials_file) if options.credentials_file else None,
    )
    if options.log:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        site.log_fd = os.open(options.log, flags, 0o600)
    wrap = None
    if options.tls_cert:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(options.tls_cert, options.tls_key)
        wrap = _wrapper(context)
    watched = -1
    if options.with_parent is not None:
        watched = os.pidfd_open(os.getppid())
        if options.with_parent not in (0, os.getppid()):
            return 0  # it was gone before we looked
    me = os.pidfd_open(os.getpid())
    children = [_fork(listener, site, wrap, me) for _ in range(options.processes)]
    ended = _end_on_signals()
    if options.port_file:
        temporary = options.port_file.with_name(f".{options.port_file.name}.{os.getpid()}")
        temporary.write_text(f"{listener.getsockname()[1]}\n")
        temporary.rename(options.port_file)
    listener.close()
    return _supervise(children, watched, ended)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.demo.server", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--root", type=Path, required=True, help="the folder whose files are the objects")
    parser.add_argument("--bucket", required=True)
    parser.add_argument("--host", default="127.0.0.1", help="a loopback address")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--port-file", type=Path, help="written, whole, once it listens")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--log", type=Path, help="one JSON line for each request")
    parser.add_argument("--tls-cert", type=Path)
    parser.add_argument("--tls-key", type=Path)
    parser.add_argument("--credentials-file", type=Path, help="AWS format; requests must then be signed")
    parser.add_argument("--checksums", action="store_true", help="state CRC64NVME where it is asked for")
    parser.add_argument("--md5-etags", action="store_true", help="etags are MD5s, as of single PUTs")
    parser.add_argument(
        "--with-parent",
        type=int,
        nargs="?",
        const=0,
        metavar="PID",
        help="end when the parent process ends; with its PID also when it ended before we began",
    )
    options = parser.parse_args(arguments)
    try:
        loopback = ipaddress.ip_address(options.host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        parser.error("--host: a loopback address, such as 127.0.0.1")
    if not options.root.is_dir():
        parser.error(f"--root: no such folder: {options.root}")
    if bool(options.tls_cert) != bool(options.tls_key):
        parser.error("--tls-cert and --tls-key go together")
    if options.processes < 1:
        parser.error("--processes: at least 1")
    return options


def _wrapper(context: ssl.SSLContext) -> Callable[[socket.socket], socket.socket]:
    return lambda sock: context.wrap_socket(sock, server_side=True)


def _fork(
    listener: socket.socket,
    site: s3http.Site,
    wrap: Callable[[socket.socket], socket.socket] | None,
    supervisor: int,
) -> int:
    """One serving process. All of them accept from the same socket, so the idle ones do."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor decides
        threading.Thread(target=_leave_with, args=(supervisor,), daemon=True).start()
        while True:
            sock, _ = listener.accept()
            threading.Thread(target=s3http.serve, args=(sock, site, wrap), daemon=True).start()
    finally:
        os._exit(status)


def _leave_with(supervisor: int) -> None:
    select.select([supervisor], [], [])
    os._exit(0)


def _end_on_signals() -> int:
    """A descriptor that can be read once this process is told to end. To be called before anybody is told
    that the server listens: who reads the port may end it at once."""
    ended, told = os.pipe()
    os.set_blocking(told, False)

    def tell(_number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(told, b"x")

    signal.signal(signal.SIGTERM, tell)
    signal.signal(signal.SIGINT, tell)
    return ended


def _supervise(children: Sequence[int], watched: int, ended: int) -> int:
    """Wait for a signal, the parent's end or a child's; then end every child."""
    handles = [os.pidfd_open(child) for child in children]
    waiting = [ended, *handles, *([watched] if watched >= 0 else [])]
    ready, _, _ = select.select(waiting, [], [])
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    for child in children:
        os.waitpid(child, 0)
    return 1 if any(handle in ready for handle in handles) else 0


if __name__ == "__main__":
    sys.exit(main())
