"""The documented crontab line, run by the shell and with the environment that cron gives."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

from tests.support import schedule
from tests.support.published import data_of, flip

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.dataset.context import Context


def test_the_crontab_line_is_silent_until_there_is_something_to_say(staged: Context, tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text(
        json.dumps(
            {
                "target": {"root": str(staged.config.target.root), "keep_free": "0B"},
                "datasets": {"data": {"source": staged.config.datasets["data"].sources[0].url}},
            }
        )
    )
    line = schedule.lines(tmp_path)[0]
    assert "--fraction 1/30" in line

    def cron(line: str) -> str:
        environment = {"HOME": str(tmp_path), "LOGNAME": "me", "SHELL": "/bin/sh", "PATH": "/usr/bin:/bin"}
        done = subprocess.run(
            ["/bin/sh", "-c", line], env=environment, cwd="/", capture_output=True, text=True, check=False
        )
        assert done.stderr == ""
        return done.stdout

    assert cron(line) == ""
    assert "slice 1 of 30" in (tmp_path / "audit.txt").read_text()
    flip(data_of(staged) / "d1/f01", 3)
    # Two turns of two read everything.
    said = [cron(line.replace("1/30", "1/2")) for _ in range(2)]
    assert len([text for text in said if "* d1/f01" in text and "FINDINGS (1 changed)" in text]) == 1
    assert len([text for text in said if not text]) == 1
    assert not [name for name in os.listdir(tmp_path) if name.startswith("penstock")]
