"""Makes docs/configuration.md and the pages that it leads to: every key, every option of a source, every
environment variable.

`python docs/configuration.py` (`make docs`). Keys come from the annotations of `penstock.config.settings`,
options from those of `penstock.config.source_kinds`, packages of protocols from the source that opens them,
environment variables from docs/environment.yaml. A test fails where a page is not what this prints.
"""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from penstock.config import quantities, settings
from penstock.config.annotations import Choice, Items, Number, Switch, Unit, either, keys_of
from penstock.config.source_kinds import KINDS
from penstock.sources.generic_opener import PACKAGES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.config.annotations import Key, ValueKind

HERE = Path(__file__).parent
UNITS = {"size": "size, in bytes", "rate": "rate, in bytes per second", "duration": "time"}
UNITS["time_limit"] = "`auto`, or a time"
UNITS["reading_age"] = "`all`, or a time"
UNITS["file_mode"] = UNITS["dir_mode"] = "octal mode, in quotes"
FIRST = """\
# Configuration

One YAML file says what is staged, where to, and by which means. `penstock init` writes it for this machine:

```yaml
target:
  root: /beegfs/datasets        # one folder for each dataset is made below it
datasets:
  imagenet:
    source: s3://bucket/imagenet/
cluster:
  backend: slurm                # or local
```

Only `target.root` and each dataset's `source` (or `sources`) must be given. All other keys have defaults.
[config.yaml](../config.yaml) is an example that runs and shows each key with its default.

## Which file counts

The first of these:

1. the file that `--config FILE` names (of Snakemake: `--configfile FILE`);
2. the file that the environment variable `PENSTOCK_CONFIG` names;
3. `penstock.yaml`, else `config.yaml`, in the working directory.

## How it is written

- **Units are written out.** A bare number is refused, except 0 for sizes.
- **Relative paths** are relative to the working directory.
- **No secret stands in this file.** Name a profile, or a file of mode 0600.
- **Text that YAML reads otherwise** stands in quotes: `"0440"`, `"no"`, `"1:30"`.

| kind | written as |
|---|---|
"""
SECOND = """
## When it is wrong

Nothing is begun, and the command ends with status 2. The message names each problem with its key and line.
Unknown keys are refused, with the nearest known one:

```
$ penstock run
penstock: cluster.backendx (line 10): unknown key; did you mean `backend`? [penstock.yaml]
```

`penstock run --dry-run` reads the file, lists the source and changes nothing. `penstock preflight` also tries
target and cluster. An administrator may limit some keys for a whole machine ([site.md](site.md)).

## All keys

| section | what it says | page |
|---|---|---|
"""
THIRD = """| `storage_options` | What a source's or a dataset's `storage_options` takes. | \
[configuration-sources.md](configuration-sources.md) |
| environment | The environment variables that penstock reads. | [environment.md](environment.md) |

Other pages say how the keys act: [sources.md](sources.md) of each kind of source,
[slurm-options.md](slurm-options.md) of `cluster`, [audit-proof.md](audit-proof.md) of `verify`,
[audit.md](audit.md) of `audit`, [retention.md](retention.md) of `retention` and `gc`.

`snakemake --config` sets values for one run ([snakemake.md](snakemake.md#values-for-one-run)).
"""
OF_DATASETS = "datasets.<dataset>."
RELEASES = ("permissions", "retention", "describe")  # keys of a dataset that have a page of their own
PAGES = {  # the sections of each page, and its title
    "configuration-target.md": (("target", "notify", "metrics"), "target, notices, metrics"),
    "configuration-datasets.md": (("datasets",), "datasets"),
    "configuration-releases.md": (("gc",), "permissions, retention, descriptions"),
    "configuration-cluster.md": (("cluster", "plan", "engine", "bandwidth"), "cluster, engine, bandwidth"),
    "configuration-verify.md": (("verify", "audit"), "verify and audit"),
}
OPTIONS = """\
# Configuration: options of sources

What a source's or a dataset's `storage_options` takes, for each kind of source. [sources.md](sources.md) says
how each kind behaves. A key without a value (`null`) is one that was not given. Where no default is shown
there is none. No option holds a secret; the last column says which of them refer to one.

The options of Azure and Google are in [configuration-clouds.md](configuration-clouds.md).
"""
CLOUDS = ("azure", "gcs")  # kinds of sources whose options have a page of their own
OF_CLOUDS = """\
# Configuration: options of Azure and Google

What `storage_options` takes for these sources; [configuration-sources.md](configuration-sources.md) has the
other kinds, and says how to read the tables.
"""
OTHERS = """
## fsspec

For any other protocol, and for `s3://`, `az://`, `gs://` with `reader: fsspec`.

The options are those of the protocol's package, which gets them as they are. Keys that would hold a secret
are refused; the `KEY=VALUE` lines of `credentials_file`, a file of mode 0600, are handed on too. An
option that is nearly one that the package names is refused by preflight. Known by name:

| protocol | package |
|---|---|
"""
ENVIRONMENT = """\
# Environment variables

The environment variables that penstock reads. The keys of the file are in
[configuration.md](configuration.md).
"""
TAIL = "\n<!-- Generated by `make docs` from the settings: do not edit. -->\n"


def pages() -> dict[str, str]:
    """Return the text of each page, by its file's name."""
    texts = {name: _sections(name, *of_page) for name, of_page in PAGES.items()}
    texts["configuration.md"] = _first()
    texts["configuration-sources.md"] = "".join(
        [OPTIONS, *_storage_options(CLOUDS, within=False), *_others()]
    )
    texts["configuration-clouds.md"] = "".join([OF_CLOUDS, *_storage_options(CLOUDS, within=True)])
    texts["environment.md"] = "".join([ENVIRONMENT, *_environment()])
    return {name: text + TAIL for name, text in texts.items()}


def _first() -> str:
    texts = [FIRST, *(f"| {kind} | {text} |\n" for kind, text in _units()), SECOND]
    where = {section: page for page, (sections, _) in PAGES.items() for section in sections}
    for name, key in keys_of(settings.Config).items():
        meaning = key.text.partition(". ")[0].rstrip(".")
        texts.append(f"| `{name}` | {meaning}. | [{where[name]}]({where[name]}#{name}) |\n")
        if name == "datasets":
            releases = "configuration-releases.md"
            keys = ", ".join(f"`{word}`" for word in RELEASES)
            texts.append(f"| {keys} | Who reads it, and which releases stay. | ")
            texts.append(f"[{releases}]({releases}) |\n")
    return "".join([*texts, THIRD])


def _sections(page: str, names: Sequence[str], title: str) -> str:
    texts = [
        f"# Configuration: {title}\n\n[configuration.md](configuration.md) says how the file is written.\n"
    ]
    keys = keys_of(settings.Config)
    if page == "configuration-releases.md":
        texts += [_entry(*row) for row in keys_below(keys["datasets"], "datasets") if _of_releases(row[0])]
    for name in names:
        text = re.sub(r"\bdocs/([\w-]+\.md)", r"[\1](\1)", keys[name].text)
        texts.append(f"\n## `{name}`\n\n{text}\n")
        texts += [_entry(*row) for row in keys_below(keys[name], name) if not _of_releases(row[0])]
    return "".join(texts)


def _of_releases(dotted: str) -> bool:
    words = dotted.removeprefix(OF_DATASETS).split(".")
    return dotted.startswith(OF_DATASETS) and words[0] in RELEASES


def _units() -> Iterator[tuple[str, str]]:
    for kind in ("size", "rate", "duration", "mode"):
        yield UNITS.get(kind, kind), getattr(quantities, f"{kind.upper()}_HELP")


def all_keys() -> Iterator[tuple[str, Key, Mapping[str, Key]]]:
    """(dotted name, its key, the keys of the same mapping) of every key below a section."""
    for name, key in keys_of(settings.Config).items():
        yield from keys_below(key, name)


def keys_below(key: Key, path: str) -> Iterator[tuple[str, Key, Mapping[str, Key]]]:
    """The same, of the keys below one. The job options of single steps and the options of sources are
    described elsewhere."""
    if path == "cluster.steps":
        return
    if key.each is not None:
        yield from keys_below(key.each, f"{path}[]" if isinstance(key.kind, Items) else f"{path}.<dataset>")
    elif key.below is not None:
        keys = keys_of(key.below)
        for name, inner in keys.items():
            yield f"{path}.{name}", inner, keys
            yield from keys_below(inner, f"{path}.{name}")


def default(name: str, key: Key, beside: Mapping[str, Key]) -> str:
    """What holds where the key is not given; "" for a mapping of keys that have defaults of their own."""
    if key.either:
        other = next(word for word in beside if beside[word].either and word != name)
        return f"required, unless `{other}` is given"
    if key.required:
        return "required"
    if dataclasses.is_dataclass(key.default):
        return ""
    return f"default `{'{}' if key.default is dataclasses.MISSING else _written(key.default, key.kind)}`"


def _written(value: Any, kind: ValueKind) -> str:
    """A typed value, as the file has it."""
    if value is None:
        return "auto" if isinstance(kind, Number) and "auto" in kind.words else "null"
    match kind:
        case Unit(name="size"):
            power = next((p for p in (4, 3, 2, 1) if value and value % (1 << 10 * p) == 0), 0)
            return f"{value >> 10 * power}{['', 'Ki', 'Mi', 'Gi', 'Ti'][power]}B"
        case Unit(name="time_limit") if value == 0:
            return "auto"
        case Unit(name="file_mode" | "dir_mode"):
            return f'"{value:04o}"'
        case Unit():
            units = (("d", 86400), ("h", 3600), ("min", 60))
            unit, seconds = next(((u, n) for u, n in units if value >= n and value % n == 0), ("s", 1))
            return f"{value / seconds:g}{unit}"
    return value if isinstance(value, str) and value else json.dumps(value)


def values(key: Key, *, null: bool = True) -> str:
    """What may be written, in words. `null`: whether to say that nothing may be."""
    text = key.expect
    match key.kind:
        case Choice(words=words):
            text = either(tuple(f"`{word}`" for word in words))
        case Number(words=words, least=least, most=most):
            number = f"number from {least} to {most}"
            text = f"{', '.join(f'`{word}`' for word in words)}, or a {number}" if words else number
        case Unit(name=name):
            text = UNITS[name]
        case Switch():
            return "`true`, `false` or `null`" if key.null and null else "`true` or `false`"
    return f"{text}, or `null`" if key.null and null else text


def _example(name: str, value: Any) -> str:
    text: str = yaml.safe_dump({name: value}, default_flow_style=True, width=1000, sort_keys=False)
    return f"`{text.strip()[1:-1]}`"


def _examples(name: str, key: Key) -> str:
    shown = [_example(name, value) for value in key.examples]
    return f" Example: {', '.join(shown)}." if shown else ""


def _entry(dotted: str, key: Key, beside: Mapping[str, Key]) -> str:
    name = dotted.rpartition(".")[2]
    shown = "; ".join(text for text in (values(key), default(name, key, beside)) if text)
    examples = _examples(name, key).strip()
    text = f"{key.text}\n\n{examples}" if examples else key.text
    return f"\n### `{dotted}`\n\n*{shown}*\n\n{text}\n"


def _storage_options(names: tuple[str, ...], *, within: bool) -> Iterator[str]:
    """Yield the options of the kinds of sources that are, or are not, among `names`."""
    for kind in KINDS:
        if (settings_class := kind.options) is None or (kind.name in names) is not within:
            continue
        urls = ", ".join(f"`{scheme}://`" if scheme else "a path" for scheme in kind.schemes)
        yield f"\n## {kind.name}\n\nFor {urls}. {settings_class.__doc__}\n"
        if keys := keys_of(settings_class):
            yield "\n| option | values | default | meaning | secret |\n|---|---|---|---|---|\n"
            yield from (_option(name, key) for name, key in keys.items())
        if secrets := getattr(settings_class, "SECRETS", ()):
            yield "\nWhere the secret comes from, the first that is there:\n\n"
            yield from (f"{number}. {text}\n" for number, text in enumerate(secrets, 1))


def _others() -> Iterator[str]:
    yield OTHERS
    yield from (f"| `{scheme}://` | {PACKAGES[scheme]} |\n" for scheme in PACKAGES)


def _option(name: str, key: Key) -> str:
    assert key.about is not None
    meaning = key.about.text + _examples(name, key)
    row = (f"`{name}`", values(key, null=False), key.about.default, meaning, key.about.refers_to)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |\n"


def _environment() -> Iterator[str]:
    for group in environment():
        yield f"\n## {group['title']}\n\n{group['text']}\n\n| variable | what it is |\n|---|---|\n"
        yield from (f"| `{name}` | {text} |\n" for name, text in group["variables"].items())


def environment() -> list[dict[str, Any]]:
    """The groups of docs/environment.yaml: title, text, variables."""
    found: list[dict[str, Any]] = yaml.safe_load((HERE / "environment.yaml").read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":
    for name, text in pages().items():
        (HERE / name).write_text(text, encoding="utf-8")
