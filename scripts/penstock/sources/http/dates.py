"""Dates as HTTP writes them: `Wed, 06 May 2026 07:08:09 GMT`."""

from __future__ import annotations


def http_date(text: str) -> int | None:
    """Seconds since the epoch; None for what is no date."""
    import email.utils  # rarely needed: a dozen modules that workers do without

    try:
        parsed = email.utils.parsedate_tz(text)
        return None if parsed is None else email.utils.mktime_tz(parsed)
    except (ValueError, OverflowError):  # a date that no calendar has
        return None
