"""Whether elements of a local array (processes beside their controller) may still write.

The kernel ends them when their controller dies. A frozen controller (a suspended process, a hanging node)
keeps them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.core import events
from penstock.dataset import holder as holders
from penstock.host import heartbeat

if TYPE_CHECKING:
    from penstock.core.element_documents import ArrayLine
    from penstock.core.layout import DatasetLayout, RunLayout
    from penstock.dataset.context import Context


def may_write(context: Context, layout: DatasetLayout, run: RunLayout, submission: ArrayLine) -> str:
    """Name the controller of a local array whose elements may still write; "" if they have ended.

    May wait for `heartbeat.PATIENCE` seconds.

    | the controller (holder.lives)      | progress files of its elements              | may write |
    |------------------------------------|---------------------------------------------|-----------|
    | not known                          |                                             | no        |
    | this very process, or dead         |                                             | no        |
    | alive                              |                                             | yes       |
    | cannot be seen                     | none, or unchanged for `heartbeat.PATIENCE` | no        |
    | cannot be seen                     | changed meanwhile                           | yes       |
    """
    by = holders.from_json(submission.by)
    if by is None or (holders.is_here(by) and by.pid == os.getpid()):
        return ""
    lives = holders.lives(by)
    if lives is None:
        lives = _moves(context, layout, run, submission)
    return by.describe() if lives else ""


def _moves(context: Context, layout: DatasetLayout, run: RunLayout, submission: ArrayLine) -> bool:
    """Return whether a progress file of the array changes within `heartbeat.PATIENCE`. By this process's
    clock: other nodes' clocks set the files' times, so only a change counts."""
    first = _progress(run, submission)
    if not first:
        return False
    patience = heartbeat.PATIENCE
    by = holders.from_json(submission.by)
    who = by.describe() if by else "another run"
    text = f"waiting for elements of {who}: they count as ended when nothing moves for {patience:.0f} s"
    context.emit(events.Noted(layout.dataset, submission.step, text))
    return not heartbeat.stands_still(
        patience,
        heartbeat.HEARTBEAT,
        context.stop.wait,
        lambda: _progress(run, submission) != first,
    )


def _progress(run: RunLayout, submission: ArrayLine) -> dict[int, int]:
    written = {}
    for index in submission.indices:
        try:
            written[index] = os.stat(run.progress(submission.step, index)).st_mtime_ns
        except OSError:
            continue
    return written
