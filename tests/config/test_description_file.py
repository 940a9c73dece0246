"""The file that `describe` names: read with the configuration, refused with its lines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from penstock.config import serialization, settings
from penstock.config.loader import load
from penstock.core.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    path = tmp_path / "my.yaml"
    described = {"source": "/s", "describe": str(tmp_path / "about.yaml")}
    path.write_text(json.dumps({"target": {"root": "/t"}, "datasets": {"d": described}}))
    return path


def test_what_it_says_is_part_of_the_configuration_and_of_a_runs(configuration: Path) -> None:
    about = configuration.with_name("about.yaml")
    about.write_text("name: Words\nlicense: [CC0]\ncreators:\n  - {name: Us, kind: organization}\n")
    config = load(configuration)
    described = config.datasets["d"].describe
    assert described == settings.DescribeConfig(
        "Words", license=("CC0",), creators=(settings.PartyConfig("Us", "organization"),)
    )
    frozen = json.loads(json.dumps(serialization.freeze(config, config.datasets["d"])))
    about.unlink()
    assert serialization.RunConfig(frozen, "run.json").dataset.describe == described


def test_an_empty_file_is_a_description(configuration: Path) -> None:
    configuration.with_name("about.yaml").write_text("# nothing yet\n")
    assert load(configuration).datasets["d"].describe == settings.DescribeConfig()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file"),
        ("- a\n", "the file (line 1)"),
        ("name: A\nlicence: [CC0]\n", "licence (line 2): unknown key; did you mean `license`?"),
        ("name: A\nurl: ftp://x\n", "url (line 2)"),
        ("name: [\n", "line "),
    ],
)
def test_one_that_cannot_be_used_is_refused_by_name(configuration: Path, text: str | None, said: str) -> None:
    about = configuration.with_name("about.yaml")
    if text is not None:
        about.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(configuration)
    assert said in str(caught.value)
    assert str(about) in str(caught.value)


def test_words_in_the_configuration_itself_are_told_to_go_into_a_file(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    described = {"source": "/s", "describe": {"name": "Words"}}
    path.write_text(json.dumps({"target": {"root": "/t"}, "datasets": {"d": described}}))
    with pytest.raises(ConfigError, match="the path of a YAML file"):
        load(path)
