"""Guesses a key in the middle between two others. `listing_ranges` splits what is still to be listed there.

A key is read as a number whose digits are the ASCII characters that keys were seen to hold; the middle of two
keys is the middle of their numbers. Keys are bytes, in the order of bytes. Pure.
"""

from __future__ import annotations

from bisect import bisect_left

DIGITS = 10
"""Characters after what two keys have in common that are looked at."""
_DECIMALS = frozenset(b"0123456789")


class Letters:
    """The ASCII characters that were seen in keys. A key is read as a number with these characters as its
    digits (`_position`), so that keys can be halved like numbers."""

    def __init__(self) -> None:
        self._characters: set[int] = set()
        self._sorted: list[int] = []

    def see(self, key: bytes) -> None:
        """Add the characters of a key that was listed."""
        new = {byte for byte in key if 32 < byte < 127} - self._characters
        if new:
            if new & _DECIMALS:
                new |= _DECIMALS  # keys that count up use all ten
            self._characters |= new
            self._sorted = sorted(self._characters)

    def between(self, low: bytes, high: bytes | None, prefix: bytes) -> bytes | None:
        """A key about in the middle between `low` and `high` (None: the end of `prefix`): above `low`, below
        `high`, valid UTF-8, as short as possible. None when there is no such key, or none is found."""
        common = _common_prefix(low, high, prefix)
        middle = (self._position(low, len(common)) + self._end(high, len(common))) // 2
        base = len(self._sorted) + 1
        key = bytearray(common)
        for place in reversed(range(DIGITS)):
            digit = middle // base**place % base
            if not digit:
                return None
            key.append(self._sorted[digit - 1])
            if low < key and (high is None or key < high):
                return bytes(key) if _is_text(key) else None
        return None

    def fraction_passed(self, low: bytes, at: bytes, high: bytes | None, prefix: bytes) -> float:
        """How much of what lies between `low` and `high` has been passed at `at`, as far as positions
        tell: 0 to 1."""
        common = _common_prefix(low, high, prefix)
        begin, end = self._position(low, len(common)), self._end(high, len(common))
        return (self._position(at, len(common)) - begin) / (end - begin) if end > begin else 1.0

    def _end(self, key: bytes | None, skip: int) -> int:
        return (len(self._sorted) + 1) ** DIGITS if key is None else self._position(key, skip)

    def _position(self, key: bytes, skip: int) -> int:
        """The characters after the first `skip` ones as a number; its digit 0 is the key's end."""
        letters = self._sorted
        value = 0
        for place in range(skip, skip + DIGITS):
            digit = 0
            if place < len(key):
                digit = bisect_left(letters, key[place])
                digit += digit < len(letters) and letters[digit] == key[place]
            value = value * (len(letters) + 1) + digit
        return value


def _common_prefix(low: bytes, high: bytes | None, prefix: bytes) -> bytes:
    if high is None:
        return prefix
    for place, (one, two) in enumerate(zip(low, high, strict=False)):
        if one != two:
            return low[:place]
    return low[: len(high)]


def _is_text(key: bytes | bytearray) -> bool:
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True
