"""How a server is reached: address, TLS, proxy, certificate authorities; and the connection to it, by one of
its addresses, through a proxy, with TLS, and without stalls.
"""

from __future__ import annotations

import base64
import functools
import ipaddress
import os
import random
import re
import socket
import ssl
import struct
import time
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit

from penstock.config.settings import Reach
from penstock.core.errors import ConfigError, FailedError, PreflightError, TransientError
from penstock.host import waits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    HostAddress = tuple[socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int]]


# Decides how a server is reached: address, TLS, proxy, certificate authorities.
#
# The variables HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY (also in lower case), AWS_CA_BUNDLE,
# REQUESTS_CA_BUNDLE and SSL_CERT_FILE are honoured; `Reach` takes precedence over them.


@dataclass(frozen=True)
class Endpoint:
    """One server, and how to reach it. Never contains the user info of a URL."""

    host: str
    port: int
    tls: bool
    reach: Reach = field(default_factory=Reach)
    # a file or folder of certificate authorities; None: the system's authorities
    ca_bundle: str | None = None
    proxy: tuple[str, int] | None = None  # host and port; None: the server is reached directly
    proxy_authorization: str = ""  # the value of the header Proxy-Authorization; "" if none is sent

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.authority}"

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"

    @property
    def address(self) -> tuple[str, int]:
        """The host and port to connect to."""
        return self.proxy or (self.host, self.port)

    @property
    def tunnel(self) -> bool:
        """Whether the proxy is asked by a CONNECT request to pass TLS through."""
        return self.proxy is not None and self.tls

    @property
    def origin(self) -> str:
        """The text before the path in a request line: the server's URL for plain HTTP through a proxy."""
        return self.url if self.proxy is not None and not self.tls else ""

    @property
    def proxy_lines(self) -> str:
        """The header lines that each request needs for a proxy without a tunnel; "" in any other case."""
        if self.proxy_authorization and self.proxy is not None and not self.tls:
            return f"Proxy-Authorization: {self.proxy_authorization}\r\n"
        return ""


def split(url: str) -> SplitResult:
    """Split an http(s) URL. Raises ConfigError for any other URL."""
    try:
        components = urlsplit(url)
        if components.scheme in ("http", "https") and components.hostname and components.port != 0:
            ascii_host(components.hostname)
            return components
    except ValueError:
        pass
    raise ConfigError("not an http(s) URL", where=without_user(url), hint="write https://host[:port]")


def ascii_host(name: str) -> str:
    """Return a host's name as it is sent, in its `xn--` form if it is not ASCII. Raises ValueError."""
    return name if name.isascii() else name.encode("idna").decode("ascii")


def without_user(url: str) -> str:
    """Return the URL without user, password and query, so that it may be shown."""
    try:
        components = urlsplit(url)
    except ValueError:  # in an unreadable URL, a password could be anywhere
        return url.partition("://")[0] + "://..."
    return components._replace(netloc=components.netloc.rpartition("@")[2], query="", fragment="").geturl()


def endpoint(url: str, reach: Reach) -> Endpoint:
    """Make the endpoint of a URL, with the settings of `reach` and the environment.

    Raises ConfigError if the URL is not http(s), or the proxy in the options cannot be used. Raises
    PreflightError if the proxy in the environment cannot be used, or the bundle is missing.
    """
    components = split(url)
    assert components.hostname is not None
    tls = components.scheme == "https"
    host, port = ascii_host(components.hostname), components.port or (443 if tls else 80)
    address, authorization = _proxy(host, port, components.scheme, reach.proxy)
    bundle = ca_bundle(reach) if tls else None
    return Endpoint(host, port, tls, reach, bundle, address, authorization)


def _proxy(host: str, port: int, scheme: str, configured: str) -> tuple[tuple[str, int] | None, str]:
    """Return the proxy's address and authorization, or (None, ""). Raises ConfigError for a proxy that is not
    http, or PreflightError if the environment names it."""
    name, url = _named_proxy(host, port, scheme, configured)
    if not url:
        return None, ""
    try:
        way = split(url if "://" in url else f"http://{url}")
    except ConfigError:
        way = None
    if way is None or way.scheme != "http":
        mend = f"unset {name}, or name an http:// proxy there; NO_PROXY names servers that need none"
        raise (ConfigError if configured else PreflightError)(
            f"the proxy that {name} names cannot be used",
            where=without_user(url),
            why="penstock speaks to proxies by http:// alone, not by SOCKS or https://",
            hint="name an http:// proxy" if configured else mend,
        )
    authorization = ""
    if way.username:
        user = f"{unquote(way.username)}:{unquote(way.password or '')}"
        authorization = "Basic " + base64.b64encode(user.encode()).decode("ascii")
    return (way.hostname or "", way.port or 80), authorization


def _named_proxy(host: str, port: int, scheme: str, configured: str) -> tuple[str, str]:
    """Return the name of the setting with a server's proxy (`proxy`, or a variable), and the proxy's URL; or
    ("", "") without a proxy."""
    if configured:
        return "`proxy`", configured
    for name in (f"{scheme}_proxy", "all_proxy"):
        for variable in (name, name.upper()):
            if os.environ.get(variable):
                skipped = bypassed(host, port, os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or "")
                return ("", "") if skipped else (variable, os.environ[variable])
    return "", ""


def bypassed(host: str, port: int, no_proxy: str) -> bool:
    """Return whether NO_PROXY covers this server, by `*` or by its name, a parent domain, its address or a
    network."""
    for item in no_proxy.replace(",", " ").split():
        name, _, wanted = item.partition(":") if item.count(":") == 1 else (item, "", "")
        if wanted and wanted != str(port):
            continue
        name = name.lstrip("*").lstrip(".").lower()
        if not name or host.lower() == name or host.lower().endswith("." + name):
            return True
        try:
            if ipaddress.ip_address(host) in ipaddress.ip_network(name, strict=False):
                return True
        except ValueError:
            continue
    return False


def ca_bundle(reach: Reach) -> str | None:
    """Return the file or folder of certificate authorities; None for the system's. Raises PreflightError if
    the named file is missing."""
    for name, value in (
        ("ca_bundle", reach.ca_bundle),
        ("AWS_CA_BUNDLE", os.environ.get("AWS_CA_BUNDLE")),
        ("REQUESTS_CA_BUNDLE", os.environ.get("REQUESTS_CA_BUNDLE")),
    ):
        if value:
            path = os.path.expanduser(value)
            if not os.path.exists(path):
                raise PreflightError(
                    "the file of certificate authorities is not there",
                    where=path,
                    why=f"named by {name}",
                    hint="correct it, or leave it out: the system's authorities are then taken",
                )
            return path
    return None


@functools.lru_cache(maxsize=8)
def tls_context(bundle: str | None, protocol: str | None = "http/1.1") -> ssl.SSLContext:
    """Make a context, cached by bundle and protocol, that always verifies names and certificates."""
    try:
        folder = bundle if bundle is not None and os.path.isdir(bundle) else None
        context = ssl.create_default_context(cafile=None if folder else bundle, capath=folder)
    except (OSError, ssl.SSLError) as error:
        raise PreflightError(
            "the certificate authorities cannot be read",
            where=bundle or "the system's",
            why=str(error),
            hint="name a file or folder of certificates in PEM by `ca_bundle` in storage_options",
        ) from None
    if protocol:
        context.set_alpn_protocols([protocol])
    return context


# Connects to an endpoint, by one of its addresses, perhaps through a proxy or with TLS. Detects stalls.
#
# A large store has several addresses, each with only a part of the store's speed. So new connections use all
# addresses in turn, dead addresses last (`Addresses`). `PacedSocket` raises an error for a stalled
# connection, not for a slow one. `TlsSocket` feeds TLS in large pieces, with half the system calls of
# `ssl.SSLSocket`.

FRESH = 30.0  # seconds after which a name is looked up again
REST = 30.0  # seconds for which a failed address is tried only after the others
LEAST = 5.0  # seconds to wait for each of several addresses, at least, if the timeout allows


def look_up(host: str, port: int) -> Sequence[HostAddress]:
    """Return every address of a name, in the resolver's order. Raises OSError."""
    answers = waits.aside(lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    return list(dict.fromkeys((family, address) for family, _, _, _, address in answers))  # type: ignore[misc]


class Addresses:
    """The addresses of one name and port; shared by all threads of a process."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        resolve: Callable[[str, int], Sequence[HostAddress]] = look_up,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host, self._port, self._resolve, self._clock = host, port, resolve, clock
        self._lock = Lock()
        self._places: Sequence[HostAddress] = ()
        self._looked = 0.0
        self._dead: dict[HostAddress, float] = {}
        # Processes begin at different addresses; spreading needs no secret randomness.
        self._turn = random.randrange(1 << 16)  # noqa: S311

    def connect(self, timeout: float) -> tuple[socket.socket, HostAddress]:
        """Return a connected socket with this timeout, and its address. If all fail, raise the last
        OSError."""
        order = self._order()
        each = timeout if len(order) == 1 else min(timeout, max(timeout / len(order), LEAST))
        refusal = OSError("the name has no address")
        for place in order:
            opened = socket.socket(place[0], socket.SOCK_STREAM)
            try:
                opened.settimeout(each)
                opened.connect(place[1])
                opened.settimeout(timeout)
            except OSError as error:
                opened.close()
                self.failed(place)
                refusal = error
            except BaseException:
                opened.close()
                raise
            else:
                return opened, place
        raise refusal

    def _order(self) -> list[HostAddress]:
        """Return all addresses, beginning with the next in turn; failed addresses come last."""
        now = self._clock()
        with self._lock:
            stale = not self._places or now - self._looked >= FRESH
            if stale:
                self._looked = now  # other threads use the old addresses meanwhile
        if stale:
            try:
                places = self._resolve(self._host, self._port)
            except OSError:
                if not self._places:
                    raise
                places = self._places
            self._places = places
        with self._lock:
            self._turn += 1
            places, first = self._places, self._turn % len(self._places) if self._places else 0
            order = [*places[first:], *places[:first]]
            return sorted(order, key=lambda place: self._dead.get(place, 0.0) > now)

    def failed(self, place: HostAddress) -> None:
        """Try this address last for a while, since it failed to connect or to continue."""
        with self._lock:
            now = self._clock()
            self._dead = {address: until for address, until in self._dead.items() if until > now}
            self._dead[place] = now + REST


@functools.lru_cache(maxsize=64)
def addresses(host: str, port: int) -> Addresses:
    """Return this process's `Addresses` of a name and port."""
    return Addresses(host, port)


SLOW = 1024  # bytes a second; a slower connection counts as dead


# bytes a second at which a connection never counts as dead, since many streams may share a slow line
PLENTY = 65536
DAY = 86400.0  # seconds of waiting for a body of known length, at most


class PacedSocket:
    """Wraps a connected socket. The kernel applies the timeout, so that a block takes one system call."""

    __slots__ = ("_clock", "_got", "_raw", "_slow", "_timeout", "_waited")

    def __init__(
        self,
        raw: socket.socket,
        timeout: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        kernel: bool = True,
    ) -> None:
        """With `kernel=False`, the socket keeps its own timeout, as a socket of `ssl` must."""
        self._raw, self._timeout, self._clock = raw, timeout, clock
        self._got, self._waited, self._slow = 0, 0.0, float(SLOW)
        if not kernel:
            return
        whole = int(timeout)
        limit = struct.pack("ll", whole, int((timeout - whole) * 1e6))
        raw.settimeout(None)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)

    def sendall(self, data: bytes) -> None:
        """Send a request; the time of waiting is then counted anew."""
        self._got, self._waited, self._slow = 0, 0.0, float(SLOW)
        self._raw.sendall(data)

    def expect(self, length: int) -> None:
        """Expect this many bytes until the next request."""
        self._slow = min(PLENTY, max(SLOW, length / DAY))

    def recv_into(self, buffer: memoryview, nbytes: int = 0, flags: int = 0) -> int:
        """Receive as a socket does. Raises TimeoutError for a slow drip, BlockingIOError if no byte came."""
        clock = self._clock
        began = clock()
        count = self._raw.recv_into(buffer, nbytes, flags)
        if self._got:
            self._waited += clock() - began
        self._got += count
        if self._waited >= self._timeout:
            if self._got < self._slow * self._timeout:
                raise TimeoutError(f"only {self._got} bytes came within the timeout")
            self._got, self._waited = 1, 0.0
        return count

    def close(self) -> None:
        self._raw.close()


# Bytes of one read from the socket; other sizes from 32 KiB to 1 MiB were no faster. OpenSSL's own loop over
# the socket (its buffering BIO, by ctypes) would save a tenth of the CPU at most. That is too little for code
# that reads CPython's internals.
FEED = 256 << 10


class TlsSocket:
    """TLS over a `PacedSocket`, which has the timeouts. Has only the socket's methods that are needed."""

    def __init__(self, raw: PacedSocket, context: ssl.SSLContext, host: str) -> None:
        """Do the TLS handshake. Raises ssl.SSLError or OSError; the caller then still owns `raw`."""
        self._raw = raw
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname=host)
        self._feed = memoryview(bytearray(FEED))
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._flush()
                if not self._more():
                    raise ConnectionResetError("closed during the TLS handshake") from None
            except ssl.SSLError:
                self._flush()  # sends the alert with the reason
                raise
        self._flush()

    def sendall(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._tls.write(view) :]
        self._flush()

    def recv_into(self, buffer: memoryview, nbytes: int = 0, flags: int = 0) -> int:  # noqa: ARG002 (a socket's)
        """Fill `buffer` with arrived bytes; wait only for the first. Return their number, 0 at the end."""
        read, size, got = self._tls.read, len(buffer), 0
        while got < size:
            try:
                count = read(size - got, buffer[got:] if got else buffer)
            except ssl.SSLWantReadError:
                if got:
                    break
                self._flush()  # TLS itself may have to send something first (a key update)
                if not self._more():
                    return 0
                continue
            except ssl.SSLZeroReturnError:
                break
            if not count:
                break
            got += int(count)
        return got

    def expect(self, length: int) -> None:
        self._raw.expect(length)

    def close(self) -> None:
        self._raw.close()

    def _more(self) -> bool:
        count = self._raw.recv_into(self._feed)
        if count:
            self._in.write(self._feed[:count])
        return count > 0

    def _flush(self) -> None:
        if self._out.pending:
            self._raw.sendall(self._out.read())


# pattern of an answer's start, with HTTP's minor version and the status
STATUS = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: |\r|$)")
AUTHORITIES = "name your site's certificate authorities by `ca_bundle` in storage_options"
_DATES = "compare this machine's clock (`date`); where it is right, have the server's certificate renewed"
_NAMES = "write the server's address as the certificate has it"
# {OpenSSL's code X509_V_ERR: hint}; the codes mean not yet valid, expired, another host name, another IP
# address
_REMEDIES = {9: _DATES, 10: _DATES, 62: _NAMES, 64: _NAMES}
# OpenSSL's reasons for an error if a server answers without TLS
_NO_TLS = frozenset(
    {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"}
)
PROXY_HEAD = 8192  # bytes of a proxy's answer to CONNECT, at most


def connect(endpoint: Endpoint, places: Addresses) -> PacedSocket | TlsSocket:
    """Connect to the server. Raises FailedError for an untrusted certificate, or TransientError."""
    try:
        opened, place = places.connect(endpoint.reach.timeout)
    except OSError as error:
        raise broken(endpoint, f"cannot connect to {endpoint.address[0]}: {why(error)}") from None
    try:
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        paced = PacedSocket(opened, endpoint.reach.timeout)
        if endpoint.tunnel:
            _tunnel(endpoint, paced)
        return TlsSocket(paced, tls_context(endpoint.ca_bundle), endpoint.host) if endpoint.tls else paced
    except ssl.SSLCertVerificationError as error:
        opened.close()
        raise FailedError(
            "the server's certificate is not trusted",
            where=endpoint.url,
            why=error.verify_message,
            hint=_REMEDIES.get(error.verify_code, AUTHORITIES),
        ) from None
    except OSError as error:
        opened.close()
        places.failed(place)
        raise broken(endpoint, why(error)) from None
    except BaseException:
        opened.close()
        raise


def _tunnel(endpoint: Endpoint, opened: PacedSocket) -> None:
    authority = f"{endpoint.host}:{endpoint.port}"
    lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}"]
    if endpoint.proxy_authorization:
        lines.append(f"Proxy-Authorization: {endpoint.proxy_authorization}")
    opened.sendall("\r\n".join([*lines, "", ""]).encode("ascii"))
    answer, byte = b"", memoryview(bytearray(1))
    while b"\r\n\r\n" not in answer:  # received byte by byte, since bytes after the head belong to TLS
        if not opened.recv_into(byte) or len(answer) > PROXY_HEAD:
            raise OSError("the proxy closed the connection")
        answer += byte
    status = STATUS.match(answer)
    if status is None or status[2] != b"200":
        line = answer.partition(b"\r\n")[0].decode("latin-1")
        raise OSError(f"the proxy refused: {line}")


def broken(endpoint: Endpoint, reason: str) -> TransientError:
    return TransientError("the exchange with the server failed", where=endpoint.url, why=reason)


def why(error: OSError) -> str:
    """Describe a fault of a socket or of TLS; keep `PacedSocket`'s text about a slow connection."""
    if isinstance(error, (TimeoutError, BlockingIOError)):
        text = str(error)
        return text if text.startswith("only ") else "no byte came within the timeout"
    if isinstance(error, ssl.SSLError) and error.reason:
        if error.reason in _NO_TLS:
            return "the server does not speak TLS: write http:// in place of https://, or correct the port"
        return f"TLS: {error.reason.replace('_', ' ').lower()}"
    return error.strerror or str(error) or type(error).__name__
