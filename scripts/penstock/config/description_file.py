"""The YAML file that a dataset's `describe` names, for catalogues. It is read with each configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.config import strict_yaml, validation
from penstock.config.settings import DescribeConfig
from penstock.config.strict_yaml import StrictYamlError
from penstock.core.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def read(path: Path) -> dict[str, Any]:
    """Read the file's mapping as `DescribeConfig` allows it; {} if empty. Raises ConfigError with the line of
    each problem."""
    try:
        document = strict_yaml.read(path)
    except StrictYamlError as error:
        raise _unusable(path, f"line {error.line}: {error}") from None
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from None
    value = {} if document.value is None else document.value
    if mistakes := validation.problems(value, DescribeConfig):
        raise _unusable(path, validation.in_lines(mistakes, document))
    return dict(value)


def _unusable(path: Path, why: str) -> ConfigError:
    return ConfigError(
        "the description of the dataset cannot be used",
        where=str(path),
        why=why,
        hint="`describe` in the configuration names it: a YAML file with lines such as `license: URL`",
    )
