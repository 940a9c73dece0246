"""The YAML file that a dataset's `describe` names: what catalogues are shown of the dataset. Read wherever a
configuration is loaded; nothing else is touched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.config import strict_yaml, validation
from penstock.config.settings import DescribeConfig
from penstock.config.strict_yaml import StrictYamlError
from penstock.core.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def read(path: Path) -> dict[str, Any]:
    """The file's mapping, as `DescribeConfig` allows it; {} of an empty file. Raises ConfigError with each
    problem's line."""
    try:
        document = strict_yaml.read(path)
    except StrictYamlError as error:
        raise _unusable(path, f"line {error.line}: {error}") from None
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from None
    value = {} if document.value is None else document.value
    if found := validation.problems(value, DescribeConfig):
        raise _unusable(path, validation.in_lines(found, document))
    return dict(value)


def _unusable(path: Path, why: str) -> ConfigError:
    return ConfigError(
        "the description of the dataset cannot be used",
        where=str(path),
        why=why,
        hint="`describe` in the configuration names it: a YAML file with lines such as `license: URL`",
    )
