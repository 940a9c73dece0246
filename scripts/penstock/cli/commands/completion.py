"""`penstock completion SHELL`: a short shell function, which calls `penstock completion SHELL -- WORD ...` at
each TAB.

So the parser alone knows what can be typed, and datasets come from the current configuration.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.cli import argument_parser, output
from penstock.cli.command_table import COMMANDS, STEP, CommandFunctions

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from penstock.cli.session import Session

FILES = ":files"  # the line that requests a shell's own completion of files
# names in the help for values that are files or folders
PLACES = ("FILE", "FOLDER", "PATH", "SOURCE", "TARGET")
DATASET = "DATASET"
RELEASES = ("RELEASE", "A", "B")

BASH = f"""\
# penstock for bash: eval "$(penstock completion bash)"
_penstock() {{
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        [ "$line" != {FILES} ] || {{ compopt -o default; return; }}
        COMPREPLY+=("$line")
    done < <(penstock completion bash -- "${{COMP_WORDS[@]:1:COMP_CWORD}}" 2>/dev/null)
}}
complete -F _penstock penstock
"""
ZSH = f"""\
#compdef penstock
# penstock for zsh: source <(penstock completion zsh), or this as the file _penstock in a folder of $fpath
_penstock() {{
    local -a lines
    lines=("${{(@f)$(penstock completion zsh -- "${{(@Q)words[2,CURRENT]}}" 2>/dev/null)}}")
    case $lines[1] in
        "") return 1 ;;
        {FILES}) _files ;;
        *) _describe penstock lines ;;
    esac
}}
if [[ $funcstack[1] = _penstock ]]; then _penstock "$@"; else compdef _penstock penstock; fi
"""
FISH = f"""\
# penstock for fish: penstock completion fish | source
function __penstock_complete
    set -l words (commandline -opc)
    set -l token (commandline -ct)
    set -l found (penstock completion fish -- $words[2..-1] "$token" 2>/dev/null)
    if test "$found[1]" = {FILES}
        __fish_complete_path "$token"
    else if set -q found[1]
        printf '%s\\n' $found
    end
end
complete -c penstock -f -a '(__penstock_complete)'
"""
SCRIPTS: Mapping[str, str] = {"bash": BASH, "zsh": ZSH, "fish": FISH}

EXAMPLES = ('eval "$(penstock completion bash)"', "penstock completion fish | source")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=tuple(SCRIPTS), help="for this one")
    parser.add_argument(
        "words", nargs="*", metavar="WORD",
        default=[], help="print what completes the last of these words, which stand behind `penstock` "
        "(default: print the shell's own function)",
    )  # fmt: skip


class Candidate(NamedTuple):
    """What the last word can become."""

    word: str
    about: str = ""


LINES: Mapping[str, Callable[[Candidate], str]] = {
    "bash": lambda candidate: candidate.word,
    "zsh": lambda candidate: ":".join([candidate.word.replace(":", "\\:"), candidate.about]),
    "fish": lambda candidate: f"{candidate.word}\t{candidate.about}",
}


def run(parsed: argparse.Namespace, session: Session) -> int:  # noqa: ARG001 (as every command)
    """Print the shell's function; with words a line for each candidate."""
    if not parsed.words:
        output.show_piece(SCRIPTS[parsed.shell])
        return 0
    from penstock.cli.argument_parser import build

    words = _joined(parsed.words) if parsed.shell == "bash" else parsed.words
    fitting = candidates(build(), words)
    for line in [FILES] if fitting is None else map(LINES[parsed.shell], fitting):
        output.show_piece(f"{line}\n")
    return 0


def candidates(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[Candidate] | None:
    """List what the last of these words can become; None: a file."""
    *before, last = words
    typed, parser, waiting = _read(parser, before)
    option, equals, begun = last.partition("=")
    if waiting is None and equals and (action := argument_parser.options(parser).get(option)) is not None:
        values = _values(action, typed)
        return None if values is None else [
            Candidate(f"{option}={value.word}", value.about)
            for value in values if value.word.startswith(begun)
        ]  # fmt: skip
    all_words = _next(parser, typed, waiting, last)
    return (
        None
        if all_words is None
        else [candidate for candidate in all_words if candidate.word.startswith(last)]
    )


class _Typed(NamedTuple):
    """What the words before the last one mean."""

    config: Path | None
    names: Sequence[str]  # positional words after the command
    over: bool  # whether the word comes after `--`, so that no options follow


def _read(
    parser: argparse.ArgumentParser, words: Iterable[str]
) -> tuple[_Typed, argparse.ArgumentParser, argparse.Action | None]:
    """Parse typed words; return also their command's parser, and the option whose value is next."""
    config: Path | None = None
    names: list[str] = []
    waiting: argparse.Action | None = None
    over = False
    for word in words:
        option, equals, value = word.partition("=")
        action = None if over or waiting else argument_parser.options(parser).get(option)
        if waiting is not None or (action is not None and equals):
            if (waiting or action).dest == "config":  # type: ignore[union-attr]
                config = Path(word if waiting else value)
            waiting = None
        elif action is not None:
            waiting = action if argument_parser.takes_value(action) else None
        elif word == "--" and not over:
            over = True
        elif (child := argument_parser.children(parser).get(word)) is not None:
            parser = child
        else:
            names.append(word)
    return _Typed(config, names, over), parser, waiting


def _next(
    parser: argparse.ArgumentParser, typed: _Typed, waiting: argparse.Action | None, last: str
) -> list[Candidate] | None:
    if waiting is not None:
        return _values(waiting, typed)
    if last.startswith("-") and not typed.over:
        shown = argument_parser.options(parser).items()
        return [Candidate(name, _about(action)) for name, action in shown if name.startswith("--")]
    if children := argument_parser.children(parser):
        summaries = {command.word: command.summary for command in COMMANDS if command.of_people}
        # The parser of single steps is not in the table.
        summaries[STEP] = "one step of a run, by hand"
        return [Candidate(name, summaries[name]) for name in children if name in summaries]
    places = argument_parser.arguments(parser)
    if not places:
        return []
    number = len(typed.names)
    if number >= len(places) and places[-1].nargs not in ("*", "+"):
        return []
    return _values(places[min(number, len(places) - 1)], typed)


def _values(action: argparse.Action, typed: _Typed) -> list[Candidate] | None:
    """List an option's or argument's values; None: a file."""
    if action.choices is not None:
        return [Candidate(str(choice)) for choice in action.choices]
    if action.metavar in PLACES:
        return None
    if action.metavar == DATASET:
        return [Candidate(name, "dataset") for name in _datasets(typed.config) if name not in typed.names]
    if action.metavar in RELEASES and typed.names:
        names = _releases(typed.config, typed.names[0])
        return [Candidate(name, "release") for name in names if name not in typed.names]
    return []


def _about(action: argparse.Action) -> str:
    return " ".join((action.help or "").replace("%%", "%").split())


def _datasets(config: Path | None) -> Iterator[str]:
    """List the configuration's datasets; none where it cannot be read: a TAB reports no errors."""
    named = _section(config, "datasets")
    yield from named if isinstance(named, dict) else ()


def _releases(config: Path | None, dataset: str) -> list[str]:
    """List the dataset's releases, the newest first; none where that fails."""
    target = _section(config, "target")
    root = target.get("root") if isinstance(target, dict) else None
    if not isinstance(root, str) or dataset not in _datasets(config):
        return []
    try:
        names = os.listdir(Path(root, dataset, "releases"))
    except OSError:
        return []
    return sorted((name for name in names if not name.startswith(".")), reverse=True)


def _section(config: Path | None, key: str) -> object:
    """Read a section of the configuration; None where that fails."""
    from penstock.config import command_options, strict_yaml

    path = command_options.chosen(config)
    try:
        document = {} if path is None else strict_yaml.read(path).value
    except (OSError, strict_yaml.StrictYamlError):
        return None
    return document.get(key) if isinstance(document, dict) else None


def _joined(words: Sequence[str]) -> list[str]:
    """Join what bash splits: `--progress=json` is three words."""
    return [*(word for word in words if word != "="), *([""] if words[-1] == "=" else [])]


COMPLETION = CommandFunctions(arguments, run, EXAMPLES)
