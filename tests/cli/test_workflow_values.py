"""What `snakemake --config` takes: each word is used, or refused by its name."""

from __future__ import annotations

import pytest

from penstock.core.errors import ConfigError
from penstock.workflow.workflow_values import parse, refuse_doubled, refuse_unused


@pytest.mark.parametrize(
    ("word", "names"),
    [
        ("dataset=imagenet", ["imagenet"]),
        ("dataset=1e5", ["1e5"]),
        ("dataset=0440", ["0440"]),
        ("dataset='2024'", ["2024"]),
        ("dataset=[a, 2024, 1e5, no]", ["a", "2024", "1e5", "no"]),
        ('dataset=["a", "1.10"]', ["a", "1.10"]),
    ],
)
def test_names_are_text_as_they_were_typed(word: str, names: list[str]) -> None:
    assert parse([word]).datasets == names


def test_selectors_and_sections_are_told_apart() -> None:
    given = parse(["engine={limit: 1KiB/s}", "new_release=true", "copy_unchanged=False"])
    assert given.sections.sections == {"engine": {"limit": "1KiB/s"}}
    assert (given.datasets, given.flags, given.audit) == (None, {"new_release"}, {})
    given = parse(["release=1.10", "sample=1%", "limit='200MiB/s'"])
    assert given.audit == {"release": "1.10", "sample": "1%", "limit": "200MiB/s"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["dataset=a", "dataset=b"], "dataset: is given twice"),
        (["engine={a: 1}", "engine={b: 1}"], "engine: is given twice"),
        (["dataset="], "dataset: has no value"),
        (["engine="], "engine: has no value"),
        (["dataset=[]"], "is no list of names"),
        (["dataset=[a, [b]]"], "is no list of names"),
        (["dataset=[a"], "is no list of names"),
        (["new_release=yes"], 'new_release: "yes" is neither true nor false'),
        (["copy_unchanged=1"], 'copy_unchanged: "1" is neither true nor false'),
        (["fraction=2/30"], 'fraction: "2/30" is not a fraction such as 1/30'),
        (["sample=2"], 'sample: "2" is not a share such as 1%'),
        (["limit=200"], 'limit: "200" is not a rate such as 200MiB/s'),
        (["fraction=1/30", "sample=1%"], "fraction: is given beside sample"),
        (["engine={limit: [1"], "engine={limit: [1: a [ is opened here"),
    ],
)
def test_what_is_wrong_is_named(words: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(words)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("word", "targets", "said"),
    [
        ("limit=1KiB/s", [], "is of an audit"),
        ("sample=1%", ["all"], "is of an audit"),
        ("sample=1%", ["audit"], ""),
        ("sample=1%", ["penstock_audit"], ""),
        ("sample=1%", ["all", "audit"], ""),
        ("new_release=true", [], ""),
        ("new_release=true", ["all", "audit"], ""),
        ("new_release=true", ["audit"], "is of a staging"),
        ("dataset=a", ["audit"], ""),
    ],
)
def test_what_no_target_looks_at_is_refused(word: str, targets: list[str], said: str) -> None:
    given = parse([word])
    if said:
        with pytest.raises(ConfigError, match=said):
            refuse_unused(given, targets)
    else:
        refuse_unused(given, targets)


@pytest.mark.parametrize(
    ("arguments", "refused"),
    [
        ("--configfile a.yaml --config x=1 y=2", False),
        ("--config x=1 -- --config", False),
        ("--config x=1 --config y=2", True),
        ("--config=x=1 -C y=2", True),
        ("--configfile a.yaml --configfile b.yaml", True),
        ("--configfile=a.yaml --configfiles b.yaml", True),
    ],
)
def test_an_option_whose_first_words_would_be_lost_is_refused(arguments: str, refused: bool) -> None:
    if refused:
        with pytest.raises(ConfigError, match="is given twice"):
            refuse_doubled(arguments.split())
    else:
        refuse_doubled(arguments.split())
