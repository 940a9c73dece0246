"""Asks WEKA's `weka` about the cluster, the file system and the quotas of one folder. For `fs.store_checks`;
starts `weka`, changes nothing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from penstock.fs.stores.facts import FillRules, StoreStatus
from penstock.fs.stores.status_queries import StatusQueries
from penstock.fs.weka import cli, health
from penstock.host import command
from penstock.host.mounts import mount_of
from penstock.host.proc import PROC

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.host.mounts import Mount

PROGRAMS = (cli.WEKA,)
RULES = FillRules((0,), (0,), 0.0, 1, objects="objects", quota_counts="files")


class Tools(NamedTuple):
    """`weka`, for the file system of one mount."""

    mount: Mount
    file_system: str
    """Its name, behind the server's in the mount's device (`10.0.0.1/default`)."""
    product: str = cli.PRODUCT

    @staticmethod
    def pattern(folder: str, budget: command.TimeBudget | None = None) -> None:
        """None, for every folder: the cluster itself spreads files over its drives."""
        del folder, budget

    def status(self, folder: str, uid: int, gid: int) -> StoreStatus:
        """What the command says of the cluster, the file system, and the quotas of `folder` and of those
        above it: quotas of WEKA are folders'. A question without an answer is a `Silence`; never raises."""
        del uid, gid
        asking = StatusQueries()
        cluster = cli.read_status(_json(asking, "cluster", cli.status(), cli.read_status))
        listed = cli.read_file_systems(_json(asking, "file systems", cli.file_systems(), cli.has_rows))
        mine = next((one for one in listed if one.name == self.file_system), None)
        out = _json(asking, "quotas", cli.quotas(self.file_system), cli.has_rows)
        # Of a bind mount the path below its point is another than the one that quotas have.
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
    """`weka`, where it is on PATH."""
    if not command.present(cli.WEKA):
        return None
    mount = mount_of(point or "/", proc)
    return Tools(mount, mount.device.rpartition("/")[2])


def _json(asking: StatusQueries, about: str, argv: Sequence[str], useful: Callable[[str], object]) -> str:
    """What the command printed, if that is of use."""
    answer = asking.ask(about, argv)
    if not answer.ok:
        return ""
    if useful(answer.out):
        return answer.out
    asking.silent(about, argv, "its output is not the JSON that was asked for")
    return ""
