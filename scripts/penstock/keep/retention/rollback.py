"""`current` led back to an earlier release, or forward again: one rename, and a line in the history.

`rollback_step` calls `lead`; the commands that are named below call `settle`.

| killed                      | `current` names | what the next command under the lock does with the intent |
|-----------------------------|-----------------|-----------------------------------------------------------|
| before the intent           | the old one     | there is none                                             |
| before the rename           | the old one     | removes it: nothing happened                              |
| before the history's line   | the new one     | writes the line, then removes it                          |
| before the intent's removal | the new one     | finds the line in the history, removes it                 |

The intent (`rollback.json`) is durable before the rename, the rename before the line, the line before the
intent is removed. `publish`, `rollback`, `remove` and `gc` all settle an intent before they change anything,
so the history's lines stand in the order in which `current` moved.

A run that was frozen right before its own rename of `current` cannot undo a rollback: `point` makes a link
and renames it, and the rollback, which holds the dataset's lock by then, removes such links first.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.documents import marks
from penstock.core.documents.history_line import Rollback
from penstock.core.documents.marks import RollbackIntent
from penstock.core.errors import FailedError, FindingsError
from penstock.dataset import current_pointer, documents, gate, history, missing_releases, pins, run_claims
from penstock.fs import clock
from penstock.target import cross_account_files, dataset_folders, reveal

if TYPE_CHECKING:
    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context


class Led(NamedTuple):
    """Where `current` leads now."""

    release: str
    left: str
    """The release that it led to before; "" where it led to `release` already."""
    finished: bool
    """A rollback that was interrupted was finished, and nothing else was asked for."""


def lead(context: Context, layout: DatasetLayout, release: str | None) -> Led:
    """Make this release current; None: the one that `current` named before, by the history. The caller holds
    the dataset's lock. Durable on return.

    Raises ConfigError for a release that is not there, FindingsError where it does not pass the gate's look,
    or findings stand against it.
    """
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
    documents.write(marks.ROLLBACK_INTENT, layout.rollback, intent)
    reveal.point(layout, wanted, context.assert_held)
    _tell(context, layout, intent)
    return Led(wanted, intent.left, False)


def settle(context: Context, layout: DatasetLayout) -> RollbackIntent | None:
    """Bring an interrupted rollback to its end, by the table above; returns it where it moved `current`. The
    caller holds the dataset's lock. Raises FailedError where the intent cannot be read."""
    try:
        intent = documents.load(marks.ROLLBACK_INTENT, layout.rollback)
    except FileNotFoundError:
        return None
    except ValueError:
        # It is written whole before anything else happens: a damaged one was not ours.
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
    """The history's line, once, then the intent's end."""
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
    if not any(isinstance(one, Rollback) and one.nonce == line.nonce for one in history.lines(layout)):
        history.append(layout, line)
    cross_account_files.forget_notice(layout.rollback)


def _wanted(context: Context, layout: DatasetLayout, release: str | None, current: str | None) -> str:
    there = dataset_folders.releases(layout)
    if release is not None:
        if release in there:
            return release
        hint = "name one of them, or leave it out: the one before the current one is meant"
        raise missing_releases.no_release(layout, [release], there, hint)
    if there == [current]:
        raise FindingsError(
            f"{current} is the only release",
            where=str(layout.releases),
            why="there is none before it to roll back to",
            hint="nothing was changed; what the source holds now is staged as a new release by "
            f"`{context.program} run {layout.dataset}`",
        )
    before = current_pointer.before(layout, current, set(there)) if current else None
    if before is None:
        others = [one for one in there if one != current]
        raise FindingsError(
            "the history names no release before the current one that is still there",
            where=str(layout.history),
            why=f"`current` names {current or 'no release'}; other releases: {', '.join(others) or 'none'}",
            hint=f"name the release: `{context.program} rollback {layout.dataset} RELEASE`" if others else "",
        )
    return before
