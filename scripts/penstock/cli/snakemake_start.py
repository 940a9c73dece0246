"""`python -m penstock.cli.snakemake_start ARGUMENTS`: starts Snakemake with less CPU (docs/decisions/0008).

Snakemake reads files through smart_open, which imports requests and every installed cloud library, such as
those of penstock. The workflow's files are local, so these libraries are hidden while smart_open is imported.
Later imports work.

Until the workflow begins (`controller.take`), nothing has to be stopped, so SIGINT ends the process at once,
without a traceback.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import gc
import getpass
import importlib
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

REMOTE = ("azure", "boto3", "google", "paramiko", "requests")


def main() -> None:
    """Run Snakemake, which ends the process."""
    signal.signal(signal.SIGINT, lambda *_: os._exit(128 + signal.SIGINT))
    # `penstock run` starts this process with SIGINT blocked. A pending SIGINT is delivered here.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    _name_of_user()
    _close_interrupted_loops()
    # The modules that are loaded now are used to the end, so collecting garbage among them is useless.
    gc.disable()
    _smart_open()
    snakemake = _snakemake()
    gc.freeze()
    gc.enable()
    # Collecting garbage is useless at the end of the process, too.
    atexit.register(gc.freeze)
    try:
        snakemake.main()
    finally:
        # Cancel the timers that would wake Snakemake's scheduler, since the process would wait a second or
        # more for them.
        for thread in threading.enumerate():
            if isinstance(thread, threading.Timer):
                thread.cancel()


def _snakemake() -> ModuleType:
    try:
        return importlib.import_module("snakemake.cli")
    except ImportError as error:
        from penstock.cli import output
        from penstock.cli.error_report import not_whole
        from penstock.workflow import controller

        lacking = not_whole(error)
        left = controller.Left("snakemake", lacking.exit_code, text=str(lacking), reason=lacking.what)
        if not controller.leave_exit(left):
            output.say(str(lacking))
        sys.exit(1)


def _close_interrupted_loops() -> None:
    """Let Snakemake close an event loop that Ctrl-C interrupted after its last task. The loop is still marked
    as running, so closing it would fail with a traceback instead of a tidy stop."""
    close = asyncio.Runner.close

    def close_or_leave(runner: asyncio.Runner) -> None:
        with contextlib.suppress(RuntimeError):  # the runner's event loop is closed already
            if not runner.get_loop().is_running():
                close(runner)

    asyncio.Runner.close = close_or_leave  # type: ignore[method-assign,assignment]


def _name_of_user() -> None:
    """Set LOGNAME if the account has no name, as in containers, because Snakemake needs it."""
    try:
        getpass.getuser()
    except (KeyError, OSError):
        os.environ["LOGNAME"] = f"uid-{os.geteuid()}"


def _smart_open() -> None:
    hidden = [name for name in REMOTE if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        importlib.import_module("smart_open")
    except ImportError:
        pass  # this Snakemake was installed without smart_open
    finally:
        for name in hidden:
            del sys.modules[name]


if __name__ == "__main__":
    main()
