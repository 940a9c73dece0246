"""Repeat copy, permissions and verify, in this order, as far as their receipts do not hold.

The workflow runs each as a rule of its own. A later step repeats them if it finds them incomplete: after
files read back damaged, or were touched, or after a crash. A step that never ended is not begun here; the
caller's error names its command.

| permissions' receipt | copy came to its end | verify's receipts | then                                   |
|----------------------|----------------------|-------------------|----------------------------------------|
| holds                | any                  | any               | copy and permissions are done          |
| none, or outdated    | yes                  | any               | copy and permissions, to their end     |
| none, or outdated    | no, elements lack    | any               | FailedError: copy first                |
|                      | receipts             |                   |                                        |
| (`ensure_verified`)  | as above             | hold              | verify is done, if permissions held    |
| (`ensure_verified`)  | as above             | one is missing    | verify, if it came to its end before;  |
|                      |                      |                   | else FailedError: verify first         |
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from penstock.dataset import receipts
from penstock.run.copy_step import copy
from penstock.run.permissions_step import close, current
from penstock.run.read_back import read_back

if TYPE_CHECKING:
    from penstock.core.step_results import VerifyReceipt
    from penstock.dataset.context import Context
    from penstock.dataset.run import Run


def ensure_closed(context: Context, run: Run) -> None:
    """Copy everything and close staging. For a holder of the dataset's lock."""
    if current(run) is None:
        if not run.folder.receipt("copy").exists():
            receipts.need(run, "copy")
        _copy_and_close(context, run)


def verify(context: Context, run: Run) -> VerifyReceipt:
    """Read everything back; return verify's receipt. For a holder of the dataset's lock."""
    ensure_closed(context, run)
    return read_back(context, run, partial(_copy_and_close, context, run))


def ensure_verified(context: Context, run: Run) -> None:
    """Read back all that was copied. For a holder of the dataset's lock."""
    ok = receipts.held(run, "verify")
    if not run.folder.receipt("verify").exists():
        receipts.need(run, "verify")
    if current(run) is None or not all(map(ok, run.indices)):
        verify(context, run)


def set_permissions_again(context: Context, run: Run) -> None:
    """Close staging anew and look at each file: publish found one with other permissions.

    For a holder of the dataset's lock. After a kill in between, the next publication finds the file again.
    Raises FailedError where the copy is not complete.
    """
    close(context, run, each=True)


def _copy_and_close(context: Context, run: Run) -> None:
    copy(context, run)
    close(context, run)
