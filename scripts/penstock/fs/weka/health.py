"""Whether a WEKA cluster and one of its file systems are in order.

| what                     | seen                                          | verdict |
|--------------------------|-----------------------------------------------|---------|
| I/O                      | not `STARTED`                                 | stop    |
| data                     | a part of it is not available                 | stop    |
|                          | a part of its redundancy is lost              | warning |
| drives, servers          | fewer are active than there are               | warning |
| fill level of the drives | not `Normal`                                  | warning |
| licence                  | does not allow that I/O is started            | warning |
|                          | `Unlicensed`                                  | note    |
| the file system          | not ready                                     | stop    |
| nothing of these         |                                               | ok      |

An expired licence is a warning, not a stop: I/O goes on until it is started anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.events import ADMINISTRATOR, CheckResult
from penstock.core.human import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.fs.weka.cli import FileSystem, WekaCluster

PRODUCT = "WEKA"


def judge(cluster: WekaCluster | None, file_system: FileSystem | None) -> list[CheckResult]:
    """Return the troubles, and a result for all that is in order. [] where neither is known."""
    results = [*_file_system(file_system)]
    if cluster is not None:
        troubles = list(_cluster(cluster))
        results += troubles
        if all(result.verdict == "note" for result in results):
            active = ", ".join(
                f"{count.active:,} of {count.total:,} {count.noun}" for count in cluster.active_counts
            )
            results.append(
                CheckResult(
                    _about(cluster), f"I/O is started; {active} active" if active else "I/O is started"
                )
            )
    return results


def _about(cluster: WekaCluster) -> str:
    return printable(f"{PRODUCT} cluster {cluster.name}".strip())


def _file_system(file_system: FileSystem | None) -> Iterator[CheckResult]:
    if file_system is not None and not file_system.ready:
        about = f"{PRODUCT} file system {printable(file_system.name)}"
        yield CheckResult(about, "not ready", "stop", "READY", f"have it brought up: {ADMINISTRATOR}")


def _cluster(cluster: WekaCluster) -> Iterator[CheckResult]:
    about = _about(cluster)
    if cluster.io_status != "STARTED":
        mend = f"have I/O started: {ADMINISTRATOR}"
        yield CheckResult(
            about, f"I/O is not started: {printable(cluster.io_status)}", "stop", "STARTED", mend
        )
    if cluster.unavailable_percent:
        text = f"{cluster.unavailable_percent:g} % of the data are not available"
        yield CheckResult(about, text, "stop", "all of it", f"have it brought back: {ADMINISTRATOR}")
    elif cluster.rebuilding:
        text = "a part of the data has lost some of its redundancy, and is rebuilt"
        yield CheckResult(about, text, "warning", "", "nothing; a further fault could make data unavailable")
    for count in cluster.active_counts:
        if count.active < count.total:
            text = f"{count.active:,} of {count.total:,} {count.noun} active"
            yield CheckResult(about, text, "warning", "all", f"have the others brought back: {ADMINISTRATOR}")
    if cluster.fill not in ("", "Normal"):
        text = f"the fill level of its drives is {printable(cluster.fill)}"
        yield CheckResult(about, text, "warning", "Normal", f"have room made: {ADMINISTRATOR}")
    if cluster.may_start is False:
        mode = printable(cluster.licence) or "mode not known"
        text = f"its licence ({mode}) does not allow that I/O is started"
        yield CheckResult(f"{about}, licence", text, "warning", "", f"have it renewed: {ADMINISTRATOR}")
    elif cluster.licence == "Unlicensed":
        yield CheckResult(f"{about}, licence", "Unlicensed", "note")
