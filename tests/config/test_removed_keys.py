"""A key that went is refused by a message that says what to do instead."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.config import removed_keys, storage_options, validation
from penstock.config.section import Section


def value_at(key: str) -> dict[str, Any]:
    """A configuration that holds this key alone."""
    names = key.replace("<dataset>", "d").split(".")
    value: Any = 1
    for name in reversed(names):
        # Which options there are follows from the source.
        beside = {"source": "gs://b/", "url": "gs://b/"} if name == "storage_options" else {}
        value = {name[:-2]: [value]} if name.endswith("[]") else {name: value, **beside}
    return dict(value)


@pytest.mark.parametrize("key", removed_keys.INSTEAD)
def test_a_key_that_went_is_refused_by_name(key: str) -> None:
    value = value_at(key)
    told = [*validation.problems(value), *storage_options.problems(Section(value))]
    told = [problem for problem in told if "no longer a key" in problem.text]
    assert [problem.text for problem in told] == [f"is no longer a key: {removed_keys.INSTEAD[key]}"]


@pytest.mark.parametrize(
    ("path", "key"),
    [
        (("target", "auditors"), "target.auditors"),
        (("datasets", "d.e", "sources", 3, "gone"), "datasets.<dataset>.sources[].gone"),
        (("cluster", "steps", "copy", "gone"), "cluster.gone"),
        (("cluster", "steps"), "cluster.steps"),
    ],
)
def test_a_key_is_known_wherever_it_may_stand(
    path: tuple[str | int, ...], key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removed_keys, "INSTEAD", {key: "set nothing"})
    assert removed_keys.instead(path) == "set nothing"
    assert removed_keys.instead((*path[:-1], "never")) is None
