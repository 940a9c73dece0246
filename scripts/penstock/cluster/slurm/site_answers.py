"""Parses what scontrol and sacctmgr answer about the site: partitions, reservations, accounts, QOS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cluster.slurm.port import (
    LIMITS_OF_ASSOCIATIONS,
    LIMITS_OF_QOS,
    Association,
    Partition,
    Qos,
    Reservation,
)
from penstock.cluster.slurm.shown import fields
from penstock.cluster.slurm.times import read_time
from penstock.core.host_lists import host_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ASSOCIATION_FIELDS = ("Account", "User", "Partition", "ParentName", "DefaultQOS", *LIMITS_OF_ASSOCIATIONS)
QOS_FIELDS = ("Name", "Flags", *LIMITS_OF_QOS)
NOTHING = frozenset({"(null)", "N/A", "n/a", "NONE", "None", ""})


def read_partitions(text: str) -> list[Partition]:
    """`scontrol show partition --oneliner`."""
    return [
        Partition(
            name=words["PartitionName"],
            default=words.get("Default") == "YES",
            max_time=read_time(words.get("MaxTime", "")) or None,
            default_time=read_time(words.get("DefaultTime", "")) or None,
            min_nodes=_number(words.get("MinNodes", "")) or 0,
            max_nodes=_number(words.get("MaxNodes", "")),
            qos="" if words.get("QoS", "") in NOTHING else words["QoS"],
        )
        for words in _lines(text, "PartitionName")
    ]


def read_reservations(text: str) -> list[Reservation]:
    """`scontrol show reservation --oneliner`, with times as seconds since the epoch. One line is not empty
    where there is no reservation: it says so."""
    return [
        Reservation(
            name=words["ReservationName"],
            start=float(_number(words.get("StartTime", "")) or 0),
            end=float(_number(words.get("EndTime", "")) or 0),
            nodes=_hosts(words.get("Nodes", "")),
            flags=frozenset(words.get("Flags", "").split(",")) - NOTHING,
            cores=_number(words.get("CoreCnt", "")) or 0,
            accounts="" if words.get("Accounts", "") in NOTHING else words["Accounts"],
            users="" if words.get("Users", "") in NOTHING else words["Users"],
        )
        for words in _lines(text, "ReservationName")
    ]


def read_associations(text: str) -> list[Association]:
    """`sacctmgr -nP show assoc format=ASSOCIATION_FIELDS`."""
    return [
        Association(account, user, partition, parent, qos, _limits(LIMITS_OF_ASSOCIATIONS, numbers))
        for account, user, partition, parent, qos, *numbers in _rows(text, ASSOCIATION_FIELDS)
    ]


def read_qos(text: str) -> list[Qos]:
    """`sacctmgr -nP show qos format=QOS_FIELDS`."""
    return [
        Qos(name, frozenset(flags.split(",")) - NOTHING, _limits(LIMITS_OF_QOS, numbers))
        for name, flags, *numbers in _rows(text, QOS_FIELDS)
    ]


def _lines(text: str, first: str) -> Iterator[Mapping[str, str]]:
    for line in text.splitlines():
        words = fields(line)
        if first in words:
            yield words


def _rows(text: str, fields: Sequence[str]) -> Iterator[list[str]]:
    """Rows with a value for each field; others are passed over."""
    for line in text.splitlines():
        values = [value.strip() for value in line.split("|")]
        if len(values) == len(fields):
            yield values


def _limits(names: Sequence[str], values: Sequence[str]) -> dict[str, int]:
    """What is set: an empty value is no limit."""
    found = {}
    for name, value in zip(names, values, strict=True):
        number = int(read_time(value)) or None if name == "MaxWall" else _number(value)
        if number is not None:
            found[name] = number
    return found


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _hosts(text: str) -> frozenset[str]:
    try:
        return frozenset() if text in NOTHING else frozenset(host_names(text))
    except ValueError:
        return frozenset()
