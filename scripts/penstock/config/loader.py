"""From a YAML file to the typed `Config`, checked, and within the site's file; with settings that no
configuration sets, and the file that a dataset's `describe` names. Also which configuration may name files to
write and programs to run.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.config import quantities, site, strict_yaml, validation
from penstock.config.annotations import keys_of
from penstock.config.command_options import BACKENDS
from penstock.config.serialization import Readers, read
from penstock.config.settings import ClusterConfig, Config, DescribeConfig, JobOptions, Reach, TargetConfig
from penstock.config.site import Bounds
from penstock.config.strict_yaml import KeyPath, StrictYamlError, YamlDocument
from penstock.config.validation import URL_SCHEME, Problem, Section
from penstock.core.errors import ConfigError
from penstock.core.human import in_quotes

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Sequence


# Loads a YAML file as the typed `Config`, after all checks, including those against the site's bounds. Also
# reads settings that no configuration sets, and the file in a dataset's `describe`.

# Settings that no configuration sets: fields marked `FIXED` in `config.settings`. Tests set some by an
# environment variable, such as shards of ten files.

# Environment variable for tests, with a JSON object such as `{"plan.shard_files": 10}`. Its values have the
# form that they have in a configuration (`"64MiB"`).
TESTED = "PENSTOCK_TEST_SETTINGS"


def laid_over(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration's mapping, with the values of the variable TESTED merged in. Raises
    ConfigError if the variable has any other form."""
    made = dict(values)
    for key, value in _tested().items():
        *sections, name = key.split(".")
        inner = made
        for section in sections:
            inner[section] = dict(inner.get(section) or {})
            inner = inner[section]
        inner[name] = value
    return made


def _tested() -> dict[str, Any]:
    text = os.environ.get(TESTED)
    if not text:
        return {}
    try:
        values = json.loads(text)
    except ValueError as error:
        raise _unusable_setting(str(error)) from None
    if not isinstance(values, dict):
        raise _unusable_setting("it is no object of keys and values")
    return values


def _unusable_setting(why: str) -> ConfigError:
    return ConfigError(
        f"the environment variable {TESTED} cannot be used",
        why=why,
        hint="it is for penstock's own tests: unset it",
    )


# The YAML file in a dataset's `describe`, for catalogues. It is read with each configuration.


def read_description(path: Path) -> dict[str, Any]:
    """Read the file's mapping, in the form of `DescribeConfig`; {} if empty. Raises ConfigError with the line
    of each problem."""
    try:
        document = strict_yaml.read(path)
    except StrictYamlError as error:
        raise _unusable_description(path, f"line {error.line}: {error}") from None
    except OSError as error:
        raise _unusable_description(path, error.strerror or str(error)) from None
    value = {} if document.value is None else document.value
    if mistakes := validation.problems(value, DescribeConfig):
        raise _unusable_description(path, validation.in_lines(mistakes, document))
    return dict(value)


def _unusable_description(path: Path, why: str) -> ConfigError:
    return ConfigError(
        "the description of the dataset cannot be used",
        where=str(path),
        why=why,
        hint="`describe` in the configuration names it: a YAML file with lines such as `license: URL`",
    )


# Loading a configuration.
#
# Commands call `load`, and `penstock init` calls `load_text`. Workflows, in which Snakemake's --config
# overrides the file, call `read_base` and `compose`. The other functions are for commands without a
# configuration.
#
# Loading reads the configuration, the site's file (`config.site`), files in `describe`, and the user database
# for `~name/...`. It resolves links in the target's root if the site bounds the root. It writes nothing, and
# uses no network.
#
# Mistakes raise a ConfigError with up to MAX_LISTED problems. Each has its key path, line and value (never a
# secret's value), and advice. All problems come from the first stage that finds any: YAML, secrets, the form
# of values (`validation`, `storage_options`), combinations of keys (`validation`), the site's bounds.

MAX_LISTED = 20  # number of problems in a message, at most
_BY_OPTION = -2
# {line number of a value that is in no file: words that replace the line in messages}
_PLACES = {strict_yaml.LAID_OVER: "--config", strict_yaml.UNWRITTEN: "", _BY_OPTION: "--backend"}


def load(
    path: Path | str, backend_override: str | None = None, *, staging: bool = True, in_job: bool = False
) -> Config:
    """Load a file. Relative folders are taken from the working directory. `backend_override` replaces
    `cluster.backend`. Values that exceed the site's bounds are rejected (`site.problems`), or tightened for a
    command that stages nothing (`site.tightened`). `in_job` means that this is a SLURM job, in which any
    backend is allowed. Raises ConfigError."""
    file = Path(path)
    unclear: dict[KeyPath, str] = {}
    return _checked(file, _read(file, unclear), unclear, backend_override, staging=staging, in_job=in_job)


def load_text(text: str, path: Path | str) -> Config:
    """Load this text as if it were the file at `path`. Raises ConfigError, without line numbers."""
    file = Path(path)
    unclear: dict[KeyPath, str] = {}
    try:
        document = strict_yaml.parse(text, unclear)
    except StrictYamlError as error:
        raise _unreadable(file, error) from error
    document = YamlDocument(document.value, {(): strict_yaml.UNWRITTEN})
    document.content = text.encode()
    return _checked(file, document, unclear, None)


class BaseConfiguration(NamedTuple):
    """A configuration that is read but not checked, to be merged with other values: a file, or the
    configuration of another workflow's module."""

    label: str  # the file's path, or other words for the place, for messages
    file: Path | None
    document: YamlDocument
    unclear: Mapping[KeyPath, str]  # what is wrong with each ambiguous value, by its key path


def read_base(path: Path | str) -> BaseConfiguration:
    unclear: dict[KeyPath, str] = {}
    document = _read(Path(path), unclear)
    return BaseConfiguration(str(path), Path(path), document, unclear)


def compose(
    base: BaseConfiguration, values: strict_yaml.Values, heading: str, backend_override: str | None = None
) -> tuple[Config, bytes | None]:
    """Load this base with `values` merged in. Also return the text of a file with that configuration, under
    the comment `heading`. It is None if the base is a file that the values do not change; it never includes
    `backend_override`. Steps judge the backend, since they know whether they are in a job. Raises
    ConfigError."""
    made = strict_yaml.laid_over(base.document, values.sections, heading)
    replaced = {place for place in base.unclear if made.line(place) == strict_yaml.LAID_OVER}
    kept = {place: why for place, why in base.unclear.items() if place not in replaced}
    unclear = {**kept, **values.unclear}
    config = _checked(Path(base.label), made, unclear, backend_override, in_job=True)
    unchanged = base.file is not None and made.content == base.document.content
    return config, None if unchanged else made.content


def check_place(folder: Path) -> None:
    """Raise ConfigError if the site's file does not allow penstock to write in this folder."""
    if (bounds := site_file()) is not None:
        site.check_place(bounds, folder)


def site_file(path: Path | None = None) -> site.Site | None:
    """Read the site's file, or a draft of any owner at `path`. Return None if the file does not exist. Raises
    ConfigError with each mistake's line."""
    policy = site.stored(path)
    return None if policy is None else site.site_of(policy, _READERS, path)


def site_bounds() -> Bounds:
    """Return this machine's bounds. Raises ConfigError for an unusable site's file."""
    file = site_file()
    return Bounds() if file is None else file.bounds


def target_at(root: Path) -> TargetConfig:
    """Return the target for a root without a configuration, with the site's owners and contact. Raises
    ConfigError."""
    said = site_bounds().target
    return TargetConfig(root.absolute(), owners=said.owners, contact=said.contact)


def _checked(
    file: Path,
    document: YamlDocument,
    unclear: Mapping[KeyPath, str],
    backend_override: str | None,
    *,
    staging: bool = True,
    in_job: bool = False,
) -> Config:
    root = _root(file, document)
    policy = site.stored()
    if secrets := [Problem(where, why) for where, why in validation.offenders(root.values)]:
        raise _error(file, document, secrets, hint=validation.HINT)
    if problems := _form_problems(root, unclear) or list(validation.semantic_problems(root)):
        raise _error(file, document, problems)
    bounds = None if policy is None else site.site_of(policy, _READERS)
    if backend_override not in (None, "", *BACKENDS):
        raise ConfigError(
            f"backend {in_quotes(backend_override)} is unknown", hint=f"it is {' or '.join(BACKENDS)}"
        )
    config = _build(root, backend_override)
    if bounds is None:
        return config
    config = site.filled(config, bounds)
    if not staging:
        return site.tightened(config, bounds)
    if problems := list(site.problems(config, bounds, in_job=in_job)):
        if backend_override:
            document.lines[("cluster", "backend")] = _BY_OPTION
        raise _error(file, document, problems)
    return config


def _root(file: Path, document: YamlDocument) -> Section:
    raw = document.value
    if not isinstance(raw, dict):
        raise ConfigError(
            "the configuration is empty" if raw is None else "the configuration is not a mapping of keys",
            where=str(file),
            hint="it begins with `target:` and `datasets:`; `penstock init` writes a commented one",
        )
    return Section(raw)


def _form_problems(root: Section, unclear: Mapping[KeyPath, str]) -> list[Problem]:
    problems = [Problem(where, why) for where, why in unclear.items()]
    problems += validation.control_characters(root.values)
    # An ambiguous value is reported only for that, although its text may have further problems.
    problems += [problem for problem in validation.problems(root.values) if problem.path not in unclear]
    return problems + validation.option_problems(root)


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


# The typed form ----------------------------------------------------------------------------

_FILE_OPTIONS = ("ca_bundle", "credentials_file", "key_filename")


def _build(root: Section, backend: str | None) -> Config:
    """Build the typed form of a configuration without problems."""
    root = Section(laid_over(root.values))
    written = root.at("cluster").values
    common = {key: value for key, value in written.items() if key in JobOptions.__dataclass_fields__}
    cluster = {
        **written,
        "backend": backend or written.get("backend", ClusterConfig.backend),
        "options": common,
        "steps": {step: {**common, **own.values} for step, own in root.at("cluster").at("steps").each()},
    }
    datasets = {
        name: {**dataset.values, "name": name, "sources": _sources(dataset, root.at("engine"))}
        for name, dataset in root.at("datasets").each()
    }
    return read(Config, {**root.values, "cluster": cluster, "datasets": datasets}, _READERS)


def _sources(dataset: Section, engine: Section) -> list[dict[str, object]]:
    """Complete each source with `engine.timeout` and its options. Paths of files become absolute, since an
    element runs in another working directory."""
    complete = []
    for source, merged in zip(validation.sources(dataset), validation.merged(dataset), strict=True):
        options = Section(merged)
        absolute = {key: str(_folder(path)) for key in _FILE_OPTIONS if (path := options.text(key))}
        reach = {name: engine.values[name] for name in Reach._fields if name in engine}
        complete.append({**source.values, **reach, "storage_options": {**merged, **absolute}})
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
    return text if URL_SCHEME.match(text) else str(_folder(text))


def _accounts(value: object) -> list[str]:
    return [str(account) for account in value] if isinstance(value, (list, tuple)) else []


def _none_for(word: str) -> Callable[[object], object]:
    """Return a reader (a function that converts a value) that converts this word to None."""
    return lambda value: None if value == word else value


_READERS: Readers = {
    **quantities.READERS,
    "folder": _folder,
    "url": _url,
    "description": lambda name: read_description(_folder(name)),
    "into": validation.folder_in_data,
    "accounts": _accounts,
    "auto": _none_for("auto"),
    "none": _none_for("none"),
    "digests": partial(sorted, key=lambda name: name != "xxh3_128"),
}  # {name in the annotations of `settings`: reader}


# Decides which configurations may name files to write and programs to run. Whoever can write a configuration
# acts as the account that reads it.
#
# | accounts other than this account and root may write  | a key that is marked   | a command that          |
# | the configuration, or replace its file               | WRITES or RUNS         | stages nothing          |
# |------------------------------------------------------|------------------------|-------------------------|
# | no                                                   | counts                 | obeys it                |
# | yes                                                  | is rejected            | ignores the key         |
# | yes, and the site's file lists the program           | counts                 | obeys it                |
# | (`notify.programs`), or it is the running interpreter|                        |                         |

# Keys that every command for data obeys from its start. `notify.command` and `metrics` are obeyed only at a
# command's end.
ELEMENTS = ("cluster.python", "cluster.pyslurm_python")


def refuse(config: Config, file: Path, keys: Container[str] | None = None) -> None:
    """Raise ConfigError for the first of `keys` (None: of all) whose value does not count (see the table)."""
    for key, value in _given(config, Config):
        if keys is None or key in keys:
            _refuse(key, value, file)


def bounded(config: Config, file: Path, *, staging: bool) -> Config:
    """Leave out values that do not count (see the table). Raises ConfigError for a command that stages."""
    try:
        refuse(config, file, ELEMENTS)
    except ConfigError:
        if staging:
            raise
        plain = ClusterConfig()
        cluster = replace(config.cluster, python=plain.python, pyslurm_python=plain.pyslurm_python)
        return replace(config, cluster=cluster)
    return config


def _given(settings: object, kind: type, where: str = "") -> Iterator[tuple[str, object]]:
    """Yield each marked key that has a value, with this value."""
    for name, key in keys_of(kind).items():
        value = getattr(settings, name, None)
        if key.touches and value:
            yield where + name, value
        elif key.below is not None:
            yield from _given(value, key.below, f"{where}{name}.")
        elif key.each is not None and key.each.below is not None:
            for inner in value.values() if isinstance(value, Mapping) else value or ():
                yield from _given(inner, key.each.below, f"{where}{name}.")


def _refuse(key: str, value: object, file: Path) -> None:
    word = str(value[0] if isinstance(value, tuple) else value)
    notify = key == "notify.command"
    if word == sys.executable or (notify and word in site_bounds().notify.programs):
        return
    real = os.path.realpath(file)
    for place in dict.fromkeys((real, os.path.dirname(real), os.path.dirname(os.path.abspath(file)))):
        status = os.stat(place)
        # In a sticky folder nobody else can replace the file.
        written = status.st_mode & site.OTHERS and not (place != real and status.st_mode & stat.S_ISVTX)
        own = status.st_uid in (os.geteuid(), 0)
        if written or not own:
            mend = f"`chmod go-w {place}`" if own else "give a copy that is this account's own by --config"
            raise ConfigError(
                f"{key} is refused: others than this account may write the configuration",
                where=str(file),
                why=f"{place} belongs to uid {status.st_uid}, with mode {stat.S_IMODE(status.st_mode):04o}",
                hint=f"{mend}, or {site.FILE} lists {word} under `notify.programs`" if notify else mend,
            )
