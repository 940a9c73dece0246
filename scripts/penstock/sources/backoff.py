"""The one policy of retries: how often to retry, after which pauses, and which answers mean overload."""

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
from penstock.sources.http_values import decimal, http_date

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

T = TypeVar("T")

TRIES = 7  # number of a listing's attempts at one page or file, made within some six seconds
FIRST_PAUSE = 0.1  # seconds
LONGEST_PAUSE = 20.0  # seconds
INTEGRITY_TRIES = 2
# The longest `Retry-After` that is obeyed, in seconds. If a server demands more, a listing ends at once. A
# copy continues with its other rows, and retries the row after this time.
LONGEST_ASKED = 600.0
OVERLOADED = frozenset({429, 503})  # HTTP statuses
# error codes of S3 and Azure that mean overload, whatever the HTTP status
OVERLOADED_CODES = frozenset({"SlowDown", "ServiceUnavailable", "Throttling", "ServerBusy"})


def retry_after(headers: Mapping[bytes, bytes]) -> float | None:
    """Return the seconds of a `Retry-After` header; None if it is absent or unreadable."""
    text = headers.get(b"retry-after", b"").decode("latin-1").strip()
    seconds = decimal(text)
    if seconds is not None:
        return float(seconds)
    if not text:
        return None
    when = http_date(text)
    return None if when is None else max(0.0, when - time.time())


def asked_for(what: str, where: str, why: str, status: int, code: str, after: float | None) -> TransientError:
    """Make the error for an answer after which a retry may help: OverloadedError for overload, TransientError
    for a fault."""
    busy = after is not None or status in OVERLOADED or code in OVERLOADED_CODES
    hint = ""
    if after:
        why += f"; the server asks for a pause of {after:,.0f} s"
        hint = "the same command goes on; start it again after that time" if after > LONGEST_ASKED else ""
    error = (OverloadedError if busy else TransientError)(what, where=where, why=why, hint=hint, after=after)
    error.status = status
    return error


def pause(tried: int, asked: float | None, chance: float) -> float:
    """Return the seconds to wait after try number `tried` (1, 2, ...). `chance`, in [0, 1), spreads the
    retries of many clients. The server's demand `asked` is obeyed up to LONGEST_ASKED."""
    own = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** (tried - 1)) * (0.5 + chance)
    return own if asked is None else max(own, min(asked, LONGEST_ASKED))


def row_may_retry(error: PenstockError, tried: int) -> bool:
    """Return whether a retry may help: after transient errors, and once after a checksum mismatch (a wire may
    flip a bit)."""
    return tried < INTEGRITY_TRIES if isinstance(error, IntegrityError) else error.retry


def may_retry(error: PenstockError, tried: int) -> bool:
    """Return the result of `row_may_retry`, but False if a pause beyond LONGEST_ASKED is demanded."""
    return row_may_retry(error, tried) and (getattr(error, "after", None) or 0) <= LONGEST_ASKED


class Pauses:
    """The pauses of this process's threads before retries; `dataset.context` shows them in words."""

    def __init__(self) -> None:
        self._under_way: dict[int, tuple[float, TransientError]] = {}
        # end of the pause after the last error that a server answered, by the monotonic clock
        self.answered = 0.0

    @contextlib.contextmanager
    def after(self, error: PenstockError, seconds: float) -> Iterator[None]:
        """Register this thread's pause after `error` while the context lasts."""
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
        """Describe the longest current pause that a server demanded; "" if there is none."""
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
    """Call `ask` up to `attempts` times, with growing pauses, while a retry may help; raise the last error.

    `wait` gets the seconds of a pause; a true result means that no further try is made. `renew` gets the
    refusal and whether it came on the last try; it fetches new credentials or raises (`credentials.renewed`).
    After the first renewal there is no pause. `failed` gets each retried error. `may` gets an error and the
    number of tries. `first` is the error of a first try that the caller made itself, so that after a success
    it need not call this.
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
