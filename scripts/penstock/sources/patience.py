"""How long a listing waits before it asks again."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.errors import TransientError

TRIES = 6
"""How often one page, or one file, is asked for."""
LONGEST_ASKED = 120.0
"""Seconds: what a server asks for is honoured up to here."""


def pause(error: TransientError, attempt: int) -> float:
    """Seconds after try `attempt` (0, 1, ...) ended in `error`: what the server asked for, else twice as
    many as before; spread, so that those who were refused together do not come together again."""
    asked = min(error.after, LONGEST_ASKED) if error.after is not None else 0.2 * 2**attempt
    return asked * random.uniform(0.8, 1.2)  # noqa: S311 (jitter)
