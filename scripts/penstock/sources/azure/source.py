"""Azure Blob Storage as a source: one container and prefix, by adlfs and the SDK below it.

`storage_options`: `account_name` (or `endpoint_url`), `credentials_file` or `anon`, `ca_bundle`,
`proxy`, and `hierarchical: true` for accounts whose listings come folder by folder (asked of the
account itself where that is allowed).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from penstock.core.model import Entry, Listed
from penstock.errors import (
    ExpiredCredentialsError,
    FailedError,
    ObjectError,
    PenstockError,
    PreflightError,
    SourceChangedError,
    TransientError,
)
from penstock.sources.azure.account import HINT, AzureCredentials, place, resolve
from penstock.sources.azure.client import Link, Links
from penstock.sources.azure.reader import AzureReader, claims_of, fetch, misfit
from penstock.sources.backoff import TRIES, pause_after
from penstock.sources.external_sort import endless, in_order, order

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from penstock.config.settings import SourceConfig
    from penstock.core.model import Claim

    Page = tuple[list[Listed], int, str]
    """Objects, folders' own markers, and the token of the next page ("" at the end)."""

PAGE = 5000
SECOND = 1_000_000_000


class AzureSource:
    """`credentials` come from `azure.account.resolve`; a worker gets them from its parent."""

    def __init__(
        self, config: SourceConfig, credentials: AzureCredentials | None = None, *, timeout: float = 60.0
    ) -> None:
        self._config = config
        self.place = place(config.url)
        self.credentials = credentials if credentials is not None else resolve(config)
        self.url = f"az://{self.place.container}/{self.place.prefix}"
        options = config.storage_options
        self.links = Links(lambda secrets: Link(self.place, secrets, options, timeout))
        self._markers = 0

    @property
    def ignored(self) -> Mapping[str, int]:
        return {"markers": self._markers} if self._markers else {}

    def renew(self, credentials: object) -> None:
        """Used from the next blob on, in every reader of this source."""
        assert isinstance(credentials, AzureCredentials)
        self.credentials = credentials

    def check(self) -> None:
        """One page of one blob, asked for once."""
        link = self._link()
        try:
            link.run(self._page(link, "", 1), self.url)
        except PenstockError as error:
            raise PreflightError(
                "the source cannot be listed",
                where=f"{self.url} at {self.credentials.endpoint}",
                why=f"{error.what}: {error.why}" if error.why else error.what,
                hint=error.hint or "check the account, the container's name and the credentials",
            ) from None
        finally:
            self.links.give_back(link)

    def _link(self) -> Link:
        return self.links.take(self.credentials)

    def list(self) -> Iterator[Sequence[Listed]]:
        """Flat accounts are streamed; of hierarchical ones the whole listing is sorted on disk."""
        self._markers = 0
        pages = self._pages()
        return self._checked(in_order(pages) if self._hierarchical() else pages)

    def _hierarchical(self) -> bool:
        stated = self._config.storage_options.get("hierarchical")
        if stated is not None or self._config.storage_options.get("anon"):
            return bool(stated)
        link = self._link()
        try:
            work = link.container.get_account_information(**link.options)
            return bool(link.run(work, self.url).get("is_hns_enabled"))
        except PenstockError:
            return False  # many credentials may not ask; the order is checked in any case
        finally:
            self.links.give_back(link)

    def _checked(self, batches: Iterator[Sequence[Listed]]) -> Iterator[Sequence[Listed]]:
        last = b""
        for batch in batches:
            for item in batch:
                key = order(item)
                if key <= last:
                    raise FailedError(
                        "the listing is out of order or has a key twice",
                        where=self.url,
                        why=f"{item.key!r} after {last.decode('utf-8', 'surrogateescape')!r}",
                        hint="for an account with a hierarchical namespace set `hierarchical: true` in "
                        "storage_options",
                    )
                last = key
            if batch:
                yield batch

    def _pages(self) -> Iterator[Sequence[Listed]]:
        """The next page is on its way while this one is used."""
        link = self._link()
        ahead: Future[Page] | None = None
        try:
            token, seen, empty = "", {hash("")}, 0
            while True:
                ahead = ahead or link.submit(self._page(link, token, PAGE))
                link, (batch, markers, following) = self._patiently(link, ahead, token)
                ahead = None
                if following:
                    if hash(following) in seen:
                        raise FailedError("the listing runs in a circle", where=self.url)
                    seen.add(hash(following))
                    empty = 0 if batch or markers else empty + 1
                    if (error := endless(empty, self.url)) is not None:
                        raise error
                    ahead = link.submit(self._page(link, following, PAGE))
                self._markers += markers
                yield batch
                if not following:
                    return
                token = following
        finally:
            if ahead is not None:
                ahead.cancel()
            self.links.give_back(link)

    def _patiently(self, link: Link, ahead: Future[Page], token: str) -> tuple[Link, Page]:
        """A page; what may pass is tried again, a few times with growing pauses."""
        waiting = threading.Event()
        renewed = False
        for attempt in range(TRIES):
            try:
                return link, link.wait(ahead, self.url)
            except ExpiredCredentialsError:
                if renewed:
                    raise
                renewed = True
                self.renew(resolve(self._config))
                fresh = self._link()
                self.links.give_back(link)
                link = fresh
            except TransientError as error:
                if attempt == TRIES - 1:
                    raise
                waiting.wait(pause_after(error, attempt + 1))
            except (ObjectError, SourceChangedError) as error:
                raise FailedError(
                    "the source cannot be listed", where=self.url, why=error.why, hint=HINT
                ) from None
            ahead = link.submit(self._page(link, token, PAGE))
        raise TransientError("listing failed again and again", where=self.url)

    async def _page(self, link: Link, token: str, limit: int) -> Page:
        prefix = self.place.prefix
        found = link.container.list_blobs(
            name_starts_with=prefix or None, include=["metadata"], results_per_page=limit, **link.options
        )
        pages = found.by_page(continuation_token=token or None)
        batch: list[Listed] = []
        markers = 0
        async for page in pages:
            async for blob in page:
                if not blob.name.startswith(prefix):
                    raise FailedError(
                        "the listing has a key outside of the prefix", where=self.url, why=repr(blob.name)
                    )
                key = blob.name[len(prefix) :]
                if not key or _is_folder(blob):
                    markers += bool(key)
                else:
                    batch.append(Listed(key, blob.size, (blob.etag or "").strip('"'), _time(blob)))
            break
        return batch, markers, str(pages.continuation_token or "")

    def list_one(self, key: str) -> Listed | None:
        name, where = self.place.prefix + key, self.url + key
        link = self._link()
        try:
            found = link.run(self._one(link, name), where)
            if found is not None:
                return found._replace(key=key)
            nothing = Entry(key, key, 0, "", 0)
            try:
                link.run(fetch(link, name, nothing, 0, 0), where)
            except SourceChangedError:
                return None
            raise TransientError("the store has the object, and does not list it yet", where=where)
        finally:
            self.links.give_back(link)

    async def _one(self, link: Link, name: str) -> Listed | None:
        """Of the first page of what begins with this name."""
        pages = link.container.list_blobs(
            name_starts_with=name, include=["metadata"], results_per_page=PAGE, **link.options
        ).by_page()
        async for page in pages:
            async for blob in page:
                if blob.name == name and not _is_folder(blob):
                    return Listed(name, blob.size, (blob.etag or "").strip('"'), _time(blob))
            break
        return None

    def reader(self) -> AzureReader:
        return AzureReader(self)

    def checksum(self, entry: Entry) -> Sequence[Claim]:
        """By HEAD: the blob's own MD5, where whoever wrote it left one."""
        where = self.url + entry.key
        link = self._link()
        try:
            answer = link.run(fetch(link, self.place.prefix + entry.key, entry, 0, 0), where)
        finally:
            self.links.give_back(link)
        error = misfit(answer, entry, 0, 0, where)
        if error is not None:
            raise error
        return claims_of(answer.headers, whole_answer=True)


def _is_folder(blob: Any) -> bool:
    """A blob that stands for a folder, as hierarchical accounts and Hadoop's drivers write them."""
    metadata = blob.metadata or {}
    return blob.size == 0 and any(
        name.lower() == "hdi_isfolder" and str(value).lower() == "true" for name, value in metadata.items()
    )


def _time(blob: Any) -> int:
    return int(blob.last_modified.timestamp()) * SECOND if blob.last_modified else 0
