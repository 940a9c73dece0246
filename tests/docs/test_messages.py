"""Every message that the package gives to its errors, read by the syntax tree: what a person reads names what
where, why and what to do, in the words of the configuration and the command line.

`python -m tests.docs.test_messages` prints how many there are, by class.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from penstock.cli.command_table import COMMANDS, GROUPS, HIDDEN, STEP
from penstock.config.annotations import Named, keys_of
from penstock.config.settings import Config, DescribeConfig
from penstock.config.site import Bounds
from penstock.config.source_kinds import KINDS as SOURCE_KINDS
from penstock.core import errors

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(__file__).resolve().parents[2] / "scripts/penstock"
ERRORS = {name for name, kind in vars(errors).items() if isinstance(kind, type)}
OTHERS = {"Problem", "ArgumentTypeError", "StrictYamlError", "Noted", "Warned", "CheckResult", "Meaning"}
"""Other calls whose words people read: problems of a configuration, of an argument, notes and warnings."""
REMEDIED = {
    "ConfigError", "PreflightError", "FindingsError", "NoSpaceError", "LockedError", "NewerFormatError",
    "OlderVersionError", "FailedError",
}  # fmt: skip
"""The errors that end a command: each says what to do."""
UNREMEDIED = {
    "cli/commands/single_steps.py": "a receipt of Snakemake's own, which its next run makes anew",
    "keep/gate_repair.py": "`_for_owner` adds what to do, with the command of the account that may",
}
"""Modules whose errors need no remedy, and why."""


REPR = (ord("r"), ord("a"))


class Message(NamedTuple):
    place: str
    kind: str
    texts: dict[str, str]
    """Each word as it is written, by its argument; `{}` stands for what is filled in."""
    nodes: list[ast.expr]
    hint: bool


@cache
def trees() -> dict[str, ast.Module]:
    """The syntax tree of each module, by its path in the package."""
    return {
        str(module.relative_to(PACKAGE)): ast.parse(module.read_text())
        for module in sorted(PACKAGE.rglob("*.py"))
    }


@cache
def errors_of_the_package() -> frozenset[str]:
    """The project's classes of errors, with those that modules derive from them."""
    bases = {}
    for tree in trees().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                bases[node.name] = [base.id for base in node.bases if isinstance(base, ast.Name)]
    known = set(ERRORS)
    while more := {name for name, own in bases.items() if known.intersection(own)} - known:
        known |= more
    return frozenset(known)


def text_of(node: ast.expr) -> str:
    """A text as it is written, with `{}` for what is filled in."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.JoinedStr(values=values):
            return "".join(text_of(value) for value in values)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return text_of(left) + text_of(right)
        case ast.IfExp(body=body, orelse=orelse):
            return f"{text_of(body)} | {text_of(orelse)}"
        case _:
            return "{}"


@cache
def messages() -> list[Message]:
    found = []
    kinds = errors_of_the_package() | OTHERS
    for module, tree in trees().items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            if name not in kinds:
                continue
            given = {str(index): value for index, value in enumerate(node.args)}
            given |= {word.arg: word.value for word in node.keywords if word.arg}
            texts = {word: text_of(value) for word, value in given.items()}
            place = f"{module}:{node.lineno}"
            found.append(Message(place, name, texts, list(given.values()), "hint" in given))
    return found


def told(rule: str, wrong: list[str]) -> str:
    return f"{len(wrong)} messages {rule}:\n" + "\n".join(wrong)


def test_there_are_messages() -> None:
    assert len(messages()) > 600


def test_none_has_the_repr_of_a_value() -> None:
    def shown(node: ast.AST) -> bool:
        if isinstance(node, ast.FormattedValue):
            return node.conversion in REPR
        return (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("repr", "ascii")
        )

    wrong = [
        one.place for one in messages() if any(shown(part) for node in one.nodes for part in ast.walk(node))
    ]
    assert not wrong, told("show Python's repr: core.text.in_quotes is for people", wrong)


def test_nowhere_in_the_package_is_a_text_made_of_a_repr() -> None:
    """Words that are built first and raised later."""
    wrong = [
        f"{module}:{node.lineno}"
        for module, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FormattedValue) and node.conversion in REPR
    ]
    assert not wrong, told("show Python's repr", wrong)


def test_none_ends_with_a_colon_that_nothing_follows() -> None:
    wrong = [
        f"{one.place}: {word}: {text}"
        for one in messages()
        for word, text in one.texts.items()
        if re.search(r": ?(\n|$)", text) and not text.endswith("{}")
    ]
    assert not wrong, told("end with a colon", wrong)


def test_a_reason_of_several_lines_stands_below_without_a_colon() -> None:
    """What a summary shows is the first line alone."""
    error = errors.PreflightError("2 files are refused", where="/x", why="\n  a\n  b")
    assert str(error) == "2 files are refused [/x]\n  a\n  b"
    assert errors.PreflightError("2 files are refused", why="both").reason == "2 files are refused: both"


@cache
def texts_of_the_package() -> list[tuple[str, str]]:
    """Each text that is no docstring: place and text."""
    return list(_texts())


def _texts() -> Iterator[tuple[str, str]]:
    for module, tree in trees().items():
        alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
                yield f"{module}:{node.lineno}", node.value


def test_none_names_a_path_of_a_checkout() -> None:
    """Who installed penstock has none."""
    wrong = [
        f"{place}: {text}"
        for place, text in texts_of_the_package()
        if re.search(r"(?<![\w/.-])(docs|scripts|tests|workflow|profiles)/[\w-]+\.\w+", text)
    ]
    assert not wrong, told("name a path of a checkout", wrong)


OPTIONS = r"(?:(?:--(?:config|backend|log|receipt|progress)[ =]\S+|--as-root) )*"
COMMAND = re.compile(rf"`penstock {OPTIONS}([a-z][a-z-]*)(?: ([a-z][a-z-]*))?")


def test_each_command_that_is_named_is_one() -> None:
    steps = {command.name for command in COMMANDS if command.group == STEP}
    people = {command.word for command in COMMANDS if command.group in (*GROUPS, HIDDEN)}
    wrong = []
    for place, text in texts_of_the_package():
        for match in COMMAND.finditer(text):
            word, after = match[1], match[2]
            if word == STEP and (after is None or after in steps):
                continue
            if word not in people:
                wrong.append(f"{place}: {match[0]}`: there is none")
    assert not wrong, told("name a command that there is not", wrong)


@cache
def keys() -> frozenset[str]:
    """All keys, without where they stand."""
    names: set[str] = set()

    def gather(part: type) -> None:
        for name, key in keys_of(part).items():
            names.add(name)
            if isinstance(key.kind, Named):
                names.update(key.kind.names)
            for below in (key.below, key.each and key.each.below):
                if below:
                    gather(below)

    for part in (Config, Bounds, DescribeConfig, *(kind.options for kind in SOURCE_KINDS if kind.options)):
        gather(part)
    return frozenset(names)


SECTIONS = "target|cluster|plan|engine|verify|audit|gc|bandwidth"


def test_each_key_that_is_named_is_one_of_the_configuration() -> None:
    wrong = []
    for one in messages():
        for text in one.texts.values():
            for match in re.finditer(rf"(?<![\w./-])(?:{SECTIONS})\.([a-z_]+)(?![\w/(])(\.[a-z_]+)?", text):
                unknown = {match[1], *filter(None, [(match[2] or "").lstrip(".")])} - keys()
                if unknown:
                    wrong.append(f"{one.place}: {match[0]}")
    assert not wrong, told("name a key that there is not", wrong)


def test_each_error_that_ends_a_command_says_what_to_do() -> None:
    wrong = [
        f"{one.place}: {one.kind}: {one.texts.get('0', '')}"
        for one in messages()
        if one.kind in REMEDIED and not one.hint and one.place.rpartition(":")[0] not in UNREMEDIED
    ]
    assert not wrong, told("say not what to do", wrong)


@pytest.mark.parametrize("module", UNREMEDIED)
def test_what_needs_no_remedy_is_there(module: str) -> None:
    assert (PACKAGE / module).exists()


if __name__ == "__main__":
    counts = Counter(one.kind for one in messages())
    for kind, count in counts.most_common():
        print(f"{count:5} {kind}")
    print(f"{len(messages()):5} in all")
