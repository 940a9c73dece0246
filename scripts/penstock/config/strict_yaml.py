"""YAML read strictly: what two readers could read in two ways is refused, with its line. Also configurations
that another program read: a mapping in place of a file's text, and values that go before those of a file
(Snakemake's `--config`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from penstock.core.human import in_quotes, is_utf8, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


# Reads YAML strictly: text that could be read in two ways is rejected, with its line.
#
# Snakemake reads the file as YAML 1.1, but people think in YAML 1.2. So plain scalars on which the two differ
# are rejected (`no`, `0440`, `1:30`, `2024-01-01`), as are repeated keys, aliases, tags and oversized files.

MAX_BYTES = 1 << 20  # bytes in a file, at most
MAX_DEPTH = 16  # levels of nested mappings and lists, at most
MAX_NODES = 50_000  # keys and values in a document, at most; far more than a configuration has

_TRUE_FALSE = {"true": True, "false": False}
_NULLS = {"", "~", "null"}
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)", re.ASCII)
_FLOAT = re.compile(r"[-+]?(0|[1-9][0-9]*)\.[0-9]+([eE][-+]?[0-9]+)?", re.ASCII)
_AMBIGUOUS = re.compile(
    r"(?i:yes|no|on|off|y|n|true|false|null)"
    r"|[-+]?0[0-9_]+|[-+]?0[xbo][0-9a-fA-F_]+"  # octal, hexadecimal, binary
    r"|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?"  # base 60
    r"|[-+]?[0-9][0-9_]*_[0-9_]*"
    r"|[-+]?(\.[0-9]+|[0-9]+\.|[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+|0[0-9]+\.[0-9]*)"
    r"|[-+]?\.(?i:inf|nan)"
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt \t].*)?",
    re.ASCII,
)
_DIGITS = 30
_HINT_ALIAS = 'a value that begins with * or & must be quoted, such as "*.jpg"'

# PyYAML's errors in plain words. Each row has a part of the error's context, a part of its problem, whether
# its line is where the context begins, and the words. The first match counts.
_REFUSALS = (
    ("alias", "", False, _HINT_ALIAS),
    ("anchor", "", False, _HINT_ALIAS),
    ("", "'\\t'", False, "a line is indented by a tab: YAML wants blanks there"),
    ("quoted scalar", "stream", True, "a quote is opened here, and closed nowhere"),
    ("quoted scalar", "document separator", True, "a quote is opened here, and closed nowhere"),
    (
        "quoted scalar", "escape", False,
        "a backslash in double quotes begins an escape that YAML does not know: use single quotes",
    ),
    ("flow sequence", "", True, "a [ is opened here: a comma or its ] is missing"),
    ("flow mapping", "", True, "a { is opened here: a comma or its } is missing"),
    ("", "mapping values are not allowed", False, "a second `: ` in one value: write the value in quotes"),
    ("simple key", "could not find expected ':'", True, "a key without `: ` and a value"),
    (
        "", "cannot start any token", False,
        "a value begins with a character that YAML keeps for itself: write the value in quotes",
    ),
    (
        "block mapping", "expected <block end>", False,
        "this line does not fit the keys above it: it is indented otherwise, or a quote ends too early",
    ),
    ("block collection", "expected <block end>", False, "this line does not fit the list above it"),
)  # fmt: skip

# the keys and list indices (from 0) that lead to a value; () is the whole document
KeyPath = tuple[str | int, ...]


class StrictYamlError(ValueError):
    """An error in text that is no YAML, or is ambiguous. `line` counts from 1."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


class YamlDocument:
    """A parsed file. `value` consists of dict, list, str, int, float, bool and None."""

    def __init__(self, value: Any, lines: dict[KeyPath, int]) -> None:
        self.value = value
        self.lines = lines
        self.content = b""  # the file's bytes; b"" if there is no file

    def line(self, path: KeyPath) -> int:
        """Return the line, from 1, of a key or of its nearest parent that has a line."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def parse(text: str, unclear: dict[KeyPath, str] | None = None) -> YamlDocument:
    """Parse a single document. Raises StrictYamlError. If `unclear` is given, an ambiguous value is no error:
    its key path is added to `unclear` with the reason, and the value stays text."""
    lines: dict[KeyPath, int] = {}
    try:
        _scan(text)
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        raise _understood(error) from error
    except yaml.YAMLError as error:
        raise StrictYamlError(str(error).splitlines()[0], 1) from error
    return YamlDocument(None if root is None else _build(root, (), lines, unclear), lines)


def _understood(error: yaml.MarkedYAMLError) -> StrictYamlError:
    """Translate PyYAML's error. Anything that is not closed has the line at which it is opened."""
    context, problem = error.context or "", error.problem or ""
    end = error.problem_mark or error.context_mark
    begin = error.context_mark or end
    for of, phrase, at_begin, text in _REFUSALS:
        if of in context and phrase in problem:
            mark = begin if at_begin else end
            return StrictYamlError(text, mark.line + 1 if mark else 1)
    return StrictYamlError(problem or "it is no YAML", end.line + 1 if end else 1)


def read(path: Path, unclear: dict[KeyPath, str] | None = None) -> YamlDocument:
    """Parse a file of at most 1 MiB of UTF-8. For `unclear` see `parse`. Raises OSError, StrictYamlError."""
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise StrictYamlError("is larger than 1 MiB", 1)
    try:
        document = parse(content.decode("utf-8"), unclear)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise StrictYamlError("is not UTF-8 text", line) from error
    document.content = content
    return document


def _scan(text: str) -> None:
    """Check the events of parsing, before anything is built, so that nothing can expand or recurse."""
    depth = nodes = documents = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = _line(event)
        if isinstance(event, yaml.AliasEvent):
            raise StrictYamlError(f"aliases are not allowed; {_HINT_ALIAS}", line)
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise StrictYamlError("has more than one document (---)", line)
        if isinstance(event, yaml.NodeEvent):
            nodes += 1
            if nodes > MAX_NODES:
                raise StrictYamlError(f"has more than {MAX_NODES} values", line)
            if event.anchor is not None:
                raise StrictYamlError(f"anchors are not allowed; {_HINT_ALIAS}", line)
            if getattr(event, "tag", None) is not None:
                raise StrictYamlError("tags (!...) are not allowed", line)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise StrictYamlError(f"is nested deeper than {MAX_DEPTH} levels", line)
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1


def _build(
    node: yaml.Node, path: KeyPath, lines: dict[KeyPath, int], unclear: dict[KeyPath, str] | None
) -> Any:
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        mapping: dict[str, object] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise StrictYamlError("a key must be plain text", line)
            key = key_node.value
            if key == "<<":
                raise StrictYamlError("merge keys (<<) are not allowed", line)
            if key_node.style is None and (doubt_of(key) or not isinstance(_scalar(key_node), str)):
                raise StrictYamlError(
                    f'the key {key} is no text to each reader of YAML: write "{key}": in quotes', line
                )
            if key in mapping:
                first = lines[(*path, key)]
                where = ".".join(str(p) for p in (*path, key))
                raise StrictYamlError(
                    f"key `{where}` is given twice, first in line {first}: delete one", line
                )
            lines[(*path, key)] = line
            mapping[key] = _build(value_node, (*path, key), lines, unclear)
        return mapping
    if isinstance(node, yaml.SequenceNode):
        return [_build(child, (*path, i), lines, unclear) for i, child in enumerate(node.value)]
    if not isinstance(node, yaml.ScalarNode):
        raise StrictYamlError("cannot be read", node.start_mark.line + 1)
    try:
        return _scalar(node)
    except StrictYamlError as error:
        if unclear is None:
            raise
        unclear[path] = str(error)
        return node.value


def _scalar(node: yaml.ScalarNode) -> Any:
    text: str = node.value
    if node.style is not None:
        return text
    if text in _TRUE_FALSE:
        return _TRUE_FALSE[text]
    if text in _NULLS:
        return None
    if len(text) > _DIGITS and (_INTEGER.fullmatch(text) or _FLOAT.fullmatch(text)):
        raise StrictYamlError(
            f"a number of {len(text):,} digits is none that this file can mean", node.start_mark.line + 1
        )
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if why := doubt_of(text):
        raise StrictYamlError(why, node.start_mark.line + 1)
    return text


def doubt_of(text: str) -> str:
    """Return why a plain scalar is rejected, or ""."""
    if text in _TRUE_FALSE or text in _NULLS or _INTEGER.fullmatch(text) or _FLOAT.fullmatch(text):
        return ""
    if _AMBIGUOUS.fullmatch(text):
        return (
            f"`{text}` is read in different ways by different programs: "
            f'write "{text}" in quotes if it is text, else true, false or a plain decimal number'
        )
    return ""


# Values that override a configuration file's: Snakemake's `--config` (`config.loader.compose`).
#
# Mappings are merged, and other values are replaced. The result is a new document, which is checked as every
# configuration is, and whose text the steps read as a file.

LAID_OVER = 0  # stands for the line number of a value from `--config`


class Values(NamedTuple):
    """Values by section. An ambiguous value stays text, and `unclear` has the reason by its key path."""

    sections: Mapping[str, object]
    unclear: Mapping[KeyPath, str]


def parse_mapping(words: Iterable[tuple[str, str]]) -> Values:
    """Read pairs of section and YAML text as strictly as a file. Raises StrictYamlError with the section."""
    sections: dict[str, object] = {}
    unclear: dict[KeyPath, str] = {}
    for key, text in words:
        ambiguous: dict[KeyPath, str] = {}
        try:
            sections[key] = parse(text, ambiguous).value
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
    if len(path) > MAX_DEPTH:
        unclear[path] = f"is nested deeper than {MAX_DEPTH} levels"
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
        yield from _below(root, (), [MAX_NODES])


def _below(node: yaml.Node, path: KeyPath, left: list[int]) -> Iterator[_Written]:
    left[0] -= 1
    if left[0] < 0 or len(path) > 2 * MAX_DEPTH:
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
    elif isinstance(node, yaml.ScalarNode) and not node.style and (doubt := doubt_of(node.value)):
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
