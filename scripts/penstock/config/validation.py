"""What is wrong with a parsed configuration, in sentences: every problem at once.

The structure is validated against `config.schema.yaml`; units and modes are parsed by `units` where the
schema marks them, so that each problem is reported with its key path.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.config import quantities, removed_keys
from penstock.core.text import in_quotes, nearest, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

    from penstock.config.strict_yaml import Document, KeyPath


class Problem(NamedTuple):
    """One problem of a configuration."""

    path: KeyPath
    text: str

    def at(self, place: str) -> str:
        """With its key and where that stands, "" for nowhere: `datasets.imagenet.sources[1].url (line 7): is
        missing`."""
        return (
            f"{_dotted(self.path)} ({place}): {self.text}" if place else f"{_dotted(self.path)}: {self.text}"
        )


def in_lines(found: Iterable[Problem], document: Document) -> str:
    """Several problems of a document, each with its line, in one line of text."""
    return "; ".join(problem.at(f"line {document.line(problem.path)}") for problem in found)


def _dotted(path: KeyPath) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.lstrip(".").encode("unicode_escape").decode() or "the file"


_TYPES = {
    dict: "a mapping", list: "a list", str: "text", bool: "true or false", int: "a number",
    float: "a number",
}  # fmt: skip


def source() -> bytes:
    """The schema's text, as it ships with the package."""
    return files("penstock.config").joinpath("config.schema.yaml").read_bytes()


@cache
def schema() -> Mapping[str, Any]:
    """The schema."""
    import yaml

    # libyaml's reader, where there is one, takes a tenth of the time.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return dict(yaml.load(source(), Loader=loader))  # noqa: S506


def problems(value: Any, part: str = "", where: KeyPath = ()) -> list[Problem]:
    """Everything that the schema and the units refuse, by key path; [] when all is well. `part`: the name of
    one of its `$defs` that the value, which stands at `where`, is validated against instead."""
    found: dict[tuple[KeyPath, str], Problem] = {}
    for error in _validator(part).iter_errors(value):
        for problem in _problems_of(error, where, of_file=not part or bool(where)):
            found.setdefault((problem.path, problem.text), problem)
    return sorted(found.values(), key=lambda p: [str(part) for part in p.path])


@cache
def _validator(part: str) -> Validator:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError
    from jsonschema.validators import extend

    def unit(_: Any, kind: str, instance: Any, __: Any) -> Iterator[ValidationError]:
        if instance is None:
            return
        try:
            getattr(quantities, kind)(instance)
        except ValueError as error:
            yield ValidationError(str(error))

    def mode(_: Any, kind: str, instance: Any, __: Any) -> Iterator[ValidationError]:
        try:
            quantities.mode(instance, folder=kind == "folder")
        except ValueError as error:
            yield ValidationError(str(error))

    grown: Any = extend(Draft202012Validator, {"unit": unit, "mode": mode})  # type: ignore[no-untyped-call]
    whole = {"$defs": schema()["$defs"], "$ref": f"#/$defs/{part}"} if part else schema()
    made: Validator = grown(whole)
    return made


def _problems_of(error: ValidationError, where: KeyPath, *, of_file: bool) -> Iterator[Problem]:
    """`of_file`: the value is the configuration or a part of it, so that an unknown key may have its place
    elsewhere in it."""
    path: KeyPath = (*where, *error.absolute_path)
    instance: Any = error.instance
    part: Any = error.schema
    wanted: Any = error.validator_value
    expect = part.get("expect", "")
    match error.validator:
        case "additionalProperties":
            known = list(part.get("properties", {}))
            for key in sorted(set(instance) - set(known)):
                at = (*path, key)
                instead = removed_keys.instead(at)
                if instead is not None:
                    text = f"is no longer a key: {instead}"
                elif of_file and _ALIASES.get(key) not in known and (places := _places(at)):
                    text = f"unknown key; its place is {' or '.join(f'`{place}`' for place in places)}"
                else:
                    text = f"unknown key{_nearest(key, known)}"
                yield Problem(at, text)
        case "required":
            for key in wanted:
                if key not in instance:
                    inner = part.get("properties", {}).get(key, {}).get("expect", "")
                    yield Problem((*path, key), "is missing" + (f": give {inner}" if inner else ""))
        case "pattern" if "propertyNames" in error.absolute_schema_path:
            yield Problem((*path, instance), expect)
        case "oneOf" if "$defs" not in part and isinstance(instance, dict):
            both = "source" in instance and "sources" in instance
            key = "sources" if both else "source"
            yield Problem(
                (*path, key),
                "give `source` or `sources`, not both"
                if both
                else "is missing: give a URL such as s3://bucket/prefix/, or a folder",
            )
        case "unit" | "mode":
            if not _wrong_type_is_told(part, instance):
                yield Problem(path, f"{shown(instance)} {error.message}")
        case "type" if "unit" in part:
            text = getattr(quantities, f"{part['unit'].upper()}_HELP")
            yield Problem(path, f"{shown(instance)} must be {text}")
        case "uniqueItems":
            yield Problem(path, f"{shown(instance)} names something twice")
        case "minProperties":
            yield Problem(path, f"is empty: give {expect}")
        case _ if instance is None:
            yield Problem(path, f"has no value: give {expect}" if expect else "has no value")
        case _:
            found = f"is {_TYPES[type(instance)]}" if error.validator == "type" else "cannot be used"
            text = f"{shown(instance)} {found}"
            yield Problem(path, f"{text}; give {expect}" if expect else f"{text}: {error.message}")


def _wrong_type_is_told(part: Any, instance: Any) -> bool:
    """The `type` beside a `unit` has told it already."""
    types = part.get("type", [])
    allowed = [types] if isinstance(types, str) else types
    names = {str: "string", int: "integer", type(None): "null"}
    return bool(allowed) and names.get(type(instance)) not in allowed


def _places(path: KeyPath) -> list[str]:
    """Where else in the configuration a key of this name stands: the outermost place in each of its parts.
    Of a dataset, in the same one."""
    dataset = str(path[1]) if path[0] == "datasets" and len(path) > 2 else "NAME"
    places: dict[str, KeyPath] = {}
    for place in sorted(_keys(schema(), ()), key=len):
        if place[-1] == path[-1]:
            places.setdefault(str(place[0]), tuple(dataset if part == _NAME else part for part in place))
    return [_dotted(place) for place in places.values() if place != path]


_NAME = "<dataset>"


def _keys(part: Any, path: KeyPath) -> Iterator[KeyPath]:
    """All keys of a part of the schema that stands at `path`, with those of every kind of storage options."""
    defs = schema()["$defs"]
    reference = part.get("$ref", "").removeprefix("#/$defs/")
    if reference == "options":
        for name in defs:
            if name.startswith("options_"):
                yield from _keys(defs[name], path)
    elif reference in defs:
        yield from _keys(defs[reference], path)
    for key, inner in part.get("properties", {}).items():
        yield (*path, key)
        yield from _keys(inner, (*path, key))
    if isinstance(inner := part.get("additionalProperties"), dict):
        yield from _keys(inner, (*path, _NAME))
    if "items" in part:
        yield from _keys(part["items"], (*path, 0))


_ALIASES = {
    "account": "account_name", "anonymous": "anon", "endpoint": "endpoint_url", "region_name": "region",
    "verify": "ca_bundle",
}  # fmt: skip
"""Keys by other programs' names."""


def _nearest(key: str, known: list[str]) -> str:
    if _ALIASES.get(key) in known:
        return f"; did you mean `{_ALIASES[key]}`?"
    close = nearest(key, known)
    if close:
        return f"; did you mean `{close}`?"
    return f"; there are: {', '.join(known)}" if known else ""


def shown(value: Any) -> str:
    """A value in a message: short, on one line, printable."""
    text = _as_yaml(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _as_yaml(value: Any) -> str:
    """On one line, as YAML would have it."""
    match value:
        case None | bool():
            return {None: "null", True: "true", False: "false"}[value]
        case str():
            return in_quotes(value)
        case list() | tuple():
            return f"[{', '.join(map(_as_yaml, value))}]"
        case dict():
            return (
                f"{{{', '.join(f'{printable(str(key))}: {_as_yaml(part)}' for key, part in value.items())}}}"
            )
        case _:
            return str(value)
