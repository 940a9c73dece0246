"""Running a function in a child process: as another user, or killed at a chosen line."""

from __future__ import annotations

import os
import pickle
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

NOBODY = 65534


def nobody() -> None:
    """Stands for the look that a step takes before a rename: nobody overtook it."""


def forked(function: Callable[[], Any], *, uid: int | None = None, groups: tuple[int, ...] = ()) -> Any:
    """`function()` in a child (as `uid`, where this is root); its result, or its exception raised here."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(read)
            if uid is not None and os.geteuid() == 0:
                os.setgroups(list(groups))
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
            try:
                answer = (True, function())
            except BaseException as error:  # noqa: BLE001 (it is raised again in the parent)
                answer = (False, error)
            with os.fdopen(write, "wb") as pipe:
                pickle.dump(answer, pipe)
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        content = pipe.read()
    os.waitpid(pid, 0)
    good, value = pickle.loads(content)
    if not good:
        raise value
    return value


def lines_after_changes(
    function: Callable[[], Any], files: tuple[str, ...], state: Callable[[], object]
) -> list[int]:
    """The lines, as `killed_at_line` counts them, before which `state()` differs from what it was a line
    earlier: a kill at each of them leaves each state that a kill at any line can leave."""

    def followed() -> list[int]:
        line, before, changed = 0, state(), []

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal line, before
            if not frame.f_code.co_filename.endswith(files):
                return None
            if event == "line":
                line += 1
                now = state()
                if now != before:
                    changed.append(line)
                    before = now
            return trace

        sys.settrace(trace)
        try:
            function()
        finally:
            sys.settrace(None)
        return changed

    found: list[int] = forked(followed)
    return found


def killed_at_line(function: Callable[[], Any], files: tuple[str, ...], line: int) -> bool:
    """Run `function` in a child that is killed (no cleanup, no `finally`) before its `line`-th executed line
    in source files whose names end with one of `files`. False: it ended before so many lines."""
    pid = os.fork()
    if pid == 0:
        left = line

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal left
            if not frame.f_code.co_filename.endswith(files):
                return None
            if event == "line":
                left -= 1
                if left == 0:
                    os._exit(9)
            return trace

        try:
            sys.settrace(trace)
            function()
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, 9), status
    return status == 9
