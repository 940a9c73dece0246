"""Turns an exception into a command's exit status and readable message. Also opens a command's log file,
whose entries are single lines with times in UTC and escaped names.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from penstock.core import typed_json
from penstock.core.errors import (
    MAKE_ROOM,
    CancelledError,
    ConfigError,
    FindingsError,
    InterruptedRunError,
    NoSpaceError,
    OvertakenError,
    PenstockError,
    PreflightError,
    TransientError,
)
from penstock.core.human import masked, printable_lines
from penstock.fs import small_files
from penstock.fs.safe_open import (
    MISPLACED,
    NO_SPACE,
    PASSING,
    printable,
    storage_error,
)
from penstock.fs.small_files import NotPlainError
from penstock.host import kernel_facts
from penstock.workflow.controller import CommandFailure

if TYPE_CHECKING:
    import argparse
    from io import TextIOWrapper

    from penstock.core.run_steps import Event, Sink
    from penstock.dataset.context import Stop


# environment variable with the path of the log of `penstock run --log`, to which the run's steps also write
LOG = "PENSTOCK_LOG"
# {event that is logged: log level}
LEVELS = {"warning": logging.WARNING, "note": logging.INFO, "element": logging.INFO, "end": logging.INFO}


class _Printable(logging.Formatter):
    """Escapes control characters, which could control a terminal, and masks secrets in URLs, since many
    accounts may read a log."""

    converter = staticmethod(time.gmtime)

    def format(self, record: logging.LogRecord) -> str:
        return printable_lines(masked(super().format(record)))


class _LogFile(logging.FileHandler):
    """Rejects a FIFO that has no reader at once, instead of waiting for a reader."""

    def _open(self) -> TextIOWrapper:
        opened = small_files.writable(Path(self.baseFilename), os.O_APPEND)
        return open(opened, "a", encoding=self.encoding, errors=self.errors)


def open_log(path: Path | None) -> list[logging.Handler]:
    """Direct the package's log to this file, and to the log of the `penstock run` that started this process.
    Raises ConfigError."""
    log = logging.getLogger("penstock")
    log.propagate = False
    above = os.environ.get(LOG)
    files = [file for file in (path, Path(above) if above else None) if file is not None]
    if not log.hasHandlers():
        log.addHandler(logging.NullHandler())  # without a handler, the interpreter would print the entries
    handlers: list[logging.Handler] = [_handler(file) for file in dict.fromkeys(files)]
    if files:
        log.setLevel(logging.INFO)
    for handler in handlers:
        log.addHandler(handler)
    return handlers


def _handler(path: Path) -> logging.Handler:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handler = _LogFile(path, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise ConfigError(
            "the log cannot be written",
            where=str(path),
            why=error.strerror or "",
            hint="name a file by --log in a folder that this account may write",
        ) from None
    handler.setFormatter(_Printable("%(asctime)sZ %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S"))
    return handler


def close_log(handlers: list[logging.Handler]) -> None:
    for handler in handlers:
        logging.getLogger("penstock").removeHandler(handler)
        handler.close()


def logged(sink: Sink) -> Sink:
    """Return a sink that also logs the events."""
    log = logging.getLogger("penstock")
    lock = threading.Lock()

    def both(event: Event) -> None:
        level = LEVELS.get(event.kind)
        if level is not None and log.isEnabledFor(level):
            with lock:
                text = event.data.get("text") or json.dumps(typed_json.plain(event.data), default=str)
                log.log(level, "%s %s %s: %s", event.dataset, event.step, event.kind, text)
        sink(event)

    return both


# Turns an exception into a command's exit status and its message for people.
#
# | exception                     | exit status         | message                                  |
# |-------------------------------|---------------------|------------------------------------------|
# | any, after a signal           | 128 + the signal's  | what stopped it, if that is the cause; if|
# |                               |                     | not, a PenstockError's message, or none  |
# | TransientError, after a signal| 128 + the signal's  | stopped by the signal                    |
# | PenstockError                 | the error's own     | the error's own                          |
# | no process, no thread         | 1                   | ulimit -u, pids.max                      |
# | OSError, ENOSPC or EDQUOT     | 6                   | no space or quota is left                |
# | OSError, EACCES, EPERM, EROFS | 3                   | this account has no permission           |
# | NotPlainError, ENOTDIR, ELOOP | 4                   | what was found in a document's place     |
# | OSError, EIO, ESTALE, ...     | 1                   | the file system did not answer           |
# | ImportError                   | 3                   | what this installation lacks             |
# | anything else                 | 1                   | a bug, and where its traceback is        |

FEW_WORDS = 50  # characters of a clause, at most, that a short message uses
# source and target of the example in config.yaml; `make run` creates them
EXAMPLE = ("http://127.0.0.1:9178", "/demo/target")


class Command(Protocol):
    """The part of a `cli.session.Session` that this module needs."""

    parsed: argparse.Namespace
    stop: Stop


def failure(error: BaseException, session: Command) -> CommandFailure:
    """Map the error according to the table above, and log it. A bug's traceback is written, too."""
    error = _stopping(error) or explained(error)
    stopped = session.stop.event.is_set()
    if stopped and isinstance(error, TransientError):
        error = InterruptedRunError(session.stop.signal_number, session.stop.why)
    log = logging.getLogger("penstock")
    if isinstance(error, PenstockError):
        log.error("%s", error)
        code = 128 + session.stop.signal_number if stopped else error.exit_code
        text, cancelled = f"{error}{_of_the_example(error)}", isinstance(error, CancelledError)
        overtaken = isinstance(error, OvertakenError)
        return CommandFailure(code, text, in_short(error), cancelled, overtaken)
    if stopped:
        log.warning("while stopping", exc_info=error)
        return CommandFailure(128 + session.stop.signal_number, "")
    where = _traceback(error, session)
    line = " ".join(str(error).split()) or "no message"
    text = f"unexpected {type(error).__name__}: {line}"
    return CommandFailure(1, f"{text}\n  this is a bug in penstock; the traceback is in {where}", text)


def _stopping(error: BaseException) -> InterruptedRunError | None:
    """Return the stop behind this error: an interrupted wait may report an unreachable source instead."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, InterruptedRunError):
        cause = cause.__cause__ or cause.__context__
    return cause


def in_short(error: PenstockError) -> str:
    """Return the first clause of the reason. If that is missing or long, return what failed.

    >>> in_short(PenstockError("the source cannot be listed", why="there is no such bucket: status 404"))
    'there is no such bucket'
    """
    clause = error.why.partition(": ")[0].partition("\n")[0]
    return clause if 0 < len(clause) <= FEW_WORDS else error.what


def explained(error: BaseException) -> BaseException:
    """Return the error, or the PenstockError that replaces it according to the table."""
    if (limit := kernel_facts.refused(error)) is not None:
        return limit
    if isinstance(error, ImportError):
        return not_whole(error)
    if not isinstance(error, OSError):
        return error
    where = str(error.filename or "")
    if error.errno in NO_SPACE:
        return NoSpaceError(
            "no space or quota is left",
            where=where,
            hint=f"{MAKE_ROOM} and run the same command: it goes on where it stopped",
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return PreflightError(
            f"this account (uid {os.geteuid()}) has no permission",
            where=where,
            why=error.strerror or "",
            hint="run as the owner of that path, or ask its owner for the permission",
        )
    if isinstance(error, NotPlainError) or (where and error.errno in MISPLACED):
        return FindingsError(
            "what lies there is not what it should be",
            where=printable(where),
            why=error.strerror or "",
            hint="move it away, or put back what belongs there",
        )
    if error.errno in PASSING:
        return storage_error(error, "the file system did not answer", where)
    return error


def not_whole(error: ImportError) -> PreflightError:
    """Return the error for a library that the installation lacks, or has in an unsuitable version."""
    return PreflightError(
        "this installation of penstock is not whole",
        where=sys.prefix,
        why=" ".join(str(error).split()) or "a module cannot be imported",
        hint="install penstock anew, with all that it needs, into a virtual environment of its own",
    )


def _of_the_example(error: PenstockError) -> str:
    """Return a hint at `make run` if the error mentions the example's server or target; else ""."""
    text = str(error)
    if error.exit_code in (1, 3) and any(place in text for place in EXAMPLE):
        return "\n  of the example in config.yaml: `make run` starts its server and stages it"
    return ""


def _traceback(error: BaseException, session: Command) -> str:
    """Write the traceback to the command's log, or else to a new file. Return its place."""
    import tempfile
    import traceback

    text = "".join(traceback.format_exception(error))
    logging.getLogger("penstock").critical("unexpected\n%s", text)
    if session.parsed.command == "element":
        # An element's standard error is its log.
        sys.stderr.write(text.encode("ascii", "backslashreplace").decode())
        return "this log"
    if session.parsed.log is not None:
        return str(session.parsed.log)
    handle, where = tempfile.mkstemp(prefix="penstock-", suffix=".traceback")
    with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    return where
