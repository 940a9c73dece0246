"""The argument parser, made from the table. Global options may stand before or after the command."""

from __future__ import annotations

import argparse
import importlib
import os
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from penstock.cli.commands import COMMANDS, GROUPS, STEP, Command
from penstock.config import file_choice
from penstock.config.backends import BACKENDS
from penstock.core import step_table
from penstock.core.text import in_quotes

if TYPE_CHECKING:
    from collections.abc import Callable

SHELLS = ("bash", "zsh", "fish")
PROGRESS_VIEWS = ("auto", "rich", "lines", "json", "off")
EXIT_STATUS = """\
exit status: 0 done, 1 failed, 2 usage or configuration, 3 preflight stops, 4 findings,
5 source changed, 6 no space or quota, 7 locked by another run, 129, 130, 143 stopped by a signal"""


class _Version(argparse.Action):
    """Its text is made when it is asked for: every command builds the parser."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from penstock.cli import installation, output

        output.show(installation.identity())
        parser.exit()


def build() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="penstock",
        usage="penstock [OPTION ...] COMMAND ...",
        description=f"Staged dataset ingest for GPU clusters: whole or not at all.\n\n{_groups()}",
        epilog=f"`penstock COMMAND --help` has the arguments of each.\n\n{EXIT_STATUS}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print which penstock this is, and end")
    _global_options(parser, first=True)
    # No `required`: without a command the help is printed.
    children = parser.add_subparsers(dest="command", help=argparse.SUPPRESS, prog="penstock")
    steps = children.add_parser(STEP, description="One step of a run, by hand.", allow_abbrev=False)
    _global_options(steps, first=False)
    below = steps.add_subparsers(dest="command", metavar="STEP", title="steps", required=True)
    for command in COMMANDS:
        add = below.add_parser if command.group == STEP else children.add_parser
        if command.name in step_table.SINGLE:
            # What Snakemake alone calls is left out of the list.
            add = partial(add, help=command.summary)
        child = add(
            command.name,
            description=command.summary[0].upper() + command.summary[1:] + ".",
            epilog="\n".join([EXIT_STATUS, *_examples(command)]),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        _global_options(child, first=False)
        _own_arguments(child, command)
    return parser


def _examples(command: Command) -> list[str]:
    return ["", "examples:", *(f"  {line}" for line in command.examples)] if command.examples else []


def _groups() -> str:
    """The commands that people call, by group: a line each."""
    lines = []
    for group in GROUPS:
        members = [command for command in COMMANDS if command.group == group]
        lines += [f"{group}:", *(f"    {command.name:<12}{command.summary}" for command in members)]
    return "\n".join(lines)


def _global_options(parser: argparse.ArgumentParser, *, first: bool) -> None:
    def default(value: object) -> object:
        # The command's own parser must not undo what stood before the command.
        return value if first else argparse.SUPPRESS

    parser.add_argument(
        "--config", type=_path, metavar="FILE", default=default(None),
        help="the configuration (default: PENSTOCK_CONFIG of the environment, else penstock.yaml, else "
        "config.yaml, in the working directory)",
    )  # fmt: skip
    parser.add_argument(
        "--backend", choices=BACKENDS, default=default(None),
        help="where elements run; goes before cluster.backend",
    )  # fmt: skip
    parser.add_argument(
        "--progress", choices=PROGRESS_VIEWS, default=default("auto"),
        help="how progress is shown on standard error (default: auto)",
    )  # fmt: skip
    parser.add_argument(
        "--receipt", type=Path, metavar="FILE", default=default(None),
        help="write the result as JSON, durably; with findings, and of `run`, also when it fails",
    )  # fmt: skip
    parser.add_argument(
        "--log", type=Path, metavar="FILE", default=default(None),
        help="append log lines to FILE; the display stays on standard error",
    )  # fmt: skip
    parser.add_argument(
        "--as-root", action="store_true", default=default(False),
        help="stage and decide as root (uid 0), which is refused otherwise",
    )  # fmt: skip


def _own_arguments(parser: argparse.ArgumentParser, command: Command) -> None:
    if command.datasets == "one":
        parser.add_argument("dataset", nargs="?", metavar="DATASET", help="default: the only one")
    elif command.datasets == "some":
        parser.add_argument("dataset", nargs="*", metavar="DATASET", help="default: all of them")
    if command.where == "step_commands:run" and command.name in step_table.AFTER_LIST:
        parser.add_argument(
            "--run", type=_run, metavar="RUN", help="work on this run (default: what list met last)"
        )
    if command.name == "preflight":
        parser.add_argument(
            "--json", action="store_true", help="print all that was looked at as JSON, a line a dataset"
        )
        parser.add_argument(
            "--site", type=Path, nargs="?", const=file_choice.SITE, metavar="FILE",
            help=f"look at the site's file alone, or at a draft of it (default: {file_choice.SITE}), and "
            "print what it binds; needs no configuration",
        )  # fmt: skip
        parser.add_argument(
            "--sysctl", type=_sysctl_profile, metavar="PROFILE",
            help="look at this host alone: compare its kernel parameters with a vendor's table (netapp-100g, "
            "netapp-xcp-docs) and print a drop-in for /etc/sysctl.d; writes nothing",
        )  # fmt: skip
        parser.add_argument(
            "--kernel-cmdline", action="store_true",
            help="look at this host alone: what is recommended for hosts with WEKA's client",
        )  # fmt: skip
    if command.name == "cancel":
        _root_argument(parser)
    if command.where.startswith("catalogue_commands:"):
        _catalogue_arguments(parser, command.name)
    if command.name in ("run", "list", "list-group"):
        parser.add_argument(
            "--new-release", action="store_true",
            help="stage what a release holds already as a new one; the old one stays as it is",
        )  # fmt: skip
    if command.name in ("run", "plan"):
        parser.add_argument(
            "--copy-unchanged", action="store_true",
            help="have unchanged files share blocks with the current release, or copied on the target, where "
            "they cannot be linked: with other permissions, for one",
        )  # fmt: skip
    if command.name == "run":
        parser.add_argument(
            "--cores", type=_cores, metavar="N", help="steps at once (default: the profile's)"
        )
        parser.add_argument(
            "--dry-run", action="store_true", help="say what would be done; list nothing, change nothing"
        )
        _submit_arguments(parser, "run as a SLURM job of one core, for sites that allow no long process here")
    elif command.name == "describe" or command.name == "sign":
        parser.add_argument("name", metavar="DATASET", nargs="?", help="default: the only one")
        parser.add_argument(
            "release", metavar="RELEASE", nargs="?", help="default: the one that `current` names"
        )
    elif command.name == "report":
        parser.add_argument(
            "--html", type=Path, metavar="FILE", help="write the HTML report here (default: none)"
        )
    elif command.name == "gate":
        _root_argument(parser)
        parser.add_argument(
            "--audited-within", type=_duration, metavar="TIME",
            help="and only when all of it was read back within this time, such as 30d",
        )  # fmt: skip
        _mend_arguments(parser)
    elif command.name == "path":
        _root_argument(parser)
        parser.add_argument(
            "--job", action="store_true",
            help="keep the release from being removed while this job runs, and give the job the same one "
            "also when it is started again; outside of a job, of the script or shell that calls this",
        )  # fmt: skip
    elif command.name == "limit":
        parser.add_argument(
            "what", nargs="?", metavar="RATE",
            help="such as 40Gbit/s or 5GB/s; none: what the configurations say; default: print what is set. "
            "With --nodes a dataset",
        )  # fmt: skip
        parser.add_argument(
            "--requests", type=_count, metavar="N", help="requests a second of all elements; 0: no cap"
        )
        parser.add_argument(
            "--nodes", type=_elements, metavar="N",
            help="of a dataset: elements of a step that may run at once from now on, each on a node, or "
            "`auto`: as cluster.max_elements says",
        )  # fmt: skip
    elif command.name in ("audit", "repair"):
        parser.add_argument("--release", metavar="NAME", help="default: the one that `current` names")
        if command.name == "audit":
            _audit_arguments(parser)
    elif command.name == "rollback":
        parser.add_argument("name", metavar="DATASET", nargs="?", help="default: the only one")
        parser.add_argument(
            "release", nargs="?", metavar="RELEASE",
            help="default: the one that was current before this one was published",
        )  # fmt: skip
    elif command.name == "adopt":
        _adopt_arguments(parser)
    elif command.name == "gc":
        _removal_arguments(parser)
        parser.add_argument("--json", action="store_true", help="print the result as JSON, a line a dataset")
    elif command.name == "remove":
        parser.add_argument("name", metavar="DATASET", help="whose releases")
        parser.add_argument(
            "release", nargs="*", default=[], metavar="RELEASE", help="which ones; none with --all"
        )
        parser.add_argument(
            "--all", action="store_true",
            help="all of them, with `current`, the history and all state: the dataset is gone then",
        )  # fmt: skip
        _removal_arguments(parser)
        parser.add_argument("--json", action="store_true", help="print the result as JSON")
        parser.add_argument(
            "--now", action="store_true",
            help="do not wait for gc.grace: readers that have not pinned may still read it",
        )  # fmt: skip
    elif command.name == "init":
        _init_arguments(parser)
    elif command.name == "completion":
        parser.add_argument("shell", choices=SHELLS, help="for this one")
        parser.add_argument(
            "words", nargs="*", metavar="WORD",
            default=[], help="print what completes the last of these words, which stand behind `penstock` "
            "(default: print the shell's own function)",
        )  # fmt: skip
    elif command.name == "selftest":
        parser.add_argument(
            "folder", type=Path, nargs="?", metavar="FOLDER", help="default: target.root of the configuration"
        )
        parser.add_argument("--json", action="store_true", help="print the result as JSON, not as a table")
        parser.add_argument(
            "--fill-quota", action="store_true",
            help="fill the folder's own quota for a moment: no one else can write there meanwhile",
        )  # fmt: skip
    elif command.name in ("selftest-writer", "selftest-peer"):
        parser.add_argument("folder", type=Path, metavar="FOLDER", help="where the files go")
    elif command.name == "list-failure":
        parser.add_argument(
            "--group", type=Path, required=True, metavar="FILE", help="what `list-group` wrote"
        )
    elif command.name == "visit":
        parser.add_argument("--answer", type=Path, required=True, metavar="FILE", help="says what failed")
    elif command.name == "element":
        parser.add_argument("--run", type=Path, required=True, metavar="FOLDER", help="the run's folder")
        parser.add_argument("--step", choices=step_table.IN_ELEMENTS, required=True, help="what is done")
        parser.add_argument("--root", type=Path, metavar="FOLDER", help="the target (default: as listed)")
        parser.add_argument("--attempt", default="auto", help="a name for this attempt (default: auto)")
        parser.add_argument(
            "--ops", type=int, default=0, metavar="N",
            help="metadata operations a second of all runs (default: no budget)",
        )  # fmt: skip
        parser.add_argument(
            "--at-once", type=int, default=1, metavar="N", help="elements that may run at once (default: 1)"
        )
        parser.add_argument(
            "--bandwidth-folder", type=Path, metavar="FOLDER", help="of the link's shares (default: no cap)"
        )
        parser.add_argument("--bandwidth", type=int, metavar="N", help="bytes a second of all elements")
        parser.add_argument("--requests", type=int, metavar="N", help="requests a second of all elements")
        parser.add_argument("index", type=int, metavar="INDEX", help="the shard")


def _init_arguments(parser: argparse.ArgumentParser) -> None:
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


def _path(text: str) -> Path:
    """Shells leave the ~ of `--root=~/data` as it is."""
    return Path(os.path.expanduser(text))


def _root_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--root", type=_path, metavar="FOLDER",
        help="the target's root; then no configuration is needed (default: target.root)",
    )  # fmt: skip


def _catalogue_arguments(parser: argparse.ArgumentParser, name: str) -> None:
    _root_argument(parser)
    parser.add_argument("--json", action="store_true", help="print it as JSON, by lines")
    if name not in ("releases", "du"):
        parser.add_argument("name", nargs="?", metavar="DATASET", help="default: the only one")
    if name == "show":
        parser.add_argument(
            "release", nargs="?", metavar="RELEASE", help="default: the one that `current` names"
        )
    if name == "diff":
        parser.add_argument("release", nargs="?", metavar="A", help="a release (default: the current one)")
        parser.add_argument(
            "other", nargs="?", metavar="B",
            help="another one (default: the current one; without A: the source as it is now)",
        )  # fmt: skip
        parser.add_argument(
            "--source", action="store_true", help="compare A with the source as it is now: it is listed anew"
        )
        parser.add_argument(
            "--exit-code",
            action="store_true",
            help="end with 4 where they differ; else 0 says only that it worked",
        )
    if name in ("diff", "history"):
        parser.add_argument("--all", action="store_true", help="all rows (default: 20, of each kind)")


def _removal_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would be removed, why, and what it frees"
    )
    parser.add_argument(
        "--unpin", action="append", default=[], metavar="NAME",
        help="take the reader's pin of this name back, as `releases` shows it; may be given several times",
    )  # fmt: skip


def _mend_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--mend", action="store_true",
        help="before that, look at names, sizes and times of all files and at a sample of the bytes, and "
        "fetch what is missing or damaged; elements run here, those of a large repair by cluster.backend",
    )  # fmt: skip
    parser.add_argument(
        "--sample", type=_checked("audit_selection", "parse_share", "a share such as 1%"), metavar="SHARE",
        help="with --mend: the share of the files that is read (default: what takes some seconds)",
    )  # fmt: skip
    _submit_arguments(parser, "with --mend: as a SLURM job of one core; training jobs wait for it by afterok")


def _submit_arguments(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--submit", action="store_true", help=what)
    parser.add_argument("--parsable", action="store_true", help="with --submit: print the job's id alone")


def _audit_arguments(parser: argparse.ArgumentParser) -> None:
    much = parser.add_mutually_exclusive_group()
    much.add_argument(
        "--overrule", type=_reason, metavar="REASON",
        help="read nothing: the findings that stand need not keep jobs from the release",
    )  # fmt: skip
    much.add_argument(
        "--sample", type=_checked("audit_selection", "parse_share", "a share such as 1%"), metavar="SHARE",
        help="read a random sample, such as 1%%",
    )  # fmt: skip
    much.add_argument(
        "--fraction", type=_checked("audit_selection", "parse_turns", "a fraction such as 1/30"),
        metavar="1/N",
        help="read the next slice of a rotation: N runs read everything",
    )  # fmt: skip
    parser.add_argument(
        "--limit", type=_rate, metavar="RATE", help="read no faster in all than this, such as 200MiB/s"
    )
    parser.add_argument(
        "--into", type=Path, metavar="FOLDER",
        help="of another account's dataset: where what is found goes (default: XDG_STATE_HOME)",
    )  # fmt: skip


def _adopt_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dataset", metavar="DATASET", help="whose source the tree is compared with")
    parser.add_argument("tree", type=Path, metavar="PATH", help="the tree's top folder")
    parser.add_argument(
        "--read-source", action="store_true",
        help="read the source where it states no checksum, and compare the bytes",
    )  # fmt: skip
    parser.add_argument(
        "--seal", action="store_true",
        help="then publish the tree as a release: what is right is renamed with it, the rest is fetched",
    )  # fmt: skip
    parser.add_argument(
        "--leave-extra", action="store_true",
        help="with --seal: what the release will not hold is moved to a folder beside the tree",
    )  # fmt: skip
    parser.add_argument(
        "--json", action="store_true", help="a line of JSON for each difference, all of them, then the result"
    )


def _checked(module: str, function: str, expected: str) -> Callable[[str], Any]:
    def check(text: str) -> Any:
        try:
            return getattr(importlib.import_module(f"penstock.core.{module}"), function)(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{in_quotes(text)} is not {expected}") from None

    return check


def _sysctl_profile(text: str) -> str:
    from penstock.runtime.host_tuning import PROFILES

    if text not in PROFILES:
        raise argparse.ArgumentTypeError(f"{in_quotes(text)} is none of {', '.join(PROFILES)}")
    return text


def _reason(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("it takes a reason, for those who ask later")
    return text


def _cores(text: str) -> int:
    if not re.fullmatch("[0-9]{1,5}", text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{in_quotes(text)} is not a number of steps at once: 1 or more")
    return int(text)


def _elements(text: str) -> int:
    if text == "auto":
        return 0
    if not re.fullmatch("[0-9]{1,7}", text) or int(text) < 1:
        raise argparse.ArgumentTypeError(
            f"{in_quotes(text)} is not a number of elements at once: 1 or more, or auto"
        )
    return int(text)


def _run(text: str) -> str:
    if not re.fullmatch("[0-9a-f]{16}", text):
        raise argparse.ArgumentTypeError(f"{in_quotes(text)} is not a run: 16 hexadecimal digits")
    return text


def _duration(text: str) -> float:
    from penstock.config.quantities import duration

    try:
        return duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{in_quotes(text)} {error}") from None


def _count(text: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", text):
        raise argparse.ArgumentTypeError(f"{in_quotes(text)} is not a number a second")
    return int(text)


def _rate(text: str) -> int:
    from penstock.config.quantities import rate

    try:
        return rate(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{in_quotes(text)} {error}") from None
