"""Prints all output of commands. Names from a source are escaped, so that they cannot control the terminal
and can be encoded."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import sys
from typing import TYPE_CHECKING

from penstock.core import typed_json
from penstock.core.human import printable_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.core.run_steps import CheckResult
    from penstock.look.views.text_layout import Line

_COMMAND = re.compile("(?<!runs )`penstock (?=[a-z])")
_called = ["penstock"]
_document_alone = [False]  # whether standard output is for one JSON document, and texts are left out


def called_as(program: str) -> None:
    """Set the words with which this program was called, so that hints can be pasted."""
    _called[0] = program


def only_document() -> None:
    """From now on, leave out texts on standard output: `show_document` alone writes there."""
    _document_alone[0] = True


def show_document(result: Mapping[str, object]) -> None:
    """Print the JSON document of `--json`. `format` grows when a field changes its meaning or goes."""
    show_json({"format": 1, **result})


def open_streams() -> None:
    """Replace standard streams that were closed before the start (`>&-`). Then no file opened later gets
    their numbers, and writes fail as they should."""
    modes = ((0, "stdin", os.O_RDONLY, "r"), (1, "stdout", os.O_RDONLY, "w"), (2, "stderr", os.O_WRONLY, "w"))
    for number, name, flags, mode in modes:
        if getattr(sys, name) is not None:
            continue
        null = os.open(os.devnull, flags)
        if null != number:
            os.dup2(null, number)
            os.close(null)
        opened = open(number, mode, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        setattr(sys, name, opened)


def without_input() -> None:
    """Put standard input at its end, also for children, so that a library that would ask a person fails
    instead of waiting."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)


def say(text: str) -> None:
    """Print the program's name and a message on standard error. Never fails."""
    text = pasted(text)
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(printable_lines(f"penstock: {text}") + "\n")
        sys.stderr.flush()


def pasted(text: str) -> str:
    """Return a hint whose commands can be pasted into a shell."""
    return _COMMAND.sub(lambda _: f"`{_called[0]} ", text)


def show(text: str) -> None:
    """Print a result on standard output."""
    if _document_alone[0]:
        return
    sys.stdout.write(printable_lines(text.removesuffix("\n")) + "\n")


def clear() -> None:
    """Clear the terminal; in a pipe, leave an empty line."""
    if not _document_alone[0]:
        sys.stdout.write("\x1b[H\x1b[2J" if sys.stdout.isatty() else "\n")


def show_json(result: object) -> None:
    """Print a document, or a row of one, as a line of ASCII JSON."""
    sys.stdout.write(json.dumps(typed_json.plain(result), sort_keys=True, default=str) + "\n")


def show_piece(text: str) -> None:
    """Write a piece of a document that a program reads: ASCII, unescaped."""
    sys.stdout.write(text)


def show_checks(title: str, results: Sequence[CheckResult]) -> None:
    if _document_alone[0]:
        return
    from penstock.look.views import text_layout

    text_layout.show_checks(
        sys.stdout, title, [result._replace(mend=pasted(result.mend)) for result in results]
    )


def columns(piped: int = 80) -> int:
    """Return the terminal's width, at least 80, or `piped` if there is no terminal."""
    return max(80, shutil.get_terminal_size().columns) if sys.stdout.isatty() else piped


def show_lines(lines: Iterable[Line], *, hints: bool = False) -> None:
    """Print escaped lines, in colours on a terminal. With `hints`, commands in them can be pasted."""
    if _document_alone[0]:
        return
    from penstock.look.views import text_layout

    pasted_lines = (line._replace(text=pasted(line.text)) for line in lines) if hints else lines
    text_layout.show(sys.stdout, pasted_lines)


def show_path(path: str | os.PathLike[str]) -> None:
    """Print a path byte for byte, for a program."""
    sys.stdout.flush()
    sys.stdout.buffer.write(os.fsencode(path) + b"\n")


def flushed(code: int) -> int:
    """Flush standard output; return `code`, or 1 on failure."""
    try:
        sys.stdout.flush()
    except OSError as error:
        return code or failed(error)
    return code


def failed(error: OSError) -> int:
    """Return the exit status for standard output that cannot be written."""
    _mute()
    if not isinstance(error, BrokenPipeError):
        say(f"standard output cannot be written: {error.strerror}")
    return 1


def is_closed() -> bool:
    """Return whether nobody reads standard output any more (`penstock status | head`)."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    if any(event & select.POLLERR for _, event in poll.poll(0)):
        _mute()
        return True
    return False


def _mute() -> None:
    """Point standard output to /dev/null, because the interpreter flushes it once more at its end."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
