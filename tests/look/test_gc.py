"""What gc says, as lines for people."""

from __future__ import annotations

from typing import Any

from penstock.look.views import text_layout

FOUND: Any = {
    "dataset": "data",
    "dry_run": True,
    "releases": [
        {
            "release": "20261125-c98b1486",
            "files": 301,
            "bytes": 1 << 20,
            "removed": False,
            "held_by": ["grace: it left `current` 26 min 06 s ago, 14 d 00 h are waited", "last: 2 of 2"],
        }
    ],
    "stagings": [],
    "interrupted": [],
    "ended_pins": [],
    "unpinned": [],
    "waits": "",
}


def test_a_long_line_goes_on_below_itself_in_a_terminal_and_nowhere_else() -> None:
    assert text_layout.collected(FOUND, 80).splitlines() == [
        "data: would remove 0 of 1 release",
        "  = 20261125-c98b1486  1.00 MiB in 301 files: grace: it left `current` 26 min 06",
        "    s ago, 14 d 00 h are waited; last: 2 of 2",
    ]
    assert len(text_layout.collected(FOUND).splitlines()) == 2
