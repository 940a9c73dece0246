"""The misbehaviours of `hostile`, spoken as Google's JSON API: pinned by generation, listed as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote

from tests.support.hostile import Hostile, send

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping, Sequence

TIME = "2024-05-06T07:08:09.123Z"


class HostileGcs(Hostile):
    """Mode `expired` is 401, as Google answers to a token that ran out. `412` does not come: nothing but the
    generation is a condition."""

    def __init__(self, *arguments: object, **more: object) -> None:
        super().__init__(*arguments, **more)  # type: ignore[arg-type]
        self.listing_type = "application/json"
        self.kind = "storage#objects"
        """What its pages say that they are."""
        self.described: dict[str, str] = {}
        """What it states in place of an object's description."""
        self.lost: set[str] = set()
        """Keys of objects that are described, and not found by their generation."""
        self.now: set[str] = set()
        """Keys of objects that have another generation than the first one."""

    def generation(self, key: str) -> str:
        return str(int(self.etag(key)[:12], 16) + (key in self.now))

    def version(self, etag: str) -> dict[str, str]:
        return {"ETag": '"of nothing"', "X-Goog-Generation": str(int(etag[:12], 16))}

    def _answer(self, sock: socket.socket, lines: list[str]) -> None:
        """`/storage/v1/b/<bucket>/o/<key>` becomes `/<bucket>/<key>`, as `hostile` knows it."""
        method, target, version = lines[0].split(" ")
        path, _, query = target.partition("?")
        bucket, _, rest = path.removeprefix("/storage/v1/b/").partition("/o")
        known = dict(parse_qsl(query))
        names = {"pageToken": "continuation-token", "maxResults": "max-keys"}
        for theirs, ours in names.items():
            query = query.replace(f"{theirs}=", f"{ours}=")
        key = rest.removeprefix("/").replace("%2F", "/")
        if key and known.get("alt") != "media":
            return self._stat(sock, unquote(key))
        other = unquote(key) in self.now and known.get("generation", "") != self.generation(unquote(key))
        if other or unquote(key) in self.lost:
            return send(sock, method, 404, b"Not Found", **{"Content-Type": "text/plain"})
        mode = self.modes.get(unquote(key), "")
        if key and mode == "expired":
            return send(sock, method, 401, b'{"error": {"code": 401, "message": "Invalid Credentials"}}')
        return super()._answer(sock, [f"{method} /{bucket}/{key}?{query} {version}", *lines[1:]])

    def _stat(self, sock: socket.socket, key: str) -> None:
        if key not in self.objects or self.modes.get(key) == "404":
            return send(sock, "GET", 404, b'{"error": {"code": 404, "message": "Not Found"}}')
        told = self.described or self._described(key, len(self.objects[key]))
        return send(sock, "GET", 200, json.dumps(told).encode())

    def _described(self, key: str, size: int) -> dict[str, str]:
        generation = self.generation(key) if key in self.objects else "1"
        return {"name": key, "size": str(size), "generation": generation, "updated": TIME}

    def page_of(
        self,
        shown: Sequence[str],
        sizes: Mapping[str, int],
        following: str,
        more: bool,
        query: Mapping[str, str],
    ) -> str:
        items = [self._described(key, sizes.get(key, 1)) for key in shown]
        return json.dumps(
            {"kind": self.kind, "items": items} | ({"nextPageToken": following} if following else {})
        )
