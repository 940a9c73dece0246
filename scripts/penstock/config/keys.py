"""The keys of a configuration, as the settings' annotations declare them, for its checks, page and schema."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, is_dataclass
from functools import cache
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

from penstock.config.annotations import (
    EITHER,
    FIXED,
    NOT_NULL,
    RUNS,
    WRITES,
    About,
    Example,
    Fields,
    InPlace,
    Items,
    Named,
    Switch,
    ValueKind,
)


class Key(NamedTuple):
    """A key, or the values of a list or mapping of names."""

    kind: ValueKind
    null: bool  # whether `null` may be written
    below: type | None  # class whose fields are the keys below
    each: Key | None  # values of a list, or of a mapping of names
    about: About | None
    examples: tuple[object, ...]
    either: bool  # it is given, or another key of the mapping with this mark
    default: object  # or MISSING
    required: bool
    touches: str  # WRITES, RUNS, or ""

    @property
    def expect(self) -> str:
        """What messages ask for."""
        if self.below is not None and not self.kind.expect:
            return f"a mapping: {', '.join(keys_of(self.below))}"
        return self.kind.expect

    @property
    def text(self) -> str:
        """The configuration page's text: of the annotation, or else of the class."""
        if self.about is not None:
            return self.about.text
        return " ".join((self.below.__doc__ or "").split()) if self.below is not None else ""


@cache
def keys_of(settings_class: type) -> Mapping[str, Key]:
    """Return the fields of a class that are keys, in their order. Fields marked FIXED are not, nor those
    without an annotation of `config.annotations`."""
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
    """Return the bare type, its marks with outer ones last, and whether it may be None."""
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
