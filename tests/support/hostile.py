"""A scripted S3 (and plain HTTP) server that misbehaves, each key in its own way.

`with Hostile({"a": b"..."}, modes={"a": "cut*2"}) as server:` cuts the first two GETs of `a` and
is honest from then on; without `*n` a mode holds for ever. Objects live in `server.bucket`.

| mode | what a GET gets |
|---|---|
| shortlen | half of the bytes, with a Content-Length that agrees |
| nolen | half of the bytes, no Content-Length, then the end of the connection |
| badchunk | chunked, half of the bytes, no last chunk |
| cut | a true Content-Length, half of the bytes, then the end of the connection |
| reset | as cut, but by RST |
| each:N | as reset, but after N bytes, which the client has got |
| eachchunk:N | as badchunk, but N bytes, as one chunk |
| long | 64 bytes too many, with a Content-Length that agrees |
| flip | one byte changed |
| flipcrc | one byte changed, and the true x-amz-checksum-crc32 of the object |
| crc | true bytes, and the true x-amz-checksum-crc32 |
| falsecrc | true bytes, false x-amz-checksum-crc32 |
| composite | true bytes, a multipart etag and a composite checksum that is nobody's MD5 |
| nosizes | true bytes; of `uploads` the sizes of the first and the last part alone are told |
| gzip | Content-Encoding: gzip |
| slowdown | 503 SlowDown, Retry-After: 0 |
| error500 | 500 InternalError |
| rangeignored | 200 and the whole object, whatever range was asked for |
| wrongrange | 206 with another range's bytes and Content-Range |
| errhtml200 | 200 and a login page |
| redirect | 307 to the same path at the same host and port, without TLS |
| redirectport:N | 307 to the same path and host, at port N |
| redirectother | 307 to the same port by another host name |
| drip | one byte each half second |
| silent | the headers, then nothing |
| gathered | the truth, to GATHERED requests at once: each waits until so many are there |
| changed | other bytes of the same size, another etag, If-Match ignored |
| 412, 404, expired, denied | PreconditionFailed, NoSuchKey, ExpiredToken (403), AccessDenied (403) |

| listing | what a listing gets |
|---|---|
| honest | pages of `page` keys, in order |
| truncated | XML that ends in the middle, with a Content-Length that agrees |
| repeated | the same continuation token for ever |
| tokenless | IsTruncated without a token |
| duplicate | a key twice, alike |
| unlike | a key twice, of another size |
| outside | a key outside the prefix |
| unsorted | keys in descending order |
| shuffled | keys in no order |
| late | keys in order, but for the first, which comes last |
| endless | pages without a key, each with a token of the next |
| html, slowdown, cut | as above; `*n` too |
"""

from __future__ import annotations

import base64
import fcntl
import gzip
import hashlib
import socket
import ssl
import struct
import termios
import threading
import zlib
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple, Self
from urllib.parse import parse_qsl, quote, unquote
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

LOGIN = b"<!DOCTYPE html><html><title>Sign in</title><form>Your session has ended</form></html>"
BROKEN = ("nolen", "badchunk", "eachchunk", "cut", "reset", "each", "drip", "silent")
EXTRA = 64
GATHERED = 16


class Asked(NamedTuple):
    """One request."""

    method: str
    key: str
    query: str
    range: str
    headers: Mapping[str, str]
    port: int
    """Where it came from: one for each connection."""


class _Done(Exception):  # noqa: N818 (no error: the connection is to end)
    """End the connection."""


class Hostile:
    """See the module's docstring. `asked` holds every request in order."""

    def __init__(
        self,
        objects: Mapping[str, bytes],
        modes: Mapping[str, str] | None = None,
        *,
        listing: str = "honest",
        page: int = 1000,
        bucket: str = "bucket",
        certificate: tuple[Path, Path] | None = None,
    ) -> None:
        """`certificate`, with its key: speaks TLS."""
        self._tls: ssl.SSLContext | None = None
        if certificate:
            self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            self._tls.load_cert_chain(*certificate)
        self.objects = dict(objects)
        self.modes = dict(modes or {})
        self.listing, self.page, self.bucket = listing, page, bucket
        self.sizes: dict[str, int] = {}
        """What listings state of these keys."""
        self.uploads: dict[str, list[int]] = {}
        """Bytes of the parts of keys that were uploaded in parts: told part by part, and in their etags."""
        self.classes: dict[str, str] = {}
        """The storage class of keys that are in another one than STANDARD."""
        self.restored: dict[str, str] = {}
        """Of archived keys that were asked to be restored: `going on`, or `done`."""
        self._restores_asked = False
        self.mtimes: dict[str, str] = {}
        """What keys have as `mtime` in their metadata."""
        self.listing_type = "application/xml"
        self.etags: dict[str, str] = {}
        """What stands in place of a key's own etag."""
        self.ended: Callable[[Asked], str] = lambda _: ""
        """The code by which the store refuses the keys of a request; "" where it takes them."""
        self.refused: list[Asked] = []
        self.asked: list[Asked] = []
        self._used: dict[str, int] = {}
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._gathering = threading.Barrier(GATHERED)
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.endpoint = f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}"
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._gathering.abort()
        self.hang_up()
        _shutdown(self._listener)
        self._listener.close()
        self._accepting.join()
        for thread in self._threads:
            thread.join()

    def hang_up(self) -> None:
        """End every connection, as a server does that keeps none for long."""
        with self._lock:
            for sock in self._open:
                _shutdown(sock)

    def kept(self) -> int:
        """Connections that nobody has ended."""
        with self._lock:
            return len(self._open)

    def url(self, key: str = "") -> str:
        """As a plain HTTP object."""
        return f"{self.endpoint}/{self.bucket}/{quote(key)}"

    def count(self, key: str, method: str = "GET") -> int:
        return sum(asked.key == key and asked.method == method for asked in self.asked)

    def etag(self, key: str) -> str:
        if key in self.etags:
            return self.etags[key]
        if key in self.uploads:
            ends = list(accumulate(self.uploads[key], initial=0))
            data = [self.objects[key][a:b] for a, b in pairwise(ends)]
            sums = b"".join(hashlib.md5(part, usedforsecurity=False).digest() for part in data)
            return f"{hashlib.md5(sums, usedforsecurity=False).hexdigest()}-{len(data)}"
        digest = hashlib.sha1(self.objects[key], usedforsecurity=False).hexdigest()[:24]
        return f"{digest}-3" if self._named(self.modes.get(key, "")) == "composite" else digest

    # -- connections

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
                if self._tls:
                    # Hands are shaken with the first bytes, in the connection's own thread.
                    sock = self._tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(sock,))
            with self._lock:
                self._open.add(sock)
                self._threads.append(thread)
            thread.start()
            if self._ending.is_set():
                _shutdown(sock)

    def _serve(self, sock: socket.socket) -> None:
        try:
            kept = b""
            while not self._ending.is_set():
                while b"\r\n\r\n" not in kept:
                    more = sock.recv(65536)
                    if not more:
                        return
                    kept += more
                head, _, kept = kept.partition(b"\r\n\r\n")
                self._answer(sock, head.decode("latin-1").split("\r\n"))
        except (_Done, OSError, threading.BrokenBarrierError):
            return
        finally:
            with self._lock:
                self._open.discard(sock)
            _shutdown(sock)
            sock.close()

    def _answer(self, sock: socket.socket, lines: list[str]) -> None:
        method, target, _ = lines[0].split(" ")
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        if azures := headers.get("x-ms-range"):
            headers["range"] = azures
        path, _, query = target.partition("?")
        bucket, _, key = unquote(path).removeprefix("/").partition("/")
        port = int(sock.getpeername()[1])
        asked = Asked(method, key, query, headers.get("range", ""), headers, port)
        self.asked.append(asked)
        if code := self.ended(asked):
            self.refused.append(asked)
            _error(sock, method, 400, code)
        elif bucket != self.bucket:
            _error(sock, method, 404, "NoSuchBucket")
        elif key:
            self._object(sock, method, path, query, key, headers)
        elif method == "HEAD":
            send(sock, method, 200, b"")
        else:
            self._restores_asked = "x-amz-optional-object-attributes" in headers
            self._list(sock, method, dict(parse_qsl(query, keep_blank_values=True)))

    # -- modes

    @staticmethod
    def _named(mode: str) -> str:
        return mode.partition("*")[0]

    def _mode(self, key: str, mode: str) -> str:
        """The mode of this very request: `x*n` is used up after n requests."""
        name, _, times = mode.partition("*")
        if not times:
            return name
        with self._lock:
            self._used[key] = self._used.get(key, 0) + 1
            # What is stated of the object stays so when its bytes are right again.
            return name if self._used[key] <= int(times) else "crc" if name == "flipcrc" else ""

    def _object(
        self, sock: socket.socket, method: str, path: str, query: str, key: str, headers: Mapping[str, str]
    ) -> None:
        mode = self.modes.get(key, "")
        if method == "GET" or mode in ("404", "expired", "denied"):
            mode = self._mode(key, mode)
        archived = self.classes.get(key) in ("GLACIER", "DEEP_ARCHIVE")
        if archived and self.restored.get(key) != "done" and method == "GET":
            return _error(sock, method, 403, "InvalidObjectState")
        if mode == "gathered" and method == "GET":
            self._gathering.wait()
        data = self.objects.get(key)
        if data is None or mode == "404":
            return _error(sock, method, 404, "NoSuchKey")
        refusals = {"412": (412, "PreconditionFailed"), "expired": (403, "ExpiredToken")}
        refusals |= {"denied": (403, "AccessDenied"), "error500": (500, "InternalError")}
        refusals |= {"slowdown": (503, "SlowDown")}
        if mode in refusals and (method == "GET" or refusals[mode][0] == 403):
            return _error(sock, method, *refusals[mode])
        if mode.startswith("redirect") and method == "GET":
            host = "localhost" if mode == "redirectother" else "127.0.0.1"
            port = mode.partition(":")[2] or self.port
            return send(sock, method, 307, b"", Location=f"http://{host}:{port}{path}")
        etag = self.etag(key)
        if mode == "changed" and method == "GET":
            etag, data = "0" * 24, bytes(byte ^ 0xFF for byte in data)
        elif headers.get("if-match", etag).strip('"') not in (etag, "*"):
            return _error(sock, method, 412, "PreconditionFailed")
        part = dict(parse_qsl(query)).get("partNumber")
        if part and key in self.uploads:
            size = (
                self.uploads[key][int(part) - 1]
                if mode != "nosizes" or int(part) in (1, len(self.uploads[key]))
                else 0
            )
            status, told = (206, {"Content-Length": str(size)}) if size else (400, {"Content-Length": "0"})
            return send(sock, "HEAD", status, b"", ETag=f'"{etag}"', **told)
        if method == "HEAD" and (key in self.classes or key in self.mtimes):
            stored = {"x-amz-storage-class": self.classes.get(key, "STANDARD")}
            stored |= {"x-amz-meta-mtime": self.mtimes[key]} if key in self.mtimes else {}
            return send(sock, method, 200, data, **self.version(etag), **stored)
        return self._body(sock, method, mode, data, etag, headers)

    def _body(
        self, sock: socket.socket, method: str, mode: str, whole: bytes, etag: str, asked: Mapping[str, str]
    ) -> None:
        headers = self.version(etag) | {"Accept-Ranges": "bytes"}
        if mode in ("crc", "flipcrc", "falsecrc", "composite") and asked.get("x-amz-checksum-mode"):
            headers |= _checksum(mode, whole)
        start, stop, status = 0, len(whole), 200
        wanted = asked.get("range", "").removeprefix("bytes=")
        if wanted and mode != "rangeignored":
            first, _, last = wanted.partition("-")
            start, stop, status = int(first), min(int(last or len(whole)) + 1, len(whole)), 206
            if mode == "wrongrange":
                start, stop = (start + 1, stop + 1) if stop < len(whole) else (start - 1, stop - 1)
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(whole)}"
        data = whole[start:stop]
        if method == "HEAD":
            return send(sock, method, status, data, **headers)
        half = data[: len(data) // 2]
        if mode in ("flip", "flipcrc") and data:
            middle = len(data) // 2
            data = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
        elif mode == "shortlen":
            data = half
        elif mode == "long":
            data += b"x" * EXTRA
        elif mode == "gzip":
            data, headers["Content-Encoding"] = gzip.compress(data), "gzip"
        elif mode == "errhtml200":
            return send(sock, method, 200, LOGIN, **{"Content-Type": "text/html"})
        elif mode.partition(":")[0] in BROKEN:
            return self._broken(sock, mode, status, data, headers)
        return send(sock, method, status, data, **headers)

    def _broken(
        self, sock: socket.socket, mode: str, status: int, data: bytes, headers: dict[str, str]
    ) -> None:
        mode, _, sent = mode.partition(":")
        half = data[: int(sent or len(data) // 2)]
        if mode in ("badchunk", "eachchunk"):
            headers["Transfer-Encoding"] = "chunked"
            whole = mode == "eachchunk" and len(half) == len(data)
            half = b"%x\r\n%s\r\n" % (len(half), half) + (b"0\r\n\r\n" if whole else b"")
        elif mode == "nolen":
            headers["Connection"] = "close"
        else:
            headers["Content-Length"] = str(len(data))
        sock.sendall(_head(status, headers))
        if mode == "silent":
            self._ending.wait()
        elif mode == "drip":
            for byte in data:
                sock.sendall(bytes([byte]))
                if self._ending.wait(0.5):
                    break
        else:
            sock.sendall(half)
            # A reset drops what is not delivered.
            while mode == "each" and any(fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4))):
                self._ending.wait(0.001)
            if mode in ("reset", "each"):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.close()
        raise _Done

    # -- listings

    def _list(self, sock: socket.socket, method: str, query: Mapping[str, str]) -> None:
        mode = self._mode("", self.listing)
        if mode == "slowdown":
            return _error(sock, method, 503, "SlowDown")
        if mode == "html":
            return send(sock, method, 200, LOGIN, **{"Content-Type": "text/html"})
        prefix = query.get("prefix", "")
        keys = sorted(key for key in self.objects if key.startswith(prefix))
        if mode == "unsorted":
            keys.reverse()
        if mode == "shuffled":
            keys.sort(key=lambda key: hashlib.sha1(key.encode(), usedforsecurity=False).digest())
        if mode == "late":
            keys.append(keys.pop(0))
        if mode in ("duplicate", "unlike"):
            keys.insert(1, keys[0])
        token = query.get("continuation-token", "")
        begin = int(token or 0)
        size = min(self.page, int(query.get("max-keys", self.page)))
        shown, following = keys[begin : begin + size], begin + size
        sizes = {key: self.sizes.get(key, len(self.objects[key])) for key in shown}
        if mode == "outside":
            shown = [*shown, f"elsewhere-{prefix}/x"]
        more = following < len(keys) or mode in ("repeated", "tokenless")
        if mode == "repeated":
            following = 0
        if mode == "endless":
            shown, following, more = [], begin + 1, True
        body = self.page_of(shown, sizes, str(following) if more and mode != "tokenless" else "", more, query)
        if mode == "unlike" and not begin:
            body = body.replace("<Size>", "<Size>9", 1)
        content = body.encode()
        if mode == "truncated":
            content = content[: len(content) * 2 // 3]
        if mode == "cut":
            sock.sendall(_head(200, {"Content-Length": str(len(content))}) + content[: len(content) // 2])
            raise _Done
        return send(sock, method, 200, content, **{"Content-Type": self.listing_type})

    def page_of(
        self,
        shown: Sequence[str],
        sizes: Mapping[str, int],
        following: str,
        more: bool,
        query: Mapping[str, str],
    ) -> str:
        """One page of a listing; `following` is the token of the next one, `more` whether one is promised."""
        coded = query.get("encoding-type") == "url"
        body = '<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult>'
        body += f"<Name>{self.bucket}</Name><IsTruncated>{str(more).lower()}</IsTruncated>"
        body += "<EncodingType>url</EncodingType>" if coded else ""
        if following:
            body += f"<NextContinuationToken>{following}</NextContinuationToken>"
        for key in shown:
            etag = self.etag(key) if key in self.objects else "0" * 24
            body += f"<Contents><Key>{quote(key) if coded else escape(key)}</Key>"
            body += f"<LastModified>2024-05-06T07:08:09.123Z</LastModified><ETag>&quot;{etag}&quot;</ETag>"
            body += f"<Size>{sizes.get(key, 1)}</Size>{self._class(key)}</Contents>"
        return body + "</ListBucketResult>"

    def _class(self, key: str) -> str:
        text = f"<StorageClass>{self.classes.get(key, 'STANDARD')}</StorageClass>"
        if key not in self.restored or not self._restores_asked:
            return text
        until = "<RestoreExpiryDate>2100-01-01T00:00:00Z</RestoreExpiryDate>"
        going = self.restored[key] == "going on"
        return (
            f"{text}<RestoreStatus><IsRestoreInProgress>{str(going).lower()}</IsRestoreInProgress>"
            f"{'' if going else until}</RestoreStatus>"
        )

    def version(self, etag: str) -> dict[str, str]:
        """How an answer states the version."""
        return {"ETag": f'"{etag}"'}


def _checksum(mode: str, whole: bytes) -> dict[str, str]:
    value = zlib.crc32(whole) ^ (mode == "falsecrc")
    text = base64.b64encode(value.to_bytes(4, "big")).decode()
    if mode == "composite":
        return {"x-amz-checksum-crc32": f"{text}-3", "x-amz-checksum-type": "COMPOSITE"}
    return {"x-amz-checksum-crc32": text, "x-amz-checksum-type": "FULL_OBJECT"}


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} Status", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def send(sock: socket.socket, method: str, status: int, body: bytes, **headers: str) -> None:
    head = _head(status, {"Content-Length": str(len(body))} | headers)
    sock.sendall(head if method == "HEAD" else head + body)


def _error(sock: socket.socket, method: str, status: int, code: str) -> None:
    body = f'<?xml version="1.0"?>\n<Error><Code>{code}</Code><Message>{code}</Message></Error>'.encode()
    retry = {"Retry-After": "0"} if status == 503 else {}
    send(sock, method, status, body, **{"Content-Type": "application/xml"}, **retry)


def _shutdown(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
