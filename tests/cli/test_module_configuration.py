"""Which configuration a module is given, by what Snakemake hands over (real Snakemakes: tests/workflow)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.core.errors import ConfigError
from penstock.workflow import workflow_values

if TYPE_CHECKING:
    from pathlib import Path

FILE = {"target": {"root": "/scratch"}, "datasets": {"d": {"source": "s3://b/p/"}}}
TEXT = "target: {root: /scratch}\ndatasets: {d: {source: s3://b/p/}}\n"
WORDS = ["dataset=d", "engine={streams: 4}"]
COMMAND_LINE = {"dataset": "d", "engine": {"streams": "4"}}


def _given(tmp_path: Path, values: Any, outer: Any, *texts: str) -> workflow_values.ModuleInput:
    files = []
    for number, text in enumerate(texts):
        file = tmp_path / f"{number}.yaml"
        file.write_text(text)
        files.append(file)
    return workflow_values.ModuleInput("penstock", values, outer, files, COMMAND_LINE)


def test_one_file_as_it_stands_is_read_itself(tmp_path: Path) -> None:
    values = {**FILE, **COMMAND_LINE}
    base, words = workflow_values.module_base(_given(tmp_path, values, values, TEXT), WORDS)
    assert base.file == tmp_path / "0.yaml"
    assert base.document.line(("datasets", "d")) == 2
    assert words == WORDS


def test_several_files_are_values_and_the_words_choose_datasets(tmp_path: Path) -> None:
    values = {**FILE, **COMMAND_LINE, "plan": {"reuse": "none"}}
    given = _given(tmp_path, values, values, TEXT, "plan: {reuse: none}\n")
    base, words = workflow_values.module_base(given, WORDS)
    assert base.file is None
    assert base.document.value == {**FILE, "engine": {"streams": "4"}, "plan": {"reuse": "none"}}
    assert words == WORDS


def test_of_a_part_the_words_are_the_outer_workflows(tmp_path: Path) -> None:
    outer = {"mine": FILE, **COMMAND_LINE}
    base, words = workflow_values.module_base(_given(tmp_path, FILE, outer, "mine: x\n"), WORDS)
    assert base.label == "of module penstock"
    assert (base.file, base.document.value, words) == (None, FILE, [])


def test_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="module penstock is given no configuration"):
        workflow_values.module_base(_given(tmp_path, {}, {"a": 1}), [])
