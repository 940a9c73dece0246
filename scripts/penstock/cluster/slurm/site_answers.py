"""Parses what scontrol and sacctmgr answer about the site: partitions, accounts, QOS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cluster.slurm.accounting import read_time
from penstock.cluster.slurm.answer_lines import fields
from penstock.cluster.slurm.facts import Association, Partition, Qos

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ASSOCIATION_FIELDS = ("DefaultAccount", "Account", "Partition", "DefaultQOS", "MaxWall")
QOS_FIELDS = ("Name", "Flags", "MaxWall")
NOTHING = frozenset({"(null)", "N/A", "n/a", "NONE", "None", ""})


def read_partitions(text: str) -> list[Partition]:
    """Parse `scontrol show partition --oneliner`."""
    return [
        Partition(
            name=words["PartitionName"],
            default=words.get("Default") == "YES",
            max_time=read_time(words.get("MaxTime", "")) or None,
            qos="" if words.get("QoS", "") in NOTHING else words["QoS"],
            allowed=_names(words.get("AllowAccounts", "")),
            denied=_names(words.get("DenyAccounts", "")),
        )
        for words in _lines(text, "PartitionName")
    ]


def read_association(text: str, account: str | None, partition: str | None) -> Association:
    """Parse a user's `sacctmgr -nP show user withassoc format=ASSOCIATION_FIELDS`. Takes the row of this
    account (None: the default). A row of this partition comes before one for any partition."""
    rows = [row for row in _rows(text, ASSOCIATION_FIELDS) if row[1] == (account or row[0])]
    rows = [row for row in rows if row[2] in ("", partition)]
    if not rows:
        return Association()
    _, name, _, qos, wall = max(rows, key=lambda row: row[2])
    return Association(name, qos, int(read_time(wall)))


def read_accounts(text: str) -> list[str]:
    """Return the accounts in the answer that `read_association` parses, each once, the default first."""
    rows = list(_rows(text, ASSOCIATION_FIELDS))
    return list(dict.fromkeys(name for row in rows for name in (row[0], row[1]) if name not in NOTHING))


def read_qos(text: str) -> list[Qos]:
    """Parse `sacctmgr -nP show qos format=QOS_FIELDS`."""
    return [
        Qos(name, frozenset(flags.split(",")) - NOTHING, int(read_time(wall)))
        for name, flags, wall in _rows(text, QOS_FIELDS)
    ]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split(",")) - NOTHING - {"ALL"}


def _lines(text: str, first: str) -> Iterator[Mapping[str, str]]:
    for line in text.splitlines():
        words = fields(line)
        if first in words:
            yield words


def _rows(text: str, fields: Sequence[str]) -> Iterator[list[str]]:
    """Iterate over rows with a value for each field; skip others."""
    for line in text.splitlines():
        values = [value.strip() for value in line.split("|")]
        if len(values) == len(fields):
            yield values
