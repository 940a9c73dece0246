"""Judges a parsed configuration by the settings' annotations, and reports all problems at once with their key
paths.

`config.semantic_checks` judges combinations of keys.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.config import quantities
from penstock.config.annotations import Fields, Items, Named, Unit, key_of, keys_of
from penstock.config.settings import Config
from penstock.config.source_kinds import KINDS
from penstock.core.human import in_quotes, nearest, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.config.annotations import Key
    from penstock.config.strict_yaml import KeyPath, YamlDocument


class Problem(NamedTuple):
    path: KeyPath
    text: str

    def at(self, place: str) -> str:
        """Return the problem as text, with its key, and with `place` unless that is "":
        `datasets.imagenet.sources[1].url (line 7): is missing`."""
        return (
            f"{_dotted(self.path)} ({place}): {self.text}" if place else f"{_dotted(self.path)}: {self.text}"
        )


def in_lines(several: Iterable[Problem], document: YamlDocument) -> str:
    """Join a document's problems, each with its line, into one line."""
    return "; ".join(problem.at(f"line {document.line(problem.path)}") for problem in several)


def _dotted(path: KeyPath) -> str:
    text = ""
    for key in path:
        text += f"[{key}]" if isinstance(key, int) else f".{key}"
    return text.lstrip(".").encode("unicode_escape").decode() or "the file"


def problems(value: Any, hint: Any = Config, where: KeyPath = ()) -> list[Problem]:
    """Return the values that the annotations do not allow, in the order of key paths. `hint` declares the
    value at `where`: a class of keys, or an annotated type."""
    # Only in a configuration may an unknown key belong to another section.
    of_file = hint is Config or bool(where)
    distinct = dict.fromkeys(_of_value(key_of(hint), value, where, of_file=of_file))
    return sorted(distinct, key=lambda problem: [str(key) for key in problem.path])


def _of_value(key: Key, value: Any, path: KeyPath, *, of_file: bool) -> Iterator[Problem]:
    kind = key.kind
    if value is None and key.null:
        return
    if isinstance(kind, Unit):
        try:
            quantities.READERS[kind.name](value)
            if value == 0 and not kind.zero:
                raise ValueError(f"must be {quantities.SIZE_HELP}")
        except ValueError as error:
            yield Problem(path, f"{shown(value)} {error}")
        return
    if (kind.types and type(value) not in kind.types) or not kind.allows(value):
        yield from _unfit(key, value, path)
    if isinstance(kind, Items) and isinstance(value, list) and key.each:
        if kind.unique and len(set(map(repr, value))) < len(value):
            yield Problem(path, f"{shown(value)} names something twice")
        for index, item in enumerate(value):
            yield from _of_value(key.each, item, (*path, index), of_file=of_file)
    if isinstance(kind, (Fields, Named)) and isinstance(value, dict):
        if len(value) < kind.least:
            yield Problem(path, f"is empty: give {key.expect}")
        below = _of_names if isinstance(kind, Named) else _of_keys
        yield from below(key, value, path, of_file=of_file)


def _of_names(key: Key, values: dict[str, Any], path: KeyPath, *, of_file: bool) -> Iterator[Problem]:
    """Check a mapping from names to parts of the same form."""
    kind: Any = key.kind
    for name, value in values.items():
        at = (*path, name)
        if kind.names and name not in kind.names:
            yield _unknown(at, list(kind.names), of_file=of_file)
            continue
        if not re.search(kind.pattern, name):
            yield Problem(at, kind.rule)
        if key.each:
            yield from _of_value(key.each, value, at, of_file=of_file)


def _of_keys(key: Key, values: dict[str, Any], path: KeyPath, *, of_file: bool) -> Iterator[Problem]:
    """Check a mapping whose keys are the fields of a class."""
    if key.below is None:
        return
    keys = keys_of(key.below)
    if either := [name for name, inner in keys.items() if inner.either]:
        present = [name for name in either if name in values]
        if len(present) > 1:
            names = " or ".join(f"`{name}`" for name in either)
            yield Problem((*path, either[-1]), f"give {names}, not both")
        elif not present:
            yield Problem((*path, either[0]), f"is missing: give {keys[either[0]].expect}")
    for name in sorted(set(values) - set(keys)):
        yield _unknown((*path, name), list(keys), of_file=of_file)
    for name, inner in keys.items():
        if name in values:
            yield from _of_value(inner, values[name], (*path, name), of_file=of_file)
        elif inner.required:
            yield Problem((*path, name), f"is missing: give {inner.expect}")


_TYPES = {
    dict: "a mapping", list: "a list", str: "text", bool: "true or false", int: "a number",
    float: "a number",
}  # fmt: skip


def _unfit(key: Key, value: Any, path: KeyPath) -> Iterator[Problem]:
    """Yield a problem for a value that its kind does not allow."""
    if value is None:
        yield Problem(path, f"has no value: give {key.expect}")
    else:
        types = key.kind.types
        why = f"is {_TYPES[type(value)]}" if types and type(value) not in types else "cannot be used"
        yield Problem(path, f"{shown(value)} {why}; give {key.expect}")


def _unknown(path: KeyPath, names: list[str], *, of_file: bool) -> Problem:
    name = str(path[-1])
    if of_file and _ALIASES.get(name) not in names and (places := _places(path)):
        return Problem(path, f"unknown key; its place is {' or '.join(f'`{place}`' for place in places)}")
    return Problem(path, f"unknown key{_nearest(name, names)}")


def _places(path: KeyPath) -> list[str]:
    """Return other places of a key with this name, within the same dataset: in each section, only the
    outermost."""
    dataset = str(path[1]) if path[0] == "datasets" and len(path) > 2 else "NAME"
    places: dict[str, KeyPath] = {}
    for place in sorted(_paths(Config, ()), key=len):
        if place[-1] == path[-1]:
            places.setdefault(str(place[0]), tuple(dataset if key == _NAME else key for key in place))
    return [_dotted(place) for place in places.values() if place != path]


_NAME = "<dataset>"


def _paths(settings_class: type, path: KeyPath) -> Iterator[KeyPath]:
    """Yield all keys below a class at `path`."""
    for name, key in keys_of(settings_class).items():
        yield (*path, name)
        yield from _paths_below(key, (*path, name))


def _paths_below(key: Key, path: KeyPath) -> Iterator[KeyPath]:
    """Yield all keys below this key, also those of all storage options."""
    if isinstance(key.kind, Fields):
        for settings_class in [kind.options for kind in KINDS] if key.below is None else [key.below]:
            if settings_class is not None:
                yield from _paths(settings_class, path)
    if key.each:
        for name in (key.kind.names or (_NAME,)) if isinstance(key.kind, Named) else (0,):
            yield (*path, name)
            yield from _paths_below(key.each, (*path, name))


# {name that other programs use: key}
_ALIASES = {
    "account": "account_name", "anonymous": "anon", "client_kwargs": "endpoint_url",
    "endpoint": "endpoint_url", "region_name": "region", "verify": "ca_bundle",
}  # fmt: skip


def _nearest(key: str, names: list[str]) -> str:
    if _ALIASES.get(key) in names:
        return f"; did you mean `{_ALIASES[key]}`?"
    close = nearest(key, names)
    if close:
        return f"; did you mean `{close}`?"
    return f"; there are: {', '.join(names)}" if names else ""


def shown(value: Any) -> str:
    """Shorten a value for a message, to a single printable line."""
    text = _as_yaml(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _as_yaml(value: Any) -> str:
    """Write a value as YAML in one line."""
    match value:
        case None | bool():
            return {None: "null", True: "true", False: "false"}[value]
        case str():
            return in_quotes(value)
        case list() | tuple():
            return f"[{', '.join(map(_as_yaml, value))}]"
        case dict():
            return (
                f"{{{', '.join(f'{printable(str(key))}: {_as_yaml(node)}' for key, node in value.items())}}}"
            )
        case _:
            return str(value)
