"""What is wrong with a parsed configuration, in sentences: every problem at once.

Values are judged by the annotations of the settings (`config.keys`), each with its key path. Pure; the
loader, the site's file and descriptions of datasets are checked by it. What one key says of another is judged
in `config.semantic_checks`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.config import quantities
from penstock.config.annotations import Fields, Items, Named, Unit
from penstock.config.keys import key_of, keys_of
from penstock.config.settings import Config
from penstock.config.source_kinds import KINDS
from penstock.core.text import in_quotes, nearest, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.config.keys import Key
    from penstock.config.strict_yaml import KeyPath, YamlDocument


class Problem(NamedTuple):
    """One problem of a configuration."""

    path: KeyPath
    text: str

    def at(self, place: str) -> str:
        """With its key and where that stands, "" for nowhere: `datasets.imagenet.sources[1].url (line 7): is
        missing`."""
        return (
            f"{_dotted(self.path)} ({place}): {self.text}" if place else f"{_dotted(self.path)}: {self.text}"
        )


def in_lines(found: Iterable[Problem], document: YamlDocument) -> str:
    """Several problems of a document, each with its line, in one line of text."""
    return "; ".join(problem.at(f"line {document.line(problem.path)}") for problem in found)


def _dotted(path: KeyPath) -> str:
    text = ""
    for key in path:
        text += f"[{key}]" if isinstance(key, int) else f".{key}"
    return text.lstrip(".").encode("unicode_escape").decode() or "the file"


def problems(value: Any, hint: Any = Config, where: KeyPath = ()) -> list[Problem]:
    """Everything that the annotations refuse, by key path; [] when all is well. `hint`: what the value, which
    stands at `where`, shall be: a class of keys, or a type that is annotated."""
    # Of the configuration or a part of it: an unknown key may have its place elsewhere there.
    of_file = hint is Config or bool(where)
    found = dict.fromkeys(_of_value(key_of(hint), value, where, of_file=of_file))
    return sorted(found, key=lambda problem: [str(key) for key in problem.path])


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
    """Of a mapping whose values are alike."""
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
    """Of a mapping whose keys are the fields of a class."""
    if key.below is None:
        return
    keys = keys_of(key.below)
    if either := [name for name, inner in keys.items() if inner.either]:
        given = [name for name in either if name in values]
        if len(given) > 1:
            names = " or ".join(f"`{name}`" for name in either)
            yield Problem((*path, either[-1]), f"give {names}, not both")
        elif not given:
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
    """Of a value that its kind does not take."""
    if value is None:
        yield Problem(path, f"has no value: give {key.expect}")
    else:
        types = key.kind.types
        why = f"is {_TYPES[type(value)]}" if types and type(value) not in types else "cannot be used"
        yield Problem(path, f"{shown(value)} {why}; give {key.expect}")


def _unknown(path: KeyPath, known: list[str], *, of_file: bool) -> Problem:
    name = str(path[-1])
    if of_file and _ALIASES.get(name) not in known and (places := _places(path)):
        return Problem(path, f"unknown key; its place is {' or '.join(f'`{place}`' for place in places)}")
    return Problem(path, f"unknown key{_nearest(name, known)}")


def _places(path: KeyPath) -> list[str]:
    """Where else in the configuration a key of this name stands: the outermost place in each of its parts.
    Of a dataset, in the same one."""
    dataset = str(path[1]) if path[0] == "datasets" and len(path) > 2 else "NAME"
    places: dict[str, KeyPath] = {}
    for place in sorted(_paths(Config, ()), key=len):
        if place[-1] == path[-1]:
            places.setdefault(str(place[0]), tuple(dataset if key == _NAME else key for key in place))
    return [_dotted(place) for place in places.values() if place != path]


_NAME = "<dataset>"


def _paths(settings_class: type, path: KeyPath) -> Iterator[KeyPath]:
    """All keys below a class that stands at `path`."""
    for name, key in keys_of(settings_class).items():
        yield (*path, name)
        yield from _paths_below(key, (*path, name))


def _paths_below(key: Key, path: KeyPath) -> Iterator[KeyPath]:
    """With those of every kind of storage options."""
    if isinstance(key.kind, Fields):
        for settings_class in [kind.options for kind in KINDS] if key.below is None else [key.below]:
            if settings_class is not None:
                yield from _paths(settings_class, path)
    if key.each:
        for name in (key.kind.names or (_NAME,)) if isinstance(key.kind, Named) else (0,):
            yield (*path, name)
            yield from _paths_below(key.each, (*path, name))


_ALIASES = {
    "account": "account_name", "anonymous": "anon", "client_kwargs": "endpoint_url",
    "endpoint": "endpoint_url", "region_name": "region", "verify": "ca_bundle",
}  # fmt: skip
"""Keys by other programs' names."""


def _nearest(key: str, known: list[str]) -> str:
    if _ALIASES.get(key) in known:
        return f"; did you mean `{_ALIASES[key]}`?"
    close = nearest(key, known)
    if close:
        return f"; did you mean `{close}`?"
    return f"; there are: {', '.join(known)}" if known else ""


def shown(value: Any) -> str:
    """A value in a message: short, on one line, printable."""
    text = _as_yaml(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _as_yaml(value: Any) -> str:
    """On one line, as YAML would have it."""
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
