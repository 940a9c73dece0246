"""The configuration of the workflow as a module of another one: `module penstock: config: ...`.

| the module's `config:`                               | the steps read                     | --config is |
|------------------------------------------------------|------------------------------------|-------------|
| what one configuration file holds, with --config     | that file; messages name its lines | penstock's  |
| the outer workflow's whole configuration, of several | a file made of the values          | penstock's  |
| a part of it, as `config["penstock"]`, or any other  | a file made of the values          | the outer's |

Snakemake passes values, which its reading of YAML may have changed: `config.parsed_mapping` refuses some.
`workflow/rules/common.smk` calls `base`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import yaml

from penstock.config import loader, parsed_mapping
from penstock.core.errors import ConfigError
from penstock.workflow import workflow_values

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_SELECTING = {workflow_values.DATASET, *workflow_values.STAGING, *workflow_values.AUDIT}


class ModuleInput(NamedTuple):
    """Snakemake's input to a module."""

    name: str
    values: Mapping[object, object]
    outer: Mapping[object, object]  # the whole configuration of the outer workflow
    files: Sequence[str | Path]  # the files of `outer`
    before_files: Mapping[str, object]  # overrides of `configfile:`: --configfile and --config


def base(module: ModuleInput, words: Sequence[str]) -> tuple[loader.BaseConfiguration, Sequence[str]]:
    """Return the configuration, and penstock's words of --config. Raises ConfigError."""
    if not module.values:
        raise ConfigError(
            f"module {module.name} is given no configuration",
            hint='write `config: config` into the module statement, or `config: config["penstock"]`',
        )
    texts = list(_texts(module.files))
    if module.values != module.outer:
        return _made(module, module.values, texts), []
    for file, text in zip(module.files, texts, strict=True):
        if parsed_mapping.merged(_read(text.text), module.before_files) == module.values:
            return loader.read_base(Path(file).absolute()), words
    named = {word.partition("=")[0] for word in words} & _SELECTING
    values = {key: value for key, value in module.values.items() if key not in named}
    return _made(module, values, texts), words


def _made(
    module: ModuleInput, values: Mapping[object, object], texts: Sequence[parsed_mapping.ConfigText]
) -> loader.BaseConfiguration:
    document, unclear = parsed_mapping.document(values, texts)
    return loader.BaseConfiguration(f"of module {module.name}", None, document, unclear)


def _texts(files: Sequence[str | Path]) -> Iterator[parsed_mapping.ConfigText]:
    for file in files:
        try:
            text = Path(file).read_text(encoding="utf-8")
        except (OSError, ValueError):
            text = ""  # Snakemake has read the file, and its values count
        yield parsed_mapping.ConfigText(str(file), text)


def _read(text: str) -> object:
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
