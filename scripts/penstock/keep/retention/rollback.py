"""Leads `current` back to an earlier release, or forward again: one rename, and a line in the history.

| killed                      | `current` names | what the next command under the lock does with the intent |
|-----------------------------|-----------------|-----------------------------------------------------------|
| before the intent           | the old one     | there is none                                             |
| before the rename           | the old one     | removes it: nothing happened                              |
| before the history's line   | the new one     | writes the line, then removes it                          |
| before the intent's removal | the new one     | finds the line in the history, removes it                 |

Order: the intent (`rollback.json`) is durable before the rename, the rename before the line, the line before
the intent is removed. `publish`, `rollback`, `remove` and `gc` settle an intent before they change anything,
so the history has the order in which `current` moved.

A run frozen right before its own rename of `current` cannot undo a rollback: `point` makes a link and renames
it, and a rollback removes such links first, under the dataset's lock.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, NamedTuple

from penstock.core import dataset_documents
from penstock.core.dataset_documents import Rollback, RollbackIntent
from penstock.core.errors import FailedError, FindingsError
from penstock.dataset import (
    documents,
    gate,
    history,
    pins,
    run_claims,
    run_store,
)
from penstock.fs import clock
from penstock.target import cross_account_files, dataset_folders, reveal

if TYPE_CHECKING:
    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context


class Led(NamedTuple):
    """Where `current` leads now."""

    release: str
    left: str  # the release before; "" if nothing changed
    finished: bool  # an interrupted rollback was finished, and nothing else requested


def lead(context: Context, layout: DatasetLayout, release: str | None) -> Led:
    """Make this release current, durably; None: the one that `current` named before. The caller holds the
    lock. Raises ConfigError for an unknown release, FindingsError if the gate does not open for it."""
    dataset_folders.sweep_pointers(layout)
    finished = settle(context, layout)
    current = dataset_folders.current(layout)
    if finished is not None and release in (None, finished.release):
        return Led(finished.release, finished.left, True)
    wanted = _wanted(context, layout, release, current)
    target = context.config.target
    gate.passed(layout, owners=target.owners, release=wanted)
    if wanted == current:
        return Led(wanted, "", False)
    pins.make_folder(context, layout, wanted)
    author, claim = history.this_author(), run_claims.number(layout)
    at = clock.stamp(layout.releases)
    intent = RollbackIntent(wanted, current or "", secrets.token_hex(8), at, author, claim)
    documents.write(dataset_documents.ROLLBACK_INTENT, layout.rollback, intent)
    reveal.point(layout, wanted, context.assert_held)
    _tell(context, layout, intent)
    return Led(wanted, intent.left, False)


def settle(context: Context, layout: DatasetLayout) -> RollbackIntent | None:
    """Finish an interrupted rollback by the module's table; return it if it moved `current`. The caller holds
    the dataset's lock. Raises FailedError if the intent cannot be read."""
    try:
        intent = documents.load(dataset_documents.ROLLBACK_INTENT, layout.rollback)
    except FileNotFoundError:
        return None
    except ValueError:
        # The intent is written whole before anything else: a damaged one is not ours.
        intent = None
    except OSError as error:
        raise FailedError(
            "the intent of a rollback cannot be read",
            where=str(layout.rollback),
            why=str(error),
            hint="remove that file: a rollback that was interrupted is then forgotten",
        ) from error
    if intent is None or dataset_folders.current(layout) != intent.release:
        context.assert_held()
        cross_account_files.forget_notice(layout.rollback)
        return None
    _tell(context, layout, intent)
    return intent


def _tell(context: Context, layout: DatasetLayout, intent: RollbackIntent) -> None:
    """Write the history's line once, then remove the intent."""
    line = Rollback(
        at=intent.at,
        dataset=layout.dataset,
        release=intent.release,
        left=intent.left,
        nonce=intent.nonce,
        claim=intent.claim,
        author=intent.author,
    )
    context.assert_held()
    if not any(
        isinstance(earlier, Rollback) and earlier.nonce == line.nonce for earlier in history.lines(layout)
    ):
        history.append(layout, line)
    cross_account_files.forget_notice(layout.rollback)


def _wanted(context: Context, layout: DatasetLayout, release: str | None, current: str | None) -> str:
    releases = dataset_folders.releases(layout)
    if release is not None:
        if release in releases:
            return release
        hint = "name one of them, or leave it out: the one before the current one is meant"
        raise gate.no_release(layout, [release], releases, hint)
    if releases == [current]:
        raise FindingsError(
            f"{current} is the only release",
            where=str(layout.releases),
            why="there is none before it to roll back to",
            hint="nothing was changed; what the source holds now is staged as a new release by "
            f"`{context.program} run {layout.dataset}`",
        )
    before = run_store.before(layout, current, set(releases)) if current else None
    if before is None:
        others = [name for name in releases if name != current]
        raise FindingsError(
            "the history names no release before the current one that is still there",
            where=str(layout.history),
            why=f"`current` names {current or 'no release'}; other releases: {', '.join(others) or 'none'}",
            hint=f"name the release: `{context.program} rollback {layout.dataset} RELEASE`" if others else "",
        )
    return before
