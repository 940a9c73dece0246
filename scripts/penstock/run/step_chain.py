"""Repeat copy, permissions and verify, in this order, as far as their receipts are not valid.

The workflow runs each of these steps as a rule of its own. A later step repeats them if they are incomplete:
after files read back damaged, or were touched, or after a crash. A step that was never finished is not begun
here; the caller's error names the step's command.

| permissions' receipt | copy was finished    | verify's receipts | then                                   |
|----------------------|----------------------|-------------------|----------------------------------------|
| valid                | any                  | any               | copy and permissions are done          |
| none, or outdated    | yes                  | any               | copy and permissions are repeated      |
| none, or outdated    | no, elements lack    | any               | FailedError: copy first                |
|                      | receipts             |                   |                                        |
| (`ensure_verified`)  | as above             | valid             | verify is done, if permissions were    |
| (`ensure_verified`)  | as above             | one is missing    | verify is repeated if it was finished  |
|                      |                      |                   | before; else FailedError: verify first |
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
    from penstock.dataset.documents import Run


def ensure_closed(context: Context, run: Run) -> None:
    """Copy everything and close staging. The caller holds the dataset's lock."""
    if current(run) is None:
        if not run.folder.receipt("copy").exists():
            receipts.need(run, "copy")
        _copy_and_close(context, run)


def verify(context: Context, run: Run) -> VerifyReceipt:
    """Read everything back; return verify's receipt. The caller holds the dataset's lock."""
    ensure_closed(context, run)
    return read_back(context, run, partial(_copy_and_close, context, run))


def ensure_verified(context: Context, run: Run) -> None:
    """Read back all copied files. The caller holds the dataset's lock."""
    ok = receipts.held(run, "verify")
    if not run.folder.receipt("verify").exists():
        receipts.need(run, "verify")
    if current(run) is None or not all(map(ok, run.indices)):
        verify(context, run)


def set_permissions_again(context: Context, run: Run) -> None:
    """Close staging again and check each file, after publish found a file with other permissions.

    The caller holds the dataset's lock. After a kill in between, the next publication finds the file again.
    Raises FailedError if the copy is not complete.
    """
    close(context, run, each=True)


def _copy_and_close(context: Context, run: Run) -> None:
    copy(context, run)
    close(context, run)
