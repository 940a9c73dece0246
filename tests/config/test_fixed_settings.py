"""Settings without a key: tests set them by a variable of the environment, and nobody else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

from penstock.config import loader
from penstock.config.loader import load
from penstock.core.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    path = tmp_path / "my.yaml"
    path.write_text(yaml.safe_dump({"target": {"root": "/t"}, "datasets": {"d": {"source": "/s"}}}))
    return path


def test_the_variable_goes_before_the_defaults(configuration: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(loader.TESTED, '{"plan.shard_files": 7, "plan.part_bytes": "1MiB"}')
    plan = load(configuration).plan
    assert (plan.shard_files, plan.part_bytes) == (7, 1 << 20)


def test_what_is_laid_over_leaves_the_mapping_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(loader.TESTED, '{"a.b": 1, "a.d.e": 2}')
    given = {"a": {"b": 0, "c": 3}}
    assert loader.laid_over(given) == {"a": {"b": 1, "c": 3, "d": {"e": 2}}}
    assert given == {"a": {"b": 0, "c": 3}}


@pytest.mark.parametrize("text", ["{", "[]", "7"])
def test_a_variable_that_holds_anything_else_is_refused_by_name(
    text: str, configuration: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(loader.TESTED, text)
    with pytest.raises(ConfigError, match=loader.TESTED):
        load(configuration)
