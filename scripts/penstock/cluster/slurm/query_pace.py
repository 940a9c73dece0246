"""How long a controller (the process that submits and watches arrays) waits between two queries of slurmctld.

`SlurmCluster` reports how long each query took, and asks for the next wait. Pure: neither waits nor queries.

slurmctld with `SlurmctldParameters=rl_enable` (23.02 and later) has clients back off that send too many
requests. SLURM's own commands then sleep 1 s, 2 s, 3 s, ... and send again by themselves, without a word: all
that is seen of it is a command that takes seconds (src/common/slurm_protocol_api.c,
`slurm_send_recv_controller_msg`). Only where a command gives up, it prints "Rate limit exceeded, please retry
momentarily". A busy slurmctld answers as late. So a slow answer counts as a request to back off, too.

| seen                           | the next wait is at least                     |
|--------------------------------|-----------------------------------------------|
| an answer within SLOW          | half of what it was; nothing below SLOW       |
| a later answer                 | WAIT_FACTOR times as long as it took          |
| "Rate limit exceeded"          | twice what it was, and at least FIRST_BACKOFF |

Never more than LONGEST: how elements ended is known a minute later at most. Meanwhile `array_runner` reads
their receipts, the files by which elements say that they are done.
"""

from __future__ import annotations

SLOW = 1.0
"""Seconds: the shortest sleep of a command that has to back off. One that need not takes 50 ms."""
WAIT_FACTOR = 20.0
"""Where answers take up to 3 s, slurmctld works for this controller 5 % of the time at most."""
FIRST_BACKOFF = 15.0
"""Seconds of the wait after the first refusal, at least."""
LONGEST = 60.0
"""Seconds of a wait, at most."""


class QueryPace:
    """The pace of one controller's queries; `poll`: the usual wait between two, in seconds
    (`ClusterConfig.poll`, for which the configuration has no key)."""

    def __init__(self, poll: float) -> None:
        self._poll = poll
        self._least = 0.0

    def answered(self, seconds: float) -> None:
        """A query was answered after so many seconds."""
        if seconds >= SLOW:
            self._least = min(LONGEST, WAIT_FACTOR * seconds)
        else:
            self._least = self._least / 2 if self._least >= 2 * SLOW else 0.0

    def refused(self) -> None:
        """SLURM refused a query, since there were too many."""
        self._least = min(LONGEST, max(FIRST_BACKOFF, 2 * self._least))

    def interval(self, waited: float) -> float:
        """Seconds until the next query, after `waited` seconds of waiting (since the last submission, say):
        1 s at first, then `poll`, up to a minute in runs of an hour; longer where the module's table says
        so."""
        usual = min(1.0 + waited / 10.0, max(self._poll, min(LONGEST, waited / 60.0)))
        return max(usual, self._least)
