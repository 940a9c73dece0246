"""The pages of the configuration and the schema for editors are complete, and what their generators print."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from docs import configuration, schema
from penstock.config import validation
from penstock.config.annotations import keys_of
from penstock.config.settings import Config
from penstock.config.source_kinds import KINDS

ROOT = Path(__file__).resolve().parents[2]
OF_KIND = {kind.name: kind.options for kind in KINDS if kind.options}
OPTIONS = [(kind, name, key) for kind, part in OF_KIND.items() for name, key in keys_of(part).items()]
TAIL = "_[A-Z0-9_]+"
VARIABLE = re.compile(
    rf"""["']((?:PENSTOCK|SLURMD?|AWS|AZURE|GOOGLE|XDG){TAIL}|[A-Z]+_PROXY|[A-Z]+_CA_BUNDLE|[A-Z]+_CERT_FILE)["']"""
    r"""|\b(?:e|environ|environment)(?:\.get\(|\.setdefault\(|\[)["']([A-Z_]+)["']"""
)
"""A name that stands in the code as an environment variable's does, or that is looked up in one."""
NOT_READ = {"SLURM_VERSION", "SLURM_TIME_FORMAT", "AZURE_STORAGE_"}
"""A line of scontrol's answer; what penstock sets for SLURM's commands; the beginning of six names."""


EXAMPLES = [(dotted, example) for dotted, key, _ in configuration.all_keys() for example in key.examples]


@pytest.mark.parametrize(("name", "text"), configuration.pages().items(), ids=configuration.pages())
def test_the_page_is_what_the_generator_prints(name: str, text: str) -> None:
    written = (configuration.HERE / name).read_text(encoding="utf-8")
    assert written == text, f"docs/{name} is out of date: run `make docs`"


def test_each_key_has_one_entry() -> None:
    entries = re.findall(r"^### `(.+)`$", "".join(configuration.pages().values()), re.MULTILINE)
    assert sorted(entries) == sorted(dotted for dotted, _, _ in configuration.all_keys())


def test_the_schema_is_what_its_generator_prints() -> None:
    assert schema.FILE.read_text(encoding="utf-8") == schema.text(), "out of date: run `make docs`"


def test_the_schema_takes_the_example_and_no_unknown_key() -> None:
    validator = Draft202012Validator(yaml.safe_load(schema.text()))
    example = yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8"))
    assert list(validator.iter_errors(example)) == []
    assert not validator.is_valid({**example, "engin": {}})
    assert not validator.is_valid({**example, "engine": {"streams": 0}})


def test_every_key_and_option_has_a_description() -> None:
    keys = {
        **keys_of(Config),
        **{dotted: key for dotted, key, _ in configuration.all_keys()},
        **{f"{kind}: {name}": key for kind, name, key in OPTIONS},
    }
    assert len(keys) > 100
    assert not [name for name, key in keys.items() if not key.text]
    assert all(part.__doc__ for part in OF_KIND.values())


@pytest.mark.parametrize(("dotted", "example"), EXAMPLES)
def test_examples_of_keys_can_be_used(dotted: str, example: Any) -> None:
    dataset: dict[str, Any] = {"source": "s3://b/p/"}
    config: dict[str, Any] = {"target": {"root": "/scratch"}, "datasets": {"d": dataset}}
    *parents, last = dotted.replace("<dataset>", "d").split(".")
    here = config
    for name in parents:
        if name == "sources[]":
            del dataset["source"]
            here["sources"] = [{"url": "s3://b/p/"}]
            here = here["sources"][0]
        elif name == "modes[]":
            here["modes"] = [{"match": "*.sh"}]
            here = here["modes"][0]
        elif name == "creators[]":
            here["creators"] = [{"name": "N"}]
            here = here["creators"][0]
        elif name == "publisher":
            here = here.setdefault(name, {"name": "N"})
        else:
            here = here.setdefault(name, {})
    here[last] = example
    assert validation.problems(config) == []
    assert Draft202012Validator(yaml.safe_load(schema.text())).is_valid(config)


@pytest.mark.parametrize(
    ("kind", "name", "example"),
    [(kind, name, example) for kind, name, key in OPTIONS for example in key.examples],
)
def test_examples_of_options_can_be_used(kind: str, name: str, example: Any) -> None:
    assert validation.problems({name: example}, OF_KIND[kind]) == []


def test_environment_variables_are_those_that_the_code_reads() -> None:
    files = [*(ROOT / "scripts/penstock").rglob("*.py"), *(ROOT / "workflow").rglob("*.smk")]
    found = {
        a or b for file in files for a, b in VARIABLE.findall(file.read_text(encoding="utf-8"))
    } - NOT_READ
    groups = configuration.environment()
    told = {name for group in groups for name in group["variables"]}
    assert not found - told, "name them in docs/environment.yaml, and run `make docs`"
    assert found >= {name for name in told if name.startswith(("PENSTOCK_", "SLURM"))} - for_tests(groups)


def for_tests(groups: list[Any]) -> set[str]:
    """Those that the tests read, and not the package."""
    return {
        name
        for name in groups[-1]["variables"]
        if name not in ("PENSTOCK_TEST_HEARTBEAT", "PENSTOCK_TEST_SETTINGS")
    }
