"""docs/configuration.md is what its generator prints, and leaves nothing out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from docs import configuration
from penstock.config import validation

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
KINDS = [name for name in validation.schema()["$defs"] if name.startswith("options_")]
TAIL = "_[A-Z0-9_]+"
VARIABLE = re.compile(
    rf"""["']((?:PENSTOCK|SLURMD?|AWS|AZURE|GOOGLE|XDG){TAIL}|[A-Z]+_PROXY|[A-Z]+_CA_BUNDLE|[A-Z]+_CERT_FILE)["']"""
    r"""|\b(?:e|environ|environment)(?:\.get\(|\.setdefault\(|\[)["']([A-Z_]+)["']"""
)
"""A name that stands in the code as an environment variable's does, or that is looked up in one."""
NOT_READ = {"SLURM_VERSION", "SLURM_TIME_FORMAT", "AZURE_STORAGE_"}
"""A line of scontrol's answer; what penstock sets for SLURM's commands; the beginning of six names."""


def keys() -> Iterator[tuple[str, Any, Any]]:
    for name, part in validation.schema()["properties"].items():
        dataset = name == "datasets"
        body = configuration.resolved(part["additionalProperties"]) if dataset else part
        yield from configuration.keys(body, configuration.DATASET if dataset else name)


def options() -> Iterator[tuple[str, str, Any]]:
    for kind in KINDS:
        for dotted, part, _ in configuration.keys(validation.schema()["$defs"][kind], kind):
            yield kind, dotted.partition(".")[2], part


def test_the_page_is_what_the_generator_prints() -> None:
    written = configuration.PAGE.read_text(encoding="utf-8")
    assert written == configuration.page(), "docs/configuration.md is out of date: run `make docs`"


def test_every_key_and_option_has_a_description() -> None:
    schema = validation.schema()
    parts = {
        **schema["properties"],
        **{kind: schema["$defs"][kind] for kind in KINDS},
        **{dotted: part for dotted, part, _ in keys()},
        **{f"{kind}: {name}": part for kind, name, part in options()},
    }
    assert len(parts) > 100
    assert not [name for name, part in parts.items() if not part.get("description")]


@pytest.mark.parametrize(
    ("dotted", "example"), [(dotted, one) for dotted, part, _ in keys() for one in part.get("examples", [])]
)
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


@pytest.mark.parametrize(
    ("kind", "name", "example"),
    [(kind, name, one) for kind, name, part in options() for one in part.get("examples", [])],
)
def test_examples_of_options_can_be_used(kind: str, name: str, example: Any) -> None:
    parent, _, last = name.rpartition(".")
    given = {last: example}
    assert validation.problems({parent: given} if parent else given, kind) == []


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
