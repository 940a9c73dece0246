"""One connection of the demo server: HTTP/1.1 with keep-alive, S3's read-only requests.

Guarantee: an answer's etag, size and bytes come from ONE open file; a file that shrinks while it
is sent ends the connection short of Content-Length, never with padding. A request is in the log
before the first byte of its answer leaves.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import ssl
import stat
import time
from dataclasses import dataclass
from email.utils import formatdate
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote

from tests.demo import s3auth, s3xml

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.demo.s3index import Index
    from tests.demo.s3sums import Sums

MAX_HEADER = 64 * 1024
SMALL_BODY = 256 * 1024
BLOCK = 1 << 20
_RANGE = re.compile(r"bytes=(\d*)-(\d*)").fullmatch
_REASONS = {200: "OK", 206: "Partial Content", 304: "Not Modified", 400: "Bad Request", 403: "Forbidden"}
_REASONS |= {404: "Not Found", 405: "Method Not Allowed", 412: "Precondition Failed"}
_REASONS |= {416: "Range Not Satisfiable", 501: "Not Implemented"}


@dataclass
class Site:
    """What one process serves."""

    bucket: str
    root: str
    root_fd: int
    index: Index
    log_fd: int = -1
    keys: Mapping[str, str] | None = None
    """Access key to secret; None: nobody is asked to sign."""
    md5: Sums | None = None
    crc: Sums | None = None

    def etag(self, key: str, seen: os.stat_result) -> str:
        """Opaque and strong: never 32 hex digits, unless real MD5s are asked for."""
        if self.md5 is not None:
            with contextlib.suppress(OSError):
                fd = os.open(key, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=self.root_fd)
                try:
                    return self.md5.of(fd, seen)
                finally:
                    os.close(fd)
        return f"{seen.st_size:x}.{seen.st_mtime_ns:x}.{seen.st_ino:x}-1"


@dataclass
class Request:
    method: str
    path: str
    query: str
    headers: dict[str, str]


class _HangUpError(Exception):
    """The connection is over."""


class Connection:
    """Answers one client's requests in order, until it leaves."""

    def __init__(self, sock: socket.socket, site: Site) -> None:
        self._sock, self._site = sock, site
        self._kept = b""
        self._tls = isinstance(sock, ssl.SSLSocket)
        self._keep = True

    def serve(self) -> None:
        with contextlib.suppress(_HangUpError, OSError):
            while self._keep:
                self._answer(self._read_request())

    def _read_request(self) -> Request:
        data = self._kept
        while (end := data.find(b"\r\n\r\n")) < 0:
            if len(data) > MAX_HEADER:
                raise _HangUpError
            more = self._sock.recv(MAX_HEADER)
            if not more:
                raise _HangUpError
            data += more
        self._kept = data[end + 4 :]
        first, *lines = data[:end].decode("latin-1").split("\r\n")
        try:
            method, target, protocol = first.split(" ")
        except ValueError:
            raise _HangUpError from None
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        path, _, query = target.partition("?")
        self._keep = protocol == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
        if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
            self._keep = False  # its body is not read: nothing is written here
        return Request(method, path, query, headers)

    def _answer(self, request: Request) -> None:
        site = self._site
        if request.method not in ("GET", "HEAD"):
            self._keep = False
            return self._error(request, "MethodNotAllowed", "")
        try:
            path = unquote(request.path, errors="strict")
        except UnicodeDecodeError:
            return self._error(request, "NoSuchKey", "")
        bucket, _, key = path.removeprefix("/").partition("/")
        if site.keys is not None:
            refused = s3auth.refusal(request.method, request.path, request.query, request.headers, site.keys)
            if refused:
                return self._error(request, refused, key)
        if not bucket:
            return self._send(request, "", 200, s3xml.buckets(site.bucket, os.stat(site.root).st_ctime))
        if bucket != site.bucket:
            return self._error(request, "NoSuchBucket", key)
        if key:
            return self._object(request, key)
        return self._bucket(request)

    def _bucket(self, request: Request) -> None:
        site = self._site
        query = dict(parse_qsl(request.query, keep_blank_values=True))
        if request.method == "HEAD":
            return self._send(request, "", 200, b"")
        if "location" in query:
            body = f"{s3xml.HEAD}<LocationConstraint{s3xml.XMLNS}/>".encode()
            return self._send(request, "", 200, body)
        if "versioning" in query:
            body = f"{s3xml.HEAD}<VersioningConfiguration{s3xml.XMLNS}/>".encode()
            return self._send(request, "", 200, body)
        known = {"list-type", "prefix", "delimiter", "start-after", "continuation-token", "max-keys"}
        known |= {"encoding-type", "marker", "fetch-owner", "x-id"}
        if not known.issuperset(query):
            return self._error(request, "NotImplemented", "")
        first = "continuation-token" not in query and "marker" not in query
        keys = site.index.keys(fresh=first)
        try:
            body = s3xml.page(site.bucket, site.root_fd, keys, query, site.etag)
        except s3xml.BadArgumentError:
            return self._error(request, "InvalidArgument", "")
        return self._send(request, "", 200, body)

    def _object(self, request: Request, key: str) -> None:
        if "\0" in key or not {"", ".", ".."}.isdisjoint(key.split("/")):
            return self._error(request, "NoSuchKey", key)
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            fd = os.open(key, flags, dir_fd=self._site.root_fd)
        except OSError as error:
            missing = not isinstance(error, PermissionError)
            return self._error(request, "NoSuchKey" if missing else "AccessDenied", key)
        try:
            seen = os.fstat(fd)
            if not stat.S_ISREG(seen.st_mode):
                return self._error(request, "NoSuchKey", key)
            return self._file(request, key, fd, seen)
        finally:
            os.close(fd)

    def _file(self, request: Request, key: str, fd: int, seen: os.stat_result) -> None:
        site, headers = self._site, request.headers
        etag = f'"{site.etag(key, seen) if site.md5 is None else site.md5.of(fd, seen)}"'
        if not _matches(headers.get("if-match", "*"), etag):
            return self._error(request, "PreconditionFailed", key)
        common = f"ETag: {etag}\r\nLast-Modified: {_http_date(int(seen.st_mtime))}\r\n"
        if "if-none-match" in headers and _matches(headers["if-none-match"], etag):
            return self._send(request, key, 304, b"", common)
        size = seen.st_size
        start, length, status = _range(headers.get("range", ""), size)
        if status == 416:
            return self._error(request, "InvalidRange", key, f"Content-Range: bytes */{size}\r\n")
        common += "Accept-Ranges: bytes\r\nContent-Type: binary/octet-stream\r\n"
        if status == 206:
            common += f"Content-Range: bytes {start}-{start + length - 1}/{size}\r\n"
        if (
            site.crc is not None
            and headers.get("x-amz-checksum-mode", "").upper() == "ENABLED"
            and length == size
        ):
            value = site.crc.of(fd, seen)
            common += f"x-amz-checksum-crc64nvme: {value}\r\nx-amz-checksum-type: FULL_OBJECT\r\n"
        self._log(request, key, status, length)
        head = self._head(status, length, common)
        if request.method == "HEAD":
            return self._sock.sendall(head)
        if length <= SMALL_BODY:
            body = os.pread(fd, length, start)
            self._sock.sendall(head + body)
            if len(body) != length:
                raise _HangUpError
            return None
        return self._stream(head, fd, start, length)

    def _stream(self, head: bytes, fd: int, offset: int, left: int) -> None:
        if self._tls:
            self._sock.sendall(head)
            buffer = memoryview(bytearray(min(BLOCK, left)))
            while left:
                got = os.preadv(fd, [buffer[:left]], offset)
                if not got:
                    raise _HangUpError
                self._sock.sendall(buffer[:got])
                offset, left = offset + got, left - got
            return
        self._sock.sendall(head, socket.MSG_MORE)
        target = self._sock.fileno()
        while left:
            sent = os.sendfile(target, fd, offset, left)
            if not sent:
                raise _HangUpError
            offset, left = offset + sent, left - sent

    def _head(self, status: int, length: int, extra: str) -> bytes:
        close = "" if self._keep else "Connection: close\r\n"
        return (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\nServer: penstock-demo\r\n"
            f"Content-Length: {length}\r\n{extra}{close}\r\n"
        ).encode()

    def _send(self, request: Request, key: str, status: int, body: bytes, extra: str = "") -> None:
        self._log(request, key, status, len(body))
        head = self._head(status, len(body), extra or "Content-Type: application/xml\r\n")
        self._sock.sendall(head if request.method == "HEAD" else head + body)

    def _error(self, request: Request, code: str, key: str, extra: str = "") -> None:
        body = s3xml.error(code, key)
        self._send(request, key, s3xml.MESSAGES[code][0], body, "Content-Type: application/xml\r\n" + extra)

    def _log(self, request: Request, key: str, status: int, length: int) -> None:
        if self._site.log_fd < 0:
            return
        line = {
            "at": time.time(),
            "method": request.method,
            "key": key,
            "query": request.query,
            "range": request.headers.get("range", ""),
            "status": status,
            "bytes": length if request.method == "GET" else 0,
        }
        # One write to a file opened for appending: lines of several processes never mix.
        os.write(self._site.log_fd, json.dumps(line).encode() + b"\n")


def _matches(condition: str, etag: str) -> bool:
    return condition.strip() == "*" or etag.strip('"') in {
        item.strip().strip('"') for item in condition.split(",")
    }


def _range(text: str, size: int) -> tuple[int, int, int]:
    """(start, length, status) of one range; what is no single byte range counts as none.

    | header | answer |
    |---|---|
    | none, several, malformed | 200, all |
    | a-b, a- with a < size | 206, cut at the end |
    | -n with n > 0 | 206, the last n |
    | a- with a >= size, -0 | 416 |
    """
    found = _RANGE(text)
    if not found or not (found[1] or found[2]):
        return 0, size, 200
    if not found[1]:
        length = min(int(found[2]), size)
        return (size - length, length, 206) if length else (0, 0, 416)
    start = int(found[1])
    stop = min(int(found[2]) + 1, size) if found[2] else size
    if found[2] and int(found[2]) < start:
        return 0, size, 200
    return (start, stop - start, 206) if start < size else (0, 0, 416)


@lru_cache(maxsize=4096)
def _http_date(seconds: int) -> str:
    return formatdate(seconds, usegmt=True)


def serve(sock: socket.socket, site: Site, wrap: Callable[[socket.socket], socket.socket] | None) -> None:
    """The whole life of one accepted connection, in its own thread."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with wrap(sock) if wrap is not None else sock as ready:
            Connection(ready, site).serve()
    sock.close()
