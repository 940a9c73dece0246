"""The errors that penstock raises on purpose, each with its exit status, and the checks that reject documents
of other versions. Pure.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import penstock
from penstock.core.human import masked

if TYPE_CHECKING:
    from collections.abc import Sequence


# The errors that penstock raises on purpose, each with its exit status.
#
# Exit statuses are a promise (docs/commands.md, "Exit status"): scripts branch on them.

# Hint for an error: a file system or a quota is full.
MAKE_ROOM = "make room (`penstock gc --dry-run` says what may go, `penstock gc` removes it)"
# Hint for an error: a file of a run's own state is damaged.
STATE_ANEW = (
    "see whether the file system is whole; a run whose folder below `.penstock/runs` is moved aside is made "
    "anew by `penstock run`"
)
# Hint for an error: a file cannot be read or removed.
LOOK_AT_FILE = "see whether it is there, on a mounted file system, and whether this account may read it"
# Hint for an error: a store's answer contradicts the store's own protocol.
STORE_AMISS = (
    "what answers there does not keep to the store's protocol: look at it (a gateway, a cache, a proxy), or "
    "list by `inventory`"
)
# Hint for an error: penstock contradicts itself.
IMPOSSIBLE = "nothing was published; this should be impossible: report it, with the logs in the run's folder"
NAMED_FILES = 20  # most files that an error names; it also states the number of all files concerned


class PenstockError(Exception):
    """An error with a message for people: what failed, where, why, and what to do.

    `str(error)` is the whole message for a terminal, notice, report, receipt or log. It has no traceback, and
    secrets in URLs are masked. `retry`: whether the operation may succeed when it is repeated unchanged.
    """

    exit_code = 1  # the command's exit status, if this error ends it
    retry = False

    def __init__(self, what: str, *, where: str = "", why: str = "", hint: str = "") -> None:
        self.what, self.where, self.why, self.hint = map(masked, (what, where, why, hint))
        super().__init__(self.what)

    def __str__(self) -> str:
        line = self.what
        if self.where:
            # A name from a source may contain a line feed, but summaries show only the message's first line.
            where = self.where.replace("\n", "\\n")
            line += f" [{where}]"
        line += self._after()
        return f"{line}\n  {self.hint}" if self.hint else line

    @property
    def reason(self) -> str:
        """What failed and why, for use as the `why` of another error."""
        return self.what + self._after()

    def _after(self) -> str:
        """Return `: ` and the reason, to follow `what`. A reason that begins on a new line gets no colon."""
        return self.why if not self.why or self.why.startswith("\n") else f": {self.why}"

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.what, self.where, self.why, self.hint))


def _rebuild(kind: type[PenstockError], what: str, where: str, why: str, hint: str) -> PenstockError:
    return kind(what, where=where, why=why, hint=hint)


class FailedError(PenstockError):
    """The run did not reach its end. Finished work is kept, and the same command resumes."""


class CancelledError(FailedError):
    """`penstock cancel` ended the work; nothing failed. Finished work is kept."""


class QueueFullError(FailedError):
    """The scheduler takes no more jobs of this account until others end. Nothing was submitted."""


class ConfigError(PenstockError):
    """The command line or the configuration cannot be used as it is."""

    exit_code = 2


class PreflightError(PenstockError):
    """Target, source or cluster do not allow the run. Nothing was changed."""

    exit_code = 3


class TargetAwayError(PreflightError):
    """The target's servers do not answer. Any call on the target may block for minutes, so penstock writes
    nothing to it, not even the result of the step."""


def all_of(what: str, errors: Sequence[PenstockError]) -> PreflightError:
    """Combine several errors into one. Its first line, which summaries show alone, mentions every error."""
    whole = "\n".join(f"- {error}" for error in errors).replace("\n", "\n  ")
    away = any(isinstance(error, TargetAwayError) for error in errors)
    kind = TargetAwayError if away else PreflightError
    return kind(what, why="; ".join(error.what for error in errors), hint=whole)


class NewerFormatError(PenstockError):
    """A newer penstock wrote this file in an unknown format. The file is not damaged and must not be
    recreated. Nothing was changed."""

    exit_code = 3


class OlderVersionError(PenstockError):
    """A penstock before 1.0 wrote this document. Versions from 1.0 on cannot read it. Nothing was changed."""

    exit_code = 3


class FindingsError(PenstockError):
    """An audit or a gate found deviations."""

    exit_code = 4


class SourceChangedError(PenstockError):
    """An object changed after it was listed. The source must be listed again, since bytes of two versions are
    never combined."""

    exit_code = 5


class NoSpaceError(PenstockError):
    """The target has no space, inodes or quota left. Finished work is kept, and a later run resumes it."""

    exit_code = 6


class LockedError(PenstockError):
    """Another run holds the dataset or the working directory, or has taken over this run's dataset."""

    exit_code = 7


class OvertakenError(LockedError):
    """Another run has taken over the dataset for good, so waiting does not help."""


class TransientError(PenstockError):
    """A read or a request failed in a way that may pass: reset, timeout, 5xx, short body."""

    retry = True
    status = 0  # status code of the HTTP answer; 0 if there was no answer

    def __init__(
        self, what: str, *, where: str = "", why: str = "", hint: str = "", after: float | None = None
    ) -> None:
        super().__init__(what, where=where, why=why, hint=hint)
        self.after = after  # seconds that the store asked the caller to wait (Retry-After), or None


class OverloadedError(TransientError):
    """A store (503 SlowDown, 429, Retry-After) or a scheduler asks for fewer requests."""


class CrowdedError(OverloadedError):
    """A server accepts no further connection. This run itself may hold the existing connections, so the
    object waits until one is free. The refusal does not count as an attempt."""


class ExpiredCredentialsError(TransientError):
    """A store refuses the credentials as expired or unknown. `sources.credentials` then resolves them again.
    If it gets no new credentials, the work ends with FailedError."""


class ObjectError(PenstockError):
    """An object can never be copied: the source refuses it, it is gone, or its content is wrong. The other
    objects are still copied."""


def longer(where: str, size: int) -> ObjectError:
    """Return the error for an object that has more than the listed `size` bytes in the listed version."""
    return ObjectError(
        "the object is longer than its source states",
        where=where,
        why=f"it goes on after {size:,} bytes; have its size stated right (a mount's options, the "
        "server), or leave it out by `exclude`",
    )


class IntegrityError(ObjectError):
    """The bytes contradict a stated checksum or size."""


class DamagedError(IntegrityError):
    """A stored file differs from what was written: the target's bytes, not the source's, are wrong."""


class UnprovenError(ObjectError):
    """A source checksum is required, but none proves the object's bytes, so the object is not accepted."""

    exit_code = 4


class InterruptedRunError(PenstockError):
    """A tidy stop, as by SIGINT, SIGTERM or SIGHUP. The exit status is 128 plus the signal's number."""

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
    """Return the signal's name, such as `SIGTERM`, or `signal 99` for an unknown number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# The rules for documents of other versions of penstock.
#
# | what a document has                       | how it is read                                 |
# |-------------------------------------------|------------------------------------------------|
# | the format that this version writes       | as it is                                       |
# | a lower format                            | a field that is missing has its default        |
# | a field that this version does not know   | without it                                     |
# | a higher format                           | not at all: `NewerFormatError`                 |
#
# Every kind of document begins at format 1. An added field needs a default that states the meaning of
# documents without the field. A change that earlier versions would misread needs a higher format.


def refuse_unreleased(what: str, where: object, by: str) -> None:
    """Raise OlderVersionError for documents of versions before 1.0: their formats had other meanings."""
    if by.startswith("0."):
        raise OlderVersionError(
            f"{what} is of a penstock before 1.0",
            where=str(where),
            why=f"penstock {by} wrote it, and nothing was changed",
            hint="its owner moves the dataset aside, and stages it anew by `penstock run`, or makes a "
            "release of its files by `penstock adopt --seal`",
        )


def refuse_newer(what: str, number: object, newest: int, where: object, *, by: str = "") -> None:
    """Raise NewerFormatError if the format `number` is above `newest`. `what` is a readable name for the kind
    of document. `by` is the version that wrote the document, if known."""
    if isinstance(number, int) and number > newest:
        raise NewerFormatError(
            f"{what} is of a newer format than this penstock reads",
            where=str(where),
            why=f"it has format {number}, penstock {penstock.__version__} reads up to {newest}",
            hint=f"a newer penstock is needed: use {_wrote(by)}, or a later one; nothing was changed",
        )


def _wrote(by: str) -> str:
    return f"{by}, which wrote it" if by else "the one that wrote it"
