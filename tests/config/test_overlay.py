"""Values before those of a file: merged, checked as strictly, and a file that says the same."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.config import loader, strict_yaml
from penstock.core.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

FILE = """\
target: {root: /scratch}
datasets:
  d:
    source: s3://b/p/
    include: ["a", "b"]
engine:
  streams: 1
  limit: 1GiB/s
"""


def _compose(tmp_path: Path, text: str, **sections: str) -> bytes | None:
    file = tmp_path / "my.yaml"
    file.write_text(text)
    config, content = loader.compose(
        loader.read_base(file), strict_yaml.parse_mapping(sections.items()), "made"
    )
    if content is not None:
        (tmp_path / "made.yaml").write_bytes(content)
        assert loader.load(tmp_path / "made.yaml") == config
    return content


def test_mappings_are_merged_and_anything_else_is_replaced(tmp_path: Path) -> None:
    sections = {
        "engine": "{limit: null}",
        "datasets": '{d: {include: [c], permissions: {file_mode: "0440"}}, "1e5": {source: "s3://c/"}}',
        "verify": "{linked: 7d, minimum_grade: reread}",
    }
    content = _compose(tmp_path, FILE, **sections)
    assert content is not None
    assert strict_yaml.parse(content.decode()).value == {
        "target": {"root": "/scratch"},
        "datasets": {
            "d": {"source": "s3://b/p/", "include": ["c"], "permissions": {"file_mode": "0440"}},
            "1e5": {"source": "s3://c/"},
        },
        "engine": {"streams": 1, "limit": None},
        "verify": {"linked": "7d", "minimum_grade": "reread"},
    }


@pytest.mark.parametrize("sections", [{}, {"engine": "{limit: 1GiB/s}"}, {"plan": "{}", "engine": "{}"}])
def test_what_changes_nothing_needs_no_file(tmp_path: Path, sections: dict[str, str]) -> None:
    text = f"{FILE}plan: {{}}\n"
    assert _compose(tmp_path, text, **sections) is None


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"foo": "bar"}, "foo (--config): unknown key"),
        ({"engine": "{limits: 1KiB/s}"}, "engine.limits (--config): unknown key; did you mean `limit`?"),
        ({"engine": "{limit: 1KiB}"}, 'engine.limit (--config): "1KiB" must be a rate'),
        ({"engine": "{streams: true}"}, "engine.streams (--config): true cannot be used; give auto"),
        ({"engine": "5"}, "engine (--config): 5 is a number; give a mapping"),
        ({"engine": "{streams: 1_0}"}, 'engine.streams (--config): `1_0` is read in different ways'),
        ({"engine": "0440"}, "engine (--config): `0440` is read in different ways"),
        ({"cluster": "{partition: yes}"}, "cluster.partition (--config): `yes` is read in different ways"),
        ({"cluster": "{begin: 2030-01-31}"}, "`2030-01-31` is read in different ways"),
        ({"cluster": "{time: 12:30:00}"}, 'write "12:30:00" in quotes if it is text'),
        ({"datasets": "{d: {release: 1e3}}"}, "`1e3` is read in different ways"),
        ({"datasets": "{d: {permissions: {file_mode: 0440}}}"}, "d.permissions.file_mode (--config): `0440`"),
        ({"datasets": "{d: {permissions: {file_mode: 288}}}"}, "d.permissions.file_mode (--config): 288"),
        ({"datasets": "{d: {sources: [{url: s3://x/}]}}"}, "not both"),
        ({"datasets": "{d: {storage_options: {key: A, secret: B}}}"}, "(--config)"),
        ({"datasets": "{e: {}}"}, "datasets.e.source (--config): is missing"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(tmp_path: Path, sections: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _compose(tmp_path, FILE, **sections)
    assert said in str(caught.value)
    assert caught.value.exit_code == 2


def test_the_files_own_problems_keep_their_lines(tmp_path: Path) -> None:
    wrong = FILE.replace("1GiB/s", "1GiB").replace("streams", "strems")
    with pytest.raises(ConfigError) as caught:
        _compose(tmp_path, wrong, plan="{reuse: nothing}")
    assert 'engine.limit (line 8): "1GiB" must be a rate' in str(caught.value)
    assert "engine.strems (line 7): unknown key" in str(caught.value)
    assert 'plan.reuse (--config): "nothing"' in str(caught.value)
    # What is replaced is no problem any more.
    assert _compose(tmp_path, FILE.replace("1GiB/s", "0440"), engine="{limit: 1KiB/s}")


@pytest.mark.parametrize("text", ["[1", "{a: 1, a: 2}", "&a 1", "!!str x", "{1: 2}"])
def test_what_is_no_yaml_is_named(text: str) -> None:
    with pytest.raises(strict_yaml.StrictYamlError, match=r"^engine="):
        strict_yaml.parse_mapping([("engine", text)])


@settings(deadline=None)
@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(10**20), 10**20)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(st.characters(blacklist_categories=("Cc", "Cs"))),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text("abcdn0129.:-", min_size=1), inner, max_size=3)
        ),
        max_leaves=6,
    )
)
def test_the_text_says_what_was_given(value: object) -> None:
    document = strict_yaml.parse(json.dumps({"old": 1}))
    made = strict_yaml.laid_over(document, {"new": value}, "made")
    assert strict_yaml.parse(made.content.decode()).value == {"old": 1, "new": value}
