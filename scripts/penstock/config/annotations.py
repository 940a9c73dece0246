"""What the annotation of a setting says of its key: what may be written there, and what the page about the
configuration says of it.

    keep_free: Annotated[Size | None, About("Space that a run leaves free."), Example("2TiB")] = None

An annotation has one `ValueKind`, or none where the type says it: `bool`, or a class whose fields are the
keys below. `null` may be written where the type has None. `config.keys` reads the annotations,
`config.validation` judges values by them, `config.serialization` converts values. Pure. Every process with
settings imports this module: it stores what it is given, and does no more.
"""

from __future__ import annotations

import re


class About:
    """What the page says of a key. Line ends are blanks. Of an option of a source: `default` is what holds
    where it is not given, `refers_to` the secret that it leads to."""

    def __init__(self, text: str, *, default: str = "", refers_to: str = "no") -> None:
        self.given, self.default, self.refers_to = text, default, refers_to

    @property
    def text(self) -> str:
        return " ".join(self.given.split())


class Example:
    """Values that the page shows."""

    def __init__(self, *values: object) -> None:
        self.values = values


class ValueKind:
    """What may be written: a value of one of `types` (of any type, where there are none) that it `allows`.
    `expect` ends the sentence about any other value: "give `expect`"."""

    types: tuple[type, ...] = ()
    null = True
    """Whether `null` may be written where the type has None."""

    def __init__(self, expect: str = "") -> None:
        self.expect = expect

    def allows(self, _: object, /) -> bool:
        """Whether this value of one of `types` may be written."""
        return True


class Text(ValueKind):
    """Text of `shortest` to `longest` characters (None: any number) in which `pattern` is found
    (`re.search`); with `number` also a whole number, 0 or more."""

    def __init__(
        self,
        expect: str,
        pattern: str = "",
        *,
        shortest: int = 1,
        longest: int | None = None,
        number: bool = False,
    ) -> None:
        super().__init__(expect)
        self.pattern, self.shortest, self.longest, self.number = pattern, shortest, longest, number
        self.types = () if number else (str,)

    def allows(self, value: object, /) -> bool:
        if self.number and type(value) is int:
            return value >= 0
        if not isinstance(value, str) or len(value) < self.shortest:
            return False
        return (self.longest is None or len(value) <= self.longest) and bool(re.search(self.pattern, value))


class Number(ValueKind):
    """A whole number from `least` to `most` (None: no bound), or one of `words`."""

    def __init__(self, expect: str, least: int, most: int | None = None, words: tuple[str, ...] = ()) -> None:
        super().__init__(expect)
        self.least, self.most, self.words = least, most, words
        self.types = () if words else (int,)
        self.null = not words

    def allows(self, value: object, /) -> bool:
        if type(value) is int:
            return self.least <= value and (self.most is None or value <= self.most)
        return value in self.words


class Choice(ValueKind):
    """One of some words."""

    def __init__(self, *words: str) -> None:
        super().__init__(either(words))
        self.words = words

    def allows(self, value: object, /) -> bool:
        return value in self.words


class Switch(ValueKind):
    """True or false."""

    types = (bool,)


NAME = r"^[^\x00-\x1f\x7f:]{1,255}$(?!\n)"
"""What the name of an account or a group looks like."""


class Unit(ValueKind):
    """A number with its unit, as the reader of this name in `config.quantities` takes it. `zero`: 0 may stand
    without one."""

    def __init__(self, name: str, *, zero: bool = False) -> None:
        super().__init__()
        self.name, self.zero = name, zero
        self.null = name in ("size", "rate", "duration", "time_limit")


class Items(ValueKind):
    """A list, of so many values: none of them twice where they are `unique`, one of them this `word`. The
    tuple's type says what each may be."""

    types = (list,)

    def __init__(
        self, expect: str, *, least: int = 0, most: int | None = None, unique: bool = False, word: str = ""
    ) -> None:
        super().__init__(expect)
        self.least, self.most, self.unique, self.word = least, most, unique, word

    def allows(self, value: object, /) -> bool:
        values = value if isinstance(value, list) else []
        fits = self.least <= len(values) and (self.most is None or len(values) <= self.most)
        return fits and (not self.word or self.word in values)


class Fields(ValueKind):
    """A mapping with the fields of a class as its keys, at least so many of them."""

    types = (dict,)

    def __init__(self, expect: str = "", *, least: int = 0) -> None:
        super().__init__(expect)
        self.least = least


class Named(ValueKind):
    """A mapping from names to parts that are alike: `names` are those that there are, or, where there are
    none, a `pattern` says what a name looks like, and `rule` says it in words."""

    types = (dict,)

    def __init__(
        self, expect: str, names: tuple[str, ...] = (), *, pattern: str = "", rule: str = "", least: int = 0
    ) -> None:
        super().__init__(expect)
        self.names, self.pattern, self.rule, self.least = names, pattern, rule, least


FIXED = "fixed"
"""The field is no key."""
WRITES, RUNS = "writes", "runs"
"""The key names a file that is written, or a program that is run: `config.trust`."""
EITHER = "either"
"""Exactly one of the keys of a mapping that are so marked is given."""
NOT_NULL = "not null"
"""`null` may not be written, though the field is None where nothing is."""


class InPlace:
    """The field is no key: in its place stand the keys of this class."""

    def __init__(self, settings_class: type) -> None:
        self.settings_class = settings_class


def either(words: tuple[str, ...]) -> str:
    """`a, b or c`."""
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
