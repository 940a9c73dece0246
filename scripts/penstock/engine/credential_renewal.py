"""Resolves and renews the secrets of a dataset's sources, for all workers of a shard.

Resolving may run a helper program or send a request to a server. The caller waits for the first resolution.
Later ones run in a thread. Secrets are never written to disk.
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
    from penstock.engine.pool import Pool, Refused
    from penstock.engine.stream import Sources
    from penstock.sources.port import Source

T = TypeVar("T")

RENEW_BEFORE = 300.0  # seconds between the renewal of temporary credentials and their end
RENEW_PAUSE = 15.0  # seconds between two attempts to renew
# Seconds of continued refusals after which credentials count as ended. A running attempt to renew is still
# awaited, as it has its own time limit (`sources.s3_credentials`).
PATIENCE = 60.0


class _Attempt(threading.Thread):
    """Resolves the secrets in a thread, so that the copy goes on while a helper may take a minute."""

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
    """The secrets, which the workers' parent resolves once. Temporary secrets are resolved again before they
    end, or when a store refuses them.

    | a store refuses                              | result                                            |
    |----------------------------------------------|---------------------------------------------------|
    | keys of the environment, or none (`anon`)    | FailedError at once: they cannot change           |
    | other secrets                                | resolved again every RENEW_PAUSE, and sent to all |
    | other secrets, again and again for PATIENCE  | FailedError: why they ended, or were not resolved |
    """

    def __init__(self, dataset: DatasetConfig) -> None:
        self._dataset = dataset
        self._lock = threading.Lock()
        self._tried = time.monotonic()
        self.current = self._resolve()
        self._attempt: _Attempt | None = None
        self._lacking: PenstockError | None = None  # the error of the last attempt to renew, if it failed
        self._since = self._last = float("-inf")  # times of the first and last of the current refusals

    def _resolve(self) -> list[Any]:
        from penstock.sources.port import credentials

        return [credentials(source) for source in self._dataset.sources]

    def tend(self, pool: Pool) -> None:
        """Renew the secrets if that is due, and send them to the workers. Call it several times a second.

        Raises FailedError if the current credentials are refused and cannot be replaced.
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
        """Return whether an attempt to renew has ended with new secrets, which are then in `current`."""
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
        from penstock.sources.port import expires

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
        """Call `ask` with a source in this process, with retries. Renews refused credentials. Raises the last
        error."""
        from penstock.sources.port import credentials

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
