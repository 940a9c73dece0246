"""Frames between a process and each of its helpers (`command`), over a socket pair. Helpers are the engine's
workers, and scouts: processes that list folders ahead of a walk (`fs.readahead`).

A frame is a 4-byte length, a 1-byte kind and a payload. Frequent frames are plain tuples in marshal, which is
several times cheaper than pickled records. The others are pickled. Both ends run this program.
"""

from __future__ import annotations

import marshal
import pickle
from struct import Struct
from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from socket import socket

_HEAD = Struct("<IB")
RECEIVED_AT_ONCE = 1 << 20

# Kinds of frames to a worker.
SETUP, BATCH, STREAMS, CREDENTIALS, STOP, END, RECORDED = range(1, 8)
# Kinds of frames from a worker.
DONE, PRESSURE, EXPIRED, FATAL, BYE, RECORD = range(11, 17)

_PICKLED = {SETUP, CREDENTIALS, EXPIRED, FATAL}


# Kinds of frames to a scout, and from it.
LIST, LISTED = range(21, 23)


def encode(kind: int, value: Any) -> bytes:
    payload = pickle.dumps(value, 5) if kind in _PICKLED else marshal.dumps(value)
    return head(kind, payload) + payload


def head(kind: int, payload: bytes) -> bytes:
    return _HEAD.pack(len(payload), kind)


def decode(kind: int, payload: bytes | memoryview) -> Any:
    # The other end of the socket pair wrote the payload. No other program has that socket.
    return pickle.loads(payload) if kind in _PICKLED else marshal.loads(payload)  # noqa: S301, S302


class Channel:
    """One end of the pair. Several threads may send, a single one may receive."""

    def __init__(self, connection: socket) -> None:
        self.connection = connection
        self._lock = Lock()
        self._buffer = bytearray()

    def send(self, kind: int, value: Any = None) -> None:
        """Send a whole frame. Raises OSError if the other end has closed."""
        self.send_raw(encode(kind, value))

    def send_raw(self, frame: bytes) -> None:
        with self._lock:
            self.connection.sendall(frame)

    def receive(self) -> Iterator[tuple[int, Any]] | None:
        """Wait for bytes once. Return the (kind, value) of frames that are complete now, in order, perhaps
        none; or None if the other end has closed."""
        try:
            data = self.connection.recv(RECEIVED_AT_ONCE)
        except ConnectionError:
            return None
        if not data:
            return None
        self._buffer += data
        return self._frames()

    def _frames(self) -> Iterator[tuple[int, Any]]:
        start = 0
        with memoryview(self._buffer) as view:
            frames = []
            while len(view) - start >= _HEAD.size:
                length, kind = _HEAD.unpack_from(view, start)
                end = start + _HEAD.size + length
                if end > len(view):
                    break
                frames.append((kind, decode(kind, view[start + _HEAD.size : end])))
                start = end
        del self._buffer[:start]
        return iter(frames)

    def close(self) -> None:
        with self._lock:
            self.connection.close()
