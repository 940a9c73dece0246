"""Decides how a server is reached: address, TLS, proxy, certificate authorities.

The variables HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY (also in lower case), AWS_CA_BUNDLE,
REQUESTS_CA_BUNDLE and SSL_CERT_FILE are honoured; `Reach` takes precedence over them.
"""

from __future__ import annotations

import base64
import functools
import ipaddress
import os
import ssl
from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit

from penstock.config.settings import Reach
from penstock.core.errors import ConfigError, PreflightError


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
