"""Web servers of Debian's packages (apache2, nginx-light, caddy, lighttpd) over one folder, each a process of
the test on a free port of loopback. What differs from case to case is lines of the server's configuration."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

from tests.support.go_servers import UnavailableError
from tests.support.requirements import packages

_APACHE = """\
ServerName 127.0.0.1
Listen 127.0.0.1:{port}
PidFile {state}/pid
ErrorLog {state}/log
Mutex pthread
ServerRoot /usr/lib/apache2
LoadModule mpm_event_module modules/mod_mpm_event.so
LoadModule authz_core_module modules/mod_authz_core.so
LoadModule autoindex_module modules/mod_autoindex.so
LoadModule dir_module modules/mod_dir.so
LoadModule alias_module modules/mod_alias.so
LoadModule mime_module modules/mod_mime.so
TypesConfig /etc/mime.types
{user}
DocumentRoot {root}
<Directory {root}>
    Options +Indexes
    DirectoryIndex disabled
    Require all granted
</Directory>
{lines}
"""
_NGINX = """\
daemon off;
worker_processes 1;
pid {state}/pid;
error_log {state}/log;
events {{}}
{user}
http {{
    include /etc/nginx/mime.types;
    access_log off;
    client_body_temp_path {state}/body;
    proxy_temp_path {state}/proxy;
    fastcgi_temp_path {state}/fastcgi;
    uwsgi_temp_path {state}/uwsgi;
    scgi_temp_path {state}/scgi;
    gzip on;
    gzip_types text/plain;
    gzip_min_length 1;
    server {{
        listen 127.0.0.1:{port};
        root {root};
        index none;
        autoindex on;
        {lines}
    }}
}}
"""
_CADDY = """\
{{
    admin off
    auto_https off
}}
http://127.0.0.1:{port} {{
    bind 127.0.0.1
    root * {root}
    {lines}
    file_server browse
}}
"""
_LIGHTTPD = """\
server.modules = ("mod_redirect", "mod_alias", "mod_dirlisting")
server.bind = "127.0.0.1"
server.port = {port}
server.document-root = "{root}"
server.errorlog = "{state}/log"
dir-listing.activate = "enable"
mimetype.assign = (".txt" => "text/plain", ".html" => "text/html", ".gz" => "application/gzip")
{lines}
"""
KINDS = {
    "apache2": (_APACHE, ["-D", "FOREGROUND", "-f"], "User www-data\nGroup www-data"),
    "nginx": (_NGINX, ["-c"], "user www-data;"),
    "caddy": (_CADDY, ["run", "--adapter", "caddyfile", "--config"], ""),
    "lighttpd": (_LIGHTTPD, ["-D", "-f"], ""),
}
"""By the program: its configuration, how that is handed over, and the lines by which one that root starts
becomes another account."""
PATIENCE = 60.0


class DebianServer:
    """`with DebianServer("nginx", lines) as server:`; `server.root` is served at `server.url`. What the
    program says stands in `server.log()`."""

    def __init__(self, program: str, lines: str = "") -> None:
        """Raises UnavailableError."""
        path = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
        if path is None:
            raise UnavailableError(f"no {program}; on Debian, as root: apt-get install {packages()[program]}")
        self._path, self._program, self._lines = path, program, lines

    def __enter__(self) -> Self:
        # Accounts that servers of root become do not get into the folders of pytest.
        self._folder = Path(tempfile.mkdtemp(prefix="web-"))
        self._folder.chmod(0o755)
        self.root = self._folder / "root"
        self.root.mkdir()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        text, words, user = KINDS[self._program]
        config = self._folder / "config"
        config.write_text(
            text.format(
                port=self.port,
                root=self.root,
                state=self._folder,
                user=user if os.geteuid() == 0 else "",
                lines=self._lines.replace("ROOT", str(self.root)).replace("URL/", self.url),
            )
        )
        with open(self._folder / "said", "wb") as said:
            self._process = subprocess.Popen(
                [self._path, *words, str(config)],
                stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True,
                env={"PATH": os.environ.get("PATH", ""), "HOME": str(self._folder)},
            )  # fmt: skip
        try:
            self._await()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _await(self) -> None:
        ends = time.monotonic() + PATIENCE
        while True:
            assert self._process.poll() is None, self.log()
            assert time.monotonic() < ends, self.log()
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                time.sleep(0.02)
            else:
                return

    def log(self) -> str:
        texts = [self._folder / name for name in ("said", "log")]
        return "\n".join(path.read_text(errors="replace") for path in texts if path.exists())

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(60)
        shutil.rmtree(self._folder)
