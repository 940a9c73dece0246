"""The options of each source: what its kind knows, and nothing else.

A dataset's own `storage_options` go for all its sources, each of which takes what its kind knows of them;
what none of them knows is a mistake. A source's own go before them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config import validation
from penstock.config.section import Section
from penstock.config.source_kinds import kind
from penstock.config.validation import Problem

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from penstock.config.strict_yaml import KeyPath

_COMMON = "storage_options"
OF_ONE_SOURCE = ("inventory", "list_from")
"""Keys of a source that stand in the dataset where that has one `source`."""


def problems(root: Section) -> list[Problem]:
    """Unknown keys and wrong types, of whatever has the structure that it should have."""
    return [problem for _, dataset in root.at("datasets").each() for problem in _of_dataset(dataset)]


def sources(dataset: Section) -> list[Section]:
    """The dataset's sources, each with its `url`, also where the dataset has one `source`."""
    one = dataset.text("source")
    if not one:
        return dataset.listed("sources")
    own = {key: dataset.values[key] for key in OF_ONE_SOURCE if key in dataset}
    return [Section({"url": one, **own}, dataset.path)]


def merged(dataset: Section) -> Iterator[Mapping[str, object]]:
    """The options of each source in turn: the dataset's that its kind knows, and its own. A key without a
    value is one that was not given."""
    common, kinds = dataset.at(_COMMON).values, _kinds(dataset)
    for source, of in zip(sources(dataset), kinds, strict=True):
        known = _known(of) if len(set(kinds)) > 1 else None
        taken = {key: value for key, value in common.items() if known is None or key in known}
        own = source.at(_COMMON).values
        yield {key: value for key, value in {**taken, **own}.items() if value is not None}


def _of_dataset(dataset: Section) -> Iterator[Problem]:
    kinds = _kinds(dataset)
    for source, of in zip(sources(dataset), kinds, strict=True):
        own = source.at(_COMMON)
        if own.values and (part := _part(of)):
            problems = validation.problems(own.values, part)
            yield from (Problem((*own.path, *where), text) for where, text in problems)
    common = dataset.at(_COMMON).values
    if not common:
        return
    told: dict[KeyPath, str] = {}
    for one in dict.fromkeys(kinds):
        known = _known(one)
        # What another source of the dataset knows is meant for that one.
        fits = {key: value for key, value in common.items() if known is None or key in known}
        elsewhere = any(_known(other) is None for other in kinds)
        rest = {key: common[key] for key in common if not any(key in (_known(o) or ()) for o in kinds)}
        if part := _part(one):
            given = {**fits, **({} if elsewhere else rest)}
            for where, text in validation.problems(given, part):
                told.setdefault(where, text)
    yield from (Problem((*dataset.path, _COMMON, *where), text) for where, text in told.items())


def _kinds(dataset: Section) -> list[str]:
    """The kind of each source in turn."""
    common = dataset.at(_COMMON).values
    return [kind(one.text("url"), {**common, **one.at(_COMMON).values}) for one in sources(dataset)]


def _part(of: str) -> str:
    return f"options_{of}" if of else ""


def _known(of: str) -> Collection[str] | None:
    """The options of a kind; None where all may be meant."""
    if not of:
        return None
    found: Collection[str] = validation.schema()["$defs"][_part(of)].get("properties", {})
    return found
