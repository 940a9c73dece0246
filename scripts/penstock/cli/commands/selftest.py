"""`penstock selftest`: tries what a folder's file system does, and prints a table for its administrator.

`doctor.selftest` works in a hidden folder of that folder and one in TMPDIR, both removed at the end.
It takes at most 1 GiB and ten minutes; with SLURM, two nodes take part.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli import output
from penstock.cli.command_table import CommandFunctions
from penstock.config import command_options

if TYPE_CHECKING:
    import argparse
    import subprocess
    from collections.abc import Sequence

    from penstock.cli.session import Session
    from penstock.config.settings import ClusterConfig

# Exit status if a check's result is not as wanted by the file system's row in `fs.kinds`, or by penstock.
CONTRADICTED = 4

EXAMPLES = ("penstock selftest /beegfs/datasets", "penstock selftest --json")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", type=Path, nargs="?", metavar="FOLDER", help="default: target.root of the configuration"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON, not as a table")
    parser.add_argument(
        "--fill-quota", action="store_true",
        help="fill the folder's own quota for a moment: no one else can write there meanwhile",
    )  # fmt: skip


def run(parsed: argparse.Namespace, session: Session) -> int:
    """Return 0 or CONTRADICTED. Raises as `_folder`, where nothing can be made in the folder, or where
    `--fill-quota` finds no own quota."""
    from penstock.cluster.registry import start_together
    from penstock.core import human
    from penstock.doctor import selftest, selftest_two_nodes

    folder, cluster = _folder(parsed, session), _cluster(parsed, session)

    def report(stage: str) -> None:
        if parsed.progress != "off" and sys.stderr.isatty():
            output.say(f"selftest: {stage} ...")

    def start_peers(place: Path) -> Sequence[subprocess.Popen[bytes]]:
        peers = start_together(
            cluster, ["selftest-peer", str(place)], selftest_two_nodes.NODES, selftest_two_nodes.SECONDS
        )
        return [] if peers is None else [peers]

    result = selftest.run(folder, session.stop.wait, report, start_peers, fill_quota=parsed.fill_quota)
    session.receipt(result)
    if session.as_json:
        output.show_json(result)
    else:
        output.show_checks(str(folder), result["results"])
        mount = f"{result['kind']} ({result['mount_options']}) on {result['host']}"
        versions = f"penstock {result['penstock']}, Linux {result['probe']['kernel']}"
        output.show(f"  {mount}; {versions}; {human.duration(result['seconds'])}")
        if result["contradicts"]:
            output.show(f"  {human.counted(result['contradicts'], 'row')} not as it should be")
    return CONTRADICTED if result["contradicts"] else 0


def _folder(parsed: argparse.Namespace, session: Session) -> Path:
    """Return the folder of the command line, else `target.root`. Raises ConfigError for a wrong
    configuration, even an unneeded one. It refuses folders below none of the site's roots, since a selftest
    writes. Raises PreflightError for what is no folder, and where a server is away."""
    from penstock.config import loader
    from penstock.core.errors import PreflightError
    from penstock.fs import watched_facts

    folder: Path = parsed.folder
    if folder is None or command_options.chosen(parsed.config) is not None:
        root = session.config().target.root
        folder = root if folder is None else folder
    # before any call on the folder, which would wait for a server that is away
    watched_facts.require_answer(folder)
    loader.check_place(folder)
    if not folder.is_dir():
        raise PreflightError(
            "there is no such folder", where=str(folder), hint="make it, or name another one"
        )
    return folder.absolute()


def _cluster(parsed: argparse.Namespace, session: Session) -> ClusterConfig:
    """Return the configuration's cluster, or without one the given backend with defaults."""
    from penstock.config.settings import ClusterConfig

    if command_options.chosen(parsed.config) is not None:
        return session.config().cluster
    return ClusterConfig(backend=parsed.backend or ClusterConfig.backend)


SELFTEST = CommandFunctions(arguments, run, EXAMPLES)
