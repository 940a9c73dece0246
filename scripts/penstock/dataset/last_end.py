"""How the last command that staged a dataset failed, and when such a command last succeeded. Also where an
account keeps the state of its audit or comparison of another account's dataset.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core import dataset_documents
from penstock.core.dataset_documents import Publication
from penstock.core.errors import (
    NewerFormatError,
    OlderVersionError,
    PenstockError,
    PreflightError,
    signal_name,
)
from penstock.core.human import SECOND, nanoseconds
from penstock.dataset import history, orders
from penstock.fs import capabilities, small_files
from penstock.target import dataset_folders

if TYPE_CHECKING:
    from penstock.core.dataset_documents import LastEnd
    from penstock.core.layout import DatasetLayout
    from penstock.core.step_results import RunState


def own_layout(layout: DatasetLayout) -> DatasetLayout:
    """Return the dataset's paths with the state below XDG_STATE_HOME or `~/.local/state`. Creates nothing.
    Without a home the path is relative and does not exist."""
    configured = os.environ.get("XDG_STATE_HOME")
    home = Path(configured).absolute() if configured else Path(os.path.expanduser("~/.local/state"))
    place = hashlib.sha256(os.fsencode(layout.root.absolute())).hexdigest()[:16]
    return replace(layout, state_root=home / "penstock" / place)


def state_beside(layout: DatasetLayout, what: str) -> DatasetLayout:
    """Return the paths of `own_layout`, and make the state's folder durably with its version marker. `what`
    names the state for people, such as `this audit`. Raises PreflightError if the folder cannot be made,
    OlderVersionError and NewerFormatError if another version made it."""
    own = own_layout(layout)
    try:
        if not own.state.is_absolute():
            raise FileNotFoundError(errno.ENOENT, "this account has no home", str(own.state))
        small_files.make_dirs(own.state)
        dataset_folders.mark_state(own)
    except OlderVersionError as error:
        hint = f"remove {own.state.parent}: the same command begins anew"
        raise OlderVersionError(error.what, where=error.where, why=error.why, hint=hint) from None
    except OSError as error:
        raise PreflightError(
            f"there is no place for the state of {what}",
            where=str(own.state),
            why=str(error.strerror),
            hint="set XDG_STATE_HOME to a folder of yours that the nodes see, too",
        ) from None
    return own


# How the last unsuccessful command on a dataset ended, and when a command last succeeded.
#
#     <state>/ended.json       `core.dataset_documents.LastEnd`, in SIZE bytes
#     <state>/.ended.room      the same file while no failure is noted: it keeps room for the next note, since
#                              a full file system may be the failure
#
# If a first run fails before the dataset has a state, `ended.json` is in the account's own state
# (`own_layout`).
#
#     <state>/succeeded        empty; touched when a run publishes, or finds its release unchanged, and the
#                              gate is open
#
# A step that begins renames the note back. So a killed step shows no older reason. Errors while
# writing notes are ignored.

SIZE = 4096  # bytes of the note, padded with blanks: one block on most file systems
_LONGEST = 600  # most characters in the note's reason and in its hint
_REASONS = {5: "the source changed", 6: "no space"}  # exit statuses that name a cause
_OPEN = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def begin(layout: DatasetLayout, *, reserve: bool) -> None:
    """Withdraw an earlier note as a step begins. With `reserve`, also make room for the next note. Raises no
    OSError. The holder of the dataset's lock calls it."""
    with contextlib.suppress(OSError):
        own_layout(layout).ended.unlink(missing_ok=True)
    with contextlib.suppress(OSError, NewerFormatError):
        try:
            os.rename(layout.ended, layout.ended_room)
        except FileNotFoundError:
            if reserve and not os.path.lexists(layout.ended_room):
                small_files.create_file(layout.ended_room, b" " * SIZE)
        if reserve and not os.path.lexists(layout.succeeded):
            before, fresh = last_success(layout) or 0.0, layout.succeeded.with_suffix(".new")
            small_files.write_file(fresh, b"")
            os.utime(fresh, (before, before))
            os.rename(fresh, layout.succeeded)


def note(layout: DatasetLayout, end: LastEnd) -> None:
    """Write this note durably, if this account stages the dataset. Raises neither OSError nor PenstockError.
    For a first run it makes the dataset's folders. Only list makes a root, or a state below
    `target.state_root`. Until then the note is in the account's own state."""
    try:
        if os.path.lexists(layout.folder) and not dataset_folders.owns(layout):
            return
        if not dataset_folders.check_marker(layout):
            if layout.state_root is not None or not layout.root.is_dir():
                layout = state_beside(layout, "how the run ended")
            else:
                dataset_folders.prepare(layout)
    except (PenstockError, OSError):
        return
    shortened = end._replace(why=end.why[:_LONGEST], hint=end.hint[:_LONGEST], given=orders.given())
    content = small_files.json_line(dataset_documents.LAST_END.to_json(shortened)).ljust(SIZE)
    with contextlib.suppress(OSError):
        try:
            fd = os.open(layout.ended_room, _OPEN)
        except FileNotFoundError:
            small_files.write_file(layout.ended, content)
            return
        try:
            os.pwrite(fd, content, 0)
            os.fsync(fd)
        finally:
            os.close(fd)
        small_files.rename(layout.ended_room, layout.ended)


def find(layout: DatasetLayout) -> LastEnd | None:
    """Return the note; None if it does not exist or cannot be read. For a dataset without a state, the note
    is in the account's own state."""
    if not os.path.lexists(layout.state):
        layout = own_layout(layout)
    try:
        return dataset_documents.LAST_END.from_json(small_files.read(layout.ended, SIZE), layout.ended)
    except (OSError, ValueError, NewerFormatError):
        return None


def succeed(layout: DatasetLayout) -> None:
    """Record that a run ended with exit status 0. The dataset's lock holder calls it. Raises no OSError."""
    with contextlib.suppress(OSError):
        try:
            os.utime(layout.succeeded)
        except FileNotFoundError:
            small_files.create_file(layout.succeeded, b"")


def last_success(layout: DatasetLayout) -> float | None:
    """Return when a run last ended with exit status 0, in seconds since the epoch by the file system's clock;
    None: never. Times ahead of that clock are ignored. For an older state without the file `succeeded`, the
    history decides. Raises OSError if this account may not read the file, NewerFormatError."""
    now = capabilities.now(layout.pins)
    try:
        moments = [os.lstat(layout.succeeded).st_mtime]
    except FileNotFoundError:
        published = (line.at for line in history.lines(layout) if isinstance(line, Publication))
        moments = [nanoseconds(at) / SECOND for at in published]
    return max((min(at, now) for at in moments if 0 < at <= now + capabilities.BOUND), default=None)


def described(layout: DatasetLayout, end: LastEnd) -> RunState:
    """Return the state, cause and remedy for a dataset whose last command ended as `end` says."""
    state: RunState = {"exit": end.exit}
    state["at"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(end.given.at))
    if end.step:
        state["step"] = end.step
    if not end.stopped:
        named = not end.step or end.why.startswith(f"{end.step}: ")
        why = end.why if named else f"{end.step}: {end.why}"
        why = f"{_REASONS[end.exit]}: {why}" if end.exit in _REASONS else why
        return {**state, "state": "failed", "why": why, "to_do": to_do(layout, end)}
    state |= {"state": "stopped", "to_do": goes_on(layout)}
    if end.why.startswith("stopped by "):
        return {**state, "signal": signal_name(end.exit - 128)}
    return {**state, "why": end.why.removeprefix("stopped: ")}


def to_do(layout: DatasetLayout, end: LastEnd) -> str:
    """Return advice about the error that ended a step.

    | exit status | the message's hint        | advice                                           |
    |-------------|---------------------------|--------------------------------------------------|
    | 5           | any                       | list the source anew                             |
    | 6           | any                       | make room, then go on                            |
    | any other   | names "the same command"  | the hint, with the command                       |
    | any other   | any other                 | the hint, then go on                             |
    | 2, 3        | none                      | a retry would fail again: change what the error  |
    |             |                           | message names, or the dataset's configuration    |
    | any other   | none                      | go on                                            |
    """
    run, again = f"`penstock run {layout.dataset}`", goes_on(layout, end.step)
    if end.exit == 5:
        return f"{run} lists the source anew"
    if end.exit == 6:
        return f"make room (`penstock gc {layout.dataset}` removes old releases); then {again}"
    if "the same command" in end.hint:
        return end.hint.replace("the same command", run)
    if end.hint:
        return f"{end.hint}; then {again}"
    if end.exit in (2, 3):
        return f"correct what it names, or `datasets.{layout.dataset}` of the configuration; then {again}"
    return again


def goes_on(layout: DatasetLayout, step: str = "copy") -> str:
    """Return the command that continues; if plan has not begun, the command that starts from list again."""
    run = f"`penstock run {layout.dataset}`"
    return run if step in ("preflight", "list") else f"{run} goes on where it stopped"
