"""The values that `snakemake --config` takes: each is used or rejected. Also the workflow's configuration if
it is a module of another workflow: `module penstock: config: ...`.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import yaml

from penstock.config import loader, quantities, strict_yaml
from penstock.config.strict_yaml import StrictYamlError
from penstock.core import findings
from penstock.core.errors import ConfigError, PreflightError
from penstock.core.human import did_you_mean, in_quotes, printable
from penstock.fs import small_files

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from penstock.config.settings import Config


# The values of `snakemake --config`. Each is used or rejected.
#
# | key                                    | value                                          | is for         |
# |----------------------------------------|------------------------------------------------|----------------|
# | a section of the configuration         | as in the file, whose section it overrides     | every command  |
# | `dataset`                              | a name, or a list of names                     | every command  |
# | `new_release`, `copy_unchanged`        | true or false                                  | staging        |
# | `fraction`, `sample`, `limit`, `release` | as the options of `penstock audit`           | `audit`        |
#
# The values are parsed from the words as typed. Snakemake itself turns a dataset called `1e5` into a number,
# and anything that it cannot parse into text.

DATASET = "dataset"
STAGING = ("new_release", "copy_unchanged")
AUDIT: Mapping[str, tuple[Callable[[str], object], str]] = {
    "fraction": (findings.parse_turns, "a fraction such as 1/30"),
    "sample": (findings.parse_fraction, "a share such as 1%"),
    "limit": (quantities.read_rate, "a rate such as 200MiB/s; an engine's is engine='{limit: 200MiB/s}'"),
    "release": (str, "a release's name"),
}
_FLAGS = {"true": True, "True": True, "false": False, "False": False}


class ConfigWords(NamedTuple):
    """The parsed words."""

    sections: strict_yaml.Values
    datasets: list[str] | None
    flags: frozenset[str]  # the names of `STAGING` that are true
    audit: Mapping[str, str]  # the values of `AUDIT`, in the words of the command line


def refuse_doubled(arguments: Sequence[str]) -> None:
    """Raise ConfigError for a repeated option of which Snakemake uses only the last."""
    words = [word.partition("=")[0] for word in arguments]
    words = words[: words.index("--")] if "--" in words else words
    for names in (("--config", "-C"), ("--configfile", "--configfiles")):
        if sum(words.count(name) for name in names) > 1:
            raise ConfigError(
                f"{names[0]} is given twice, and Snakemake takes the last one alone",
                hint="--config takes any number of KEY=VALUE; of configuration files there is one",
            )


def parse(words: Iterable[str]) -> ConfigWords:
    """Parse the words. Raises ConfigError."""
    typed: dict[str, str] = {}
    for word in words:
        key, _, text = word.partition("=")
        if key in typed:
            raise _wrong(key, "is given twice: write it once, of several datasets as dataset='[a, b]'")
        if not text.strip():
            raise _wrong(key, "has no value")
        typed[key] = text
    audits = {key: _unquoted(typed.pop(key)) for key in AUDIT if key in typed}
    flags = {key: typed.pop(key) for key in STAGING if key in typed}
    if {"fraction", "sample"} <= audits.keys():
        raise _wrong("fraction", "is given beside sample: give one of them")
    for key, text in audits.items():
        try:
            AUDIT[key][0](text)
        except ValueError:
            raise _wrong(key, f"{in_quotes(text)} is not {AUDIT[key][1]}") from None
    for key, text in flags.items():
        if _unquoted(text) not in _FLAGS:
            raise _wrong(key, f"{in_quotes(text)} is neither true nor false")
    datasets = _names(typed.pop(DATASET)) if DATASET in typed else None
    chosen = frozenset(key for key, text in flags.items() if _FLAGS[_unquoted(text)])
    try:
        return ConfigWords(strict_yaml.parse_mapping(typed.items()), datasets, chosen, audits)
    except StrictYamlError as error:
        raise ConfigError(
            "a value cannot be read",
            where="--config",
            why=str(error),
            hint="quote it for the shell: --config engine='{limit: 1GiB/s}'",
        ) from error


def backend(defaults: Iterable[str]) -> str:
    """Return the backend from a profile's `default-resources` (words `name=value`), or ""."""
    named = (word.partition("=") for word in defaults)
    return next((_unquoted(text) for name, _, text in named if name == "backend"), "")


CONFIGURATIONS = ("config.yaml", "config/config.yaml")  # default configuration files: the first that exists


def base(files: Sequence[str | Path]) -> loader.BaseConfiguration:
    """Read the configuration of a workflow that is no module. `files` are those of --configfile. Raises
    ConfigError."""
    if len(files) > 1:
        raise ConfigError(
            "penstock takes one configuration file",
            why=f"{len(files)} are given",
            hint="snakemake --configfile my.yaml",
        )
    candidates = [*files, *(file for file in CONFIGURATIONS if Path(file).exists())]
    if not candidates:
        raise ConfigError(
            "there is no configuration file",
            where=f"{Path.cwd()}: {' or '.join(CONFIGURATIONS)}",
            hint="give one by snakemake --configfile my.yaml",
        )
    return loader.read_base(Path(candidates[0]).absolute())


def compose(
    base: loader.BaseConfiguration, words: ConfigWords, folder: Path, *, write: bool, backend: str = ""
) -> tuple[Config, str]:
    """Return the configuration and the file that the steps read. It is the base's file, unless there is none,
    or `--config` changes values: then it is a file in `folder`, created if `write`. Raises ConfigError, and
    PreflightError if the folder cannot be written."""
    heading = f"The configuration {printable(base.label)}, with what --config gave"
    heading += ": for the steps of a workflow, and not to be changed"
    config, content = loader.compose(base, words.sections, heading, backend)
    if content is None:
        return config, str(base.file)
    if base.file is not None:
        loader.refuse(config, base.file, loader.ELEMENTS)
    path = folder / f"{hashlib.sha256(content).hexdigest()[:16]}.yaml"
    if write:
        try:
            small_files.make_dirs(folder, 0o755)
            small_files.write_file(path, content, mode=0o644)
        except OSError as error:
            raise PreflightError(
                "the configuration cannot be written for the steps",
                where=str(path.absolute()),
                why=str(error.strerror),
                hint="run it in a working directory of your own",
            ) from error
    return config, str(path.absolute())


def chosen(words: ConfigWords, config: Config) -> list[str]:
    """Return the chosen datasets, each once. Raises ConfigError for unknown datasets."""
    names = list(config.datasets) if words.datasets is None else words.datasets
    for name in names:
        if name not in config.datasets:
            meant, configured = did_you_mean([name], config.datasets), ", ".join(config.datasets)
            raise _wrong("dataset", f"no dataset is named {in_quotes(name)}: there are {configured}{meant}")
    return list(dict.fromkeys(names))


def refuse_unused(words: ConfigWords, targets: Collection[str]) -> None:
    """Raise ConfigError for values that none of Snakemake's targets would use."""
    audited = [target for target in targets if target.endswith("audit") or "/audit/" in target]
    if words.audit and not audited:
        raise _wrong(
            min(words.audit), "is of an audit (`snakemake audit`), and this one stages; "
            "engine='{limit: 1GiB/s}' is the limit of a staging's engines",
        )  # fmt: skip
    if words.flags and audited and len(audited) == len(targets):
        raise _wrong(min(words.flags), "is of a staging, and an audit makes no release")


def _names(text: str) -> list[str]:
    """Parse a name or a list of names as typed. For example, `[2024, 1e5]` has two names."""
    if not text.lstrip().startswith("["):
        return [_unquoted(text)]
    try:
        names = yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506  makes text alone
    except yaml.YAMLError:
        names = None
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise _wrong("dataset", f"{in_quotes(text)} is no list of names: write dataset='[a, b]'")
    return names


def _unquoted(text: str) -> str:
    text = text.strip()
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    return text[1:-1] if quoted else text


def _wrong(key: str, why: str) -> ConfigError:
    return ConfigError(f"--config {key}: {why}", hint="correct it on the command line, after --config")


# The configuration of the workflow as a module of another workflow: `module penstock: config: ...`.
#
# | the module's `config:`                               | the steps read                     | --config is |
# |------------------------------------------------------|------------------------------------|-------------|
# | equals one configuration file, with --config         | that file; messages name its lines | penstock's  |
# | the outer workflow's whole configuration, from       | a file made from the values        | penstock's  |
# | several files                                        |                                    |             |
# | a part of the outer workflow's configuration, such   | a file made from the values        | the outer's |
# | as `config["penstock"]`, or any other                |                                    |             |
#
# Snakemake passes values, which its reading of YAML may have changed: `config.strict_yaml` refuses some.
# `workflow/rules/common.smk` calls `module_base`.

_SELECTING = {DATASET, *STAGING, *AUDIT}


class ModuleInput(NamedTuple):
    """Snakemake's input to a module."""

    name: str
    values: Mapping[object, object]
    outer: Mapping[object, object]  # the whole configuration of the outer workflow
    files: Sequence[str | Path]  # the files of `outer`
    before_files: Mapping[str, object]  # overrides of `configfile:`: --configfile and --config


def module_base(module: ModuleInput, words: Sequence[str]) -> tuple[loader.BaseConfiguration, Sequence[str]]:
    """Return the configuration, and penstock's words of --config. Raises ConfigError."""
    if not module.values:
        raise ConfigError(
            f"module {module.name} is given no configuration",
            hint='write `config: config` into the module statement, or `config: config["penstock"]`',
        )
    texts = list(_texts(module.files))
    if module.values != module.outer:
        return _made(module, module.values, texts), []
    for file, text in zip(module.files, texts, strict=True):
        if strict_yaml.merged(_read(text.text), module.before_files) == module.values:
            return loader.read_base(Path(file).absolute()), words
    named = {word.partition("=")[0] for word in words} & _SELECTING
    values = {key: value for key, value in module.values.items() if key not in named}
    return _made(module, values, texts), words


def _made(
    module: ModuleInput, values: Mapping[object, object], texts: Sequence[strict_yaml.ConfigText]
) -> loader.BaseConfiguration:
    document, unclear = strict_yaml.document(values, texts)
    return loader.BaseConfiguration(f"of module {module.name}", None, document, unclear)


def _texts(files: Sequence[str | Path]) -> Iterator[strict_yaml.ConfigText]:
    for file in files:
        try:
            text = Path(file).read_text(encoding="utf-8")
        except (OSError, ValueError):
            text = ""  # Snakemake has read the file, so its values count
        yield strict_yaml.ConfigText(str(file), text)


def _read(text: str) -> object:
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
