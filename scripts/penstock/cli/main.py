"""From arguments to an exit status by the table of docs/commands.md ("Exit status"). No traceback reaches a
terminal, a signal stops tidily, and so does a SLURM job shortly before its time ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, NoReturn

from penstock.cli import output
from penstock.host import kernel_facts, waits

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence
    from types import FrameType

    from penstock.cli.session import Session
    from penstock.host.kernel_facts import JobEnvironment


# Stops a SLURM job tidily shortly before its time ends.
#
# SLURM sends the signal of `sbatch --signal=B:USR1@LEAD` during a check every half minute, and always too
# early: in a job of one minute, maybe after half of it. So the batch script notes when to stop, and the
# command continues until that time.

# seconds by which SLURM's signal may come before the time limit; an even earlier signal is a preemption,
# which cannot wait
EARLY = 90.0


def wait_until(now: float, stop_at: float) -> float:
    """Return the seconds from the signal to the stop. A `stop_at` of 0 is unknown.

    until stop_at    | stop
    unknown, or past | now
    up to EARLY      | then
    more             | now: it is a preemption
    """
    left = stop_at - now
    return left if stop_at and 0 < left <= EARLY else 0.0


def watch_time(stop: Callable[[], None], environment: JobEnvironment) -> None:
    """In a job, call `stop` in the main thread when the job's time is about to end."""
    if not environment.job:
        return

    def near(_: int, __: FrameType | None) -> None:
        if wait := wait_until(time.time(), environment.stop_at):
            signal.setitimer(signal.ITIMER_REAL, wait)
        else:
            stop()

    signal.signal(signal.SIGUSR1, near)
    signal.signal(signal.SIGALRM, lambda _, __: stop())


# From arguments to an exit status by the table of docs/commands.md ("Exit status").
#
# No traceback reaches a terminal, and a signal stops tidily.


def program() -> NoReturn:
    """Run the `penstock` command, and end the process by `os._exit`, since unloading modules and Arrow's
    libraries takes 50 to 90 ms. All files are closed and flushed before."""
    output.open_streams()
    code = main()
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    from penstock.cli import argument_parser, command_table

    kernel_facts.collect_garbage_rarely()
    words = argument_parser.with_help(sys.argv[1:] if arguments is None else arguments)
    if refusal := argument_parser.unknown(words):
        output.called_as("penstock")
        output.say(refusal)
        return _refused(words, 2)
    parser = argument_parser.build()
    try:
        if option := argument_parser.before_command(words):
            argument_parser.refuse(parser, [option])
        parsed, unknown = parser.parse_known_args(words)
        if unknown:
            command = command_table.find(parsed.command) if parsed.command else None
            argument_parser.refuse(parser, unknown, command)
        if parsed.command is None:
            parser.print_help()
            return output.flushed(0)
    except SystemExit as leaving:
        return _refused(words, leaving.code if isinstance(leaving.code, int) else 2)
    except OSError as error:
        return output.failed(error)
    except ImportError as error:  # raised by the import of the command's module
        from penstock.cli import error_report

        lacking = error_report.not_whole(error)
        output.called_as("penstock")
        output.say(str(lacking))
        return _refused(words, lacking.exit_code)
    return _run(parsed)


def _refused(words: Sequence[str], code: int) -> int:
    """Print a rejected command's `on_failure` text, and return the status."""
    from penstock.cli.command_table import COMMANDS

    for command in COMMANDS:
        if code and command.on_failure and command.name in words:
            output.show(command.on_failure)
    return output.flushed(code)


def _run(parsed: argparse.Namespace) -> int:
    from penstock.cli import command_table
    from penstock.cli.session import Session
    from penstock.cluster.registry import read_job_environment
    from penstock.dataset import rights
    from penstock.host import kernel_facts
    from penstock.workflow import controller

    command = command_table.find(parsed.command)
    if not command.reads_input:
        output.without_input()
    session = Session(parsed)
    output.called_as(session.program)
    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    if previous[signal.SIGHUP] is signal.SIG_IGN:  # nohup made the process ignore SIGHUP
        del previous[signal.SIGHUP]

    def stop(number: int, _: FrameType | None) -> None:
        first = not session.stop.event.is_set()
        session.stop.set(controller.signal_sent(number))
        if session.on_stop is not None:
            session.on_stop(number)
        # A second signal is not caught.
        signal.signal(number, previous[signal.Signals(number)] or signal.SIG_DFL)
        if first:
            waits.interrupt()

    def time_ends() -> None:
        # If another signal came before, its message is kept, since a person may have sent it.
        session.stop.out_of_time = session.stop.out_of_time or not session.stop.event.is_set()
        stop(signal.SIGTERM, None)

    for number in previous:
        signal.signal(number, stop)
    # A controller starts its steps with SIGINT blocked (`snakemake_start`): a pending SIGINT is delivered
    # here.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    kernel_facts.enter_job(read_job_environment())
    watch_time(time_ends, kernel_facts.current_job())
    try:
        with session, waits.obeying(session.stop), waits.watched(output.say):
            try:
                session.start()
                if parsed.as_root:
                    rights.grant()
                rights.refuse_root(parsed.command, vars(parsed), session.program)
                code = _ended(command.load().run(parsed, session), session)
            except KeyboardInterrupt:
                code = _ended(128 + (session.stop.signal_number or signal.SIGINT), session)
                _refused([parsed.command], code)
            except Exception as error:  # noqa: BLE001  the one place where nothing may pass
                if isinstance(error, BrokenPipeError) and output.is_closed():
                    # this command's standard output was closed (`penstock status | head`)
                    code = _ended(1, session)
                else:
                    code = _refused([parsed.command], _report(error, session))
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler or signal.SIG_DFL)
    return output.flushed(code)


def _report(error: BaseException, session: Session) -> int:
    from penstock.cli.error_report import failure

    session.failure = failure(error, session)
    return _ended(session.failure.code, session)


def _ended(code: int, session: Session) -> int:
    """Return the status. Leave it and the message for the `penstock run` above, or print the message."""
    from penstock.workflow import controller

    parsed, failure = session.parsed, session.failure or controller.CommandFailure(code, "")
    if parsed.command not in ("run", "element"):
        names = getattr(parsed, "dataset", None) or ""
        name = names if isinstance(names, str) else names[0] if len(names) == 1 else ""
        command = session.failed or parsed.command
        if controller.leave_exit(controller.Left(command, code, name, *failure[1:])):
            return code
    if failure.text:
        output.say(failure.text)
    return code
