"""Reads sizes, rates, durations and modes as people write them, strictly.

Every unit is written out: `256MiB`, `20Gbit/s`, `30min`, `"0440"`. A bare number other than 0 is rejected,
since bytes, blocks and seconds look alike. All functions raise ValueError with the forms that they accept.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_BINARY = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50}
_SCALES = _DECIMAL | _BINARY

_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)(Ki|Mi|Gi|Ti|Pi|k|M|G|T|P|)B", re.ASCII)
_RATE = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)(Ki|Mi|Gi|Ti|Pi|k|M|G|T|P|)(B|bit)/s", re.ASCII)
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(ms|s|min|h|d)", re.ASCII)
_SECONDS = {
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "min": Fraction(60),
    "h": Fraction(3600),
    "d": Fraction(86400),
}
_MODE = re.compile(r"[0-7]{3,4}", re.ASCII)

# These texts stand after "must be" or "give" in messages.
SIZE_HELP = "a size with its unit, such as 256MiB, 1TiB or 500GB"
RATE_HELP = "a rate with its unit, such as 1GiB/s or 20Gbit/s"
TIME_LIMIT_HELP = "auto, or a time with its unit, such as 30min, 4h or 2d"
DURATION_HELP = "a time with its unit, such as 30s, 30min, 4h or 2d"
READING_AGE_HELP = (
    "`all`, or one time with its unit, such as `linked: 30d`, without `within`, `sample` or `limit`"
)
MODE_HELP = 'an octal mode in quotes, such as "0440"'


def size(value: object) -> int:
    """Return bytes. `k M G T P` are powers of 1000, `Ki Mi Gi Ti Pi` of 1024."""
    if value == 0 and not isinstance(value, bool):
        return 0
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"must be {SIZE_HELP}")
    return _whole(Fraction(match[1]) * _SCALES[match[2]], "bytes")


def rate(value: object) -> int:
    """Return bytes per second, at least 1."""
    match = _RATE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"must be {RATE_HELP}")
    scaled = Fraction(match[1]) * _SCALES[match[2]]
    amount = _whole(scaled if match[3] == "B" else scaled / 8, "bytes per second")
    if amount < 1:
        raise ValueError("must be more than nothing")
    return amount


def duration(value: object) -> float:
    """Return seconds, more than 0."""
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"must be {DURATION_HELP}")
    seconds = float(Fraction(match[1]) * _SECONDS[match[2]])
    if seconds <= 0:
        raise ValueError("must be more than nothing")
    return seconds


def reading_age(value: object) -> float | None:
    """Return seconds, more than 0; None for `all`."""
    if value == "all":
        return None
    try:
        return duration(value)
    except ValueError:
        raise ValueError(f"must be {READING_AGE_HELP}") from None


def time_limit(value: object) -> int:
    """Return whole seconds, at least 1; 0 for `auto`."""
    if value == "auto":
        return 0
    try:
        return max(1, int(duration(value)))
    except ValueError:
        raise ValueError(f"must be {TIME_LIMIT_HELP}") from None


def mode(value: object, *, folder: bool) -> int:
    """Return permission bits. Rejects modes with write for all, setuid, sticky, or setgid on files, and modes
    that do not let the owner read."""
    if not isinstance(value, str) or not _MODE.fullmatch(value):
        raise ValueError(f"must be {MODE_HELP}")
    bits = int(value, 8)
    if bits & 0o002:
        raise ValueError("would be writable by everybody: take the last digit's write bit away")
    if bits & 0o4000:
        raise ValueError("has the setuid bit, which no dataset needs")
    if bits & (0o1000 if folder else 0o3000):
        raise ValueError("has the sticky or setgid bit, which mean nothing here")
    need = 0o500 if folder else 0o400
    if bits & need != need:
        raise ValueError(f"must let its owner read it: at least {need:04o}")
    return bits


def _whole(amount: Fraction, unit: str) -> int:
    if amount.denominator != 1:
        raise ValueError(f"must come to a whole number of {unit}")
    return int(amount)


READERS: Mapping[str, Callable[[object], float | None]] = {
    "size": size,
    "rate": rate,
    "duration": duration,
    "time_limit": time_limit,
    "reading_age": reading_age,
    "file_mode": partial(mode, folder=False),
    "dir_mode": partial(mode, folder=True),
}  # {name in an annotation (`config.annotations.Unit`): function that reads the unit}
