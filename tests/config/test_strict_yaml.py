from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.config.strict_yaml import MAX_BYTES, MAX_DEPTH, MAX_NODES, StrictYamlError, parse, read

if TYPE_CHECKING:
    from pathlib import Path


def test_plain_values_are_what_everybody_reads() -> None:
    text = (
        "a: 1\nb: -2\nc: 1.5\nd: true\ne: false\nf: null\ng:\nh: '0440'\ni: text\nj: [x, 1]\nk: {l: 256MiB}\n"
    )
    document = parse(text)
    assert document.value == yaml.safe_load(text)
    assert document.value["h"] == "0440"


def test_lines_are_known() -> None:
    document = parse("a: 1\nb:\n  c:\n    - x\n    - d: 2\n")
    assert document.line(("b", "c")) == 3
    assert document.line(("b", "c", 1, "d")) == 5
    assert document.line(("b", "missing")) == 2
    assert document.line(("missing",)) == 1


@pytest.mark.parametrize(
    "value",
    ["no", "Yes", "on", "OFF", "y", "True", "NULL", "0440", "0o17", "0x1F", "0b1", "1_000", "1:30",
     "12:30:45", "2024-01-01", "2024-01-01T00:00:00Z", "1e3", ".5", "1.", ".inf", ".NaN"],
)  # fmt: skip
def test_what_two_readers_see_in_two_ways(value: str) -> None:
    with pytest.raises(StrictYamlError, match="quotes") as caught:
        parse(f"a: 1\nb: {value}\n")
    assert caught.value.line == 2
    assert parse(f"b: '{value}'").value == {"b": value}


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "`a` is given twice, first in line 1"),
        ("x:\n  a: 1\n  a: 1\n", 3, "`x.a` is given twice"),
        ("a: &b 1\n", 1, "anchors"),
        ("a: [1]\nb: *a\n", 2, r"\*\.jpg"),
        ("include:\n  - *.jpg\n", 2, "quoted"),
        ("a: !!python/object:os.system x\n", 1, "tags"),
        ("a: !!str 1\n", 1, "tags"),
        ("a: ! |\n", 1, "tags"),
        ("a: ! b\n", 1, "tags"),
        ("a: {<<: {b: 1}}\n", 1, "merge"),
        ("a: 1\n---\nb: 2\n", 2, "more than one document"),
        ("? [a]\n: 1\n", 1, "key"),
        ("a: 1\n2024: 1\n", 2, "in quotes"),
        ("datasets:\n  y: {}\n", 2, 'the key y is no text to each reader of YAML: write "y": in quotes'),
        ("datasets:\n  no: {}\n", 2, 'write "no": in quotes'),
        ("a: [1\n", 1, "a comma or its . is missing"),
        ("a: b: c\n", 1, "write the value in quotes"),
        ("a:\n\t- 1\n", 2, "indented by a tab"),
        ("a: '\x00'\n", 1, "unacceptable character"),
    ],
)
def test_refusals_say_where(text: str, line: int, why: str) -> None:
    with pytest.raises(StrictYamlError, match=why) as caught:
        parse(text)
    assert caught.value.line == line


def test_limits() -> None:
    with pytest.raises(StrictYamlError, match="nested"):
        parse("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))
    with pytest.raises(StrictYamlError, match="nested"):
        parse("[" * 5000)
    with pytest.raises(StrictYamlError, match="more than"):
        parse("- 1\n" * (MAX_NODES + 1))


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(StrictYamlError, match="1 MiB"):
        read(path)
    path.write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(StrictYamlError, match="UTF-8") as caught:
        read(path)
    assert caught.value.line == 2
    path.write_bytes(b"")
    assert read(path).value is None


@settings(deadline=None, max_examples=200)
@given(st.text(alphabet=st.sampled_from("ab01:-[]{}&*!#'\"\n \t.,?|>%@~"), max_size=40))
def test_any_text_is_read_alike_or_refused(text: str) -> None:
    try:
        mine = parse(text).value
    except StrictYamlError:
        return
    assert mine == yaml.safe_load(text)
