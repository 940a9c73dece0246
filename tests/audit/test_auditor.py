"""What becomes of a row that cannot be read, by a scripted reader."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

import pytest
import xxhash

from penstock.core.errors import FailedError, IntegrityError, TransientError
from penstock.core.model import Expected
from penstock.engine.rereader import Auditor
from penstock.fs.cold_read import RangeRead

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.core.errors import PenstockError

CONTENT = b"content"
ENTRY = Expected(
    "path", len(CONTENT), length=len(CONTENT), digest=f"xxh3_128:{xxhash.xxh3_128_hexdigest(CONTENT)}"
)


def seen(size: int) -> RangeRead:
    return RangeRead("direct", os.stat_result((0, 0, 0, 0, 0, 0, size, 0, 0, 0)))


class Scripted:
    """Fails as it is told, in turn, then reads. `libc`: what was read with others."""

    def __init__(self, *errors: PenstockError, together: bytes | None = None) -> None:
        self.errors, self.together = list(errors), together

    def announced(self, *_: object) -> tuple[RangeRead, memoryview] | None:
        data, self.together = self.together, None
        return None if data is None else (seen(len(data)), memoryview(data))

    def read(self, path: str, offset: int, length: int, consume: Callable[[memoryview], None]) -> RangeRead:
        if self.errors:
            raise self.errors.pop(0)
        consume(memoryview(CONTENT))
        return seen(len(CONTENT))

    def close(self) -> None:
        return


def auditor(*errors: PenstockError, attempts: int = 2, together: bytes | None = None) -> Auditor:
    cold: Any = Scripted(*errors, together=together)
    return Auditor(
        reader=lambda: cold, slot=0, counters=[0], stopping=threading.Event(), attempts=attempts,
        limiter=None, tell=lambda _: None,
    )  # fmt: skip


def broken() -> TransientError:
    return TransientError("cannot read back", where="path", why="Input/output error")


def test_a_good_row() -> None:
    assert auditor().attempt(3, ENTRY) == (3, "direct", "", False)


def test_a_good_row_that_was_read_with_others_is_not_read_again() -> None:
    never = IntegrityError("read again")
    assert auditor(never, together=CONTENT).attempt(3, ENTRY) == (3, "direct", "", False)


@pytest.mark.parametrize("data", [CONTENT[:-1], b"x" + CONTENT[1:]])
def test_a_bad_row_that_was_read_with_others_is_judged_by_a_read_of_its_own(data: bytes) -> None:
    assert auditor(together=data).attempt(3, ENTRY) == (3, "direct", "", False)
    gone = IntegrityError("not as written", why="it is not there")
    assert auditor(gone, gone, together=data).attempt(3, ENTRY) == (3, "", "it is not there", False)


def test_an_error_that_passes_is_no_finding() -> None:
    assert auditor(broken()).attempt(0, ENTRY) == (0, "direct", "", False)


@pytest.mark.parametrize(
    ("error", "why", "unread"),
    [
        (broken(), "Input/output error", True),
        (FailedError("cannot read back", why="Permission denied"), "Permission denied", True),
        (IntegrityError("not as written", why="it is not a regular file"), "it is not a regular file", False),
    ],
)
def test_what_stays_is_a_finding_and_no_failure(error: PenstockError, why: str, unread: bool) -> None:
    assert auditor(error, error).attempt(0, ENTRY) == (0, "", why, unread)


def test_other_bytes_are_told_with_both_digests() -> None:
    wanted = "xxh3_128:" + "0" * 32
    row, method, why, unread = auditor().attempt(5, ENTRY._replace(digest=wanted))
    assert (row, method, unread) == (5, "", False)
    assert wanted in why
    assert ENTRY.digest in why


def test_another_size_is_told() -> None:
    assert "7 bytes, not 6" in auditor().attempt(0, ENTRY._replace(size=6))[2]
