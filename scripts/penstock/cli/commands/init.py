"""`penstock init`: a configuration for this machine. On a terminal it asks for what it cannot find out."""

from __future__ import annotations

import os
import select
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli import output
from penstock.cli.command_table import CommandFunctions
from penstock.config import command_options, validation
from penstock.config.source_kinds import kind, no_path, scheme
from penstock.core.errors import ConfigError
from penstock.core.human import in_quotes, printable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from penstock.cli.session import Session
    from penstock.doctor.new_configuration import Asked, Proposed

EXAMPLES = (
    "penstock init /nfs/imagenet /beegfs/datasets",
    "penstock init s3://bucket/imagenet/ /beegfs/datasets --profile staging",
)
SUCH_AS = {"SOURCE": "s3://bucket/imagenet/", "TARGET": "/beegfs/datasets"}
ALL = 0o666
# {key of `storage_options`: option of this command}
OPTIONS = {"endpoint_url": "--endpoint", "anon": "--anon", "profile": "--profile"}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", nargs="?", metavar="SOURCE", help="what is staged: a folder or a URL (default: asked for)"
    )
    parser.add_argument(
        "target", nargs="?", metavar="TARGET",
        help="the folder below which datasets are published (default: asked for)",
    )  # fmt: skip
    parser.add_argument(
        "--name", metavar="NAME", help="the dataset's name (default: made of SOURCE's last folder)"
    )
    parser.add_argument("--endpoint", metavar="URL", help="of an object store: its server")
    keys = parser.add_mutually_exclusive_group()
    keys.add_argument("--anon", action="store_true", help="of a public bucket: requests are not signed")
    keys.add_argument("--profile", metavar="NAME", help="of S3: the profile of ~/.aws that has the keys")


def run(parsed: argparse.Namespace, session: Session) -> int:
    """Write the configuration where it will be read, whole, with the umask's mode. Raises ConfigError where a
    file exists already, and for what cannot be configured; then nothing is written."""
    path = command_options.to_write(parsed.config)
    _refuse_present(path)
    before = command_options.chosen(parsed.config)
    asked = _asked(parsed, session)
    output.without_input()
    proposed = _proposed(asked, path)
    _write(path, proposed.text)
    file, notes = proposed.file, list(proposed.notes)
    if before is not None and before != path:
        notes.append(f"{before} counts no more in this folder: {path} goes before it")
    result = {
        "file": str(path.absolute()),
        "dataset": file.dataset,
        "source": file.source,
        "target": file.root,
        "readers": proposed.readers.found,
        "cluster": {line.key: line.value for line in file.cluster},
        "notes": notes,
    }
    session.receipt(result)
    if session.as_json:
        output.show_json(result)
    else:
        parsed.backend = None  # the file names the backend now, so the next commands need no option
        _show(proposed, notes, path, session.program)
    return 0


def _refuse_present(path: Path) -> None:
    if os.path.lexists(path):
        raise ConfigError(
            "there is a configuration already, and it stays as it is",
            where=str(path.absolute()),
            hint="change that file, move it away, or name another one by --config FILE",
        )


def _asked(parsed: argparse.Namespace, session: Session) -> Asked:
    """Return what was asked for. Raises ConfigError for missing values and secrets."""
    from penstock.doctor.new_configuration import Asked

    answers = {"SOURCE": parsed.source, "TARGET": parsed.target}
    missing = [name for name, value in answers.items() if not value]
    if missing and sys.stdin.isatty() and sys.stderr.isatty():
        answers |= {name: _answer(name, session) for name in missing}
        missing = [name for name in missing if not answers[name]]
    if missing:
        raise ConfigError(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing",
            hint=f"`penstock init SOURCE TARGET`, such as `penstock init {' '.join(SUCH_AS.values())}`",
        )
    for what, text in answers.items():
        _require(what, text)
    if why := validation.in_url(parsed.endpoint or ""):
        raise ConfigError(f"--endpoint {why}", hint=validation.HINT)
    source, target = answers["SOURCE"], answers["TARGET"]
    given_options = {"endpoint_url": parsed.endpoint, "anon": parsed.anon, "profile": parsed.profile}
    options = {key: value for key, value in given_options.items() if value}
    if unfit := [OPTIONS[key] for key in options if _is_unknown(key, source)]:
        raise ConfigError(
            f"{' and '.join(unfit)} {'says' if len(unfit) == 1 else 'say'} nothing of {in_quotes(source)}",
            hint="leave that out, or correct SOURCE; `penstock init --help` says of which stores it is",
        )
    return Asked(_whole(source), _absolute(target), options, parsed.name or "", parsed.backend or "")


def _require(what: str, text: str) -> None:
    """Raise ConfigError for an impossible SOURCE or TARGET, a missing source, and secrets."""
    from penstock.doctor import new_configuration

    source = what == "SOURCE"
    if why := validation.in_url(text):
        raise ConfigError(f"{what} {why}", hint=validation.HINT)
    if why := no_path(text, source=source):
        raise ConfigError(f"{what} {in_quotes(text)} {why}", hint="write that in its place")
    if source:
        new_configuration.require_source(_whole(text))
    elif scheme(text):
        raise ConfigError(
            f"TARGET {in_quotes(text)} is no folder",
            hint=f"name the folder below which datasets are published, such as {SUCH_AS['TARGET']}",
        )


def _is_unknown(key: str, source: str) -> bool:
    """Return whether sources of this kind have no such option. fsspec's may have any."""
    of = kind(source, {})
    return of.options is not None and key not in validation.known(of)


def _whole(source: str) -> str:
    """Keep a URL as it is; make a path absolute."""
    return source if scheme(source) else str(_absolute(source))


def _absolute(folder: str) -> Path:
    """Make a folder absolute without its leading `..`; later ones may follow links."""
    # The path stays unchanged if there is no such home.
    place, below = Path.cwd(), Path(os.path.expanduser(folder))
    while below.parts[:1] == ("..",):
        place, below = place.parent, below.relative_to("..")
    return place / below


def _answer(what: str, session: Session) -> str:
    """Ask until the answer can be used; "" for none. Raises KeyboardInterrupt by Ctrl-C."""
    while text := _typed(what, session):
        try:
            _require(what, text)
        except ConfigError as error:
            output.say(str(error))
        else:
            break
    return text


def _typed(what: str, session: Session) -> str:
    """Read a line of the terminal, "" at its end. Raises KeyboardInterrupt by Ctrl-C."""

    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    session.on_stop = interrupted
    try:
        sys.stderr.write(f"{what}, such as {SUCH_AS[what]}: ")
        sys.stderr.flush()
        # A signal right before a read begins does not interrupt it.
        while not select.select([sys.stdin], [], [], 0.5)[0]:
            pass
        return sys.stdin.readline().strip()
    finally:
        session.on_stop = None


def _proposed(asked: Asked, path: Path) -> Proposed:
    from penstock.doctor import new_configuration

    try:
        return new_configuration.propose(asked, path)
    except ConfigError as error:
        raise ConfigError(
            "nothing was written: this makes no configuration that can be used",
            why=f"\n  {error.what}",
            hint=error.hint or "correct SOURCE, TARGET or the option that is named",
        ) from None


def _write(path: Path, text: str) -> None:
    from penstock.config import loader
    from penstock.fs import small_files
    from penstock.host import kernel_facts

    umask = kernel_facts.umask() or 0
    try:
        made = small_files.create_file(path, text.encode(), mode=ALL & ~umask)
    except FileNotFoundError:
        raise ConfigError(
            "the folder of the configuration is not there",
            where=str(path.absolute().parent),
            hint="make it, or name another file by --config FILE",
        ) from None
    if not made:
        _refuse_present(path)
    loader.load(path)


def _show(proposed: Proposed, notes: Sequence[str], path: Path, program: str) -> None:
    file = proposed.file
    cluster = ", ".join(f"{line.key} {line.value}" for line in file.cluster)
    output.show(f"wrote {printable(str(path.absolute()))}")
    output.show(f"  dataset   {file.dataset}, from {printable(file.source)}")
    output.show(f"  target    {printable(file.root)}: {file.target_is}")
    output.show(f"  readers   {proposed.readers.found}")
    if proposed.readers.mend:
        output.show(f"            {proposed.readers.mend}")
    output.show(f"  cluster   {cluster.removeprefix('backend ')}")
    for note in notes:
        output.show(f"  note      {printable(note)}")
    output.show(f"next: {program} preflight    tries all of it, and changes nothing")
    output.show(f"      {program} run")


INIT = CommandFunctions(arguments, run, EXAMPLES)
