"""What is wrong with a configuration: values without the form that the settings' annotations ask for; and
keys that need or exclude one another, options that a source's kind does not know, secrets, folders that lie
in one another. All problems are reported at once, with their key paths.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from penstock.config import quantities
from penstock.config.annotations import Fields, Items, Named, Unit, key_of, keys_of
from penstock.config.settings import Config
from penstock.config.source_kinds import (
    FOLDER,
    KINDS,
    S3,
    WEB,
    SourceKind,
    kind,
    no_path,
    of_url,
    through_fsspec,
    with_slashes,
)
from penstock.core import posix_acl
from penstock.core.human import in_quotes, nearest, printable
from penstock.core.range_lists import host_names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from penstock.config.annotations import Key
    from penstock.config.strict_yaml import KeyPath, YamlDocument


# Judges a parsed configuration by the settings' annotations, and reports all problems at once with their key
# paths.
#
# `config.validation` judges combinations of keys.


class Problem(NamedTuple):
    path: KeyPath
    text: str

    def at(self, place: str) -> str:
        """Return the problem as text, with its key, and with `place` unless that is "":
        `datasets.imagenet.sources[1].url (line 7): is missing`."""
        return (
            f"{_dotted(self.path)} ({place}): {self.text}" if place else f"{_dotted(self.path)}: {self.text}"
        )


def in_lines(several: Iterable[Problem], document: YamlDocument) -> str:
    """Join a document's problems, each with its line, into one line."""
    return "; ".join(problem.at(f"line {document.line(problem.path)}") for problem in several)


def _dotted(path: KeyPath) -> str:
    text = ""
    for key in path:
        text += f"[{key}]" if isinstance(key, int) else f".{key}"
    return text.lstrip(".").encode("unicode_escape").decode() or "the file"


def problems(value: Any, hint: Any = Config, where: KeyPath = ()) -> list[Problem]:
    """Return the values that the annotations do not allow, in the order of key paths. `hint` declares the
    value at `where`: a class of keys, or an annotated type."""
    # Only in a configuration may an unknown key belong to another section.
    of_file = hint is Config or bool(where)
    distinct = dict.fromkeys(_of_value(key_of(hint), value, where, of_file=of_file))
    return sorted(distinct, key=lambda problem: [str(key) for key in problem.path])


def _of_value(key: Key, value: Any, path: KeyPath, *, of_file: bool) -> Iterator[Problem]:
    kind = key.kind
    if value is None and key.null:
        return
    if isinstance(kind, Unit):
        try:
            quantities.READERS[kind.name](value)
            if value == 0 and not kind.zero:
                raise ValueError(f"must be {quantities.SIZE_HELP}")
        except ValueError as error:
            yield Problem(path, f"{shown(value)} {error}")
        return
    if (kind.types and type(value) not in kind.types) or not kind.allows(value):
        yield from _unfit(key, value, path)
    if isinstance(kind, Items) and isinstance(value, list) and key.each:
        if kind.unique and len(set(map(repr, value))) < len(value):
            yield Problem(path, f"{shown(value)} names something twice")
        for index, item in enumerate(value):
            yield from _of_value(key.each, item, (*path, index), of_file=of_file)
    if isinstance(kind, (Fields, Named)) and isinstance(value, dict):
        if len(value) < kind.least:
            yield Problem(path, f"is empty: give {key.expect}")
        below = _of_names if isinstance(kind, Named) else _of_keys
        yield from below(key, value, path, of_file=of_file)


def _of_names(key: Key, values: dict[str, Any], path: KeyPath, *, of_file: bool) -> Iterator[Problem]:
    """Check a mapping from names to parts of the same form."""
    kind: Any = key.kind
    for name, value in values.items():
        at = (*path, name)
        if kind.names and name not in kind.names:
            yield _unknown(at, list(kind.names), of_file=of_file)
            continue
        if not re.search(kind.pattern, name):
            yield Problem(at, kind.rule)
        if key.each:
            yield from _of_value(key.each, value, at, of_file=of_file)


def _of_keys(key: Key, values: dict[str, Any], path: KeyPath, *, of_file: bool) -> Iterator[Problem]:
    """Check a mapping whose keys are the fields of a class."""
    if key.below is None:
        return
    keys = keys_of(key.below)
    if either := [name for name, inner in keys.items() if inner.either]:
        present = [name for name in either if name in values]
        if len(present) > 1:
            names = " or ".join(f"`{name}`" for name in either)
            yield Problem((*path, either[-1]), f"give {names}, not both")
        elif not present:
            yield Problem((*path, either[0]), f"is missing: give {keys[either[0]].expect}")
    for name in sorted(set(values) - set(keys)):
        yield _unknown((*path, name), list(keys), of_file=of_file)
    for name, inner in keys.items():
        if name in values:
            yield from _of_value(inner, values[name], (*path, name), of_file=of_file)
        elif inner.required:
            yield Problem((*path, name), f"is missing: give {inner.expect}")


_TYPES = {
    dict: "a mapping", list: "a list", str: "text", bool: "true or false", int: "a number",
    float: "a number",
}  # fmt: skip


def _unfit(key: Key, value: Any, path: KeyPath) -> Iterator[Problem]:
    """Yield a problem for a value that its kind does not allow."""
    if value is None:
        yield Problem(path, f"has no value: give {key.expect}")
    else:
        types = key.kind.types
        why = f"is {_TYPES[type(value)]}" if types and type(value) not in types else "cannot be used"
        yield Problem(path, f"{shown(value)} {why}; give {key.expect}")


def _unknown(path: KeyPath, names: list[str], *, of_file: bool) -> Problem:
    name = str(path[-1])
    if of_file and _ALIASES.get(name) not in names and (places := _places(path)):
        return Problem(path, f"unknown key; its place is {' or '.join(f'`{place}`' for place in places)}")
    return Problem(path, f"unknown key{_nearest(name, names)}")


def _places(path: KeyPath) -> list[str]:
    """Return other places of a key with this name, within the same dataset: in each section, only the
    outermost."""
    dataset = str(path[1]) if path[0] == "datasets" and len(path) > 2 else "NAME"
    places: dict[str, KeyPath] = {}
    for place in sorted(_paths(Config, ()), key=len):
        if place[-1] == path[-1]:
            places.setdefault(str(place[0]), tuple(dataset if key == _NAME else key for key in place))
    return [_dotted(place) for place in places.values() if place != path]


_NAME = "<dataset>"


def _paths(settings_class: type, path: KeyPath) -> Iterator[KeyPath]:
    """Yield all keys below a class at `path`."""
    for name, key in keys_of(settings_class).items():
        yield (*path, name)
        yield from _paths_below(key, (*path, name))


def _paths_below(key: Key, path: KeyPath) -> Iterator[KeyPath]:
    """Yield all keys below this key, also those of all storage options."""
    if isinstance(key.kind, Fields):
        for settings_class in [kind.options for kind in KINDS] if key.below is None else [key.below]:
            if settings_class is not None:
                yield from _paths(settings_class, path)
    if key.each:
        for name in (key.kind.names or (_NAME,)) if isinstance(key.kind, Named) else (0,):
            yield (*path, name)
            yield from _paths_below(key.each, (*path, name))


# {name that other programs use: key}
_ALIASES = {
    "account": "account_name", "anonymous": "anon", "client_kwargs": "endpoint_url",
    "endpoint": "endpoint_url", "region_name": "region", "verify": "ca_bundle",
}  # fmt: skip


def _nearest(key: str, names: list[str]) -> str:
    if _ALIASES.get(key) in names:
        return f"; did you mean `{_ALIASES[key]}`?"
    close = nearest(key, names)
    if close:
        return f"; did you mean `{close}`?"
    return f"; there are: {', '.join(names)}" if names else ""


def shown(value: Any) -> str:
    """Shorten a value for a message, to a single printable line."""
    text = _as_yaml(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _as_yaml(value: Any) -> str:
    """Write a value as YAML in one line."""
    match value:
        case None | bool():
            return {None: "null", True: "true", False: "false"}[value]
        case str():
            return in_quotes(value)
        case list() | tuple():
            return f"[{', '.join(map(_as_yaml, value))}]"
        case dict():
            return (
                f"{{{', '.join(f'{printable(str(key))}: {_as_yaml(node)}' for key, node in value.items())}}}"
            )
        case _:
            return str(value)


# Finds mistakes in a configuration whose values all have the right form. Such are keys that need or exclude
# others, options that a source's kind does not know, secrets, and folders inside one another.

# A mapping in the parsed configuration, with its place in the file.
#
# Missing keys and values of a wrong type are read as empty, since `config.validation` reports them.


class Section:
    """A mapping's `values`, at the key path `path`."""

    def __init__(self, value: object, path: KeyPath = ()) -> None:
        self.values: dict[str, object] = value if isinstance(value, dict) else {}
        self.path = path

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def text(self, key: str) -> str:
        """Return the text at this key, or ""."""
        value = self.values.get(key)
        return value if isinstance(value, str) else ""

    def at(self, key: str) -> Section:
        """Return the mapping at this key."""
        return Section(self.values.get(key), (*self.path, key))

    def each(self) -> Iterator[tuple[str, Section]]:
        """Yield every key whose value is a mapping."""
        return ((key, self.at(key)) for key, value in self.values.items() if isinstance(value, dict))

    def listed(self, key: str) -> list[Section]:
        """Return the mappings in the list at this key."""
        items = self.values.get(key)
        several = enumerate(items) if isinstance(items, list) else ()
        return [Section(item, (*self.path, key, at)) for at, item in several if isinstance(item, dict)]


# Rejects keys and URLs that would contain a secret, without repeating the secret.
#
# The configuration is copied into logs, run folders and reports. So it contains only references: a vendor's
# profile, or a file with mode 0600.

HINT = (
    "secrets do not belong in this file: name a profile (`profile: staging`) or a file of mode 0600 "
    "(`credentials_file: ~/.config/penstock/credentials`)"
)

_SECRET_KEY = re.compile(
    r"(?i)^(?:key|pass|password|passwd|passphrase|secret|token|sas|pwd|authorization|auth|cookie|credential"
    r"|credentials|connection_?string|bearer)$"
    r"|(?:^|_)(?:access_?key|secret|password|passwd|token|sas|api_?key|account_?key|private_?key|shared_?key"
    r"|client_?secret|connection_?string|encryption_?key|signature)(?:_?id)?$"
    r"|(?:_key|secretkey|accesskeyid|secretaccesskey|sessiontoken|accountkey|connectionstring)$"
)
# values of gcsfs's option `token` that are no secret
_HARMLESS_VALUES = {"anon", "google_default", "cloud", "cache"}
# Further names of query fields by which CDNs and services give access.
_SECRET_QUERY = re.compile(
    r"(?i)(?:^|_)(?:signature|sig|credential|token|jwt|auth|authkey|authorization|access|ticket|session"
    r"|sessionid|session_id|hdn(?:ea|ts)|policy|pwd|pass|code|hmac|hash|nonce|otp|assertion)$"
    r"|key_pair_id|^awsaccesskeyid$|google_?access_?id|accesssignature|access_signature"
)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def offenders(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    """Yield (key path, why) for every value that is, or may be, an inline secret."""
    if isinstance(value, dict):
        for key, child in value.items():
            below = (*path, key)
            named = path == ("datasets",)  # a dataset may be called `token`
            if not named and _is_secret_key(key, child):
                yield below, "would hold a secret"
                continue
            yield from offenders(child, below)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from offenders(child, (*path, index))
    elif isinstance(value, str):
        why = in_url(value)
        if why:
            yield path, why


def _is_secret_key(key: str, value: Any) -> bool:
    if isinstance(value, bool) or (isinstance(value, str) and value in _HARMLESS_VALUES):
        return False
    return bool(_SECRET_KEY.search(key.replace("-", "_")))


def _shown(name: str) -> str:
    return name if name.isascii() and name.isprintable() and len(name) <= 40 else "..."


def in_url(text: str) -> str:
    """Return why this URL contains a secret, or ""."""
    url = with_slashes(text) or text
    if "://" not in url:
        return ""
    try:
        components = urlsplit(url)
    except ValueError:
        return ""
    user, at_sign, _ = components.netloc.rpartition("@")
    # In abfs://container@account/, the text before the @ is the container.
    if at_sign and (":" in user or not of_url(url).user):
        return "has user info (`user:password@`) in its URL"
    for name, _ in parse_qsl(components.query, keep_blank_values=True):
        # accessToken, X-Plex-Token and access_token count as forms of the same name.
        plain = _HUMP.sub("_", name.replace("-", "_").replace(".", "_"))
        if _SECRET_KEY.search(plain) or _SECRET_KEY.search(name) or _SECRET_QUERY.search(plain):
            return f"has what may be a token or a signature in its URL's query (`{_shown(name)}`)"
    return ""


# The options of each source, checked and merged.
#
# A dataset's `storage_options` are for all its sources. Each source takes the options that its kind knows. A
# source that fsspec opens takes the options that no other kind of source in the dataset knows. An option that
# no source takes is a mistake. A source's own options override those of the dataset.

_COMMON = "storage_options"
# keys of a source that are keys of the dataset if it has a single `source`
OF_ONE_SOURCE = ("inventory", "list_from", "archived", "times")


def option_problems(root: Section) -> list[Problem]:
    """Return options that are unknown or of a wrong type. Sections that are no mappings are skipped."""
    return [problem for _, dataset in root.at("datasets").each() for problem in _of_dataset(dataset)]


def sources(dataset: Section) -> list[Section]:
    """Return the dataset's sources, each with its `url`, also for a dataset with a single `source`."""
    url = dataset.text("source")
    if not url:
        return dataset.listed("sources")
    own = {key: dataset.values[key] for key in OF_ONE_SOURCE if key in dataset}
    return [Section({"url": url, **own}, dataset.path)]


def merged(dataset: Section) -> Iterator[Mapping[str, object]]:
    """Yield each source's options: those that it takes from the dataset, overridden by its own options.
    Options with the value `null` are left out."""
    common, kinds = dataset.at(_COMMON).values, _kinds(dataset)
    for source, of in zip(sources(dataset), kinds, strict=True):
        taken = {key: value for key, value in common.items() if _takes(of, key, kinds)}
        own = source.at(_COMMON).values
        yield {key: value for key, value in {**taken, **own}.items() if value is not None}


def _of_dataset(dataset: Section) -> Iterator[Problem]:
    kinds = _kinds(dataset)
    for source, of in zip(sources(dataset), kinds, strict=True):
        if of.options:
            yield from _unfit_options(source.at(_COMMON).values, of, (*source.path, _COMMON))
    common = dataset.at(_COMMON).values
    problems: dict[KeyPath, Problem] = {}
    for of in dict.fromkeys(of for of in kinds if of.options):
        # An option of the dataset that another source takes is meant for that source.
        own = {
            key: value
            for key, value in common.items()
            if key in known(of) or not any(_takes(kind, key, kinds) for kind in kinds if kind != of)
        }
        for problem in _unfit_options(own, of, (*dataset.path, _COMMON)):
            problems.setdefault(problem.path, problem)
    yield from problems.values()


def _unfit_options(options: Mapping[str, object], of: SourceKind, where: KeyPath) -> Iterator[Problem]:
    if options:
        yield from problems(options, of.options, where)


def _takes(of: SourceKind, key: str, kinds: Sequence[SourceKind]) -> bool:
    """Return whether a source of this kind takes the dataset's option; `kinds` has all sources' kinds."""
    if len({kind.options for kind in kinds}) == 1:
        return True
    if of.options:
        return key in known(of)
    return key == "reader" or not any(key in known(kind) for kind in kinds)


def _kinds(dataset: Section) -> list[SourceKind]:
    common = dataset.at(_COMMON).values
    return [kind(source.text("url"), {**common, **source.at(_COMMON).values}) for source in sources(dataset)]


def known(of: SourceKind) -> Collection[str]:
    """Return the option names of a kind of source, or none if any are allowed."""
    return keys_of(of.options) if of.options else ()


RESERVED = ("all", "results")  # names that mean something else on the workflow's command line
URL_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://", re.ASCII)
_FOLDERS = (
    ("target", "root"), ("target", "state_root"), ("target", "sign_with"), ("target", "signers"),
    ("bandwidth", "folder"),
)  # fmt: skip
_OF_S3_AND_AZURE = {"archived": "states no archived objects", "times": "states no times in metadata"}


def semantic_problems(root: Section) -> Iterator[Problem]:
    """Yield all problems of a configuration whose values have valid forms."""
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
    """Yield a problem for each text or key with a control character, in a document of any form."""
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
    elif reserve and quantities.read_rate(reserve) >= quantities.read_rate(capacity):
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
    """Check the keys of listings that are read from elsewhere."""
    for key in OF_ONE_SOURCE:
        if "sources" in dataset and key in dataset:
            yield Problem((*dataset.path, key), "belongs into each of `sources`: a listing is of one source")
    for source in sources(dataset):
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
    """Check keys that need facts which only S3 and Azure state about an object."""
    for source, options in zip(sources(dataset), merged(dataset), strict=True):
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
    urls = [source.text("url") for source in sources(dataset)]
    for url, options in zip(urls, merged(dataset), strict=True):
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
