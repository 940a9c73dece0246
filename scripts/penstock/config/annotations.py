"""Defines the annotations of settings, which describe the keys of a configuration, and reads them. They are
the base of a configuration's checks, and of its documentation page and schema, which are generated. Pure.
"""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from dataclasses import MISSING, is_dataclass
from functools import cache
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

# Annotations of settings: the values that are allowed for a key, and the page's text about it.
#
#     keep_free: Annotated[Size | None, About("Space that a run leaves free."), Example("2TiB")] = None
#
# An annotation has a single `ValueKind`, except if the type implies the kind: `bool`, or a class whose fields
# are the keys below. `null` may be written if the type has None. `config.validation` checks values with the
# annotations, and `config.serialization` converts values. Every process with settings imports this module, so
# an annotation only stores its arguments.


class About:
    """The page's text about a key, in which line ends count as blanks. Options of sources also have
    `default`, which applies if no value is set, and `refers_to`, the secret that they refer to."""

    def __init__(self, text: str, *, default: str = "", refers_to: str = "no") -> None:
        self.given, self.default, self.refers_to = text, default, refers_to

    @property
    def text(self) -> str:
        return " ".join(self.given.split())


class Example:
    def __init__(self, *values: object) -> None:
        self.values = values


class ValueKind:
    """The values that may be written: values of one of `types` (() for any type) that `allows` accepts.
    Messages end with `expect`: "give `expect`"."""

    types: tuple[type, ...] = ()
    null = True  # whether `null` may be written if the type has None

    def __init__(self, expect: str = "") -> None:
        self.expect = expect

    def allows(self, _: object, /) -> bool:
        """Return whether this value, which has one of `types`, may be written."""
        return True


class Text(ValueKind):
    """Text of `shortest` to `longest` characters (None for no limit) in which `re.search` finds `pattern`.
    With `number`, a whole number from 0 is also allowed."""

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
    """A whole number from `least` to `most` (None for no limit), or one of `words`."""

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
    def __init__(self, *words: str) -> None:
        super().__init__(either(words))
        self.words = words

    def allows(self, value: object, /) -> bool:
        return value in self.words


class Switch(ValueKind):
    """True or false."""

    types = (bool,)


NAME = r"^[^\x00-\x1f\x7f:]{1,255}$(?!\n)"  # pattern for the name of an account or a group


class Unit(ValueKind):
    """A number with its unit, read by `config.quantities`' function `name`. With `zero`, 0 needs no unit."""

    def __init__(self, name: str, *, zero: bool = False) -> None:
        super().__init__()
        self.name, self.zero = name, zero
        self.null = name in ("size", "rate", "duration", "time_limit")


class Items(ValueKind):
    """A list of `least` to `most` values, without repetition if `unique`, that contains `word` unless it is
    "". The tuple's type declares the values."""

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
    """A mapping with at least `least` keys; the keys are the fields of a class."""

    types = (dict,)

    def __init__(self, expect: str = "", *, least: int = 0) -> None:
        super().__init__(expect)
        self.least = least


class Named(ValueKind):
    """A mapping from names to parts of the same form. The names are in `names`, or match `pattern`, which
    `rule` explains."""

    types = (dict,)

    def __init__(
        self, expect: str, names: tuple[str, ...] = (), *, pattern: str = "", rule: str = "", least: int = 0
    ) -> None:
        super().__init__(expect)
        self.names, self.pattern, self.rule, self.least = names, pattern, rule, least


FIXED = "fixed"  # mark of a field that is no key
# marks of keys that name a file to write, or a program to run (`config.loader`)
WRITES, RUNS = "writes", "runs"
EITHER = "either"  # mark of keys of a mapping, exactly one of which must be given
NOT_NULL = "not null"  # mark of keys for which `null` may not be written, though an unset field is None


class InPlace:
    """Mark of a field that is no key itself. The keys of the class `settings_class` replace it."""

    def __init__(self, settings_class: type) -> None:
        self.settings_class = settings_class


def either(words: tuple[str, ...]) -> str:
    """Join as `a, b or c`."""
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


class Key(NamedTuple):
    """The description of a key, or of the values in a list or a mapping from names."""

    kind: ValueKind
    null: bool  # whether `null` may be written
    below: type | None  # class whose fields are the keys below
    each: Key | None  # description of the values in a list, or in a mapping from names
    about: About | None
    examples: tuple[object, ...]
    # whether the key is marked EITHER: exactly one key with this mark must be given in its mapping
    either: bool
    default: object  # default value, or MISSING
    required: bool
    touches: str  # WRITES, RUNS, or ""

    @property
    def expect(self) -> str:
        """The words with which messages describe an allowed value."""
        if self.below is not None and not self.kind.expect:
            return f"a mapping: {', '.join(keys_of(self.below))}"
        return self.kind.expect

    @property
    def text(self) -> str:
        """The page's text about the key: that of the annotation or, if there is none, that of the class."""
        if self.about is not None:
            return self.about.text
        return " ".join((self.below.__doc__ or "").split()) if self.below is not None else ""


@cache
def keys_of(settings_class: type) -> Mapping[str, Key]:
    """Return the fields of a class that are keys, in their order. Fields that are marked FIXED are no keys,
    nor are fields without an annotation of this module."""
    keys: dict[str, Key] = {}
    for name, hint in settings_class.__annotations__.items():
        marks = _taken_apart(hint)[1]
        if places := [mark for mark in marks if isinstance(mark, InPlace)]:
            keys |= keys_of(places[0].settings_class)
        elif FIXED not in marks and any(isinstance(mark, (ValueKind, About)) for mark in marks):
            default = _default(settings_class, name)
            keys[name] = key_of(hint, default, required=is_dataclass(settings_class) and default is MISSING)
    return keys


def key_of(hint: Any, default: object = MISSING, *, required: bool = False) -> Key:
    bare, marks, null = _taken_apart(hint)
    kinds = [mark for mark in marks if isinstance(mark, ValueKind)]
    kind = kinds[-1] if kinds else Switch("true or false") if bare is bool else Fields()
    abouts = [mark for mark in marks if isinstance(mark, About)]
    return Key(
        kind=kind,
        null=null and kind.null and NOT_NULL not in marks,
        below=bare if isinstance(kind, Fields) and isinstance(bare, type) else None,
        each=key_of(_of_values(bare)) if isinstance(kind, (Items, Named)) else None,
        about=abouts[-1] if abouts else None,
        examples=next((mark.values for mark in marks if isinstance(mark, Example)), ()),
        either=EITHER in marks,
        default=default,
        required=required,
        touches=next((mark for mark in (WRITES, RUNS) if mark in marks), ""),
    )


def _taken_apart(hint: Any) -> tuple[Any, list[Any], bool]:
    """Return the bare type, its marks with the outermost mark last, and whether it may be None."""
    marks: list[Any] = []
    null = False
    while True:
        origin = get_origin(hint)
        if origin is Annotated:
            marks = [*hint.__metadata__, *marks]
        elif origin in (Union, types.UnionType):
            null = null or type(None) in get_args(hint)
        else:
            return hint, marks, null
        hint = get_args(hint)[0]


def _of_values(kind: Any) -> Any:
    """Return the type of a tuple's or mapping's values."""
    inner = get_args(kind)
    return inner[1] if get_origin(kind) is Mapping else inner[0]


def _default(settings_class: Any, name: str) -> object:
    if not is_dataclass(settings_class):
        return getattr(settings_class, name, MISSING)
    field = settings_class.__dataclass_fields__[name]
    return field.default if field.default_factory is MISSING else field.default_factory()
