"""BeeGFS 8's licence, where a run stands on what is licensed: a storage pool of its own, or quotas. Pure.

| the licence ended            | verdict |
|------------------------------|---------|
| before now                   | warning |
| not yet, or it is not known  | nothing |

Files are served on where it ended: it is no reason to stop.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from penstock.core.checks import ADMINISTRATOR, CheckResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.filesystem.quotas import Quota
    from penstock.vendors.facts import Pattern

DEFAULT_POOL = "1"


def needed(pattern: Pattern | None, quotas: Sequence[Quota]) -> str:
    """What of the licensed a run stands on, in words; "" for nothing."""
    if pattern is not None and pattern.pool not in ("", DEFAULT_POOL):
        return f"storage pool {pattern.pool}"
    return "quotas" if any(one.limit or one.file_limit for one in quotas) else ""


def judge(product: str, need: str, ended: float | None, now: float) -> list[CheckResult]:
    """`ended` and `now`: seconds of the epoch; `ended` is None where it is not known."""
    if ended is None or ended > now:
        return []
    day = time.strftime("%Y-%m-%d", time.gmtime(ended))
    found = f"it ended on {day}, and this run stands on {need}"
    mend = f"have it renewed: {ADMINISTRATOR}"
    return [CheckResult(f"{product} licence", found, "warning", "a licence that holds", mend)]
