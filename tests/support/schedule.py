"""Crontabs and scrontabs of pages, such as docs/audit-schedule.md, to be run as they are written there."""

from __future__ import annotations

import re
import shlex
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


def commands(text: str) -> str:
    """A session of bash that runs a crontab's lines by /bin/sh with cron's environment, and fails
    where one prints anything; of a text with `#SCRON` lines, the batch job that slurmctld makes of it."""
    entries = re.findall(r"^(?:\S+ ){5} *(cd .*)$", text, re.MULTILINE)
    assert entries
    assert not [entry for entry in entries if re.search(r"(?<!\\)%", entry)]
    entries = [entry.replace("\\%", "%") for entry in entries]
    if asked := " ".join(re.findall(r"^#SCRON (.*)$", text, re.MULTILINE)):
        asked = re.sub(r"--output=\S+", "--output=entry.log", asked)
        script = f"printf '#!/bin/sh\\n%s\\n' {shlex.quote(entries[0])} >entry.sh\n"
        return f"{script}sbatch --wait {asked} entry.sh || {{ cat entry.log; false; }}\n"
    # Where SLURM's commands lie elsewhere a crontab sets PATH.
    env = 'env -i HOME="$HOME" PATH="$(dirname "$(command -v squeue || echo /bin/sh)"):/usr/bin:/bin"'
    env += ' ${SLURM_CONF:+SLURM_CONF="$SLURM_CONF"} ${PENSTOCK_AS_ROOT:+PENSTOCK_AS_ROOT=1}'
    silent = '; test -z "$said" || { echo "$said"; false; }\n'
    return "".join(f"said=$({env} /bin/sh -c {shlex.quote(entry)}){silent}" for entry in entries)
