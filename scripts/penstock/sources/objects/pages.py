"""A listing's requests: by a client for each thread, tried again, with renewed credentials; and its pages in
order, the next one on its way while one is used.

Sources over HTTP list by it. Sends requests, from the caller's threads and from one of its own, and writes
nothing. The limit of tries and the pauses between them are those of `backoff`.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from penstock.core.errors import STORE_AMISS, FailedError
from penstock.host import waits
from penstock.sources.backoff import TRIES, retrying
from penstock.sources.external_sort import disorder, endless, order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.core.errors import ExpiredCredentialsError, PenstockError
    from penstock.core.model import Listed
    from penstock.sources.objects.client import ObjectClient

C = TypeVar("C", bound="ObjectClient")
T = TypeVar("T")


class Page(Protocol):
    """One answer of a listing."""

    @property
    def following(self) -> str:
        """The token of the next page; "" at the end."""

    @property
    def empty(self) -> bool:
        """Whether it names no object."""


P = TypeVar("P", bound=Page)


class Objects(NamedTuple):
    """A page, taken apart."""

    rows: Sequence[Listed]
    """Keys are relative to the prefix."""
    following: str
    markers: int = 0
    """Of folders, left out."""

    @property
    def empty(self) -> bool:
        return not self.rows and not self.markers


class Requests(Generic[C]):
    """Requests that may be made from many threads at once. `renew` gets new credentials for all, as that of
    `backoff.retrying`."""

    def __init__(
        self,
        client: Callable[[], C],
        credentials: Callable[[], object],
        renew: Callable[[ExpiredCredentialsError, bool], None],
    ) -> None:
        self._make, self._credentials, self._renew = client, credentials, renew
        self._mine = threading.local()
        self._clients: list[C] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def do(
        self,
        ask: Callable[[C], T],
        *,
        tries: int = TRIES,
        failed: Callable[[PenstockError], None] | None = None,
    ) -> T:
        """What `ask` gives, called with this thread's client, `tries` times at most. Raises the last error.
        `failed`: see `backoff.retrying`."""
        used: object = None

        def attempt() -> T:
            nonlocal used
            used = self._credentials()
            client = self._client()
            client.renew(used)
            return ask(client)

        def renew(error: ExpiredCredentialsError, last: bool) -> None:
            with self._lock:
                if self._credentials() is used:  # no other thread was faster
                    self._renew(error, last)

        return retrying(attempt, tries, self._stop.wait, renew=renew, failed=failed)

    def _client(self) -> C:
        client: C | None = getattr(self._mine, "client", None)
        if client is None:
            client = self._mine.client = self._make()
            with self._lock:
                self._clients.append(client)
        return client

    def stop(self) -> None:
        """No further try, and no further pause."""
        self._stop.set()

    def close(self) -> None:
        """Ends all connections; called when no thread uses them any more."""
        self.stop()
        with self._lock:
            for client in self._clients:
                client.close()
            self._clients.clear()


def one_by_one(fetch: Callable[[str], P], where: str, stop: Callable[[], None]) -> Iterator[P]:
    """The pages from the first (token "") on. `stop` is called at the end: nobody waits for a page that is
    still fetched. Raises FailedError for a listing that runs in a circle or does not end."""
    with waits.threads(1, "listing") as pool, waits.interruptible():
        coming = pool.submit(fetch, "")
        try:
            hashes, empty = {hash("")}, 0
            while True:
                page = coming.result()
                if page.following:
                    if hash(page.following) in hashes:
                        raise FailedError("the listing runs in a circle", where=where, hint=STORE_AMISS)
                    hashes.add(hash(page.following))
                    empty = empty + 1 if page.empty else 0
                    if (error := endless(empty, where)) is not None:
                        raise error
                    coming = pool.submit(fetch, page.following)
                with waits.whole():
                    yield page
                if not page.following:
                    return
        finally:
            stop()
            coming.cancel()


def between(
    batches: Iterator[Sequence[Listed]], after: bytes, upto: bytes | None
) -> Iterator[Sequence[Listed]]:
    """Of batches in ascending order, the objects behind the key `after`, up to and with `upto` (None: to the
    end); reads no further.
    A store that does not know where to begin may begin anywhere before."""
    for batch in batches:
        if not batch or order(batch[-1]) <= after:
            continue
        inside = order(batch[0]) > after and (upto is None or order(batch[-1]) <= upto)
        kept = (
            batch
            if inside
            else [one for one in batch if after < order(one) and (upto is None or order(one) <= upto)]
        )
        if kept:
            yield kept
        if upto is not None and order(batch[-1]) >= upto:
            return


def ascending(
    batches: Iterator[Sequence[Listed]],
    where: str,
    hint: str = STORE_AMISS,
    twice: Callable[[int], None] = lambda _: None,
) -> Iterator[Sequence[Listed]]:
    """The same batches, without empty ones. An object that is listed again and alike in all comes once;
    `twice` is called with how many there were. Raises FailedError for keys that are not in ascending order
    of their bytes, or stand there twice and not alike."""
    last, before = b"", None
    for batch in batches:
        doubled: set[int] = set()
        for index, item in enumerate(batch):
            key = order(item)
            if key <= last:
                if item != before:
                    raise disorder(item.key, last.decode("utf-8", "surrogateescape"), where, hint)
                doubled.add(index)
            last, before = key, item
        if doubled:
            twice(len(doubled))
            batch = [item for index, item in enumerate(batch) if index not in doubled]
        if batch:
            yield batch
