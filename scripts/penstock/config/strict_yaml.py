"""Reads YAML strictly: text that could be read in two ways is rejected, with its line.

Snakemake reads the file as YAML 1.1, but people think in YAML 1.2. So plain scalars on which the two differ
are rejected (`no`, `0440`, `1:30`, `2024-01-01`), as are repeated keys, aliases, tags and oversized files.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from pathlib import Path

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
            if key_node.style is None and (doubt(key) or not isinstance(_scalar(key_node), str)):
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
    if why := doubt(text):
        raise StrictYamlError(why, node.start_mark.line + 1)
    return text


def doubt(text: str) -> str:
    """Return why a plain scalar is rejected, or ""."""
    if text in _TRUE_FALSE or text in _NULLS or _INTEGER.fullmatch(text) or _FLOAT.fullmatch(text):
        return ""
    if _AMBIGUOUS.fullmatch(text):
        return (
            f"`{text}` is read in different ways by different programs: "
            f'write "{text}" in quotes if it is text, else true, false or a plain decimal number'
        )
    return ""
