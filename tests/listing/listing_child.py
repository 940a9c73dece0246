"""`python -m tests.listing.listing_child FOLDER URL ENDPOINT KILLED_AT LIST_FROM`: lists a bucket onto
FOLDER's target, in small segments, and kills itself by SIGKILL once so many objects were listed."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.listing.test_resumption import context_of

from penstock.listing import collection, resumption
from penstock.run import list_step

if TYPE_CHECKING:
    from penstock.core.run_steps import Event


def main(folder: str, url: str, endpoint: str, killed_at: str, list_from: str) -> None:
    """See above."""
    resumption.ROWS, resumption.WORTH, collection.SHOWN_EVERY = 2000, 500, 0.0
    context = context_of(Path(folder), url, endpoint, list_from)

    def kill(event: Event) -> None:
        if event.kind == "progress" and event.data["files"] >= int(killed_at):
            os.kill(os.getpid(), signal.SIGKILL)

    context.sink = kill
    list_step.run(context, "data")


if __name__ == "__main__":
    main(*sys.argv[1:])
