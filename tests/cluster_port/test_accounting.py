"""What sacct prints, read: a test for each row of the table."""

from __future__ import annotations

from penstock.cluster.port import Accounted
from penstock.cluster.slurm.answers import USAGE_FIELDS, read_usage

TEXT = """\
77_3|100|110|150|40|320|00:30.000|
77_3.batch|110|110|150|40|320|00:30.000|1000K
77_3.extern|110|110|150|40|320|00:00:00|0
77_3|155|200|230|30|240|01:00.500|
77_3.batch|200|200|230|30|240|01:00.500|900K
77_4|100|Unknown|Unknown|0|0|00:00:00|
77_[5-9%2]|100|Unknown|Unknown|0|0||
77_10|100|120|Unknown|7|56|00:00:00|
78_3|1|2|3|1|1|00:01:00|5K
78|1|2|3|1|1|00:01:00|5K
a line of something else
"""


def test_an_element_that_was_requeued_is_summed_over_its_starts() -> None:
    """Each start has a row of its own; waits are from each start's own submission."""
    first, second = read_usage(TEXT, "77")
    assert first == Accounted(
        3,
        starts=2,
        submitted=100.0,
        started=200.0,
        ended=230.0,
        waited=10.0 + 45.0,
        seconds=70.0,
        granted_seconds=560.0,
        cpu_seconds=90.5,
        memory_peak=1000 << 10,
    )
    # SLURM gathers no CPU time here, and the element still runs.
    assert second == Accounted(10, 1, 100.0, 120.0, 0.0, 20.0, 7.0, 56.0)


def test_nothing_known_is_nothing() -> None:
    assert read_usage("", "77") == []
    assert len(USAGE_FIELDS.split(",")) == 8
