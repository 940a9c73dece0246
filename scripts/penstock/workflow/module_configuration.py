"""The configuration of the workflow where it is a module of another one: `module penstock: config: ...`.

| the module's `config:`                               | the steps read                     | --config is |
|------------------------------------------------------|------------------------------------|-------------|
| what one configuration file holds, with --config     | that file; messages name its lines | penstock's  |
| the outer workflow's whole configuration, of several | a file made of the values          | penstock's  |
| a part of it, as `config["penstock"]`, or any other  | a file made of the values          | the outer's |

Snakemake hands values over, which its reading of YAML may have changed: `config.parsed_mapping` says what of
that is refused.

`workflow/rules/common.smk` calls `base` where the workflow is a module. The files of the outer workflow's
configuration are read; nothing is written here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import yaml

from penstock.config import loader, overlay, parsed_mapping
from penstock.core.errors import ConfigError
from penstock.workflow import workflow_values

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_SELECTING = {workflow_values.DATASET, *workflow_values.STAGING, *workflow_values.AUDIT}


class ModuleInput(NamedTuple):
    """What a module gets of Snakemake."""

    name: str
    values: Mapping[object, object]
    outer: Mapping[object, object]
    """The whole configuration of the outer workflow."""
    files: Sequence[str | Path]
    """From which that was read."""
    before_files: Mapping[str, object]
    """What went before those of `configfile:`: --configfile and --config."""


def base(given: ModuleInput, words: Sequence[str]) -> tuple[loader.BaseConfiguration, Sequence[str]]:
    """The configuration, and of the words of --config those that are penstock's. Raises ConfigError."""
    if not given.values:
        raise ConfigError(
            f"module {given.name} is given no configuration",
            hint='write `config: config` into the module statement, or `config: config["penstock"]`',
        )
    texts = list(_texts(given.files))
    if given.values != given.outer:
        return _made(given, given.values, texts), []
    for file, text in zip(given.files, texts, strict=True):
        if overlay.merged(_read(text.text), given.before_files) == given.values:
            return loader.read_base(Path(file).absolute()), words
    named = {word.partition("=")[0] for word in words} & _SELECTING
    values = {key: value for key, value in given.values.items() if key not in named}
    return _made(given, values, texts), words


def _made(
    given: ModuleInput, values: Mapping[object, object], texts: Sequence[parsed_mapping.ConfigText]
) -> loader.BaseConfiguration:
    document, unclear = parsed_mapping.document(values, texts)
    return loader.BaseConfiguration(f"of module {given.name}", None, document, unclear)


def _texts(files: Sequence[str | Path]) -> Iterator[parsed_mapping.ConfigText]:
    for file in files:
        try:
            text = Path(file).read_text(encoding="utf-8")
        except (OSError, ValueError):
            text = ""  # Snakemake has read it; what it has read counts
        yield parsed_mapping.ConfigText(str(file), text)


def _read(text: str) -> object:
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
