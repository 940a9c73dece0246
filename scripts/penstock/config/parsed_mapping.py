"""Converts configurations that another program has read: a mapping that replaces a file's text, or values
that override those of a file (Snakemake's `--config`). Pure; for the workflow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import yaml

from penstock.config import strict_yaml
from penstock.config.strict_yaml import KeyPath, StrictYamlError, YamlDocument
from penstock.core.human import in_quotes, is_utf8, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


# Values that override a configuration file's: Snakemake's `--config` (`config.loader.compose`).
#
# Mappings are merged, and other values are replaced. The result is a new document, which is checked as every
# configuration is, and whose text the steps read as a file.

LAID_OVER = 0  # stands for the line number of a value from `--config`


class Values(NamedTuple):
    """Values by section. An ambiguous value stays text, and `unclear` has the reason by its key path."""

    sections: Mapping[str, object]
    unclear: Mapping[KeyPath, str]


def parse(words: Iterable[tuple[str, str]]) -> Values:
    """Read pairs of section and YAML text as strictly as a file. Raises StrictYamlError with the section."""
    sections: dict[str, object] = {}
    unclear: dict[KeyPath, str] = {}
    for key, text in words:
        ambiguous: dict[KeyPath, str] = {}
        try:
            sections[key] = strict_yaml.parse(text, ambiguous).value
        except StrictYamlError as error:
            raise StrictYamlError(f"{key}={text}: {error}", error.line) from error
        unclear |= {(key, *path): why for path, why in ambiguous.items()}
    return Values(sections, unclear)


def laid_over(document: YamlDocument, sections: Mapping[str, object], heading: str) -> YamlDocument:
    """Return the document with these sections merged in. If no value changes, its text stays. Otherwise it
    gets a new text, below the comment `heading`."""
    lines = dict(document.lines)
    made = YamlDocument(_merged(document.value, dict(sections), (), lines), lines)
    # A document without a file has no text.
    same = made.value == document.value and document.content
    made.content = document.content if same else f"# {heading}\n{_text(made.value)}".encode()
    return made


def merged(below: object, above: object) -> object:
    """Merge `above` into `below`, as `laid_over` does."""
    return _merged(below, above, (), {})


def _merged(below: object, above: object, path: KeyPath, lines: dict[KeyPath, int]) -> object:
    if isinstance(below, dict) and isinstance(above, dict):
        new = {key: _merged(below.get(key), value, (*path, key), lines) for key, value in above.items()}
        return {**below, **new}
    for place in [place for place in lines if place[: len(path)] == path]:
        del lines[place]
    lines[path] = LAID_OVER
    return above


class _Dumper(yaml.SafeDumper):
    """Quotes all text, so that `strict_yaml` finds no text ambiguous."""


def _quoted(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')


_Dumper.add_representer(str, _quoted)


def _text(value: object) -> str:
    return str(
        yaml.dump(value, Dumper=_Dumper, allow_unicode=True, sort_keys=False, default_flow_style=False)
    )


# A configuration that another program read: a mapping instead of a file (`workflow.workflow_values`).
#
# That program may have changed the values. YAML 1.1 reads `010` as 8, `1:30:00` as 5400, `2026-11-27` as a
# date, and only the last of repeated keys. So values of other types than YAML's plain ones are rejected. If
# the files' texts are known, each value is compared with its text. A value that is still the written text
# (`1e5`) stays.

UNWRITTEN = -1  # stands for the line number of a value whose text is unknown


class ConfigText(NamedTuple):
    """A text from which values may have been read. `name` is its file's name, for messages."""

    name: str
    text: str


def document(
    values: Mapping[object, object], texts: Iterable[ConfigText]
) -> tuple[YamlDocument, Mapping[KeyPath, str]]:
    """Return the values as a document without lines and text, and the problems by key path. Values that are
    not plain, or that differ from their form in `texts`, are problems."""
    unclear: dict[KeyPath, str] = {}
    made = YamlDocument(_plain(values, (), unclear), {(): UNWRITTEN})
    for read in texts:
        for written in _lossy(read.text):
            for path in _places(written, made.value):
                unclear.setdefault(path, f"{written.why} ({printable(read.name)}, line {written.line})")
    return made, unclear


# Values ------------------------------------------------------------------------------------


def _plain(value: object, path: KeyPath, unclear: dict[KeyPath, str]) -> object:
    """Convert to a document's types. A value of any other type is added to `unclear`, and becomes text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, str):
        if value.isprintable() or is_utf8(value):
            return str(value)
        unclear[path] = "is not UTF-8 text"
        return printable(value)
    if len(path) > strict_yaml.MAX_DEPTH:
        unclear[path] = f"is nested deeper than {strict_yaml.MAX_DEPTH} levels"
        return None
    if isinstance(value, Mapping):
        return dict(_items(value, path, unclear))
    if isinstance(value, list | tuple):
        return [_plain(child, (*path, index), unclear) for index, child in enumerate(value)]
    unclear[path] = (
        f"{in_quotes(str(value))} is neither text, a number, true, false nor a list: a date or a time is "
        "written in quotes"
    )
    return printable(str(value))


def _items(
    values: Mapping[object, object], path: KeyPath, unclear: dict[KeyPath, str]
) -> Iterator[tuple[str, object]]:
    for key, child in values.items():
        name = printable(str(key))
        if not isinstance(key, str):
            unclear[(*path, name)] = (
                "its name is no text to YAML (a number, a date, yes or no): write it in quotes"
            )
        yield name, _plain(child, (*path, name), unclear)


# Texts -------------------------------------------------------------------------------------


class _Written(NamedTuple):
    """A place in a text whose written value differs from the value that YAML 1.1 reads."""

    path: KeyPath
    line: int
    why: str
    read: object  # the value that YAML 1.1 reads, or `_ANYTHING`


_ANYTHING = object()


def _lossy(text: str) -> Iterator[_Written]:
    """Yield the places of a text that `_Written` describes. A text that is no YAML has none. The search ends
    after MAX_NODES values."""
    try:
        # libyaml's loader, if present: the outer configuration may be large.
        root = yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError:
        return
    if root is not None:
        yield from _below(root, (), [strict_yaml.MAX_NODES])


def _below(node: yaml.Node, path: KeyPath, left: list[int]) -> Iterator[_Written]:
    left[0] -= 1
    if left[0] < 0 or len(path) > 2 * strict_yaml.MAX_DEPTH:
        return
    line = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        keys: dict[str, int] = {}
        for key_node, child in node.value:
            key = str(key_node.value)
            below = path if key == "<<" else (*path, key)
            again = key_node.start_mark.line + 1
            if key in keys and key != "<<":
                yield _Written(below, again, f"is given twice, first in line {keys[key]}", _ANYTHING)
            keys[key] = again
            yield from _below(child, below, left)
    elif isinstance(node, yaml.SequenceNode):
        for index, child in enumerate(node.value):
            yield from _below(child, (*path, index), left)
    elif isinstance(node, yaml.ScalarNode) and not node.style and (doubt := strict_yaml.doubt(node.value)):
        read = yaml.safe_load(node.value)
        if not isinstance(read, str):
            yield _Written(path, line, doubt, read)


def _places(written: _Written, values: object) -> Iterator[KeyPath]:
    """Yield the key paths at which the values may come from this place of the text. They are the ends of the
    place's path in the text that lead to an equal value."""
    for begin in range(len(written.path)):
        path = written.path[begin:]
        value = _at(values, path)
        same = type(value) is type(written.read) and value == written.read
        if value is not _NOTHING and (same or written.read is _ANYTHING):
            yield path


_NOTHING = object()


def _at(value: object, path: KeyPath) -> object:
    for key in path:
        inside = isinstance(value, dict) and key in value
        if not inside and not (isinstance(value, list) and isinstance(key, int) and key < len(value)):
            return _NOTHING
        value = value[key]  # type: ignore[index]
    return value
