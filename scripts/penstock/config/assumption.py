"""A person's assumptions about a copy, as a text: `20PB, 200M files, nodes=16, link=70Gbit/s`.

`penstock plan --assume` reads it instead of a listing, and for ceilings and prices that are not known
otherwise. Parts are separated by commas, in any order:

| part                                    | meaning                                                   |
|-----------------------------------------|-----------------------------------------------------------|
| `20PB`, `1.5 TiB`                       | bytes of the dataset                                      |
| `200M files`, `3000 files`              | number of files in the dataset                            |
| `nodes=16`                              | number of nodes that copy at once                         |
| `link=`, `source=`, `writes=`  a rate   | rates for all nodes together: of the network to the site, |
|                                         | of the source's sending, of the target's storing          |
| `nic=`, `cpu=`                 a rate   | rates for a node: of its network, of copying and hashing  |
| `metadata=5000/s`                       | operations a second of the target's metadata servers      |
| `egress=0.05/GB`                        | the provider's price for bytes that leave the source      |
| `get=0.4/M`, `list=5/M`                 | the provider's prices for a million requests              |
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from penstock.config import quantities

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
    **dict.fromkeys(("link", "source", "writes", "nic", "cpu"), quantities.rate),
    "metadata": _operations,
}
PRICES = {"egress": _priced("GB", 1e9), "get": _priced("M", 1e6), "list": _priced("M", 1e6)}


def read(text: str) -> Assumption:
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
                size = quantities.size(part.replace(" ", ""))
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
