"""Answers a word that is no command: by `SYNONYMS` of other programs, else by the nearest command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli.command_table import COMMANDS, STEP
from penstock.core.human import nearest, slips

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VALUED = ("--config", "--backend", "--progress", "--receipt", "--log")  # global options that take a value
WITHOUT_COMMAND = ("-h", "--help", "--version")
_SAME_AS: Mapping[str, str] = {
    "run": "resume restart continue sync copy start stage fetch download pull update submit",
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
    "limit": "bwlimit throttle throughput",
    "init": "new create setup",
    "--help": "man",
    "--version": "version",
}
# other programs' word: what to type here
SYNONYMS: Mapping[str, str] = {word: typed for typed, words in _SAME_AS.items() for word in words.split()}
DESTRUCTIVE = frozenset({"gc", "remove"})  # proposed only for a word that is one slip away


def with_help(words: Sequence[str]) -> Sequence[str]:
    """Turn `help COMMAND` into `COMMAND --help`; leave other words."""
    general, own = _split_words(words)
    return [*general, *own[1:], "--help"] if own[:1] == ["help"] else words


def unknown(words: Sequence[str]) -> str | None:
    """Return the message for an unknown command, with the one that was meant; None for a known one. Proposes
    commands of people only."""
    _, own = _split_words(words)
    own = own[1:] if own[:1] == ["--"] else own
    step = own[:1] == [STEP]
    # Unknown options of a step are refused by its parser.
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
    """Return an unknown option in the command's place, or ""."""
    _, own = _split_words(words)
    first = next(iter(own), "").partition("=")[0]
    return first if first.startswith("-") and first not in (*WITHOUT_COMMAND, "--") else ""


def _split_words(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split off global options with their values."""
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
