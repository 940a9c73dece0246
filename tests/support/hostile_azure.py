"""The misbehaviours of `hostile`, spoken as Azure Blob Storage: listed as its XML."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from tests.support.hostile import Hostile

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping, Sequence

TIME = "Mon, 06 May 2024 07:08:09 GMT"


class HostileAzure(Hostile):
    """Mode `tokenless` does not come: nothing but a marker says that a listing goes on."""

    def _answer(self, sock: socket.socket, lines: list[str]) -> None:
        """Azure's names of a listing's parameters become S3's, as `hostile` knows them."""
        line = lines[0].replace("marker=", "continuation-token=").replace("maxresults=", "max-keys=")
        return super()._answer(sock, [line, *lines[1:]])

    def page_of(
        self,
        shown: Sequence[str],
        sizes: Mapping[str, int],
        following: str,
        more: bool,
        query: Mapping[str, str],
    ) -> str:
        blobs = "".join(
            f"<Blob><Name>{escape(key)}</Name><Properties><Last-Modified>{TIME}</Last-Modified>"
            f"<Etag>{self.etag(key) if key in self.objects else '0' * 24}</Etag>"
            f"<Content-Length>{sizes.get(key, 1)}</Content-Length><BlobType>BlockBlob</BlobType>"
            "</Properties><Metadata /></Blob>"
            for key in shown
        )
        return (
            f'<?xml version="1.0" encoding="utf-8"?><EnumerationResults ContainerName="{self.bucket}">'
            f"<Blobs>{blobs}</Blobs><NextMarker>{following}</NextMarker></EnumerationResults>"
        )
