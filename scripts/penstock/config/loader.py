"""From the YAML file to `Config`, or to one ConfigError that lists every problem.

Each problem names the key path and its line, the value (never a secret's), and what to write
instead. Nothing is read but the file itself, and the site's (`config.site`): no network, no target, no user
or group database. The folders of the roots are resolved where the site says where roots may lie.
"""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.config import (
    description_file,
    fixed_settings,
    handed_over,
    overlay,
    quantities,
    secret_check,
    site,
    storage_options,
    strict_yaml,
    validation,
)
from penstock.config.backends import BACKENDS
from penstock.config.section import Section
from penstock.config.serialization import Readers, read
from penstock.config.settings import ClusterConfig, Config, JobOptions, TargetConfig
from penstock.config.site_bounds import Bounds
from penstock.config.source_kinds import FOLDER_SCHEMES, kind, no_path, through_fsspec
from penstock.config.strict_yaml import KeyPath, StrictYamlError, YamlDocument
from penstock.config.validation import Problem, shown
from penstock.core import posix_acl
from penstock.core.errors import ConfigError
from penstock.core.host_lists import host_names
from penstock.core.text import in_quotes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://", re.ASCII)
_BUCKETS = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss")
_VERSIONED = ("s3", "s3a")
"""Whose objects can be listed and read by version ids."""
_FOLDERS = (
    ("target", "root"), ("target", "state_root"), ("target", "sign_with"), ("target", "signers"),
    ("bandwidth", "folder"),
)  # fmt: skip
RESERVED = ("all", "results")
"""Names that mean something else to the workflow's command line."""
MAX_LISTED = 20
"""Problems that one message lists."""


def load(
    path: Path | str, backend_override: str | None = None, *, staging: bool = True, in_job: bool = False
) -> Config:
    """The configuration of this file. `backend_override` is the profile's or the command line's
    word on `cluster.backend`. Without `staging` what goes beyond the site's file is not refused, and the
    site's value counts (`site.tightened`); `in_job` as of `site.problems`. Raises ConfigError."""
    file = Path(path)
    unclear: dict[KeyPath, str] = {}
    return _checked(file, _read(file, unclear), unclear, backend_override, staging=staging, in_job=in_job)


def load_text(text: str, path: Path | str) -> Config:
    """The configuration that a file of this path would be with this text. Raises ConfigError, which names no
    line: no file has any."""
    file = Path(path)
    unclear: dict[KeyPath, str] = {}
    try:
        document = strict_yaml.parse(text, unclear)
    except StrictYamlError as error:
        raise _unreadable(file, error) from error
    document = YamlDocument(document.value, {(): handed_over.UNWRITTEN})
    document.content = text.encode()
    return _checked(file, document, unclear, None)


class Base(NamedTuple):
    """What values can be laid over."""

    label: str
    """In messages: the file's path, or what there is in place of a file."""
    file: Path | None
    document: YamlDocument
    unclear: Mapping[KeyPath, str]
    """By its key path what is wrong with a value that can be read in different ways."""


def base(path: Path | str) -> Base:
    """Of a file. Raises ConfigError."""
    unclear: dict[KeyPath, str] = {}
    document = _read(Path(path), unclear)
    return Base(str(path), Path(path), document, unclear)


def compose(
    base: Base, values: overlay.Values, heading: str, backend_override: str | None = None
) -> tuple[Config, bytes | None]:
    """The configuration of this base with these values before its own; and the text of a file that says the
    same, under a comment: None where the base is a file and the values change nothing. `backend_override`: as
    of `load`; not part of the text. Whether the site allows the backend is left to the steps, which know
    whether they are in a job. Raises ConfigError."""
    made = overlay.laid_over(base.document, values.sections, heading)
    replaced = {place for place in base.unclear if made.line(place) == overlay.LAID_OVER}
    kept = {place: why for place, why in base.unclear.items() if place not in replaced}
    unclear = {**kept, **values.unclear}
    config = _checked(Path(base.label), made, unclear, backend_override, in_job=True)
    unchanged = base.file is not None and made.content == base.document.content
    return config, None if unchanged else made.content


def _checked(
    file: Path,
    document: YamlDocument,
    unclear: Mapping[KeyPath, str],
    backend_override: str | None,
    *,
    staging: bool = True,
    in_job: bool = False,
) -> Config:
    raw = document.value
    if not isinstance(raw, dict):
        raise ConfigError(
            "the configuration is empty" if raw is None else "the configuration is not a mapping of keys",
            where=str(file),
            hint="it begins with `target:` and `datasets:`; `penstock init` writes a commented one",
        )
    policy, root = site.stored(), Section(raw)
    hidden = [Problem(where, why) for where, why in secret_check.offenders(raw)]
    if hidden:
        raise _error(file, document, hidden, hint=secret_check.HINT)
    problems = [Problem(where, why) for where, why in unclear.items()]
    problems += _control_characters(raw)
    # What is read in different ways has been reported; whether it would do as text does not matter.
    problems += [problem for problem in validation.problems(raw) if problem.path not in unclear]
    problems += storage_options.problems(root)
    if not problems:
        problems = list(_meaning(root))
    if problems:
        raise _error(file, document, problems)
    said = None if policy is None else site.site_of(policy, _READERS)
    if backend_override not in (None, "", *BACKENDS):
        raise ConfigError(
            f"backend {in_quotes(backend_override)} is unknown", hint=f"it is {' or '.join(BACKENDS)}"
        )
    config = _build(root, backend_override)
    if said is None:
        return config
    filled = site.filled(config, said)
    if not staging:
        return site.tightened(filled, said)
    if problems := list(site.problems(filled, said, in_job=in_job)):
        if backend_override:
            document.lines[("cluster", "backend")] = _BY_OPTION
        raise _error(file, document, problems)
    return filled


def check_place(folder: Path) -> None:
    """For a command that is given a folder, not a configuration. Raises ConfigError where the site's file
    says that penstock writes elsewhere alone."""
    if (said := site_file()) is not None:
        site.check_place(said, folder)


def site_file(path: Path | None = None) -> site.Site | None:
    """What the site's file says, None where there is none; of a draft at another path, whoever may write it.
    Raises ConfigError, which names the line of each mistake."""
    policy = site.stored(path)
    return None if policy is None else site.site_of(policy, _READERS, path)


def site_bounds() -> Bounds:
    """What the site's file says on this machine. Raises ConfigError for one that cannot be used."""
    said = site_file()
    return Bounds() if said is None else said.bounds


def target_at(root: Path) -> TargetConfig:
    """The target of a command that is given a root in place of a configuration, with the site's owners.
    Raises ConfigError for a site's file that cannot be used."""
    return TargetConfig(root.absolute(), owners=site_bounds().target.owners)


def _read(file: Path, unclear: dict[KeyPath, str]) -> YamlDocument:
    try:
        return strict_yaml.read(file, unclear)
    except StrictYamlError as error:
        raise _unreadable(file, error) from error
    except FileNotFoundError:
        raise ConfigError(
            "there is no configuration file",
            where=str(file),
            hint="correct --config FILE, or write one there by `penstock init`",
        ) from None
    except OSError as error:
        raise ConfigError(
            "the configuration cannot be read",
            where=str(file),
            why=error.strerror or "",
            hint="give a file that this account can read by --config FILE",
        ) from None


def _unreadable(file: Path, error: StrictYamlError) -> ConfigError:
    return ConfigError(
        "the configuration cannot be read",
        where=f"{file}, line {error.line}",
        why=str(error),
        hint="correct that line",
    )


_BY_OPTION = -2
_PLACES = {overlay.LAID_OVER: "--config", handed_over.UNWRITTEN: "", _BY_OPTION: "--backend"}


def _error(file: Path, document: YamlDocument, problems: Sequence[Problem], hint: str = "") -> ConfigError:
    def described(problem: Problem) -> str:
        line = document.line(problem.path)
        return problem.at(_PLACES.get(line, f"line {line}"))

    if len(problems) == 1:
        return ConfigError(described(problems[0]), where=str(file), hint=hint)
    lines = [f"  - {described(problem)}" for problem in problems[:MAX_LISTED]]
    if len(problems) > MAX_LISTED:
        lines.append(f"  - and {len(problems) - MAX_LISTED} more")
    return ConfigError(
        "\n".join([f"the configuration {file} has {len(problems)} problems:", *lines]), hint=hint
    )


def _control_characters(value: Any, path: KeyPath = ()) -> Iterator[Problem]:
    if isinstance(value, dict):
        for key, child in value.items():
            yield from _control_characters(key, (*path, key))
            yield from _control_characters(child, (*path, key))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _control_characters(child, (*path, index))
    elif isinstance(value, str) and any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 for c in value):
        yield Problem(path, f"{shown(value)} has a line end or another control character")


# What no annotation says --------------------------------------------------------------------


def _meaning(root: Section) -> Iterator[Problem]:
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
    yield from _bandwidth(root.at("bandwidth"))
    if root.at("target").text("sign_with") and not root.at("target").text("signers"):
        yield Problem(("target", "sign_with"), "needs `target.signers`, by which the signatures are verified")
    yield from _job_problems(root.at("cluster"))
    for _, step in root.at("cluster").at("steps").each():
        yield from _job_problems(step)


def _job_problems(job: Section) -> Iterator[Problem]:
    try:
        host_names(job.text("exclude"))
    except ValueError as error:
        yield Problem((*job.path, "exclude"), str(error))


def _bandwidth(given: Section) -> Iterator[Problem]:
    capacity, reserve = (given.text(key) for key in ("link", "reserve"))
    if reserve and not capacity:
        yield Problem((*given.path, "reserve"), "is a part of `bandwidth.link`, which is not given")
    elif reserve and quantities.rate(reserve) >= quantities.rate(capacity):
        yield Problem((*given.path, "reserve"), f"{shown(reserve)} leaves nothing of the link's {capacity}")
    if not given.text("folder"):
        for key in ("link", "requests"):
            if given.values.get(key) is not None:
                hint = (
                    "needs `bandwidth.folder`, in which elements share it; `engine.limit` is for each alone"
                )
                yield Problem((*given.path, key), hint)


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
            into = _into(source.text("into"))
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
    """Of what a source's listing is read from in place of the source."""
    for key in storage_options.OF_ONE_SOURCE:
        if "sources" in dataset and key in dataset:
            yield Problem((*dataset.path, key), "belongs into each of `sources`: a listing is of one source")
    for source in storage_options.sources(dataset):
        for key in ("inventory", "list_from"):
            if (place := source.text(key)) and _scheme(place) not in (*_VERSIONED, *FOLDER_SCHEMES):
                yield Problem((*source.path, key), f"{shown(place)} is neither s3://bucket/... nor a path")
            yield from _url_problems(place, (*source.path, key))
        if not source.text("inventory"):
            continue
        where = (*source.path, "inventory")
        if _scheme(source.text("url")) not in _VERSIONED:
            yield Problem(where, f"{shown(source.text('url'))} has none: S3 Inventory is of S3 buckets")
        if source.text("list_from"):
            yield Problem(where, "and `list_from` are two listings of one source: give one of them")


_OF_S3_AND_AZURE = {"archived": "states no archived objects", "times": "states no times in metadata"}


def _store_problems(dataset: Section) -> Iterator[Problem]:
    """Of keys for what S3 and Azure alone state of an object."""
    for source, options in zip(
        storage_options.sources(dataset), storage_options.merged(dataset), strict=True
    ):
        for key, lacks in _OF_S3_AND_AZURE.items():
            if source.text(key) and kind(source.text("url"), options) not in ("s3", "azure"):
                why = f"{shown(source.text('url'))} {lacks}: it is for S3 and Azure"
                yield Problem((*source.path, key), f"{why}, without `reader: fsspec`")
        for key in ("inventory", "list_from"):
            if source.text("times") == "metadata" and source.text(key):
                yield Problem(
                    (*source.path, "times"), f"metadata is not read where `{key}` names the objects"
                )


def _scheme(url: str) -> str:
    found = _SCHEME.match(url)
    return found[1].lower() if found else ""


def _changed_problems(dataset: Section) -> Iterator[Problem]:
    if dataset.text("changed") != "pinned":
        return
    where = (*dataset.path, "changed")
    urls = [source.text("url") for source in storage_options.sources(dataset)]
    for url, options in zip(urls, storage_options.merged(dataset), strict=True):
        scheme = _SCHEME.match(url)
        if through_fsspec(options):
            yield Problem(where, "`pinned` is not for `reader: fsspec`; write follow or refuse")
        elif scheme is None or scheme[1].lower() not in _VERSIONED:
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
    scheme = _SCHEME.match(url)
    if why := no_path(url, source=True):
        yield Problem(path, f"{shown(url)} {why}")
    elif scheme is None and ":/" in url.split("/", maxsplit=1)[0] + "/" and not url.startswith("/"):
        yield Problem(path, f"{shown(url)} is no URL: write scheme://bucket/prefix/, or a folder")
    if scheme is None:
        return
    rest = url[scheme.end() :]
    if "#" in url and scheme[1].lower() in ("http", "https"):
        yield Problem(path, f"{shown(url)} has a fragment (#...), which no server sees")
    if not rest.partition("/")[0] and scheme[1] not in ("file", "local", "memory"):
        what = "a bucket" if scheme[1] in _BUCKETS else "a host"
        yield Problem(
            path, f"{shown(url)} names no {what.removeprefix('a ')}: write {scheme[1]}://{what[2:]}/prefix/"
        )


def _into(text: str) -> str:
    """A normalised relative folder, or "". Raises ValueError."""
    if text.startswith("/"):
        raise ValueError("must be relative to the release's data")
    names = [name for name in text.split("/") if name not in ("", ".")]
    if ".." in names:
        raise ValueError("must not climb by `..`")
    if any(len(os.fsencode(name)) > 255 for name in names):
        raise ValueError("has a name longer than 255 bytes")
    return "/".join(names)


# The typed form ----------------------------------------------------------------------------

_FILE_OPTIONS = ("ca_bundle", "credentials_file", "key_filename")


def _build(root: Section, backend: str | None) -> Config:
    """Of what is all right: brought into the form of the dataclasses, which say how each value is read."""
    root = Section(fixed_settings.laid_over(root.values))
    given = root.at("cluster").values
    common = {key: value for key, value in given.items() if key in JobOptions.__dataclass_fields__}
    cluster = {
        **given,
        "backend": backend or given.get("backend", ClusterConfig.backend),
        "options": common,
        "steps": {step: {**common, **own.values} for step, own in root.at("cluster").at("steps").each()},
    }
    datasets = {
        name: {**one.values, "name": name, "sources": _sources(one)}
        for name, one in root.at("datasets").each()
    }
    return read(Config, {**root.values, "cluster": cluster, "datasets": datasets}, _READERS)


def _sources(dataset: Section) -> list[dict[str, object]]:
    """Each source with its own options, of which the paths of files are absolute: an element runs in another
    working directory."""
    complete = []
    for source, merged in zip(storage_options.sources(dataset), storage_options.merged(dataset), strict=True):
        options = Section(merged)
        absolute = {key: str(_folder(path)) for key in _FILE_OPTIONS if (path := options.text(key))}
        complete.append({**source.values, "storage_options": {**merged, **absolute}})
    return complete


def _folder(text: str) -> Path:
    try:
        return Path.cwd() / Path(text).expanduser()
    except RuntimeError:
        raise ConfigError(
            f"{in_quotes(text)} begins at a home, and there is none",
            why="HOME is not set, and the user database has none for that account",
            hint="write the path out, or set HOME",
        ) from None


def _url(text: str) -> str:
    return text if _SCHEME.match(text) else str(_folder(text))


def _accounts(value: object) -> list[str]:
    """Names and numbers, as text."""
    return [str(one) for one in value] if isinstance(value, (list, tuple)) else []


def _none_for(word: str) -> Callable[[object], object]:
    return lambda value: None if value == word else value


_READERS: Readers = {
    **quantities.READERS,
    "folder": _folder,
    "url": _url,
    "description": lambda name: description_file.read(_folder(name)),
    "into": _into,
    "accounts": _accounts,
    "auto": _none_for("auto"),
    "none": _none_for("none"),
    "digests": partial(sorted, key=lambda name: name != "xxh3_128"),
}
"""By the names with which `settings` annotates its fields."""
