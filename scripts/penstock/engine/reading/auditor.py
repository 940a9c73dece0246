"""One stream that reads published rows and says of each how it was read, or what is wrong with it.

A row that is not as it was published is this stream's result, not a failure: `do` and `attempt` give
(row, method, why, unread), with `why` "" for a good row. What was not to be read at all (no right, a
read error after all tries) is `unread`: nothing is known of its bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import xxhash

from penstock.core.digests import PLAIN
from penstock.engine.reading.rereader import Rereader
from penstock.errors import FailedError, IntegrityError, ObjectError, PenstockError, TransientError
from penstock.filesystem.errno_map import printable

if TYPE_CHECKING:
    from penstock.core.model import Entry

Looked = tuple[int, str, str, bool]


class Auditor(Rereader):
    """Compares with the digest that each entry carries in `reuse`: the manifest's."""

    def do(self, row: int, entry: Entry) -> Looked:  # type: ignore[override]
        digest = xxhash.xxh3_128()
        length = entry.size if entry.part < 0 else entry.length
        seen = self.cold.read(entry.path, entry.offset, length, self.consumer(digest))
        if seen.stat.st_size != entry.size:
            raise _differs(entry, f"it has {seen.stat.st_size} bytes, not {entry.size}")
        read = f"{PLAIN}{digest.hexdigest()}"
        if read != entry.reuse:
            raise _differs(entry, f"published as {entry.reuse}, read as {read}")
        return row, seen.method, "", False

    def attempt(self, row: int, entry: Entry) -> Looked:
        at_once = self.at_once(entry)
        if at_once is not None:
            return row, at_once.method, "", False
        try:
            looked: Looked = super().attempt(row, entry)
            return looked
        except PenstockError as error:
            if not isinstance(error, (ObjectError, TransientError, FailedError)):
                raise
            return row, "", error.why or error.what, not isinstance(error, IntegrityError)


def _differs(entry: Entry, why: str) -> IntegrityError:
    return IntegrityError("a file is not as it was published", where=printable(entry.path), why=why)
