"""Commands and options that have another name since 1.0: refused with the new words, until 1.1.

A command line that has an old word does nothing: `penstock throttle a 2` ends with 2 and
"write `penstock limit a --nodes 2`". A word that is no command at all is answered with the command that does
what other programs call so (`SYNONYMS`), else with the nearest one.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from penstock.cli.command_table import COMMANDS, STEP
from penstock.core.text import nearest, slips

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PINS = "`penstock path DATASET --job` is gate, pin and path in one, for as long as the job runs"
VALUED = ("--config", "--backend", "--progress", "--receipt", "--log")
"""Global options that take a value."""
WITHOUT_COMMAND = ("-h", "--help", "--version")
_SAME_AS: Mapping[str, str] = {
    "run": "resume restart continue sync copy start stage fetch download pull update",
    "status": "state progress ps jobs",
    "cancel": "stop kill abort interrupt",
    "releases": "ls list versions snapshots",
    "show": "info inspect details",
    "history": "log logs",
    "du": "df usage size",
    "audit": "verify check scrub",
    "repair": "fix heal",
    "rollback": "restore undo revert",
    "gc": "prune clean cleanup purge",
    "remove": "delete del rm",
    "adopt": "import",
    "preflight": "validate doctor",
    "selftest": "test",
    "limit": "bwlimit throughput",
    "init": "new create setup",
    "--help": "man",
    "--version": "version",
}
_WORDS = frozenset(command.word for command in COMMANDS if command.group != STEP)
SYNONYMS: Mapping[str, str] = {word: typed for typed, words in _SAME_AS.items() for word in words.split()}
"""What other programs call it, and what to type here."""
DESTRUCTIVE = frozenset({"gc", "remove"})
"""Commands that are named to a mistyped word only where it is one slip away."""
INSTEAD: Mapping[str, str] = {
    **{
        command.name: command.typed
        for command in COMMANDS
        if command.group == STEP and command.name not in (*SYNONYMS, *_WORDS)
    },
    "submit --mend": "gate DATASET --mend --submit",
    "submit": "run --submit",
    "throttle": "limit DATASET --nodes N",
    "unpin": "gc DATASET --unpin NAME",
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
    "gate --unpin": "a pin ends with its job, script or shell; its owner takes it back by `gc --unpin`",
    "gate --wait": "another look or repair of the dataset is waited for, for 10 minutes",
    "describe --form": "it prints Croissant",
    "describe --out": "it prints the description: `penstock describe DATASET > FILE`",
    "adopt --names": "50 names of each kind are shown, and all of them by `--json`",
    "diff --limit": "20 rows of each kind are shown, or `--all`",
    "history --limit": "20 rows are shown, or `--all`",
    "handover": "root gives all files of a dataset to another account by `chown -hR --from=OLD NEW FOLDER`",
}
"""Old words that no command takes the place of, and what to do."""


def with_help(words: Sequence[str]) -> Sequence[str]:
    """`COMMAND --help` of `help COMMAND`; any other words as they are."""
    general, own = _split_words(words)
    return [*general, *own[1:], "--help"] if own[:1] == ["help"] else words


def refused(words: Sequence[str]) -> str | None:
    """The message for a command line with old words; None for any other."""
    general, own = _split_words(words)
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
    """The message for a command that there is not, with the one that was meant; None for any other. One that
    no person calls is never named."""
    _, own = _split_words(words)
    own = own[1:] if own[:1] == ["--"] else own
    step = own[:1] == [STEP]
    # Options that a step has not are refused behind it.
    named = [word for word in own[step:] if not step or not word.startswith("-")][:1]
    if not named or named[0].startswith("-"):
        return None
    group = [command for command in COMMANDS if (command.group == STEP) == step]
    if any(command.word == named[0] for command in group) or named == [STEP]:
        return None
    of_people = {command.word: command.typed for command in COMMANDS if command.of_people}
    word = f"{STEP} {named[0]}" if step else named[0]
    if meant := _meant(named[0], of_people):
        return f"there is no command {word}; did you mean {meant}?"
    return f"there is no command {word}: `penstock{' step' * step} --help` lists those that there are"


def _meant(word: str, of_people: Mapping[str, str]) -> str:
    if word in SYNONYMS:
        return " or ".join([SYNONYMS[word], *([of_people[word]] if word in of_people else [])])
    near = nearest(word, of_people)
    unlike = near in DESTRUCTIVE and slips(word, near) > 1
    return "" if unlike else of_people.get(near, "")


def before_command(words: Sequence[str]) -> str:
    """An option that is not known, and stands where the command belongs; "" where there is none."""
    _, own = _split_words(words)
    first = next(iter(own), "").partition("=")[0]
    return first if first.startswith("-") and first not in (*WITHOUT_COMMAND, "--") else ""


def _split_words(words: Sequence[str]) -> tuple[list[str], list[str]]:
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
