"""Stand-ins of AWS's token service and of an instance's metadata service, as little as botocore reads.

`with serving() as address:` both give the keys `KEYS`, to whoever requests them.
"""

from __future__ import annotations

import http.server
import json
import threading
import urllib.parse
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

KEYS = {"AccessKeyId": "role", "SecretAccessKey": "s3cret", "Expiration": "2099-01-01T00:00:00Z"}


@contextmanager
def serving() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Services)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Services(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        """AssumeRole and AssumeRoleWithWebIdentity."""
        form = self.rfile.read(int(self.headers["content-length"])).decode()
        action = urllib.parse.parse_qs(form)["Action"][0]
        keys = "".join(f"<{name}>{value}</{name}>" for name, value in {**KEYS, "SessionToken": "t"}.items())
        self._answer(f"<R><{action}Result><Credentials>{keys}</Credentials></{action}Result></R>")

    def do_PUT(self) -> None:
        self._answer("token")

    def do_GET(self) -> None:
        names = self.path.endswith("security-credentials/")
        self._answer("role" if names else json.dumps({"Code": "Success", "Token": "t", **KEYS}))

    def _answer(self, text: str) -> None:
        self.send_response(200)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Print nothing."""
