"""What the commands and the client of a real BeeGFS (7.4.7, 8.3.1) printed: a transcript for each state of
the file system and each account. In a transcript stand `$ ` and a command line, its standard output, lines of
its standard error after `! `, and `= ` and its exit status.

As a program it is a vendor's command that answers as in a transcript:
`<transcript> <program> <arguments ...>`.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent


class Recorded(NamedTuple):
    """One command, and what it answered."""

    argv: tuple[str, ...]
    code: int
    out: str
    err: str


def transcript(name: str) -> list[Recorded]:
    """All of a transcript, in order."""
    answers: list[Recorded] = []
    argv, out, err = "", "", ""
    for line in (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines(keepends=True):
        if line.startswith("$ "):
            argv, out, err = line[2:], "", ""
        elif line.startswith("! ") or line == "!\n":
            err += line[2:] or "\n"
        elif line.startswith("= ") and argv:
            answers.append(Recorded(tuple(shlex.split(argv)), int(line[2:]), out, err))
            argv = ""
        elif argv:
            out += line
    return answers


def answer(name: str, *words: str) -> Recorded:
    """The first command of a transcript whose command line has all of these words."""
    for one in transcript(name):
        if all(any(word in part for part in one.argv) for word in words):
            return one
    raise LookupError(f"{name}: no command with {words}")


def proc_files(name: str) -> dict[str, str]:
    """The files below /proc/fs/beegfs of a transcript: text by `<client>/<file>`."""
    start = "/proc/fs/beegfs/"
    shown = [one for one in transcript(name) if one.argv[0] == "cat" and one.argv[1].startswith(start)]
    return {one.argv[1].removeprefix(start): one.out for one in shown}


def play(name: str, argv: list[str]) -> int:
    """Answer as the first command of the transcript did whose words without paths and numbers are these."""

    def words(line: list[str] | tuple[str, ...]) -> list[str]:
        return [word.rstrip("0123456789") for word in line if not word.startswith("/") and not word.isdigit()]

    for one in transcript(name):
        if words(one.argv) == words(argv):
            sys.stdout.write(one.out)
            sys.stderr.write(one.err)
            return one.code
    sys.stderr.write(f"not recorded: {shlex.join(argv)}\n")
    return 99


if __name__ == "__main__":
    raise SystemExit(play(sys.argv[1], sys.argv[2:]))
