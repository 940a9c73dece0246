"""Everything that commands print. Names from a source are escaped, so that they cannot steer the terminal and
can always be encoded."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import sys
from typing import TYPE_CHECKING

from penstock.core.documents import typed_json
from penstock.core.text import printable_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.core.checks import CheckResult
    from penstock.look.views.styled_lines import Line

_COMMAND = re.compile("(?<!runs )`penstock (?=[a-z])")
_called = ["penstock"]


def called_as(program: str) -> None:
    """How this program was called, up to the command: hints in messages name commands by it, so that they
    can be pasted."""
    _called[0] = program


def open_streams() -> None:
    """Standard streams that were closed before this program began (`>&-`): what is written to standard
    output then fails, as it should, and no file that is opened later gets the number of one."""
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
    """Standard input is at its end from now on, for this process and those that it starts: a library or a
    helper that would ask a person on it fails, and is named, where it would wait."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)


def say(text: str) -> None:
    """Print a message on standard error, with the program's name before it. A closed standard error is no
    error."""
    text = pasted(text)
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(printable_lines(f"penstock: {text}") + "\n")
        sys.stderr.flush()


def pasted(text: str) -> str:
    """A hint, with commands as they can be pasted."""
    return _COMMAND.sub(lambda _: f"`{_called[0]} ", text)


def show(text: str) -> None:
    """A result on standard output, as lines. Raises OSError."""
    sys.stdout.write(printable_lines(text.removesuffix("\n")) + "\n")


def show_json(result: object) -> None:
    """A document, or a row of one, as a line of JSON, ASCII alone."""
    sys.stdout.write(json.dumps(typed_json.plain(result), sort_keys=True, default=str) + "\n")


def show_piece(text: str) -> None:
    """A piece of a document that a program reads: ASCII, as it is. Raises OSError."""
    sys.stdout.write(text)


def show_checks(title: str, results: Sequence[CheckResult]) -> None:
    """A table of what was looked at, on standard output. Raises OSError."""
    from penstock.look.views import check_table

    check_table.show(sys.stdout, title, [one._replace(mend=pasted(one.mend)) for one in results])


def columns(piped: int = 80) -> int:
    """The width of the terminal that standard output is, at least 80; `piped` where it is none."""
    return max(80, shutil.get_terminal_size().columns) if sys.stdout.isatty() else piped


def show_lines(lines: Iterable[Line], *, hints: bool = False) -> None:
    """Lines on standard output, each already escaped; in colours where it is a terminal. With `hints`
    commands in them become those that can be pasted. Raises OSError."""
    from penstock.look.views import styled_lines

    told = (line._replace(text=pasted(line.text)) for line in lines) if hints else lines
    styled_lines.show(sys.stdout, told)


def show_path(path: str | os.PathLike[str]) -> None:
    """A path as it is, byte for byte: a program reads it."""
    sys.stdout.flush()
    sys.stdout.buffer.write(os.fsencode(path) + b"\n")


def flushed(code: int) -> int:
    """Flush standard output. Returns `code`, or 1 where flushing fails."""
    try:
        sys.stdout.flush()
    except OSError as error:
        return code or failed(error)
    return code


def failed(error: OSError) -> int:
    """The exit status of a command whose standard output cannot be written."""
    _mute()
    if not isinstance(error, BrokenPipeError):
        say(f"standard output cannot be written: {error.strerror}")
    return 1


def is_closed() -> bool:
    """Whether nobody reads standard output any more (`penstock status | head`)."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    if any(event & select.POLLERR for _, event in poll.poll(0)):
        _mute()
        return True
    return False


def _mute() -> None:
    """Point standard output to /dev/null, since the interpreter flushes it once more at its end."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
