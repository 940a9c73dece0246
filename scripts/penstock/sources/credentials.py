"""Reads secrets from files that nobody else can read, renews refused credentials, and keeps libraries' logs
off the terminal.

Keys from the environment, and anonymous access (`anon`), do not change during a process, so a refusal is
final at once. Files, profiles and helper programs may soon give new keys, so `backoff.retrying` retries for
some seconds, and the engine (`engine.credential_renewal`) for a minute. Credentials are any object with
`origin`: the place they came from, for people (`the profile 'team'`), or "" if there are no credentials.
Credentials that expire also have `expires`, in seconds since the epoch.
"""

from __future__ import annotations

import datetime as dt
import logging
import os
import stat
import time
from typing import TYPE_CHECKING, TypeVar

from penstock.core.errors import FailedError, PreflightError

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.core.errors import PenstockError

S = TypeVar("S")

ENVIRONMENT = "the environment"  # the `origin` of credentials from environment variables
RESUME = "run the same command: what was done is kept"


def renewable(secrets: object) -> bool:
    """Return whether the place of these credentials may give new ones during this process."""
    return getattr(secrets, "origin", "") not in ("", ENVIRONMENT)


def ended(error: PenstockError, secrets: object) -> FailedError:
    """Make the final error after the store refused these credentials by `error`."""
    end, now = getattr(secrets, "expires", None), time.time()
    what, why = error.what, f"{error.why}, at {_utc(now)}"
    if isinstance(end, float) and end <= now:
        what, why = f"{what} at {_utc(end)}", error.why
    place = getattr(secrets, "origin", "")
    hint = error.hint or (f"renew them in {place}, and {RESUME}" if place else f"name others, and {RESUME}")
    return FailedError(what, where=error.where, why=why, hint=hint)


def failed(error: PenstockError) -> FailedError:
    """Return the final error, made from the error of a failed renewal."""
    hint = f"{error.hint}; then {RESUME}" if error.hint else RESUME
    return FailedError(error.what, where=error.where, why=error.why, hint=hint)


def renewed(error: PenstockError, secrets: S, resolve: Callable[[], S], *, last: bool) -> S:
    """Resolve credentials anew after the store refused `secrets`; the result may equal `secrets`. Raises
    FailedError if that cannot help, or if `last`, since no further try follows."""
    if last or not renewable(secrets):
        raise ended(error, secrets)
    try:
        return resolve()
    except PreflightError as lacking:
        raise failed(lacking) from None


def _utc(seconds: float) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


SIZE_LIMIT = 1 << 16  # bytes of a credentials file, at most


def read_secret(path: str) -> str:
    """Read a regular file of mode 0600 or less that this user or root owns.

    Raises PreflightError for any other file. No error shows the content.
    """

    def refused(what: str, why: str = "", hint: str = "") -> PreflightError:
        hint = hint or "name the file with the keys by `credentials_file`"
        return PreflightError(f"the credentials file {what}", where=path, why=why, hint=hint)

    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        hint = "correct `credentials_file`, and let this account alone read it (mode 0600)"
        raise refused("cannot be read", error.strerror or str(error), hint) from None
    try:
        status = os.fstat(fd)
        ours = stat.S_ISREG(status.st_mode) and status.st_uid in (os.geteuid(), 0)
        if not ours or status.st_mode & 0o077:
            why = f"mode {stat.S_IMODE(status.st_mode):04o}, owner {status.st_uid}"
            hint = f"it must be a file of your own that nobody else can read: chmod 600 {path}"
            raise refused("is not kept safely", why, hint)
        if status.st_size > SIZE_LIMIT:
            raise refused("is too long to be one")
        return os.read(fd, SIZE_LIMIT).decode("utf-8")
    except UnicodeDecodeError:
        raise refused("is no text") from None
    finally:
        os.close(fd)


def pairs(text: str) -> dict[str, str]:
    """Parse KEY=VALUE lines; skip blank lines, comments and INI sections."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if equals and not name.startswith(("#", ";", "[")):
            values[name.strip()] = value.strip().strip("\"'")
    return values


def keep_off_the_terminal(*names: str) -> None:
    """Keep these loggers, and all loggers below them, from printing."""
    for name in names:
        log = logging.getLogger(name)
        if not any(isinstance(handler, logging.NullHandler) for handler in log.handlers):
            log.addHandler(logging.NullHandler())
