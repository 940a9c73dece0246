"""Values that go before a configuration file's: Snakemake's `--config` (`config.loader.compose`).

Mappings are merged, other values replaced. The result is a document of its own, checked as every
configuration, whose text steps read as a file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import yaml

from penstock.config import strict_yaml
from penstock.config.strict_yaml import KeyPath, StrictYamlError, YamlDocument

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LAID_OVER = 0  # in place of a line number: a value of `--config`


class Values(NamedTuple):
    """Values by section. `unclear`: by key path, why a value is ambiguous; it is kept as text."""

    sections: Mapping[str, object]
    unclear: Mapping[KeyPath, str]


def parse(words: Iterable[tuple[str, str]]) -> Values:
    """Read (section, YAML text) pairs as strictly as the file. Raises StrictYamlError with the section."""
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
    """Lay these sections over the document. `heading` is a comment above its text, which stays where nothing
    changes."""
    lines = dict(document.lines)
    made = YamlDocument(_merged(document.value, dict(sections), (), lines), lines)
    # A document without a file has no text.
    same = made.value == document.value and document.content
    made.content = document.content if same else f"# {heading}\n{_text(made.value)}".encode()
    return made


def merged(below: object, above: object) -> object:
    """Lay `above` over `below`, as `laid_over`."""
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
    """Quotes all text, so that `strict_yaml` doubts nothing."""


def _quoted(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')


_Dumper.add_representer(str, _quoted)


def _text(value: object) -> str:
    return str(
        yaml.dump(value, Dumper=_Dumper, allow_unicode=True, sort_keys=False, default_flow_style=False)
    )
