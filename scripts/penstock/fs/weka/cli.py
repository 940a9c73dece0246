"""Command lines of WEKA's `weka`, and parsers of its output; `fs.weka.commands` runs them.

The output is `-J` or `--format json -R`: JSON, sizes in bytes. Unknown is None or "". Keys are those of the
REST API (`weka/csi-wekafs`, `apiclient/filesystem.go`: `available_total`, `used_total`, `total_budget`). For
quotas older releases print `hardLimitBytes` for `hard_limit_bytes`, so keys are compared without underlines
and case. A figure may be a number or its digits.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.fs.quotas import Quota

if TYPE_CHECKING:
    from collections.abc import Mapping

PRODUCT = "WEKA"
WEKA = "weka"
UNLIMITED = 1 << 62  # from here on a limit is none: the CSI driver sets 2^64 - 4096 for it


def status() -> list[str]:
    return [WEKA, "status", "-J"]


def file_systems() -> list[str]:
    return [WEKA, "fs", "--format", "json", "-R"]


def quotas(file_system: str) -> list[str]:
    """List all quotas of a file system; without `--all` only exceeded ones appear."""
    return [WEKA, "fs", "quota", "list", file_system, "--all", "-f", "json"]


class ActiveCount(NamedTuple):
    """How many of a kind of things are active."""

    noun: str
    active: int
    total: int


class WekaCluster(NamedTuple):
    """What `weka status` reports. None and "" are unknown."""

    name: str = ""
    io_status: str = ""
    active_counts: tuple[ActiveCount, ...] = ()
    unavailable_percent: float | None = None
    rebuilding: bool = False  # some data has lost a part of its redundancy
    fill: str = ""  # how full the drives are, in WEKA's word: `Normal`
    licence: str = ""  # the mode of the licence: `Classic`, `PAYG`, `Unlicensed`
    may_start: bool | None = None  # the licence allows to start I/O


class FileSystem(NamedTuple):
    """A line of `weka fs`."""

    name: str
    ready: bool = True
    available: int | None = None
    max_files: int | None = None


def read_status(out: str) -> WekaCluster | None:
    """Parse the status; None where the text is no such object."""
    try:
        status = json.loads(out)
    except ValueError:
        return None
    if not isinstance(status, dict) or "io_status" not in status:
        return None
    rebuild, licence = _object(status, "rebuild"), _object(status, "licensing")
    states = rebuild.get("protectionState")
    failures = (
        [failure for failure in states if isinstance(failure, dict)] if isinstance(states, list) else []
    )
    kinds = (
        ("drives", _object(status, "drives")),
        ("I/O processes", _object(status, "io_nodes")),
        ("servers", _object(_object(status, "servers"), "backends")),
    )
    percent, eligible = rebuild.get("unavailablePercent"), licence.get("io_start_eligibility")
    return WekaCluster(
        name=str(status.get("name", "")),
        io_status=str(status["io_status"]),
        active_counts=tuple(
            ActiveCount(noun, active, total)
            for noun, counts in kinds
            if (active := _count(counts, "active")) is not None
            and (total := _count(counts, "total")) is not None
        ),
        unavailable_percent=float(percent) if isinstance(percent, int | float) else None,
        rebuilding=any(_count(failure, "numfailures") and _count(failure, "mib") for failure in failures),
        fill=str(_object(status, "buckets_info").get("reportedRaidFillLevelSeverity", "")),
        licence=str(licence.get("mode", "")),
        may_start=eligible if isinstance(eligible, bool) else None,
    )


def read_file_systems(out: str) -> list[FileSystem]:
    """Parse the file systems that this account may see."""
    return [
        FileSystem(
            name=str(row["name"]),
            ready=str(row.get("status", "READY")).upper() == "READY",
            available=_count(row, "availabletotal"),
            max_files=_count(row, "maxfiles"),
        )
        for row in rows(out)
        if "name" in row
    ]


def read_quotas(out: str, file_system: str, folder: str) -> list[Quota]:
    """Parse the quotas of `folder` (its path in the file system) and of all folders above it. Quotas of other
    folders are skipped. The output does not show for how long a soft limit has been passed."""
    quotas = []
    for row in rows(out):
        name, _, path = str(row.get("path", "")).rpartition(":")
        path = "/" + path.strip("/")
        inside = folder == path or folder.startswith(path.rstrip("/") + "/")
        if not row.get("path") or name not in ("", file_system) or not inside:
            continue
        quotas.append(
            Quota(
                "folder",
                0,
                path=path,
                used=_count(row, "totalbytes", "usedbytes"),
                limit=_limit(row, "hardlimitbytes"),
                soft_limit=_limit(row, "softlimitbytes"),
            )
        )
    return quotas


def has_rows(out: str) -> bool:
    """Return whether `out` is a list, even an empty one."""
    try:
        return isinstance(json.loads(out), list)
    except ValueError:
        return False


def rows(out: str) -> list[dict[str, Any]]:
    """Parse the objects of a list, by their keys in small letters without underlines."""
    try:
        value = json.loads(out)
    except ValueError:
        return []
    listed = value if isinstance(value, list) else []
    return [
        {str(key).lower().replace("_", ""): field for key, field in row.items()}
        for row in listed
        if isinstance(row, dict)
    ]


def _object(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    field = value.get(key)
    return field if isinstance(field, dict) else {}


def _count(row: Mapping[str, Any], *names: str) -> int | None:
    by_name = {str(key).lower().replace("_", ""): field for key, field in row.items()}
    for name in names:
        value = by_name.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return int(value)
        if isinstance(value, str) and re.fullmatch(r"\d+(?: ?B)?", value):
            return int(value.removesuffix("B"))
    return None


def _limit(row: Mapping[str, Any], name: str) -> int | None:
    most = _count(row, name)
    return most if most and most < UNLIMITED else None
