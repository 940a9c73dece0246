"""The body of one HTTP answer as the bytes of one range: exactly as long as requested, or an error.

`objects.reader` makes one for each GET. It reads from its connection and touches nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.errors import TransientError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.core.errors import PenstockError
    from penstock.core.model import SourceChecksum
    from penstock.sources.http.connection import Connection

    Judge = Callable[[bytes], PenstockError | None]
    """What is wrong with a body, by its first BEGIN bytes."""

BEGIN = 1024
"""Bytes by which a body is judged."""


class HttpBody:
    """See `port.Body`. Exactly `length` bytes, or TransientError."""

    __slots__ = ("_begin", "_connection", "_judge", "_left", "_where", "checksums")

    def __init__(
        self,
        connection: Connection,
        length: int,
        checksums: Sequence[SourceChecksum],
        where: str,
        judge: Judge | None = None,
    ) -> None:
        """`judge`: raise what it says of the first bytes, before the last ones are given."""
        self._connection, self._left, self.checksums, self._where = connection, length, checksums, where
        self._judge, self._begin = judge, b""

    def readinto(self, buffer: memoryview) -> int:
        left = self._left
        if not left:
            return 0
        if len(buffer) > left:
            buffer = buffer[:left]
        count = self._connection.readinto(buffer)
        if not count:
            self._connection.abandon()
            raise TransientError("the body ended early", where=self._where, why=f"{left} bytes are missing")
        self._left = left - count
        if self._judge is not None:
            self._begin += buffer[: min(count, BEGIN)]
            if len(self._begin) >= BEGIN or not self._left:
                judge, self._judge = self._judge, None
                if (error := judge(self._begin)) is not None:
                    self._connection.abandon()
                    raise error
        return count

    def read_all(self, buffer: memoryview) -> None:
        """The whole range into a buffer of its length, and `close`."""
        at = 0
        while at < len(buffer):
            at += self.readinto(buffer[at:])
        self.close()

    def close(self) -> None:
        connection = self._connection
        if self._left:
            connection.abandon()
            return
        if not connection.ends():
            connection.abandon()
            raise TransientError("the body is longer than the listed size", where=self._where)
        connection.finish()

    def abandon(self) -> None:
        self._connection.abandon()
