"""A connection to an endpoint: by one of its addresses, through a proxy, with TLS, as it is configured.

`http.connection` calls it for each new connection. Opens a socket, and sends what a proxy and TLS need; the
request itself is the caller's.
"""

from __future__ import annotations

import re
import socket
import ssl
from typing import TYPE_CHECKING

from penstock.core.errors import FailedError, TransientError
from penstock.sources.http.endpoint import tls_context
from penstock.sources.http.stall_guard import PacedSocket
from penstock.sources.http.tls import TlsSocket

if TYPE_CHECKING:
    from penstock.sources.http.addresses import Addresses
    from penstock.sources.http.endpoint import Endpoint

STATUS = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: |\r|$)")
"""The start of an answer: HTTP's minor version and the status."""
_AUTHORITIES = "name your site's certificate authorities by `ca_bundle` in storage_options"
_DATES = "compare this machine's clock (`date`); where it is right, have the server's certificate renewed"
_NAMES = "write the server's address as the certificate has it"
_REMEDIES = {9: _DATES, 10: _DATES, 62: _NAMES, 64: _NAMES}
"""By OpenSSL's X509_V_ERR: not yet valid, expired, another host name, another IP address."""
_NO_TLS = frozenset(
    {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"}
)
"""OpenSSL's reasons where the other side answers without TLS."""
PROXY_HEAD = 8192
"""Bytes of a proxy's answer to CONNECT, at most."""


def connect(endpoint: Endpoint, places: Addresses) -> PacedSocket | TlsSocket:
    """A connected socket, ready for a request. Raises FailedError for a certificate that is not trusted,
    TransientError for all else."""
    try:
        opened, place = places.connect(endpoint.timeout)
    except OSError as error:
        raise broken(endpoint, f"cannot connect to {endpoint.address[0]}: {why(error)}") from None
    try:
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        paced = PacedSocket(opened, endpoint.timeout)
        if endpoint.tunnel:
            _tunnel(endpoint, paced)
        return TlsSocket(paced, tls_context(endpoint.ca_bundle), endpoint.host) if endpoint.tls else paced
    except ssl.SSLCertVerificationError as error:
        opened.close()
        raise FailedError(
            "the server's certificate is not trusted",
            where=endpoint.url,
            why=error.verify_message,
            hint=_REMEDIES.get(error.verify_code, _AUTHORITIES),
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
    while b"\r\n\r\n" not in answer:  # byte by byte: what follows belongs to TLS
        if not opened.recv_into(byte) or len(answer) > PROXY_HEAD:
            raise OSError("the proxy closed the connection")
        answer += byte
    status = STATUS.match(answer)
    if status is None or status[2] != b"200":
        line = answer.partition(b"\r\n")[0].decode("latin-1")
        raise OSError(f"the proxy refused: {line}")


def broken(endpoint: Endpoint, reason: str) -> TransientError:
    """The error of an exchange that broke for this reason."""
    return TransientError("the exchange with the server failed", where=endpoint.url, why=reason)


def why(error: OSError) -> str:
    """A fault of a socket or of TLS in words; that of a connection that is too slow (`stall_guard`) stays."""
    if isinstance(error, (TimeoutError, BlockingIOError)):
        text = str(error)
        return text if text.startswith("only ") else "no byte came within the timeout"
    if isinstance(error, ssl.SSLError) and error.reason:
        if error.reason in _NO_TLS:
            return "what answers there does not speak TLS: write http://, or correct the port"
        return f"TLS: {error.reason.replace('_', ' ').lower()}"
    return error.strerror or str(error) or type(error).__name__
