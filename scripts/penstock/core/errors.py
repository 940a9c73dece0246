"""The errors that penstock raises on purpose, each with its exit status. Pure.

Exit statuses are a promise (docs/commands.md, "Exit status"): scripts branch on them.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from penstock.core.text import masked

if TYPE_CHECKING:
    from collections.abc import Sequence

MAKE_ROOM = "make room (`penstock gc --dry-run` says what may go, `penstock gc` removes it)"
"""What to do where a file system or a quota is full."""
STATE_ANEW = (
    "see whether the file system is whole; a run whose folder below `.penstock/runs` is moved aside is made "
    "anew by `penstock run`"
)
"""What to do where a file of a run's own state is damaged."""
LOOK_AT_FILE = "see whether it is there, on a mounted file system, and whether this account may read it"
"""What to do where a file cannot be read or removed."""
STORE_AMISS = (
    "what answers there does not keep to the store's protocol: look at it (a gateway, a cache, a proxy), or "
    "list by `inventory`"
)
"""What to do where a store's answer contradicts its own protocol."""
IMPOSSIBLE = "nothing was published; this should be impossible: report it, with the logs in the run's folder"
"""What to do where penstock contradicts itself."""
NAMED_FILES = 20
"""How many files one error names; it counts all."""


class PenstockError(Exception):
    """An error with a message for people: what failed, where, why, and what to do.

    `str(error)` is the whole message for a terminal, without a traceback, and without secrets that a URL may
    carry (`masked`): notices, reports, receipts and logs have it too. `retry` says whether the same operation
    may succeed when it is repeated unchanged.
    """

    exit_code = 1
    """The command's exit status where this error ends it."""
    retry = False

    def __init__(self, what: str, *, where: str = "", why: str = "", hint: str = "") -> None:
        self.what, self.where, self.why, self.hint = map(masked, (what, where, why, hint))
        super().__init__(self.what)

    def __str__(self) -> str:
        line = self.what
        if self.where:
            # A name out of a source may hold a line feed, and summaries show the message's first line alone.
            where = self.where.replace("\n", "\\n")
            line += f" [{where}]"
        line += self._after()
        return f"{line}\n  {self.hint}" if self.hint else line

    @property
    def reason(self) -> str:
        """What failed and why, to be the `why` of another error."""
        return self.what + self._after()

    def _after(self) -> str:
        """The reason behind what failed; a list of lines stands below it, without a colon."""
        return self.why if not self.why or self.why.startswith("\n") else f": {self.why}"

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.what, self.where, self.why, self.hint))


def _rebuild(kind: type[PenstockError], what: str, where: str, why: str, hint: str) -> PenstockError:
    return kind(what, where=where, why=why, hint=hint)


class FailedError(PenstockError):
    """The run did not reach its end; what was done is kept and the same command goes on."""


class CancelledError(FailedError):
    """`penstock cancel` ended the work: nobody failed. What was done is kept."""


class QueueFullError(FailedError):
    """A scheduler takes no more jobs of this account for now, and nothing was submitted: it does again when
    other jobs have ended."""


class ConfigError(PenstockError):
    """The command line or the configuration cannot be used as it is."""

    exit_code = 2


class PreflightError(PenstockError):
    """The surroundings (target, source, cluster) do not allow the run; nothing was changed."""

    exit_code = 3


class TargetAwayError(PreflightError):
    """The target's servers do not answer: a call there may wait for minutes, so nothing is written there, not
    even how the step ended."""


def all_of(what: str, errors: Sequence[PenstockError]) -> PreflightError:
    """One error that names several: each in short in its first line, which summaries show alone, and whole
    below it."""
    whole = "\n".join(f"- {error}" for error in errors).replace("\n", "\n  ")
    away = any(isinstance(error, TargetAwayError) for error in errors)
    kind = TargetAwayError if away else PreflightError
    return kind(what, why="; ".join(error.what for error in errors), hint=whole)


class NewerFormatError(PenstockError):
    """A file was written by a newer penstock, in a format that this one does not read: it is neither
    damaged nor to be made anew. Nothing was changed."""

    exit_code = 3


class OlderVersionError(PenstockError):
    """A penstock before 1.0 wrote this, and none from 1.0 on reads it. Nothing was changed."""

    exit_code = 3


class FindingsError(PenstockError):
    """An audit or a gate found deviations."""

    exit_code = 4


class SourceChangedError(PenstockError):
    """An object is no longer the one that was listed. Bytes of two versions are never put together: the
    source has to be listed anew."""

    exit_code = 5


class NoSpaceError(PenstockError):
    """The target has no space, inodes or quota left. What was written stays and is resumed."""

    exit_code = 6


class LockedError(PenstockError):
    """Another run holds the dataset or the working directory, or has overtaken this one."""

    exit_code = 7


class OvertakenError(LockedError):
    """Another run has overtaken this one, which is at its end: to wait would not help."""


class TransientError(PenstockError):
    """A read or a request failed in a way that may pass: reset, timeout, 5xx, short body."""

    retry = True
    status = 0
    """Of the answer over HTTP that it is of; 0: of none."""

    def __init__(
        self, what: str, *, where: str = "", why: str = "", hint: str = "", after: float | None = None
    ) -> None:
        super().__init__(what, where=where, why=why, hint=hint)
        self.after = after
        """Seconds that the store asked the caller to wait (Retry-After); None where it did not."""


class OverloadedError(TransientError):
    """A store asks for fewer requests (503 SlowDown, 429, a Retry-After), or a scheduler does."""


class CrowdedError(OverloadedError):
    """A server takes no further connection. This run may hold those that there are: the object waits for
    them, and that is no try."""


class ExpiredCredentialsError(TransientError):
    """A store refuses the credentials as ended, or as unknown to it: others may help. They are resolved anew
    (`sources.credentials`); where that gives none, the work ends with FailedError."""


class ObjectError(PenstockError):
    """One object cannot be copied, for good: refused, gone, wrong content. The others go on."""


def longer(where: str, size: int) -> ObjectError:
    """The error to raise for an object that is the listed version, of `size` bytes, and has more of them."""
    return ObjectError(
        "the object is longer than its source states",
        where=where,
        why=f"it goes on after {size:,} bytes; have its size stated right (a mount's options, the "
        "server), or leave it out by `exclude`",
    )


class IntegrityError(ObjectError):
    """The bytes contradict a checksum or a size that was stated for them."""


class DamagedError(IntegrityError):
    """A stored file is not as it was written: the target's bytes, not the source's, are wrong."""


class UnprovenError(ObjectError):
    """No checksum of the source proves an object's bytes, and one is required: they are not taken."""

    exit_code = 4


class InterruptedRunError(PenstockError):
    """SIGINT, SIGTERM or SIGHUP, or what stops a step in their way: a tidy stop. The exit status is 128 plus
    the signal's number."""

    def __init__(self, signal_number: int, what: str = "") -> None:
        super().__init__(
            what or f"stopped by {signal_name(signal_number)}",
            hint="the same command goes on where this one stopped",
        )
        self.signal_number = signal_number
        self.exit_code = 128 + signal_number

    def __reduce__(self) -> tuple[object, ...]:
        return (InterruptedRunError, (self.signal_number, self.what))


def signal_name(number: int) -> str:
    """`SIGTERM`; of a number that is no signal's here `signal 99`."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
