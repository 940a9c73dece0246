"""How SLURM writes lengths of time."""

from __future__ import annotations


def read_time(word: str) -> float:
    """Seconds of SLURM's `[days-]hours:minutes:seconds`; 0 for `infinite` and the like."""
    days, _, clock = word.rpartition("-")
    try:
        parts = [int(part) for part in clock.split(":")]
        total = 0
        for part in [0] * (3 - len(parts)) + parts:
            total = total * 60 + part
        return float(int(days or 0) * 86400 + total)
    except ValueError:
        return 0.0
