"""Problems of a configuration whose values have the right form: keys that need or exclude one another, URLs
without a host, folders within one another."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from penstock.config import quantities, storage_options
from penstock.config.source_kinds import FOLDER, S3, WEB, kind, no_path, of_url, through_fsspec
from penstock.config.validation import Problem, shown
from penstock.core import posix_acl
from penstock.core.human import in_quotes
from penstock.core.range_lists import host_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.config.section import Section
    from penstock.config.strict_yaml import KeyPath

RESERVED = ("all", "results")  # names with another meaning on the workflow's command line
URL_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://", re.ASCII)
_FOLDERS = (
    ("target", "root"), ("target", "state_root"), ("target", "sign_with"), ("target", "signers"),
    ("bandwidth", "folder"),
)  # fmt: skip
_OF_S3_AND_AZURE = {"archived": "states no archived objects", "times": "states no times in metadata"}


def problems(root: Section) -> Iterator[Problem]:
    """Yield all problems of a configuration with valid forms."""
    for name, dataset in root.at("datasets").each():
        if name in RESERVED:
            yield Problem(
                dataset.path, f"the name {in_quotes(name)} is taken by the workflow: choose another"
            )
        yield from _sources_problems(dataset)
        yield from _listing_problems(dataset)
        yield from _store_problems(dataset)
        yield from _changed_problems(dataset)
        yield from _permissions_problems(dataset.at("permissions"))
    for section, key in _FOLDERS:
        if why := no_path(text := root.at(section).text(key), source=False):
            yield Problem((section, key), f"{shown(text)} {why}")
    yield from _bandwidth_problems(root.at("bandwidth"))
    if root.at("target").text("sign_with") and not root.at("target").text("signers"):
        yield Problem(("target", "sign_with"), "needs `target.signers`, by which the signatures are verified")
    yield from _job_problems(root.at("cluster"))
    for _, step in root.at("cluster").at("steps").each():
        yield from _job_problems(step)


def control_characters(value: Any, path: KeyPath = ()) -> Iterator[Problem]:
    """Yield texts and keys with control characters, in a document of any form."""
    if isinstance(value, dict):
        for key, child in value.items():
            yield from control_characters(key, (*path, key))
            yield from control_characters(child, (*path, key))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from control_characters(child, (*path, index))
    elif isinstance(value, str) and any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 for c in value):
        yield Problem(path, f"{shown(value)} has a line end or another control character")


def folder_in_data(text: str) -> str:
    """Normalise a source's `into`, relative to the release's data. Raises ValueError."""
    if text.startswith("/"):
        raise ValueError("must be relative to the release's data")
    names = [name for name in text.split("/") if name not in ("", ".")]
    if ".." in names:
        raise ValueError("must not climb by `..`")
    if any(len(os.fsencode(name)) > 255 for name in names):
        raise ValueError("has a name longer than 255 bytes")
    return "/".join(names)


def _job_problems(job: Section) -> Iterator[Problem]:
    try:
        host_names(job.text("exclude"))
    except ValueError as error:
        yield Problem((*job.path, "exclude"), str(error))


def _bandwidth_problems(bandwidth: Section) -> Iterator[Problem]:
    capacity, reserve = (bandwidth.text(key) for key in ("link", "reserve"))
    if reserve and not capacity:
        yield Problem((*bandwidth.path, "reserve"), "is a part of `bandwidth.link`, which is not given")
    elif reserve and quantities.rate(reserve) >= quantities.rate(capacity):
        yield Problem(
            (*bandwidth.path, "reserve"), f"{shown(reserve)} leaves nothing of the link's {capacity}"
        )
    if not bandwidth.text("folder"):
        for key in ("link", "requests"):
            if bandwidth.values.get(key) is not None:
                hint = (
                    "needs `bandwidth.folder`, in which elements share it; `engine.limit` is for each alone"
                )
                yield Problem((*bandwidth.path, key), hint)


def _sources_problems(dataset: Section) -> Iterator[Problem]:
    if "source" in dataset:
        yield from _url_problems(dataset.text("source"), (*dataset.path, "source"))
        return
    sources = dataset.listed("sources")
    folders: dict[str, int] = {}
    for index, source in enumerate(sources):
        yield from _url_problems(source.text("url"), (*source.path, "url"))
        where = (*source.path, "into")
        try:
            into = folder_in_data(source.text("into"))
        except ValueError as error:
            yield Problem(where, f"{shown(source.text('into'))} {error}")
            continue
        if len(sources) > 1 and not into:
            yield Problem(where, "is missing: several sources need a folder each")
            continue
        for other, at in folders.items():
            if f"{into}/".startswith(f"{other}/") or f"{other}/".startswith(f"{into}/"):
                yield Problem(where, f"{shown(into)} is, or lies in, the folder of sources[{at}]")
        folders[into] = index


def _listing_problems(dataset: Section) -> Iterator[Problem]:
    """Check keys for listings read from elsewhere."""
    for key in storage_options.OF_ONE_SOURCE:
        if "sources" in dataset and key in dataset:
            yield Problem((*dataset.path, key), "belongs into each of `sources`: a listing is of one source")
    for source in storage_options.sources(dataset):
        for key in ("inventory", "list_from"):
            if (place := source.text(key)) and of_url(place) not in (S3, FOLDER):
                yield Problem((*source.path, key), f"{shown(place)} is neither s3://bucket/... nor a path")
            yield from _url_problems(place, (*source.path, key))
        if not source.text("inventory"):
            continue
        where = (*source.path, "inventory")
        if of_url(source.text("url")) is not S3:
            yield Problem(where, f"{shown(source.text('url'))} has none: S3 Inventory is of S3 buckets")
        if source.text("list_from"):
            yield Problem(where, "and `list_from` are two listings of one source: give one of them")


def _store_problems(dataset: Section) -> Iterator[Problem]:
    """Check keys for what only S3 and Azure state of an object."""
    for source, options in zip(
        storage_options.sources(dataset), storage_options.merged(dataset), strict=True
    ):
        for key, lacks in _OF_S3_AND_AZURE.items():
            if source.text(key) and not kind(source.text("url"), options).archives:
                why = f"{shown(source.text('url'))} {lacks}: it is for S3 and Azure"
                yield Problem((*source.path, key), f"{why}, without `reader: fsspec`")
        for key in ("inventory", "list_from"):
            if source.text("times") == "metadata" and source.text(key):
                yield Problem(
                    (*source.path, "times"), f"metadata is not read where `{key}` names the objects"
                )


def _changed_problems(dataset: Section) -> Iterator[Problem]:
    if dataset.text("changed") != "pinned":
        return
    where = (*dataset.path, "changed")
    urls = [source.text("url") for source in storage_options.sources(dataset)]
    for url, options in zip(urls, storage_options.merged(dataset), strict=True):
        if through_fsspec(options):
            yield Problem(where, "`pinned` is not for `reader: fsspec`; write follow or refuse")
        elif not of_url(url).versions:
            yield Problem(
                where,
                f"{shown(url)} has no versions that stay: `pinned` is for versioned S3 buckets; "
                "write follow or refuse",
            )


def _permissions_problems(permissions: Section) -> Iterator[Problem]:
    for index, rule in enumerate(permissions.listed("modes")):
        if "file" not in rule and "dir" not in rule:
            yield Problem((*permissions.path, "modes", index), "names no mode: give `file`, `dir` or both")
    indices: dict[tuple[int, str], int] = {}
    entries = permissions.values.get("acl")
    for index, text in enumerate(entries if isinstance(entries, list) else ()):
        entry = posix_acl.parse(text)
        at = indices.setdefault((entry.tag, entry.who), index)
        if at != index:
            yield Problem((*permissions.path, "acl", index), f"{shown(text)} is of the same one as acl[{at}]")


def _url_problems(url: str, path: KeyPath) -> Iterator[Problem]:
    scheme = URL_SCHEME.match(url)
    if why := no_path(url, source=True):
        yield Problem(path, f"{shown(url)} {why}")
    elif scheme is None and ":/" in url.split("/", maxsplit=1)[0] + "/" and not url.startswith("/"):
        yield Problem(path, f"{shown(url)} is no URL: write scheme://bucket/prefix/, or a folder")
    if scheme is None:
        return
    rest = url[scheme.end() :]
    stated = of_url(url)
    if "#" in url and stated is WEB:
        yield Problem(path, f"{shown(url)} has a fragment (#...), which no server sees")
    if stated.place and not rest.partition("/")[0]:
        yield Problem(
            path, f"{shown(url)} names no {stated.place}: write {scheme[1]}://{stated.place}/prefix/"
        )
