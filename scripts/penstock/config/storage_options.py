"""The options of each source: what its kind knows, and nothing else.

A dataset's own `storage_options` go for all its sources, each of which takes what its kind knows of them;
what none of them knows is a mistake. A source's own go before them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.config import validation
from penstock.config.source_kinds import kind
from penstock.config.validation import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.config.strict_yaml import KeyPath

_COMMON = "storage_options"


def problems(raw: Mapping[str, Any]) -> list[Problem]:
    """Unknown keys and wrong types, of whatever has the structure that it should have."""
    datasets = raw.get("datasets")
    if not isinstance(datasets, dict):
        return []
    found: list[Problem] = []
    for name, dataset in datasets.items():
        if isinstance(dataset, dict):
            found += _of_dataset(dataset, ("datasets", name))
    return found


def merged(dataset: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The options of each source in turn: the dataset's that its kind knows, and its own. A key without a
    value is one that was not given."""
    common = dataset.get(_COMMON) or {}
    sources = _sources(dataset)
    several = len({kind(url, {**common, **own}) for url, own in sources}) > 1
    for url, own in sources:
        known = _known(kind(url, {**common, **own})) if several and common else None
        taken = {key: value for key, value in common.items() if known is None or key in known}
        yield {key: value for key, value in {**taken, **own}.items() if value is not None}


def _of_dataset(dataset: Mapping[str, Any], path: KeyPath) -> Iterator[Problem]:
    sources = list(_sources(dataset))
    common = dataset.get(_COMMON)
    shared = common if isinstance(common, dict) else {}
    kinds = [kind(url, {**shared, **own}) for url, own in sources]
    for index, (_, own) in enumerate(sources):
        if own and (part := _part(kinds[index])):
            here = (*path, "sources", index, _COMMON)
            yield from (Problem((*here, *where), text) for where, text in validation.problems(own, part))
    if not isinstance(common, dict) or not sources:
        return
    kinds = list(dict.fromkeys(kinds))
    told: dict[KeyPath, str] = {}
    for one in kinds:
        known = _known(one)
        # What another source of the dataset knows is meant for that one.
        fits = {key: value for key, value in common.items() if known is None or key in known}
        elsewhere = any(_known(other) is None for other in kinds)
        rest = {key: common[key] for key in common if not any(key in (_known(o) or ()) for o in kinds)}
        if part := _part(one):
            given = {**fits, **({} if elsewhere else rest)}
            for where, text in validation.problems(given, part):
                told.setdefault(where, text)
    yield from (Problem((*path, _COMMON, *where), text) for where, text in told.items())


def _sources(dataset: Mapping[str, Any]) -> Sequence[tuple[str, Mapping[str, Any]]]:
    """URL and own options of each source that has the form of one."""
    if isinstance(dataset.get("source"), str):
        return [(dataset["source"], {})]
    found = dataset.get("sources")
    listed = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    return [
        (str(one.get("url", "")), own if isinstance(own := one.get(_COMMON) or {}, dict) else {})
        for one in listed
    ]


def _part(of: str) -> str:
    return f"options_{of}" if of else ""


def _known(of: str) -> Mapping[str, Any] | None:
    """The options of a kind; None where all may be meant."""
    if not of:
        return None
    found: Mapping[str, Any] = validation.schema()["$defs"][_part(of)].get("properties", {})
    return found
