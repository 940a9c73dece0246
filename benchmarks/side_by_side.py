"""Processes of the bare loops: forked, awaited, judged."""

from __future__ import annotations

from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def run(work: Callable[..., object], shares: Iterable[tuple[Any, ...]]) -> NoReturn:
    """A process for each share, by `work(*share)`; ends this one with the worst exit status."""
    context = get_context("fork")
    workers = [context.Process(target=work, args=share) for share in shares]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    raise SystemExit(max(worker.exitcode or 0 for worker in workers))
