"""Files that hold secrets: read only when nobody else can."""

from __future__ import annotations

import os
import stat

from penstock.core.errors import PreflightError

SIZE_LIMIT = 1 << 16
"""Bytes of such a file, at most."""


def read_secret(path: str) -> str:
    """The text of a regular file of mode 0600 or less, owned by this user (or root).

    Raises PreflightError otherwise; never shows what is in it.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        raise PreflightError(
            "the credentials file cannot be read",
            where=path,
            why=error.strerror or str(error),
            hint="correct `credentials_file`, and let this account alone read it (mode 0600)",
        ) from None
    try:
        status = os.fstat(fd)
        if (
            not stat.S_ISREG(status.st_mode)
            or status.st_uid not in (os.geteuid(), 0)
            or status.st_mode & 0o077
        ):
            raise PreflightError(
                "the credentials file is not kept safely",
                where=path,
                why=f"mode {stat.S_IMODE(status.st_mode):04o}, owner {status.st_uid}",
                hint=f"it must be a file of your own that nobody else can read: chmod 600 {path}",
            )
        if status.st_size > SIZE_LIMIT:
            raise PreflightError(
                "the credentials file is too long to be one",
                where=path,
                hint="name the file with the keys by `credentials_file`",
            )
        return os.read(fd, SIZE_LIMIT).decode("utf-8")
    except UnicodeDecodeError:
        raise PreflightError(
            "the credentials file is no text",
            where=path,
            hint="name the file with the keys by `credentials_file`",
        ) from None
    finally:
        os.close(fd)


def pairs(text: str) -> dict[str, str]:
    """KEY=VALUE lines; blank lines, comments and INI's section lines are passed over."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if equals and not name.startswith(("#", ";", "[")):
            values[name.strip()] = value.strip().strip("\"'")
    return values
