"""How long a controller waits between two queries of slurmctld.

slurmctld with `SlurmctldParameters=rl_enable` (23.02 and later) makes clients back off that send too many
requests. SLURM's own commands then sleep 1 s, 2 s, 3 s, ... and send again, silently: only their time shows
it (src/common/slurm_protocol_api.c, `slurm_send_recv_controller_msg`). A command that gives up prints "Rate
limit exceeded, please retry momentarily". A busy slurmctld answers as late. So a slow answer counts as a
request to back off, too.

| seen                           | the next wait is at least                     |
|--------------------------------|-----------------------------------------------|
| an answer within SLOW          | half of what it was; nothing below SLOW       |
| a later answer                 | WAIT_FACTOR times as long as it took          |
| "Rate limit exceeded"          | twice what it was, and at least FIRST_BACKOFF |

Never more than LONGEST, so the end of elements is known at most a minute late. Meanwhile `array_runner` reads
their receipts.
"""

from __future__ import annotations

SLOW = 1.0  # seconds: the shortest sleep of a command that backs off; others take 50 ms
# where answers take up to 3 s, slurmctld works for this controller 5 % of the time at most
WAIT_FACTOR = 20.0
FIRST_BACKOFF = 15.0  # seconds of the wait after the first refusal, at least
LONGEST = 60.0  # seconds of a wait, at most


class QueryPace:
    """The pace of a controller's queries; `poll`: the usual wait between two, in seconds
    (`ClusterConfig.poll`)."""

    def __init__(self, poll: float) -> None:
        self._poll = poll
        self._least = 0.0

    def answered(self, seconds: float) -> None:
        """Note that a query was answered after so many seconds."""
        if seconds >= SLOW:
            self._least = min(LONGEST, WAIT_FACTOR * seconds)
        else:
            self._least = self._least / 2 if self._least >= 2 * SLOW else 0.0

    def refused(self) -> None:
        """Note that SLURM refused a query, since there were too many."""
        self._least = min(LONGEST, max(FIRST_BACKOFF, 2 * self._least))

    def interval(self, waited: float) -> float:
        """Return the seconds until the next query, after `waited` seconds since the last submission or
        change. 1 s at first, then `poll`, up to a minute in runs of an hour; longer by the module's table."""
        usual = min(1.0 + waited / 10.0, max(self._poll, min(LONGEST, waited / 60.0)))
        return max(usual, self._least)
