"""Libraries below a source log what they raise as well, some with tracebacks, onto the terminal where nobody
has set up logging. Their errors are reported once, in penstock's words; their logs go where logging is set
up."""

from __future__ import annotations

import logging


def keep_off_the_terminal(*names: str) -> None:
    """For the loggers of these names and all below them."""
    for name in names:
        log = logging.getLogger(name)
        if not any(isinstance(handler, logging.NullHandler) for handler in log.handlers):
            log.addHandler(logging.NullHandler())
