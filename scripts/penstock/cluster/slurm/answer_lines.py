"""Finds the lines of SLURM's answers among what a site's wrapper prints before and after them. Pure; for the
parsers of this package."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_JOB_ROW = re.compile(r"\s*(\d+)(_[\d\[\],:%-]+)?(\.\w+)?\s*\|")
_FREE = re.compile(r" (?:Reason|Comment|Extra)=")
"""Fields that are free text of people and programs: they stand behind the others."""


def job_rows(text: str) -> Iterator[str]:
    """The lines that begin with a job's number (`18|`, `18_3|`, `18_[4-9]|`, `18.batch|`), as the answers of
    squeue and sacct do to all that is asked of them."""
    return (line for line in text.splitlines() if _JOB_ROW.match(line))


def fields(line: str) -> dict[str, str]:
    """The fields of a line of scontrol, by name. Free text holds no fields: a node's reason may be
    `State=IDLE`.

    >>> fields("NodeName=n1 State=DOWN Reason=was State=IDLE [root@now]")
    {'State': 'DOWN', 'NodeName': 'n1'}
    """
    own = _FREE.split(line, maxsplit=1)[0]
    # Of two of one name the first counts.
    return dict(reversed(re.findall(r"(\w+)=(\S*)", own)))
