"""How many names this process may remove a second: all removals below a root together a fifth of
`target.ops`, or `PACE` where there is no such budget.

Each removal below a root posts a promise (`jobs.ownership.promises`) of no bytes, whose run is called
`removal`: a small file that all runs below the root read. It is touched while the removal lives, and
withdrawn at its end. Of the pace each account with living removals has the same share, and a removal takes
its account's share divided by those of this account. One that begins beside others waits for
`ops_share.SEEN` seconds, by when these have read its promise: else the sum would be beyond the pace until
their next reading (`ops_share.EVERY` seconds). Each is one part of `target.ops`, too, beside the elements of
runs: the smaller of both shares counts.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING

from penstock.core import events
from penstock.core.documents.promise import PROMISE, REMOVAL, Promise
from penstock.core.errors import PenstockError
from penstock.dataset import holder as holders
from penstock.fs import clock
from penstock.host.pacing import spending
from penstock.jobs.ownership import promises
from penstock.jobs.ownership.ops_share import EVERY, SEEN, OpsShare
from penstock.jobs.ownership.promise_judgement import LIVING, verdict
from penstock.target import cross_account_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context

STEP = "gc"
PACE = 1000
"""Names a second of all removals, where there is no budget of operations."""
BUDGET_DIVISOR = 5
"""What that budget is divided by for the pace of all removals."""


@contextlib.contextmanager
def paced(context: Context, layout: DatasetLayout) -> Iterator[None]:
    """While the block runs, `context.spend` waits for this process's share, and raises where the command was
    stopped. Where no promise can be posted a warning says so, and the removal goes on."""
    before = context.spend
    name = _posted(context, layout)
    share = _Share(layout, name, context.ops, context.stop.wait)
    try:
        with spending(share, context.stop.wait) as spend:

            def take(count: int) -> None:
                context.stop.check()
                spend(count)

            context.spend = take
            yield
    finally:
        context.spend = before
        if name:
            with contextlib.suppress(OSError):
                cross_account_files.withdraw(layout.promises, name)


class _Share:
    """Called for the share of now, in operations a second."""

    def __init__(
        self,
        layout: DatasetLayout,
        name: str,
        ops: int,
        wait: Callable[[float], object],
    ) -> None:
        self._layout, self._name = layout, name
        self._pace = ops / BUDGET_DIVISOR if ops else PACE
        self._wait: Callable[[float], object] | None = wait
        self._of_target = OpsShare(layout, REMOVAL, ops, 1, wait=wait) if ops else None
        self._read, self._share = float("-inf"), 0.0

    def __call__(self) -> float:
        now = time.monotonic()
        if now - self._read >= EVERY:
            self._read = now
            if self._name:
                with contextlib.suppress(OSError):
                    cross_account_files.touch(self._layout.promises, self._name)
            self._share = self._counted()
        return min(self._share, self._of_target()) if self._of_target else self._share

    def _counted(self) -> float:
        accounts = self._living()
        if accounts.total() > 1 and self._wait is not None:
            self._wait(SEEN)
            accounts, self._read = self._living(), time.monotonic()
        self._wait = None
        return self._pace / len(accounts) / accounts[os.geteuid()]

    def _living(self) -> Counter[int]:
        """How many removals of each account live below the root, this one among them."""
        posted = promises.read_all(self._layout)
        own = next((one.made for one in posted if one.name == self._name), None)
        now = clock.now(self._layout.promises) if own is None else own
        others = (one for one in posted if one.name != self._name and one.promise.run == REMOVAL)
        living = [one.promise.uid for one in others if verdict(one, now) == LIVING]
        return Counter([os.geteuid(), *living])


def _posted(context: Context, layout: DatasetLayout) -> str:
    """The name of this removal's promise; "" where none could be made: then the others do not count it."""
    promise = Promise(
        run=REMOVAL,
        dataset=layout.dataset,
        uid=os.geteuid(),
        gid=os.getegid(),
        bytes=0,
        files=0,
        lock=str(layout.lock),
        at_once=1,
        ops=context.ops,
        by=asdict(holders.this_process(REMOVAL, STEP)),
    )
    name = f"{time.time_ns():020d}.{REMOVAL}.{secrets.token_hex(4)}"
    try:
        cross_account_files.make_folder_as_above(layout.promises)
        if cross_account_files.post(layout.promises, name, PROMISE.to_json(promise)):
            return name
    except (OSError, PenstockError) as error:
        text = f"other removals below this root do not count this one, in {layout.promises}: {error}"
        context.emit(events.Warned(layout.dataset, STEP, text))
    return ""
