"""Finds the lines of SLURM's answers among what a site's wrapper prints around them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_JOB_ROW = re.compile(r"\s*(\d+)(_[\d\[\],:%-]+)?(\.\w+)?\s*\|")
# fields of free text, by people and programs: they stand behind the others
_FREE = re.compile(r" (?:Reason|Comment|Extra)=")


def job_rows(text: str) -> Iterator[str]:
    """Iterate over lines that begin with a job's number (`18|`, `18_3|`, `18_[4-9]|`, `18.batch|`), as
    answers of squeue and sacct do."""
    return (line for line in text.splitlines() if _JOB_ROW.match(line))


def fields(line: str) -> dict[str, str]:
    """Read the fields of a line of scontrol, by name. Free text holds no fields: a node's reason may be
    `State=IDLE`.

    >>> fields("NodeName=n1 State=DOWN Reason=was State=IDLE [root@now]")
    {'State': 'DOWN', 'NodeName': 'n1'}
    """
    own = _FREE.split(line, maxsplit=1)[0]
    # Of two fields of a name the first counts.
    return dict(reversed(re.findall(r"(\w+)=(\S*)", own)))
