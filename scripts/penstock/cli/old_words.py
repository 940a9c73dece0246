"""Commands and options that have another name since 1.0: refused with the new words, until 1.1.

A command line that has an old word does nothing: `penstock throttle a 2` ends with 2 and
"write `penstock limit a --nodes 2`". A word that is no command at all is answered with the nearest one.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from penstock.cli.commands import COMMANDS, STEP
from penstock.core.text import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PINS = "`penstock path DATASET --job` is gate, pin and path in one, for as long as the job runs"
VALUED = ("--config", "--backend", "--progress", "--receipt", "--log")
"""Global options that take a value."""
WITHOUT_COMMAND = ("-h", "--help", "--version")
INSTEAD: Mapping[str, str] = {
    **{command.name: command.typed for command in COMMANDS if command.group == STEP},
    "submit --mend": "gate DATASET --mend --submit",
    "submit": "run --submit",
    "throttle": "limit DATASET --nodes N",
    "unpin": "gc DATASET --overrule NAME",
    "path --pin": "path DATASET --job",
}
"""The old words and the new ones; the first row that fits counts. Names in capitals are places for the
person's own arguments, in their order; of more than there are places for, each is given by the last option
once more."""
PAGES: Mapping[str, str] = {
    "path --for": _PINS,
    "gate --pin": _PINS,
    "gate --job": _PINS,
    "gate --for": _PINS,
    "gate --unpin": "a pin ends with its job, script or shell; its owner takes it back by `gc --overrule`",
    "gate --wait": "another look or repair of the dataset is waited for, for 10 minutes",
    "describe --form": "it prints Croissant",
    "describe --out": "it prints the description: `penstock describe DATASET > FILE`",
    "adopt --names": "50 names of each kind are shown, and all of them by `--json`",
    "diff --limit": "20 rows of each kind are shown, or `--all`",
    "history --limit": "20 rows are shown, or `--all`",
    "handover": "root gives all files of a dataset to another account by `chown -hR --from=OLD NEW FOLDER`",
}
"""Old words that no command takes the place of, and what to do."""


def refused(words: Sequence[str]) -> str | None:
    """The message for a command line with old words; None for any other."""
    general, own = _parted(words)
    if not own:
        return None
    for old in (*PAGES, *INSTEAD):
        command, _, option = old.partition(" ")
        if own[0] != command or (option and option not in own[1:]):
            continue
        if old in PAGES:
            return f"there is no `penstock {old}`: {PAGES[old]}"
        rest = [word for word in own[1:] if word != option]
        return f"`penstock {old}` has another name: write `{_line(general, INSTEAD[old], rest)}`"
    return None


def unknown(words: Sequence[str]) -> str | None:
    """The message for a command that there is not, with the nearest one that people call; None for any
    other."""
    _, own = _parted(words)
    own = own[1:] if own[:1] == ["--"] else own
    step = own[:1] == [STEP]
    # Options that a step has not are refused behind it.
    named = [word for word in own[step:] if not step or not word.startswith("-")][:1]
    if not named or named[0].startswith("-"):
        return None
    group = [command for command in COMMANDS if (command.group == STEP) == step]
    if any(command.name == named[0] for command in group) or named == [STEP]:
        return None
    of_people = {command.name: command.typed for command in COMMANDS if command.of_people}
    word = f"{STEP} {named[0]}" if step else named[0]
    if near := nearest(named[0], of_people):
        return f"there is no command {word}; did you mean {of_people[near]}?"
    return f"there is no command {word}: `penstock{' step' * step} --help` lists those that there are"


def before_command(words: Sequence[str]) -> str:
    """An option that is not known, and stands where the command belongs; "" where there is none."""
    _, own = _parted(words)
    first = next(iter(own), "").partition("=")[0]
    return first if first.startswith("-") and first not in (*WITHOUT_COMMAND, "--") else ""


def _parted(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Global options with their values, and the command with what is its own."""
    general, own, left = [], [], list(words)
    while left and left[0] != "--":
        word = left.pop(0)
        if word.partition("=")[0] in (*VALUED, "--as-root"):
            general.append(word)
            if word in VALUED and left:
                general.append(left.pop(0))
        else:
            own.append(word)
    return general, own + left


def _line(general: Sequence[str], new: str, rest: Sequence[str]) -> str:
    left = list(rest)
    line = ["penstock", *general]
    line += [left.pop(0) if word.isupper() and left else word for word in new.split()]
    repeated = re.search("(--[a-z]+) [A-Z]+$", new)
    for word in left:
        line += [repeated[1], word] if repeated else [word]
    return shlex.join(line)
