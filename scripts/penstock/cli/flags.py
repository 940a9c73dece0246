"""Options and arguments that several commands share, and how their values are read."""

from __future__ import annotations

import argparse
import os
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from penstock.core.errors import ConfigError
from penstock.core.human import in_quotes

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

FRACTION = "a share such as 1%"
SHOWN_ROWS = 20  # number of rows of each kind that are shown without `--all`, at most


def datasets(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dataset", nargs="*", metavar="DATASET", help="default: all of them")


def dataset(parser: argparse.ArgumentParser, name: str = "dataset") -> None:
    parser.add_argument(name, nargs="?", metavar="DATASET", help="default: the only one")


def release(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("release", nargs="?", metavar="RELEASE", help="default: the one that `current` names")


def release_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--release", metavar="NAME", help="default: the one that `current` names")


def root(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--root", type=path, metavar="FOLDER",
        help="the target's root; then no configuration is needed (default: target.root)",
    )  # fmt: skip


def json_lines(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print it as JSON, by lines")


def json_document(parser: argparse.ArgumentParser) -> None:
    """The --json of commands that answer with one document, the one that --receipt writes."""
    parser.add_argument(
        "--json", dest="json_document", action="store_true", help="print the result as a JSON document"
    )


def every_row(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="all rows (default: 20, of each kind)")


def run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--run", type=_run, metavar="RUN", help="work on this run (default: what list met last)"
    )


def new_release(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--new-release", action="store_true",
        help="stage what a release holds already as a new one; the old one stays as it is",
    )  # fmt: skip


def copy_unchanged(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--copy-unchanged", action="store_true",
        help="have unchanged files share blocks with the current release, or copied on the target, where "
        "they cannot be linked: with other permissions, for one",
    )  # fmt: skip


def submit(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--submit", action="store_true", help=what)
    parser.add_argument("--parsable", action="store_true", help="with --submit: print the job's id alone")


def removal(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would be removed, why, and what it frees"
    )
    parser.add_argument(
        "--unpin", action="append", default=[], metavar="NAME",
        help="take the reader's pin of this name back, as `releases` shows it; may be given several times",
    )  # fmt: skip


def folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where the files go")


def path(text: str) -> Path:
    """Expand ~, which shells do not expand in `--root=~/data`."""
    return Path(os.path.expanduser(text))


def written(own: str) -> Callable[[str], Path]:
    """Return an option's `type` for a file that is written. It rejects existing files whose kind is not `own`
    (`fs.small_files`)."""
    return partial(_written, own)


def _written(own: str, text: str) -> Path:
    from penstock.fs import small_files

    try:
        small_files.refuse_another(path(text), getattr(small_files, own))
    except ConfigError as error:
        raise argparse.ArgumentTypeError(f"{in_quotes(text)}: {error.why}; {error.hint}") from None
    return path(text)


def value(read: Callable[[str], T], expected: str = "") -> Callable[[str], T]:
    """Wrap `read` as an option's `type`. A ValueError becomes a message that states what is `expected`."""

    def check(text: str) -> T:
        try:
            return read(text)
        except ValueError as error:
            why = f"is not {expected}" if expected else str(error)
            raise argparse.ArgumentTypeError(f"{in_quotes(text)} {why}") from None

    return check


def _run(text: str) -> str:
    if not re.fullmatch("[0-9a-f]{16}", text):
        raise argparse.ArgumentTypeError(f"{in_quotes(text)} is not a run: 16 hexadecimal digits")
    return text
