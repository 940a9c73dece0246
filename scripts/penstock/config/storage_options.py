"""The options of each source: what its kind knows, and nothing else. A source that fsspec opens takes any.
Pure; the loader checks and merges them here.

A dataset's own `storage_options` go for all its sources, each of which takes what its kind knows of them, and
one that fsspec opens what no other kind there knows; what none of them takes is a mistake. A source's own go
before them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config import validation
from penstock.config.keys import keys_of
from penstock.config.section import Section
from penstock.config.source_kinds import SourceKind, kind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from penstock.config.strict_yaml import KeyPath
    from penstock.config.validation import Problem

_COMMON = "storage_options"
OF_ONE_SOURCE = ("inventory", "list_from", "archived", "times")
"""Keys of a source that stand in the dataset where that has one `source`."""


def problems(root: Section) -> list[Problem]:
    """Options that are unknown or of a wrong type; sections that are no mappings are passed over."""
    return [problem for _, dataset in root.at("datasets").each() for problem in _of_dataset(dataset)]


def sources(dataset: Section) -> list[Section]:
    """The dataset's sources, each with its `url`, also where the dataset has one `source`."""
    url = dataset.text("source")
    if not url:
        return dataset.listed("sources")
    own = {key: dataset.values[key] for key in OF_ONE_SOURCE if key in dataset}
    return [Section({"url": url, **own}, dataset.path)]


def merged(dataset: Section) -> Iterator[Mapping[str, object]]:
    """The options of each source, in the order of `sources`: those of the dataset that it takes, and its own,
    which go before. A key without a value (`null`) is left out."""
    common, kinds = dataset.at(_COMMON).values, _kinds(dataset)
    for source, of in zip(sources(dataset), kinds, strict=True):
        taken = {key: value for key, value in common.items() if _takes(of, key, kinds)}
        own = source.at(_COMMON).values
        yield {key: value for key, value in {**taken, **own}.items() if value is not None}


def _of_dataset(dataset: Section) -> Iterator[Problem]:
    kinds = _kinds(dataset)
    for source, of in zip(sources(dataset), kinds, strict=True):
        if of.options:
            yield from _unfit(source.at(_COMMON).values, of, (*source.path, _COMMON))
    common = dataset.at(_COMMON).values
    problems: dict[KeyPath, Problem] = {}
    for of in dict.fromkeys(of for of in kinds if of.options):
        # What another source of the dataset takes is meant for that one.
        given = {
            key: value
            for key, value in common.items()
            if key in known(of) or not any(_takes(kind, key, kinds) for kind in kinds if kind != of)
        }
        for problem in _unfit(given, of, (*dataset.path, _COMMON)):
            problems.setdefault(problem.path, problem)
    yield from problems.values()


def _unfit(options: Mapping[str, object], of: SourceKind, where: KeyPath) -> Iterator[Problem]:
    if options:
        yield from validation.problems(options, of.options, where)


def _takes(of: SourceKind, key: str, kinds: Sequence[SourceKind]) -> bool:
    """Whether a source of a kind takes this option of its dataset, whose sources are of these kinds."""
    if len({kind.options for kind in kinds}) == 1:
        return True
    if of.options:
        return key in known(of)
    return key == "reader" or not any(key in known(kind) for kind in kinds)


def _kinds(dataset: Section) -> list[SourceKind]:
    """The kind of each source in turn."""
    common = dataset.at(_COMMON).values
    return [kind(one.text("url"), {**common, **one.at(_COMMON).values}) for one in sources(dataset)]


def known(of: SourceKind) -> Collection[str]:
    """The names of the options of a kind of source; none of one that takes any."""
    return keys_of(of.options) if of.options else ()
