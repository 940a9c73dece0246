"""A command's log file: one line an entry, in UTC, names escaped."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core import typed_json
from penstock.core.errors import ConfigError
from penstock.core.human import masked, printable_lines
from penstock.fs import small_files

if TYPE_CHECKING:
    from io import TextIOWrapper

    from penstock.core.events import Event, Sink

LOG = "PENSTOCK_LOG"  # the log of `penstock run --log`, which its steps write to beside their own
# of events that are logged
LEVELS = {"warning": logging.WARNING, "note": logging.INFO, "element": logging.INFO, "end": logging.INFO}


class _Printable(logging.Formatter):
    """Escapes control characters, which could steer a terminal, and masks secrets of URLs: many may read a
    log."""

    converter = staticmethod(time.gmtime)

    def format(self, record: logging.LogRecord) -> str:
        return printable_lines(masked(super().format(record)))


class _LogFile(logging.FileHandler):
    """Refuses a FIFO without a reader at once, instead of waiting for one."""

    def _open(self) -> TextIOWrapper:
        opened = small_files.writable(Path(self.baseFilename), os.O_APPEND)
        return open(opened, "a", encoding=self.encoding, errors=self.errors)


def open_log(path: Path | None) -> list[logging.Handler]:
    """Direct the package's log to this file, and to that of the `penstock run` above. Raises ConfigError."""
    log = logging.getLogger("penstock")
    log.propagate = False
    above = os.environ.get(LOG)
    files = [file for file in (path, Path(above) if above else None) if file is not None]
    if not log.hasHandlers():
        log.addHandler(logging.NullHandler())  # else the interpreter prints what nobody logs
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
    """Return a sink that also logs."""
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
