"""Values as people write them, read strictly: sizes, rates, durations and modes, and what a person assumes of
a copy (`20PB, 200M files, nodes=16, link=70Gbit/s`).
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


# Reads sizes, rates, durations and modes as people write them, strictly.
#
# Every unit is written out: `256MiB`, `20Gbit/s`, `30min`, `"0440"`. A bare number other than 0 is rejected,
# since bytes, blocks and seconds look alike. All functions raise ValueError with the forms that they accept.

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


def read_size(value: object) -> int:
    """Return bytes. `k M G T P` are powers of 1000, `Ki Mi Gi Ti Pi` of 1024."""
    if value == 0 and not isinstance(value, bool):
        return 0
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"must be {SIZE_HELP}")
    return _whole(Fraction(match[1]) * _SCALES[match[2]], "bytes")


def read_rate(value: object) -> int:
    """Return bytes per second, at least 1."""
    match = _RATE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"must be {RATE_HELP}")
    scaled = Fraction(match[1]) * _SCALES[match[2]]
    amount = _whole(scaled if match[3] == "B" else scaled / 8, "bytes per second")
    if amount < 1:
        raise ValueError("must be more than nothing")
    return amount


def read_duration(value: object) -> float:
    """Return seconds, more than 0."""
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"must be {DURATION_HELP}")
    seconds = float(Fraction(match[1]) * _SECONDS[match[2]])
    if seconds <= 0:
        raise ValueError("must be more than nothing")
    return seconds


def read_reading_age(value: object) -> float | None:
    """Return seconds, more than 0; None for `all`."""
    if value == "all":
        return None
    try:
        return read_duration(value)
    except ValueError:
        raise ValueError(f"must be {READING_AGE_HELP}") from None


def read_time_limit(value: object) -> int:
    """Return whole seconds, at least 1; 0 for `auto`."""
    if value == "auto":
        return 0
    try:
        return max(1, int(read_duration(value)))
    except ValueError:
        raise ValueError(f"must be {TIME_LIMIT_HELP}") from None


def read_mode(value: object, *, folder: bool) -> int:
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
    "size": read_size,
    "rate": read_rate,
    "duration": read_duration,
    "time_limit": read_time_limit,
    "reading_age": read_reading_age,
    "file_mode": partial(read_mode, folder=False),
    "dir_mode": partial(read_mode, folder=True),
}  # {name in an annotation (`config.annotations.Unit`): function that reads the unit}


# A person's assumptions about a copy, as a text: `20PB, 200M files, nodes=16, link=70Gbit/s`.
#
# `penstock plan --assume` reads it instead of a listing, and for ceilings and prices that are not known
# otherwise. Parts are separated by commas, in any order:
#
# | part                                    | meaning                                                   |
# |-----------------------------------------|-----------------------------------------------------------|
# | `20PB`, `1.5 TiB`                       | bytes of the dataset                                      |
# | `200M files`, `3000 files`              | number of files in the dataset                            |
# | `nodes=16`                              | number of nodes that copy at once                         |
# | `link=`, `source=`, `writes=`  a rate   | rates for all nodes together: of the network to the site, |
# |                                         | of the source's sending, of the target's storing          |
# | `nic=`, `cpu=`                 a rate   | rates for a node: of its network, of copying and hashing  |
# | `metadata=5000/s`                       | operations a second of the target's metadata servers      |
# | `egress=0.05/GB`                        | the provider's price for bytes that leave the source      |
# | `get=0.4/M`, `list=5/M`                 | the provider's prices for a million requests              |

HELP = "sizes, counts, rates and prices, such as `20PB, 200M files, nodes=16, link=70Gbit/s`"
_FILES = re.compile(r"(\d{1,18}(?:\.\d{1,9})?) ?([kMG]?) files?", re.ASCII)
_NUMBER = r"(\d{1,12}(?:\.\d{1,9})?)"
_TIMES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}


class Assumption(NamedTuple):
    """Assumed values. A value that is not given is None or missing. Rates and prices are more than 0."""

    bytes: int | None = None
    files: int | None = None
    nodes: int | None = None
    # {name in the table: rate}, in operations a second for `metadata`, in bytes a second for all others
    rates: Mapping[str, float] = {}
    # prices in any currency: `egress` for a byte, `get` and `list` for a request
    prices: Mapping[str, float] = {}


def _priced(unit: str, amount: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        match = re.fullmatch(f"{_NUMBER}/{unit}", text, re.ASCII)
        if match is None:
            raise ValueError(f"must be a price such as 0.05/{unit}")
        return float(match[1]) / amount

    return read


def _operations(text: str) -> float:
    match = re.fullmatch(f"{_NUMBER}/s", text, re.ASCII)
    if match is None or float(match[1]) <= 0:
        raise ValueError("must be operations a second, more than none, such as 5000/s")
    return float(match[1])


RATES: Mapping[str, Callable[[str], float]] = {
    **dict.fromkeys(("link", "source", "writes", "nic", "cpu"), read_rate),
    "metadata": _operations,
}
PRICES = {"egress": _priced("GB", 1e9), "get": _priced("M", 1e6), "list": _priced("M", 1e6)}


def read_assumption(text: str) -> Assumption:
    """Read an assumption. Raises ValueError with the wrong part and its expected form."""
    size: int | None = None
    files: int | None = None
    nodes: int | None = None
    rates: dict[str, float] = {}
    prices: dict[str, float] = {}
    kinds: set[str] = set()
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, value = (piece.replace(" ", "") for piece in part.partition("="))
        match = _FILES.fullmatch(part)
        kind = name if equals else "files" if match else "bytes"
        if kind in kinds:
            raise ValueError(f"{part}: {kind} is given twice")
        kinds.add(kind)
        try:
            if not equals and match:
                files = round(float(match[1]) * _TIMES[match[2]])
            elif not equals:
                size = read_size(part.replace(" ", ""))
            elif name == "nodes":
                nodes = _nodes(value)
            elif name in RATES:
                rates[name] = RATES[name](value)
            elif name in PRICES:
                prices[name] = PRICES[name](value)
            else:
                raise ValueError(f"there are nodes, {', '.join([*RATES, *PRICES])}")
        except ValueError as error:
            raise ValueError(f"{part}: {error}") from None
    return Assumption(size, files, nodes, rates, prices)


def _nodes(text: str) -> int:
    if not re.fullmatch("[1-9][0-9]{0,5}", text):
        raise ValueError("must be a number of nodes, at least 1")
    return int(text)
