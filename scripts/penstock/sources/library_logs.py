"""Keeps the log lines of libraries off the terminal.

Libraries that sources use log the errors that they raise, some with tracebacks, and Python prints such lines
where no logging is set up. Penstock reports these errors itself. Where logging is set up (`--log`), the
libraries' lines go there.
"""

from __future__ import annotations

import logging


def keep_off_the_terminal(*names: str) -> None:
    """Keep the loggers of these names, and all below them, from printing."""
    for name in names:
        log = logging.getLogger(name)
        if not any(isinstance(handler, logging.NullHandler) for handler in log.handlers):
            log.addHandler(logging.NullHandler())
