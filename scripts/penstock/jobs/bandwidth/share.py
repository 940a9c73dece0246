"""A share of a network link: a run's, held by its controller, and a copying process's, for its engine.

The share's thread reads the cap file and hands the workers what they may read, and until when. So they also
follow while the engine's main thread is blocked by a file system (`host.pacing.Allowances`).
"""

from __future__ import annotations

import contextlib
import math
import threading
from typing import TYPE_CHECKING

from penstock.core.human import printable
from penstock.dataset import holder as processes
from penstock.host.pacing import Allowance, clock
from penstock.jobs.bandwidth.cap_file import Cap, CapFile
from penstock.jobs.bandwidth.folder import cap_now, prepared, unusable
from penstock.jobs.shares.folder import run_digits
from penstock.jobs.shares.rule import PARTS, Post
from penstock.jobs.shares.share import Hold, Share

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.config.settings import BandwidthConfig
    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context

TOLD = 30.0  # seconds without a share after which the element's log reports it


def link_hold(context: Context, layout: DatasetLayout, step: str, run: str) -> Hold:
    """Return the holder, on the configured link, of this step's reading; copy's is the run's from list on.
    Raises PreflightError for a folder that cannot be used."""
    link, early = context.config.bandwidth, step in ("list", "plan")
    assert link.folder is not None

    def rate() -> float:
        cap = cap_now(link)
        # Use is counted in bytes only, which says nothing under a cap of requests.
        return math.inf if cap.rate is None or cap.requests is not None else cap.rate

    return Hold(
        prepared(link.folder),
        run_digits(layout.lock, "copy" if early else step),
        processes.this_process(run, f"{step} {layout.dataset}"),
        rate=rate,
        per_process=context.config.engine.limit,
        lowers=False,  # elements of an interrupted run may read
        ends=not early,
        stopped=context.cluster.abilities.elements_end_with_controller,
    )


@contextlib.contextmanager
def reading(
    link: BandwidthConfig,
    holder: str,
    what: str,
    run: str,
    say: Callable[[str], None],
    wait: Callable[[float], object],
) -> Iterator[LinkShare | None]:
    """Yield a process's `LinkShare`, from before its first byte; None without a cap. `wait` is called until a
    share is granted, and may raise."""
    if link.folder is None:
        yield None
        return
    with LinkShare(link, holder, what, run, say) as share:
        while share().rate <= 0:
            wait(0.2)
        yield share


class LinkShare(Share):
    """A copying process's share: call `hand_to` when workers exist, and `share()` several times a second.

    `holder`: its run's; "": the process is one by itself. `what` the process does, for people: `copy
    imagenet, an element`. `say` writes a line of the element's log.
    """

    def __init__(
        self,
        link: BandwidthConfig,
        holder: str,
        what: str,
        run: str,
        say: Callable[[str], None],
    ) -> None:
        """Raises PreflightError for a folder that cannot be used."""
        assert link.folder is not None
        self._configured, self._say = Cap.configured(link), say
        self._link = printable(str(link.folder))
        who, wanted = processes.this_process(run, what), None if holder else lambda: Post(PARTS, 1)
        holders = prepared(link.folder)
        try:
            self._file = CapFile(link.folder)
            self._file.look()
            super().__init__(holders, holder, who, wanted)
        except OSError as error:
            raise unusable(link.folder, error) from None
        self._writing = threading.Lock()
        self._write: Callable[[Allowance], None] | None = None
        self._written: Allowance | None = None
        self._wrong = ""  # what is wrong with the cap file, as logged
        self._had, self._waits = clock(), False  # when a share was held last; whether waiting is logged

    def tick(self) -> None:
        with contextlib.suppress(OSError):
            self._file.look()
        self._hand_on()

    def __call__(self) -> Allowance:
        """Return what the element may do now, and log changes. Raises FailedError for an unusable folder."""
        has, wrong, counts = self.now() > 0, self._file.wrong, self._file.known
        if wrong != self._wrong:
            self._wrong = wrong
            now = (
                "the bandwidth cap is as it was"
                if counts
                else "nothing is read before the bandwidth cap is known"
            )
            self._say(f"warning: {now}: {wrong}" if wrong else "the cap is right again")
        self._had = clock() if has else self._had
        if self._waits != (clock() - self._had >= TOLD):
            self._waits, trouble = not has, self.member.trouble
            why = " now" if has else f": {printable(trouble)}" if trouble else ""
            self._say(f"{'has' if has else 'waits for'} a share of the bandwidth below {self._link}{why}")
        return self._now()

    def hand_to(self, write: Callable[[Allowance], None] | None) -> None:
        """See `host.pacing.Allowances`."""
        with self._writing:
            self._write, self._written = write, None
        self._hand_on()

    def _hand_on(self) -> None:
        # Held only for a store to memory: neither thread waits for a folder by it.
        with self._writing:
            now = self._now()
            if self._write is not None and now != self._written:
                self._written = now
                self._write(now)

    def _now(self) -> Allowance:
        part, until = self.member.usable
        if not self._file.known:
            return Allowance(0.0, 0.0, until, 0.0)
        cap = self._configured.lower(self._file.cap)
        rate, requests = (math.inf if limit is None else limit for limit in cap)
        if not part:
            return Allowance(0.0, 0.0, until, rate)
        return Allowance(rate * part, requests * part, until, rate)
