"""Lines of `scontrol show ... --oneliner`."""

from __future__ import annotations

import re

_FREE = re.compile(r" (?:Reason|Comment|Extra)=")
"""Fields that are free text of people and programs: they stand behind the others."""


def fields(line: str) -> dict[str, str]:
    """Its fields by their names. What stands in free text is none: a node's reason may be `State=IDLE`.

    >>> fields("NodeName=n1 State=DOWN Reason=was State=IDLE [root@now]")
    {'State': 'DOWN', 'NodeName': 'n1'}
    """
    own = _FREE.split(line, maxsplit=1)[0]
    # Of two of one name the first counts.
    return dict(reversed(re.findall(r"(\w+)=(\S*)", own)))
