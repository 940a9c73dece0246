"""The options of each source, checked and merged.

A dataset's `storage_options` are for all its sources: each takes what its kind knows, and a source for fsspec
what no other kind there knows. An option that none takes is a mistake. A source's own options go first.
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
# keys of a source that the dataset holds where it has one `source`
OF_ONE_SOURCE = ("inventory", "list_from", "archived", "times")


def problems(root: Section) -> list[Problem]:
    """Return options that are unknown or of a wrong type; skip sections that are no mappings."""
    return [problem for _, dataset in root.at("datasets").each() for problem in _of_dataset(dataset)]


def sources(dataset: Section) -> list[Section]:
    """Return the dataset's sources, each with its `url`, also for one `source`."""
    url = dataset.text("source")
    if not url:
        return dataset.listed("sources")
    own = {key: dataset.values[key] for key in OF_ONE_SOURCE if key in dataset}
    return [Section({"url": url, **own}, dataset.path)]


def merged(dataset: Section) -> Iterator[Mapping[str, object]]:
    """Yield each source's options: the dataset's that it takes, overridden by its own. Leaves out `null`."""
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
        # What another source of the dataset takes is for that source.
        own = {
            key: value
            for key, value in common.items()
            if key in known(of) or not any(_takes(kind, key, kinds) for kind in kinds if kind != of)
        }
        for problem in _unfit(own, of, (*dataset.path, _COMMON)):
            problems.setdefault(problem.path, problem)
    yield from problems.values()


def _unfit(options: Mapping[str, object], of: SourceKind, where: KeyPath) -> Iterator[Problem]:
    if options:
        yield from validation.problems(options, of.options, where)


def _takes(of: SourceKind, key: str, kinds: Sequence[SourceKind]) -> bool:
    """Return whether a source of this kind takes the dataset's option, beside sources of these kinds."""
    if len({kind.options for kind in kinds}) == 1:
        return True
    if of.options:
        return key in known(of)
    return key == "reader" or not any(key in known(kind) for kind in kinds)


def _kinds(dataset: Section) -> list[SourceKind]:
    common = dataset.at(_COMMON).values
    return [kind(source.text("url"), {**common, **source.at(_COMMON).values}) for source in sources(dataset)]


def known(of: SourceKind) -> Collection[str]:
    """Return the option names of a kind of source; none where any are allowed."""
    return keys_of(of.options) if of.options else ()
