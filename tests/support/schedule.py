"""The lines of docs/audit-schedule.md that run audits on a schedule, to be run as they are written there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "audit-schedule.md"
_ENTRY = re.compile(r"^(?:\S+ ){5} *(cd /srv/staging .*)$", re.MULTILINE)


def lines(folder: Path) -> list[str]:
    """What cron and what scrontab run, in this order, for a working directory and this interpreter. cron
    reads a `%` as the end of a line: none may stand there bare."""
    found = _ENTRY.findall(DOCUMENT.read_text())
    assert not [line for line in found if re.search(r"(?<!\\)%", line)]
    return [
        line.replace("\\%", "%")
        .replace("/srv/staging", str(folder))
        .replace("/opt/penstock/current/bin", str(Path(sys.executable).parent))
        for line in found
    ]


def options() -> list[str]:
    """What the `#SCRON` lines ask for."""
    return [
        word
        for line in re.findall(r"^#SCRON (.*)$", DOCUMENT.read_text(), re.MULTILINE)
        for word in line.split()
    ]
