"""From arguments to an exit status. Guarantees: the status is by the table (README, "Exit
status"), no traceback reaches a terminal, a signal stops tidily."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

from penstock.core import collector
from penstock.errors import NoSpaceError, PenstockError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from types import FrameType

    from penstock.cli.session import Session


def program() -> NoReturn:
    """The `penstock` command: `main`, and the end of the process.

    At once, not by the interpreter's own end, which takes modules and Arrow's libraries down one by one,
    50 to 90 ms for nothing: what a command opened it has closed, and its output is flushed.
    """
    code = main()
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    from penstock.cli import parser as parsers

    collector.rarely()
    parser = parsers.build()
    try:
        parsed = parser.parse_args(arguments)
        if parsed.command is None:
            parser.print_help()
            return _flushed(0)
    except SystemExit as leaving:
        return _flushed(leaving.code if isinstance(leaving.code, int) else 2)
    except OSError as error:
        return _output_failed(error)
    return _run(parsed)


def _run(parsed: argparse.Namespace) -> int:
    from penstock.cli import commands, exits, job_time
    from penstock.cli.session import Session

    session = Session(parsed)
    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def stop(number: int, _: FrameType | None) -> None:
        session.stop.set(number)
        if session.on_stop is not None:
            session.on_stop(number)
        # The second one does not wait any more.
        signal.signal(number, previous[signal.Signals(number)] or signal.SIG_DFL)

    def time_ends() -> None:
        session.stop.out_of_time = True
        stop(signal.SIGTERM, None)

    for number in previous:
        signal.signal(number, stop)
    job_time.watch(time_ends)
    try:
        with session:
            try:
                session.start()
                code = commands.find(parsed.command).load()(parsed, session)
            except PenstockError as error:
                code = _told(error, session)
            except KeyboardInterrupt:
                code = 128 + signal.SIGINT
            except BrokenPipeError as error:
                # Our own output was closed (`penstock status | head`), or else it is an error.
                code = 1 if _stdout_is_closed() else _unexpected(error, session)
            except OSError as error:
                code = _system(error, session)
            except Exception as error:  # noqa: BLE001  the one place where nothing may pass
                code = _unexpected(error, session)
            if parsed.command not in ("run", "element"):
                names = getattr(parsed, "dataset", None)
                name = names[0] if isinstance(names, list) and len(names) == 1 else ""
                exits.leave(exits.Left(parsed.command, code, name, session.failure))
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler or signal.SIG_DFL)
    return _flushed(code)


def _told(error: PenstockError, session: Session) -> int:
    _say(str(error))
    session.failure = str(error).partition("\n")[0]
    logging.getLogger("penstock").error("%s", error)
    return 128 + session.stop.signal_number if session.stop.event.is_set() else error.exit_code


def _system(error: OSError, session: Session) -> int:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        full = NoSpaceError(
            "no space or quota is left",
            where=str(error.filename or ""),
            hint="free some and run the same command: it goes on where it stopped",
        )
        return _told(full, session)
    return _unexpected(error, session)


def _unexpected(error: BaseException, session: Session) -> int:
    import tempfile
    import traceback

    if session.stop.event.is_set():
        logging.getLogger("penstock").warning("while stopping", exc_info=error)
        return 128 + session.stop.signal_number
    text = "".join(traceback.format_exception(error))
    where = session.parsed.log
    if session.parsed.command == "element":
        # Its standard error is the element's log.
        sys.stderr.write(text)
        where = "this log"
    elif where is None:
        handle, where = tempfile.mkstemp(prefix="penstock-", suffix=".traceback")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    logging.getLogger("penstock").critical("unexpected\n%s", text)
    line = " ".join(str(error).split()) or "no message"
    session.failure = f"unexpected {type(error).__name__}"
    _say(
        f"unexpected {type(error).__name__}: {line}\n  this is a bug in penstock; the traceback is in {where}"
    )
    return 1


def _say(text: str) -> None:
    """A message may quote names out of a source: nothing in it steers the terminal."""
    from penstock.views.units import printable

    with contextlib.suppress(OSError, ValueError):
        lines = [printable(line) for line in f"penstock: {text}".split("\n")]
        sys.stderr.write("\n".join(lines) + "\n")
        sys.stderr.flush()


def _stdout_is_closed() -> bool:
    import select

    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    if any(event & select.POLLERR for _, event in poll.poll(0)):
        _mute()
        return True
    return False


def _mute() -> None:
    """The interpreter flushes at its end once more: let that go nowhere."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def _flushed(code: int) -> int:
    try:
        sys.stdout.flush()
    except OSError as error:
        failed = _output_failed(error)
        return code or failed
    return code


def _output_failed(error: OSError) -> int:
    _mute()
    if not isinstance(error, BrokenPipeError):
        _say(f"standard output cannot be written: {error.strerror}")
    return 1
