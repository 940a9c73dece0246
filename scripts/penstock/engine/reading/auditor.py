"""One stream that reads published rows and says of each how it was read, or what is wrong with it.

A row that is not as it was published is this stream's result, not a failure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import xxhash

from penstock.core.digests import of_hex
from penstock.core.model import AuditedRow
from penstock.engine.reading.rereader import Rereader
from penstock.errors import FailedError, IntegrityError, ObjectError, PenstockError, TransientError
from penstock.filesystem.errno_map import printable

if TYPE_CHECKING:
    from penstock.core.model import Expected


class Auditor(Rereader):
    """Compares with the manifest's digest. `do` and `attempt` give an `AuditedRow`."""

    def do(self, row: int, entry: Expected) -> AuditedRow:  # type: ignore[override]
        digest = xxhash.xxh3_128()
        length = entry.size if entry.part < 0 else entry.length
        seen = self.cold.read(entry.path, entry.offset, length, self.consumer(digest))
        if seen.stat.st_size != entry.size:
            raise _differs(entry, f"it has {seen.stat.st_size} bytes, not {entry.size}")
        read = of_hex(digest.hexdigest())
        if read != entry.digest:
            raise _differs(entry, f"published as {entry.digest}, read as {read}")
        return AuditedRow(row, seen.method)

    def attempt(self, row: int, entry: Expected) -> AuditedRow:
        at_once = self.at_once(entry)
        if at_once is not None:
            return AuditedRow(row, at_once.method)
        try:
            audited: AuditedRow = super().attempt(row, entry)
            return audited
        except PenstockError as error:
            if not isinstance(error, (ObjectError, TransientError, FailedError)):
                raise
            unread = not isinstance(error, IntegrityError)
            return AuditedRow(row, why=error.why or error.what, unread=unread)


def _differs(entry: Expected, why: str) -> IntegrityError:
    return IntegrityError("a file is not as it was published", where=printable(entry.path), why=why)
