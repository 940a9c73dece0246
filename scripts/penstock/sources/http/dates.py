"""Dates as HTTP writes them: `Wed, 06 May 2026 07:08:09 GMT`; and what stores state in their place. Pure."""

from __future__ import annotations

import re

from penstock.core.errors import FailedError
from penstock.core.text import in_quotes
from penstock.core.timestamps import SECOND, nanoseconds

_SECONDS = re.compile(r"(-?)([0-9]{1,11})(?:\.([0-9]+))?", re.ASCII)


def http_date(text: str) -> int | None:
    """Seconds since the epoch; None for what is no date."""
    import email.utils  # rarely needed: a dozen modules that workers do without

    try:
        parsed = email.utils.parsedate_tz(text)
        return None if parsed is None else email.utils.mktime_tz(parsed)
    except (ValueError, OverflowError):  # a date that no calendar has
        return None


def stated_in_metadata(value: bytes) -> int:
    """Nanoseconds since the epoch of a time that a tool wrote into an object's metadata: seconds, with or
    without a fraction (rclone and s3fs in S3), or ISO 8601 (rclone in Azure). 0 for anything else."""
    text = value.decode("latin-1").strip()
    if seconds := _SECONDS.fullmatch(text):
        sign = -1 if seconds[1] else 1
        return sign * (int(seconds[2]) * SECOND + int((seconds[3] or "").ljust(9, "0")[:9]))
    try:
        return nanoseconds(text)
    except ValueError:
        return 0


def stated_time(text: str, where: str) -> int:
    """Nanoseconds since the epoch of a time that a store states of an object, as ISO 8601 or HTTP has it; 0
    where it states none. Raises FailedError for what is neither."""
    if not text.strip():
        return 0
    try:
        return nanoseconds(text)
    except ValueError:
        seconds = http_date(text)
    if seconds is None:
        raise FailedError(
            "the store states a time that cannot be read",
            where=where,
            why=in_quotes(text[:60]),
            hint="times are as 2026-01-31T12:00:00Z, or as Sat, 31 Jan 2026 12:00:00 GMT",
        )
    return seconds * SECOND
