"""Values that another program read from YAML: taken as they are, or refused by their key."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from penstock.config import loader, strict_yaml
from penstock.core.errors import ConfigError

MINIMAL = {"target": {"root": "/scratch"}, "datasets": {"d": {"source": "s3://b/p/"}}}


def _compose(text: str) -> Any:
    """What becomes of a section `mine` of a file with this text, as Snakemake reads it."""
    values = yaml.load(text, Loader=yaml.FullLoader)["mine"]
    document, unclear = strict_yaml.document(values, [strict_yaml.ConfigText("outer.yaml", text)])
    base = loader.BaseConfiguration("of module mine", None, document, unclear)
    return loader.compose(base, strict_yaml.Values({}, {}), "made")


def _text(**sections: str) -> str:
    own = {"target": "{root: /scratch}", "datasets": "{d: {source: s3://b/p/}}", **sections}
    return "mine:\n" + "".join(f"  {name}: {value}\n" for name, value in own.items())


def test_what_is_plain_is_the_same_as_in_a_file_of_its_own(tmp_path: Any) -> None:
    """What stands beside it in the outer configuration may be written as it likes."""
    outer = "samples: &all {010: no, 2024-01-01: [1:30, 0o17]}\nagain: *all\nmine_too: 010\n"
    named = '"2024": {source: s3://c/, permissions: {group: ml, file_mode: "0440"}}'
    text = outer + _text(
        target="{root: /scratch, owners: [1000, ml]}",
        datasets=f"{{1e5: {{source: s3://b/p/}}, {named}}}",
        cluster="{max_elements: 8, time: 4h}",
    )
    config, content = _compose(text)
    assert content is not None
    (tmp_path / "made.yaml").write_bytes(content)
    assert loader.load(tmp_path / "made.yaml") == config
    assert list(config.datasets) == ["1e5", "2024"]
    assert config.target.owners == ("1000", "ml")
    assert config.datasets["2024"].permissions.file_mode == 0o440


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("cluster", "{max_elements: 010}", "cluster.max_elements: `010` is read in different ways"),
        ("target", "{root: /scratch, owners: [01000]}", "target.owners[0]: `01000` is read in different"),
        ("cluster", "{cpus: 1_0}", "cluster.cpus: `1_0` is read"),
        ("cluster", "{time: 4:00:00}", "cluster.time: `4:00:00` is read in different ways"),
        ("cluster", "{cpus: 4, cpus: 8}", "cluster.cpus: is given twice, first in line 4"),
        ("cluster", "{max_elements: .inf}", "cluster.max_elements: "),
        ("cluster", "{max_element: 4}", "cluster.max_element: unknown key; did you mean"),
        ("datasets", "{2024: {source: s3://b/p/}}", "datasets.2024: its name is no text to YAML"),
        ("datasets", "{no: {source: s3://b/p/}}", "datasets.False: its name is no text to YAML"),
        ("datasets", "{d: {source: s3://b/, release: 2026-11-27}}", '"2026-11-27" is neither text'),
        ("datasets", "{d: {source: s3://b/, permissions: {file_mode: 0440}}}", "file_mode: `0440` is read"),
        ("datasets", "{d: {source: s3://b/, permissions: {group: 1000}}}", "group: 1000 is a number"),
        ("datasets", "{d: {source: s3://b/, storage_options: {secret: x}}}", "would hold a secret"),
    ],
)
def test_what_the_reading_changed_is_refused_by_its_key(name: str, value: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _compose(_text(**{name: value}))
    assert said in str(caught.value)
    assert "of module mine" in str(caught.value)


def test_what_came_by_an_anchor_is_looked_up_too() -> None:
    text = "n: &n 010\n" + _text(cluster="{max_elements: *n}")
    with pytest.raises(ConfigError, match=r"cluster.max_elements: `010` .* \(outer.yaml, line 1\)"):
        _compose(text)


def test_what_program_code_made_is_refused_unless_it_is_plain() -> None:
    deep: list[object] = []
    for _ in range(40):
        deep = [deep]
    for value in (object(), {1, 2}, b"x", float("nan"), deep, "\ud800"):
        document, unclear = strict_yaml.document({**MINIMAL, "cluster": {"partition": value}}, [])
        with pytest.raises(ConfigError, match=r"cluster\.partition"):
            loader.compose(
                loader.BaseConfiguration("x", None, document, unclear), strict_yaml.Values({}, {}), "made"
            )
