"""The one policy of retries: how often, after which pauses, and which answers mean too much load.

Every request that may be made again is wrapped by `retrying`.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from operator import itemgetter
from typing import TYPE_CHECKING, TypeVar

from penstock.core.errors import (
    ExpiredCredentialsError,
    IntegrityError,
    OverloadedError,
    PenstockError,
    TransientError,
)
from penstock.host import waits
from penstock.sources.http.values import decimal, http_date

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

T = TypeVar("T")

TRIES = 7
"""How often a listing asks for one page, or one file: over some six seconds."""
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 20.0
"""Seconds, as those of the first pause."""
INTEGRITY_TRIES = 2
LONGEST_ASKED = 600.0
"""The most seconds that one `Retry-After` is obeyed for. Where a server asks for more, listing ends at once.
A row of a copy, of which there are many, is tried again after that time."""
OVERLOADED = frozenset({429, 503})
OVERLOADED_CODES = frozenset({"SlowDown", "ServiceUnavailable", "Throttling", "ServerBusy"})
"""S3's and Azure's, whatever status they come with."""


def retry_after(headers: Mapping[bytes, bytes]) -> float | None:
    """Seconds that the server asks to wait; None for what is no such wish."""
    text = headers.get(b"retry-after", b"").decode("latin-1").strip()
    seconds = decimal(text)
    if seconds is not None:
        return float(seconds)
    if not text:
        return None
    when = http_date(text)
    return None if when is None else max(0.0, when - time.time())


def asked_for(what: str, where: str, why: str, status: int, code: str, after: float | None) -> TransientError:
    """The error of an answer that asks for patience: OverloadedError where the other side has too much to
    do, TransientError where it is broken."""
    busy = after is not None or status in OVERLOADED or code in OVERLOADED_CODES
    hint = ""
    if after:
        why += f"; the server asks for a pause of {after:,.0f} s"
        hint = "the same command goes on; start it again after that time" if after > LONGEST_ASKED else ""
    error = (OverloadedError if busy else TransientError)(what, where=where, why=why, hint=hint, after=after)
    error.status = status
    return error


def pause(tried: int, asked: float | None, chance: float) -> float:
    """Seconds to wait after try number `tried` (1, 2, ...); `chance` in [0, 1) spreads those who wait.
    What the other side asked for is honoured, up to LONGEST_ASKED."""
    own = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** (tried - 1)) * (0.5 + chance)
    return own if asked is None else max(own, min(asked, LONGEST_ASKED))


def row_may_retry(error: PenstockError, tried: int) -> bool:
    """Whether another try may help: after errors that pass, and once after bytes that contradict a checksum
    (a wire may flip a bit)."""
    return tried < INTEGRITY_TRIES if isinstance(error, IntegrityError) else error.retry


def may_retry(error: PenstockError, tried: int) -> bool:
    """The same, unless the server asks for a longer pause than LONGEST_ASKED."""
    return row_may_retry(error, tried) and (getattr(error, "after", None) or 0) <= LONGEST_ASKED


class Pauses:
    """What threads of this process wait for that ask servers, in words for `dataset.wait_messages`."""

    def __init__(self) -> None:
        self._under_way: dict[int, tuple[float, TransientError]] = {}
        self.answered = 0.0  # when the pause after a server's last answer ended (monotonic)

    @contextlib.contextmanager
    def after(self, error: PenstockError, seconds: float) -> Iterator[None]:
        """Meanwhile this thread pauses, by this error."""
        now, me = time.monotonic(), threading.get_ident()
        if getattr(error, "status", 0):
            self.answered = now + seconds
        if isinstance(error, TransientError) and error.after:
            self._under_way[me] = (now + seconds, error)
        try:
            yield
        finally:
            self._under_way.pop(me, None)

    def words(self) -> str:
        """Of the longest pause under way that a server asked for; "" where there is none."""
        under_way = sorted(self._under_way.values(), key=itemgetter(0))
        if not under_way:
            return ""
        end, error = under_way[-1]
        left = max(0.0, end - time.monotonic())
        answer = f"HTTP {error.status}" if error.status else error.what
        return f"the server asks for a pause of {error.after:,.0f} s ({answer}); asked again in {left:.0f} s"


pauses = Pauses()


@waits.interruptible()
def retrying(
    ask: Callable[[], T],
    attempts: int,
    wait: Callable[[float], object],
    *,
    renew: Callable[[ExpiredCredentialsError, bool], None] | None = None,
    failed: Callable[[PenstockError], None] | None = None,
    may: Callable[[PenstockError, int], bool] = may_retry,
    first: PenstockError | None = None,
) -> T:
    """What `ask` gives; it is called up to `attempts` times, with growing pauses, while its error may pass.

    `wait` is called with the seconds of a pause; where it returns true there is no further try. `renew` gets
    new credentials when the old ones are refused, or raises what ends the work (`credentials.renewed`); it is
    called with the refusal and with whether that was the last try. The first time the next try follows at
    once. `failed` is called with each error that a retry follows. `may` says of an error and the tries so far
    whether a further one makes sense. `first` is the error of a first try that the caller made himself: rows
    that are copied at the first try, by the hundred thousand, then never come here. Raises the last error.
    """
    tried, renewed = 0, False
    while True:
        tried += 1
        try:
            if first is not None and tried == 1:
                raise first
            return ask()
        except PenstockError as error:
            last = tried >= attempts or not may(error, tried)
            if renew is not None and isinstance(error, ExpiredCredentialsError):
                renew(error, last)
            if last:
                raise
            if failed is not None:
                failed(error)
            if renew is not None and isinstance(error, ExpiredCredentialsError) and not renewed:
                renewed = True
                continue
            # Spreading retries needs no secret randomness.
            seconds = pause(tried, getattr(error, "after", None), random.random())  # noqa: S311
            with pauses.after(error, seconds):
                if wait(seconds):
                    raise
