"""Queries WEKA's `weka` about the cluster, the file system and the quotas of a folder."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from penstock.fs.stores.facts import FillRules, StoreStatus
from penstock.fs.stores.status_queries import StatusQueries
from penstock.fs.weka import cli, health
from penstock.host import command
from penstock.host.proc import PROC, mount_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.host.proc import Mount

PROGRAMS = (cli.WEKA,)
RULES = FillRules((0,), (0,), 0.0, 1, objects="objects", quota_counts="files")


class Tools(NamedTuple):
    """`weka`, for the file system of a mount."""

    mount: Mount
    file_system: str  # its name, behind the server's in the mount's device (`10.0.0.1/default`)
    product: str = cli.PRODUCT

    @staticmethod
    def pattern(folder: str, budget: command.TimeBudget | None = None) -> None:
        """Return None: the cluster itself spreads files over its drives."""
        del folder, budget

    def status(self, folder: str, uid: int, gid: int) -> StoreStatus:
        """Read what the command reports of the cluster, the file system, and the quotas of `folder` and of
        those above it. WEKA's quotas belong to folders. An unanswered query is a `Silence`; never raises."""
        del uid, gid
        asking = StatusQueries()
        cluster = cli.read_status(_json(asking, "cluster", cli.status(), cli.read_status))
        listed = cli.read_file_systems(_json(asking, "file systems", cli.file_systems(), cli.has_rows))
        mine = next((entry for entry in listed if entry.name == self.file_system), None)
        out = _json(asking, "quotas", cli.quotas(self.file_system), cli.has_rows)
        # In a bind mount, the path below its point differs from that of quotas.
        inside = self.mount.inside(os.path.realpath(folder))
        quotas = [] if inside is None else cli.read_quotas(out, self.file_system, inside)
        return StoreStatus(
            self.product,
            quotas=tuple(quotas),
            silences=tuple(asking.silences),
            rules=RULES,
            results=tuple(health.judge(cluster, mine)),
            max_files=mine.max_files if mine else None,
        )


def find(proc: str | os.PathLike[str] = PROC, point: str = "") -> Tools | None:
    """Return `weka`, where it is on PATH."""
    if not command.present(cli.WEKA):
        return None
    mount = mount_of(point or "/", proc)
    return Tools(mount, mount.device.rpartition("/")[2])


def _json(asking: StatusQueries, about: str, argv: Sequence[str], useful: Callable[[str], object]) -> str:
    """Return the command's output, if it is useful."""
    answer = asking.ask(about, argv)
    if not answer.ok:
        return ""
    if useful(answer.out):
        return answer.out
    asking.silent(about, argv, "its output is not the JSON that was asked for")
    return ""
