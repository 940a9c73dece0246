"""What a later step needs of the earlier ones: copy, permissions and verify, in this order, as far as their
receipts do not hold. The workflow runs each as a rule of its own. Here they are run again for a later step
that finds them incomplete: after files read back damaged, or were touched, or after a crash amid that.

A step that never came to its end is not begun here; the caller's error names the command that does it.

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
    from penstock.core.documents.step_results import VerifyReceipt
    from penstock.dataset.context import Context
    from penstock.dataset.run import Run


def ensure_closed(context: Context, run: Run) -> None:
    """On return all is copied and staging is closed. For a holder of the dataset's lock."""
    if current(run) is None:
        if not run.folder.receipt("copy").exists():
            receipts.need(run, "copy")
        _copy_and_close(context, run)


def verify(context: Context, run: Run) -> VerifyReceipt:
    """verify's receipt, when all reads back as it was copied. For a holder of the dataset's lock."""
    ensure_closed(context, run)
    return read_back(context, run, partial(_copy_and_close, context, run))


def ensure_verified(context: Context, run: Run) -> None:
    """On return all that was copied has been read back. For a holder of the dataset's lock."""
    ok = receipts.held(run, "verify")
    if not run.folder.receipt("verify").exists():
        receipts.need(run, "verify")
    if current(run) is None or not all(map(ok, run.indices)):
        verify(context, run)


def set_permissions_again(context: Context, run: Run) -> None:
    """Close staging anew, and look at each file on the way: publish met one with other permissions. For a
    holder of the dataset's lock. A kill in between leaves it to the next publication, which meets the file
    again. Raises FailedError where the copy is not complete."""
    close(context, run, each=True)


def _copy_and_close(context: Context, run: Run) -> None:
    copy(context, run)
    close(context, run)
