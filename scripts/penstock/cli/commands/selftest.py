"""`penstock selftest`: tries what a folder's file system does, and prints a table for its administrator.

`doctor.selftest.selftest` does the work: in a hidden folder of that folder and in one of TMPDIR, both removed
at the end, with at most 1 GiB and ten minutes; with SLURM also by a process on each of two nodes. This module
finds the folder and the cluster, prints, and writes the session's receipt.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli import output
from penstock.config import file_choice

if TYPE_CHECKING:
    import argparse
    import subprocess
    from collections.abc import Sequence

    from penstock.cli.session import Session
    from penstock.config.settings import ClusterConfig

CONTRADICTED = 4
"""The exit status where a check has another result than the file system's row of `fs.kinds`, or penstock
itself, wants."""

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
    """0, or CONTRADICTED. Raises ConfigError and PreflightError: as `_folder`, and where nothing can be made
    in the folder, or `--fill-quota` finds no quota that is the folder's own."""
    from penstock.cluster.registry import start_together
    from penstock.core import human
    from penstock.doctor.selftest import selftest, two_nodes

    folder, cluster = _folder(parsed, session), _cluster(parsed, session)

    def report(stage: str) -> None:
        if parsed.progress != "off" and sys.stderr.isatty():
            output.say(f"selftest: {stage} ...")

    def start_peers(place: Path) -> Sequence[subprocess.Popen[bytes]]:
        """As `selftest.StartPeers`."""
        peers = start_together(cluster, ["selftest-peer", str(place)], two_nodes.NODES, two_nodes.SECONDS)
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
    """The folder that the command line names, or else `target.root`. Raises ConfigError for a configuration
    that is wrong, also where it is not needed, and for a folder below none of the site's roots, since a
    selftest writes there; PreflightError for what is no folder, and where a server of it is away."""
    from penstock.config import loader
    from penstock.core.errors import PreflightError
    from penstock.fs import servers

    folder: Path = parsed.folder
    if folder is None or file_choice.chosen(parsed.config) is not None:
        root = session.config().target.root
        folder = root if folder is None else folder
    servers.require_answer(folder)  # before any call there: it would wait for a server that is away
    loader.check_place(folder)
    if not folder.is_dir():
        raise PreflightError(
            "there is no such folder", where=str(folder), hint="make it, or name another one"
        )
    return folder.absolute()


def _cluster(parsed: argparse.Namespace, session: Session) -> ClusterConfig:
    """The configuration's cluster; where there is none, the backend of the command line with all defaults."""
    from penstock.config.settings import ClusterConfig

    if file_choice.chosen(parsed.config) is not None:
        return session.config().cluster
    return ClusterConfig(backend=parsed.backend or ClusterConfig.backend)
