"""Resolves and renews the secrets of a dataset's sources, for all workers of a shard.

This may run a helper program or ask a server: at first at once, later in a thread. Nothing is written to
disk.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.core.errors import PenstockError
from penstock.sources.backoff import retrying
from penstock.sources.credentials import ended, failed, renewable, renewed

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.config.settings import DatasetConfig
    from penstock.core.errors import ExpiredCredentialsError
    from penstock.engine.open_sources import Sources
    from penstock.engine.pool import Pool, Refused
    from penstock.sources.port import Source

T = TypeVar("T")

RENEW_BEFORE = 300.0  # seconds before their end from which temporary credentials are renewed
RENEW_PAUSE = 15.0  # seconds between two attempts to renew
# Seconds of continued refusals after which credentials count as ended. An attempt to renew that is under way
# is waited for: what it runs has its own limit (`sources.s3.session_keys`).
PATIENCE = 60.0


class _Attempt(threading.Thread):
    """Resolves the secrets in a thread: a helper may take a minute, and the copy goes on."""

    def __init__(self, resolve: Callable[[], list[Any]]) -> None:
        super().__init__(name="credentials", daemon=True)
        self._resolve = resolve
        self.secrets: list[Any] | None = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.secrets = self._resolve()
        except BaseException as error:  # noqa: BLE001 - `Credentials.tend` raises it
            self.error = error


class Credentials:
    """The secrets, resolved once in the workers' parent; temporary ones again before they end or when a store
    refuses them.

    | refused                                      | then                                              |
    |----------------------------------------------|---------------------------------------------------|
    | keys of the environment, or none (`anon`)    | FailedError at once: they cannot change           |
    | others                                       | resolved again every RENEW_PAUSE, and sent to all |
    | the same, for PATIENCE without an end        | FailedError: what could not be resolved, or ended |
    """

    def __init__(self, dataset: DatasetConfig) -> None:
        self._dataset = dataset
        self._lock = threading.Lock()
        self._tried = time.monotonic()
        self.current = self._resolve()
        self._attempt: _Attempt | None = None
        self._lacking: PenstockError | None = None  # why the last attempt to renew failed
        self._since = self._last = float("-inf")  # when the present refusals began, and the last of them

    def _resolve(self) -> list[Any]:
        from penstock.sources.registry import credentials

        return [credentials(source) for source in self._dataset.sources]

    def tend(self, pool: Pool) -> None:
        """Renew what is due, and send it to the workers; call several times a second.

        Raises FailedError where the present credentials are refused and cannot be replaced.
        """
        refused, pool.refused_keys = pool.refused_keys, None
        if refused is not None:
            self._judge(refused)
        if self._collected():
            pool.renew(self.current)
        if self._attempt is None and (refused is not None or self._near_their_end()):
            now = time.monotonic()
            if now - self._tried >= RENEW_PAUSE:
                self._tried = now
                self._attempt = _Attempt(self._resolve)

    def _judge(self, refused: Refused) -> None:
        now = time.monotonic()
        if now - self._last > PATIENCE:
            self._since = now
            self._tried, self._lacking = float("-inf"), None
        self._last = now
        secrets = self.current[refused.source]
        if not renewable(secrets):
            raise ended(refused.error, secrets)
        if now - self._since >= PATIENCE and self._attempt is None:
            raise failed(self._lacking) if self._lacking else ended(refused.error, secrets)

    def _collected(self) -> bool:
        """Return whether an attempt to renew ended with secrets."""
        attempt = self._attempt
        if attempt is None or attempt.is_alive():
            return False
        self._attempt = None
        if attempt.secrets is not None:
            self.current, self._lacking = attempt.secrets, None
            return True
        if not isinstance(attempt.error, PenstockError):
            assert attempt.error is not None
            raise attempt.error
        self._lacking = attempt.error
        return False

    def _near_their_end(self) -> bool:
        from penstock.sources.registry import expires

        ends = [end for end in map(expires, self.current) if end is not None]
        return bool(ends) and min(ends) - time.time() <= RENEW_BEFORE

    def asked(
        self,
        sources: Sources,
        number: int,
        ask: Callable[[Source], T],
        attempts: int,
        wait: Callable[[float], object],
    ) -> T:
        """Request from a source in this process, with retries, renewing refused credentials. Raises the last
        error."""
        from penstock.sources.registry import credentials

        used: Any = None

        def attempt() -> T:
            nonlocal used
            used = self.current[number]
            return ask(sources.get(number))

        def renew(error: ExpiredCredentialsError, last: bool) -> None:
            with self._lock:
                if self.current[number] is used:  # no other thread was faster
                    config = self._dataset.sources[number]
                    fresh = renewed(error, used, lambda: credentials(config), last=last)
                    self.current = [*self.current[:number], fresh, *self.current[number + 1 :]]
                    sources.renew(self.current)

        return retrying(attempt, attempts, wait, renew=renew)
