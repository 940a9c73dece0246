"""From the YAML file to `Config`, or to one ConfigError that lists every problem.

Each problem names the key path and its line, the value (never a secret's), and what to write
instead. Nothing is read but the file itself: no network, no target, no user or group database.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.config import quantities, secret_check, storage_options, validation
from penstock.config.settings import (
    ClusterConfig,
    Config,
    DatasetConfig,
    EngineConfig,
    FollowLimit,
    JobOptions,
    PermissionsConfig,
    PlanConfig,
    SourceConfig,
    TargetConfig,
    VerifyConfig,
)
from penstock.config.strict_yaml import Document, KeyPath, StrictYamlError, read
from penstock.config.validation import Problem, shown
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://", re.ASCII)
_BUCKETS = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss")
_VERSIONED = ("s3", "s3a")
"""Whose objects can be listed and read by version ids."""
_RESERVED = ("all", "results")
"""Names that mean something else to the workflow's command line."""
_ALIGN = 1 << 20
MAX_LISTED = 20
"""Problems that one message lists."""
FITS = "PENSTOCK_FITS"
"""Names, in the environment, a configuration that this process or one above it has held against the
schema. A run's steps read the same file again and again, and the schema's library takes longer to load
than the file to read: by its content, a file that has changed since is looked at anew."""


def load(path: Path | str, backend_override: str | None = None) -> Config:
    """The configuration of this file. `backend_override` is the profile's or the command line's
    word on `cluster.backend`. Raises ConfigError."""
    file = Path(path)
    unclear: dict[KeyPath, str] = {}
    document = _read(file, unclear)
    raw = document.value
    if not isinstance(raw, dict):
        raise ConfigError(
            "the configuration is empty" if raw is None else "the configuration is not a mapping of keys",
            where=str(file),
            hint="it begins with `target:` and `datasets:`; config.yaml is a commented example",
        )
    fits = _fingerprint(document)
    hidden = [Problem(where, why) for where, why in secret_check.offenders(raw)]
    if hidden:
        raise _error(file, document, hidden, hint=secret_check.HINT)
    found = [Problem(where, why) for where, why in unclear.items()]
    found += _control_characters(raw)
    if os.environ.get(FITS) != fits:
        # What is read in different ways has been told; whether it would do as text does not matter.
        found += [problem for problem in validation.problems(raw) if problem.path not in unclear]
        found += storage_options.problems(raw)
    if not found:
        found = list(_meaning(raw))
    if found:
        raise _error(file, document, found)
    os.environ[FITS] = fits
    if backend_override not in (None, "", "local", "slurm"):
        raise ConfigError(f"backend {backend_override!r} is unknown", hint="it is local or slurm")
    return _build(raw, backend_override)


def _fingerprint(document: Document) -> str:
    """Of the file's content and the schema's."""
    return hashlib.sha256(validation.source() + b"\0" + document.content).hexdigest()


def _read(file: Path, unclear: dict[KeyPath, str]) -> Document:
    try:
        return read(file, unclear)
    except StrictYamlError as error:
        raise ConfigError(
            "the configuration cannot be read", where=f"{file}, line {error.line}", why=str(error)
        ) from error
    except FileNotFoundError:
        raise ConfigError(
            "there is no configuration file", where=str(file), hint="give one by --config FILE"
        ) from None
    except OSError as error:
        raise ConfigError(
            "the configuration cannot be read", where=str(file), why=error.strerror or ""
        ) from None


def _error(file: Path, document: Document, found: Sequence[Problem], hint: str = "") -> ConfigError:
    def told(problem: Problem) -> str:
        return f"{dotted(problem.path)} (line {document.line(problem.path)}): {problem.text}"

    if len(found) == 1:
        return ConfigError(told(found[0]), where=str(file), hint=hint)
    lines = [f"  - {told(problem)}" for problem in found[:MAX_LISTED]]
    if len(found) > MAX_LISTED:
        lines.append(f"  - and {len(found) - MAX_LISTED} more")
    return ConfigError("\n".join([f"the configuration {file} has {len(found)} problems:", *lines]), hint=hint)


def dotted(path: KeyPath) -> str:
    """`datasets.imagenet.sources[1].url`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.lstrip(".").encode("unicode_escape").decode() or "the file"


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


# What the schema cannot say ----------------------------------------------------------------


def _meaning(raw: Mapping[str, Any]) -> Iterator[Problem]:
    for name, dataset in raw["datasets"].items():
        path: KeyPath = ("datasets", name)
        if name in _RESERVED:
            yield Problem(path, f"the name {name!r} is taken by the workflow: choose another")
        yield from _sources_problems(dataset, path)
        yield from _changed_problems(dataset, path)
    yield from _sizes(raw.get("plan", {}))
    for step, options in raw.get("cluster", {}).get("steps", {}).items():
        if options.get("memory") == 0:
            yield Problem(("cluster", "steps", step, "memory"), "must be more than nothing")


def _sizes(plan: Mapping[str, Any]) -> Iterator[Problem]:
    default = PlanConfig()
    given = {key: quantities.size(plan[key]) if key in plan else getattr(default, key) for key in _PLAN_SIZES}
    if given["shard_bytes"] < 1:
        yield Problem(("plan", "shard_bytes"), "must be more than nothing")
    part, giant = given["part_bytes"], given["giant_bytes"]
    if part < _ALIGN or part % _ALIGN:
        yield Problem(("plan", "part_bytes"), "must be a whole number of MiB, at least 1MiB")
    elif giant < part:
        key = "giant_bytes" if "giant_bytes" in plan else "part_bytes"
        yield Problem(("plan", key), "giant_bytes must not be smaller than part_bytes")


def _sources_problems(dataset: Mapping[str, Any], path: KeyPath) -> Iterator[Problem]:
    if "source" in dataset:
        yield from _url_problems(dataset["source"], (*path, "source"))
        return
    seen: dict[str, int] = {}
    for index, source in enumerate(dataset["sources"]):
        here = (*path, "sources", index)
        yield from _url_problems(source["url"], (*here, "url"))
        try:
            into = _into(source.get("into", ""))
        except ValueError as error:
            yield Problem((*here, "into"), f"{shown(source['into'])} {error}")
            continue
        if len(dataset["sources"]) > 1 and not into:
            yield Problem((*here, "into"), "is missing: several sources need a folder each")
            continue
        for other, at in seen.items():
            if f"{into}/".startswith(f"{other}/") or f"{other}/".startswith(f"{into}/"):
                yield Problem((*here, "into"), f"{shown(into)} is, or lies in, the folder of sources[{at}]")
        seen[into] = index


def _changed_problems(dataset: Mapping[str, Any], path: KeyPath) -> Iterator[Problem]:
    if dataset.get("changed") != "pinned":
        return
    urls = [dataset["source"]] if "source" in dataset else [source["url"] for source in dataset["sources"]]
    for url in urls:
        scheme = _SCHEME.match(url)
        if scheme is None or scheme[1].lower() not in _VERSIONED:
            yield Problem(
                (*path, "changed"),
                f"{shown(url)} has no versions that stay: `pinned` is for versioned S3 buckets; "
                "write follow or refuse",
            )


def _url_problems(url: str, path: KeyPath) -> Iterator[Problem]:
    scheme = _SCHEME.match(url)
    if scheme is None:
        if ":/" in url.split("/", maxsplit=1)[0] + "/" and not url.startswith("/"):
            yield Problem(path, f"{shown(url)} is no URL: write scheme://bucket/prefix/, or a folder")
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
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ValueError("must not climb by `..`")
    if any(len(os.fsencode(part)) > 255 for part in parts):
        raise ValueError("has a name longer than 255 bytes")
    return "/".join(parts)


# The typed form ----------------------------------------------------------------------------

_FILE_OPTIONS = ("ca_bundle", "credentials_file", "key_filename")
_PLAN_SIZES = ("shard_bytes", "giant_bytes", "part_bytes")


def _build(raw: Mapping[str, Any], backend: str | None) -> Config:
    target = raw["target"]
    state = target.get("state_root")
    keep_free = {"keep_free": quantities.size(target["keep_free"])} if "keep_free" in target else {}
    plan: dict[str, Any] = {
        key: quantities.size(v) if key in _PLAN_SIZES else v for key, v in raw.get("plan", {}).items()
    }
    verify = dict(raw.get("verify", {}))
    if "digests" in verify:
        verify["digests"] = tuple(sorted(verify["digests"], key=lambda d: d != "xxh3_128"))
    if "sample" in verify:
        verify["sample"] = float(verify["sample"])
    return Config(
        target=TargetConfig(_folder(target["root"]), _folder(state) if state else None, **keep_free),
        datasets={name: _dataset(name, value) for name, value in raw["datasets"].items()},
        cluster=_cluster(raw.get("cluster", {}), backend),
        plan=PlanConfig(**plan),
        engine=_engine(raw.get("engine", {})),
        verify=VerifyConfig(**verify),
    )


def _folder(text: str) -> Path:
    return Path.cwd() / Path(text).expanduser()


def _dataset(name: str, raw: Mapping[str, Any]) -> DatasetConfig:
    options = (_files(each) for each in storage_options.merged(raw))
    if "source" in raw:
        sources: tuple[SourceConfig, ...] = (SourceConfig(_url(raw["source"]), "", next(options)),)
    else:
        sources = tuple(
            SourceConfig(_url(s["url"]), _into(s.get("into", "")), own)
            for s, own in zip(raw["sources"], options, strict=True)
        )
    given = dict(raw.get("permissions", {}))
    for key in ("file_mode", "dir_mode"):
        if key in given:
            given[key] = quantities.mode(given[key], folder=key == "dir_mode")
    plain: dict[str, Any] = {
        key: raw[key] for key in ("release", "links", "specials", "empty_folders", "changed") if key in raw
    }
    if "follow_limit" in raw:
        plain["follow_limit"] = FollowLimit(
            **{k: quantities.share(v) for k, v in raw["follow_limit"].items()}
        )
    listed: dict[str, Any] = {
        key: tuple(raw[key]) for key in ("include", "exclude", "checksums") if key in raw
    }
    return DatasetConfig(
        name=name, sources=sources, permissions=PermissionsConfig(**given), **plain, **listed
    )


def _files(options: Mapping[str, Any]) -> dict[str, Any]:
    """Storage options with absolute paths: an element runs in another working directory."""
    named = {key: str(_folder(options[key])) for key in _FILE_OPTIONS if isinstance(options.get(key), str)}
    return {**options, **named}


def _url(text: str) -> str:
    return text if _SCHEME.match(text) else str(_folder(text))


def _engine(raw: Mapping[str, Any]) -> EngineConfig:
    given: dict[str, Any] = {
        key: None if value == "auto" else value for key, value in raw.items() if key != "durability"
    }
    if "durability" in raw:
        given["durability"] = raw["durability"]
    if given.get("limit") is not None:
        given["limit"] = quantities.rate(given["limit"])
    if "timeout" in given:
        given["timeout"] = quantities.duration(given["timeout"])
    return EngineConfig(**given)


def _cluster(raw: Mapping[str, Any], backend: str | None) -> ClusterConfig:
    jobs = set(JobOptions.__dataclass_fields__)
    common = {key: value for key, value in raw.items() if key in jobs}
    own = {key: raw[key] for key in ("backend", "python", "retries", "probe") if key in raw}
    if "poll" in raw:
        own["poll"] = quantities.duration(raw["poll"])
    if backend:
        own["backend"] = backend
    return ClusterConfig(
        options=_job(common),
        steps={step: _job({**common, **options}) for step, options in raw.get("steps", {}).items()},
        on_nodes=tuple(raw.get("on_nodes", ())),
        **own,
    )


def _job(raw: Mapping[str, Any]) -> JobOptions:
    given = dict(raw)
    if given.get("time") is not None:
        given["time"] = max(1, int(quantities.duration(given["time"])))
    if given.get("memory") is not None:
        given["memory"] = quantities.size(given["memory"])
    if given.get("core_spec") == "none":
        given["core_spec"] = None
    if "licenses" in given:
        given["licenses"] = tuple(given["licenses"])
    return JobOptions(**given)
