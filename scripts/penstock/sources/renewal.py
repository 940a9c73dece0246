"""Credentials that a store refuses are resolved anew; where that cannot help, the work ends by name.

Keys of the environment, and those of nobody (`anon`), are the same for as long as a process lives: their
refusal is final at once. Files, profiles and helpers may give others soon. `backoff.retrying` asks again over
some seconds, the engine (`engine.credential_renewal`) over a minute, then they count as ended too.

This module decides, and words the errors: it reads the clock, and calls the `resolve` that it is given.
Credentials are any object with `origin`, and with `expires` (seconds since the epoch) where they end.
"""

from __future__ import annotations

import datetime as dt
import time
from typing import TYPE_CHECKING, TypeVar

from penstock.core.errors import FailedError, PreflightError

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.core.errors import PenstockError

S = TypeVar("S")

ENVIRONMENT = "the environment"
"""The `origin` of credentials that came from environment variables."""
RESUME = "run the same command: what was done is kept"


def origin(secrets: object) -> str:
    """Where credentials came from, for people: `the profile 'team'`; "" where there are none."""
    return str(getattr(secrets, "origin", ""))


def renewable(secrets: object) -> bool:
    """Whether the place that they came from may give others while this process lives."""
    return origin(secrets) not in ("", ENVIRONMENT)


def ended(error: PenstockError, secrets: object) -> FailedError:
    """The error of the work whose credentials a store refuses for good. `error` is the refusal."""
    end, now = getattr(secrets, "expires", None), time.time()
    what, why = error.what, f"{error.why}, at {_utc(now)}"
    if isinstance(end, float) and end <= now:
        what, why = f"{what} at {_utc(end)}", error.why
    place = origin(secrets)
    hint = error.hint or (f"renew them in {place}, and {RESUME}" if place else f"name others, and {RESUME}")
    return FailedError(what, where=error.where, why=why, hint=hint)


def failed(error: PenstockError) -> FailedError:
    """The error of the work for which credentials could not be resolved anew."""
    hint = f"{error.hint}; then {RESUME}" if error.hint else RESUME
    return FailedError(error.what, where=error.where, why=error.why, hint=hint)


def renewed(error: PenstockError, secrets: S, resolve: Callable[[], S], *, last: bool) -> S:
    """Credentials for the next try, after `secrets` were refused; the same ones where there are no others
    yet. `last`: there is no further try. Raises FailedError."""
    if last or not renewable(secrets):
        raise ended(error, secrets)
    try:
        return resolve()
    except PreflightError as lacking:
        raise failed(lacking) from None


def _utc(seconds: float) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
