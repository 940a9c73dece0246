"""How elements ended: which of them are submitted again, and the error of a step whose elements did not
finish.

The controller's loop over arrays (`jobs.arrays.array_watch`, `jobs.arrays.array_runner`) keeps one `Ends` a
step. It reads the outcomes that elements left and looks for their logs; it writes nothing.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cluster.port import Cause, State
from penstock.core import human
from penstock.core.errors import (
    MAKE_ROOM,
    NAMED_FILES,
    FailedError,
    FindingsError,
    NoSpaceError,
    SourceChangedError,
)
from penstock.core.text import in_quotes
from penstock.dataset import outcomes
from penstock.fs import plain_files
from penstock.fs.capabilities import facts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.cluster.port import Status
    from penstock.config.settings import ClusterConfig
    from penstock.core.documents.element_outcome import ElementOutcome
    from penstock.core.errors import PenstockError
    from penstock.core.layout import RunLayout

LISTED_EVERY = 1.0
"""Seconds between two listings of the folder of outcomes: one is enough for all elements of a look."""
NAMED_ELEMENTS = 50
"""Elements that an error names, each with what it reported."""
GOES_ON = "what was done is kept; the same command goes on"


@dataclass
class Ends:
    """A step's elements that ended without a receipt. Elements are named by index, that is by shard."""

    run: RunLayout
    step: str
    cluster: ClusterConfig
    statuses: Mapping[int, Status]
    """The last status of each element."""
    free: set[int] = field(default_factory=set)
    """Elements whose last end uses up no retry (`element_ends`)."""
    met: set[int] = field(default_factory=set)
    """Elements of earlier submissions that were alive when this call began."""
    _listed: float = float("-inf")
    """When the folder of outcomes was listed anew for the last time."""

    def outcome(self, index: int) -> ElementOutcome | None:
        """What an element wrote when it ended without a receipt; None when it could not. Raises
        NewerFormatError."""
        for last in (False, True):
            try:
                return outcomes.load(self.run, self.step, index)
            except FileNotFoundError:
                if not last and time.monotonic() - self._listed > LISTED_EVERY:
                    _look_anew(self.run.outcome(self.step, index).parent)
                    self._listed = time.monotonic()
            except (OSError, ValueError):
                return None
        return None

    def planned(self, index: int) -> bool:
        """Whether it stopped tidily before the end of its time and had made progress, or rested for PAUSE: no
        failure."""
        if self._cancelled(index):
            return False
        outcome = self.outcome(index)
        return outcome is not None and outcome.stopped == "time" and (outcome.progress or outcome.paused)

    def rested(self, index: int) -> bool:
        """Whether PAUSE stood while it worked, as it wrote when it stopped."""
        outcome = self.outcome(index)
        return outcome is not None and outcome.paused

    def by_its_time(self, index: int) -> bool:
        """Whether its time ended it: SLURM at its limit, or itself before that."""
        status = self.statuses.get(index)
        if status is None or status.state is not State.FAILED:
            return False
        outcome = self.outcome(index)
        return status.cause is Cause.TIME or (outcome is not None and outcome.stopped == "time")

    def uses_no_retry(self, index: int) -> bool:
        """Whether its last end was by its time or by a preemption alone, and is no failure."""
        return index in self.free or self.planned(index)

    def may_run(self, index: int, tries: int) -> bool:
        """
        tries in this call | how it ended           | run (again)
        none, not `met`    | any                    | yes
        any                | cancelled by a person  | no: nobody asked for it
        none               | any other              | yes
        any                | its time, progress     | yes: that is no failure
        any                | its time, in a PAUSE   | yes: likewise
        any                | its time, more is      | yes: likewise
                           | asked for now          |
        any                | preempted              | yes: likewise
        more than          | any other              | no
        retries            |                        |
        else               | says retry is vain     | no
        else               | of verify, damaged     | no: those files are copied again first
        else               | says retry may help    | yes
        else               | no outcome, exit 6     | no: the target has no room for it
        else               | no outcome (killed)    | yes
        """
        if self._cancelled(index) and (tries or index in self.met):
            return False
        if tries == 0:
            return True
        if self.uses_no_retry(index):
            return True
        outcome = self.outcome(index)
        if outcome is None:
            return self.exit_status(index) != NoSpaceError.exit_code and tries <= self.cluster.retries
        if self.step == "verify" and outcome.failures:
            return False
        return tries <= self.cluster.retries and outcome.retry

    def exit_status(self, index: int) -> int:
        """The exit status of an element that left no outcome (a full target has no room for one); 1 where the
        cluster does not say."""
        status = self.statuses.get(index)
        return (status and status.exit_code) or 1

    def again(self, indices: Sequence[int]) -> str:
        """The line that says how many elements are submitted again, and why; of those that ran out of memory
        it says it of the first."""
        kinds = Counter(self._kind(index) for index in indices)
        number = sum(kinds.values())
        if len(kinds) == 1:
            (kind,) = kinds
            text = human.counted(number, f"{kind} element")
        else:
            text = human.counted(number, "element") + f" ({', '.join(f'{n} {k}' for k, n in kinds.items())})"
        text += f" {'is' if number == 1 else 'are'} submitted again"
        short = next((index for index in indices if self._out_of_memory(index)), None)
        return text if short is None else f"{text}: {self._line(short, None)}"

    def _kind(self, index: int) -> str:
        if self.planned(index):
            return "stopped"
        status = self.statuses.get(index)
        if status is not None and status.cause is Cause.PREEMPTED:
            return "preempted"
        if index in self.free:
            return "timed-out"
        return status.state.value if status and status.state in (State.LOST, State.CANCELLED) else "failed"

    def failure(self, missing: Sequence[int]) -> PenstockError:
        """The error for these elements: SourceChangedError, NoSpaceError or FindingsError where that
        is what kept them, else FailedError. It names elements, nodes, reasons, files and logs."""
        lines: list[str] = []
        outcomes = {index: self.outcome(index) for index in missing}
        codes = {
            (outcome and outcome.exit_code) or self.exit_status(index) for index, outcome in outcomes.items()
        }
        changed = sum(outcome.failed for outcome in outcomes.values() if outcome) if codes == {5} else 0
        shown = named = 0
        logs: dict[int, Path] | None = None
        for index, outcome in outcomes.items():
            named += 1
            if named > NAMED_ELEMENTS:
                continue
            if not changed:
                lines.append(self._line(index, outcome))
            if outcome is None and not self._cancelled(index) and not self._out_of_memory(index):
                logs = self._newest_logs() if logs is None else logs
                log = logs.get(index, self.run.logs / f"{self.step}-{index}.log")
                lines += [f"  {line}" for line in _last_lines(log)]
                lines.append(f"  its log: {log}")
            if outcome is None:
                continue
            files = outcome.failures[: max(0, NAMED_FILES - shown)]
            shown += len(files)
            # A cause that names the file itself names it once.
            lines += [f"  {in_quotes(path)}: {cause.replace(f' [{path}]', '', 1)}" for path, cause in files]
            left = outcome.failed - len(files)
            if left > 0:
                lines.append(f"  and {left} more, see {self.run.outcome(self.step, index)}")
        if named > NAMED_ELEMENTS:
            lines.append(f"and {human.counted(named - NAMED_ELEMENTS, 'element')} more")
        number = human.counted(len(missing), "element")
        what, hint = f"{number} did not finish", GOES_ON
        kind: type[PenstockError] = FailedError
        if all(map(self._cancelled, missing)):
            what = f"{number} {'was' if len(missing) == 1 else 'were'} cancelled"
            hint = f"somebody ended them (scancel), so they are not submitted again unasked; {GOES_ON}"
        elif 6 in codes:
            kind, hint = NoSpaceError, f"{MAKE_ROOM}, or raise the quota; the same command goes on"
            lines += [free] if (free := self._free()) else []
        elif codes == {5}:
            kind = SourceChangedError
            if changed:
                what = f"{human.counted(changed, 'object')} changed at the source since the listing"
            hint = (
                "`penstock run` lists the source again and keeps what is staged; for a "
                "source that never rests set `changed: follow`"
            )
        elif codes == {FindingsError.exit_code}:
            kind = FindingsError
            hint = (
                "what could be proven is kept; lower `verify.source_checksum`, or have the source state "
                "checksums"
            )
        elif all(one and one.failures and not one.retry for one in map(self.outcome, missing)):
            hint = (
                "what was done is kept; repair what is named above, or leave it out by `exclude`: then the "
                "same command goes on"
            )
        elif any(one and one.stopped == "time" for one in map(self.outcome, missing)):
            hint = f"an element must finish something before its time ends: raise cluster.time; {GOES_ON}"
        return kind(f"{self.step}: {what}", hint="\n  ".join([*lines, hint]))

    def _cancelled(self, index: int) -> bool:
        status = self.statuses.get(index)
        return status is not None and status.state is State.CANCELLED

    def _line(self, index: int, outcome: ElementOutcome | None) -> str:
        status = self.statuses.get(index)
        node = f" on {status.node}" if status and status.node else ""
        reason = (status.reason or status.state.value) if status else "not run"
        why = outcome.error if outcome else ""
        if self._cancelled(index):
            reason, why = "cancelled", ""
        elif self._out_of_memory(index):
            reason, why = self._short_of_memory(index), ""
        elif outcome is not None and outcome.stopped == "time":
            reason, why = "its time ended before it had finished anything", ""
        elif outcome is None and self.exit_status(index) == NoSpaceError.exit_code:
            why = (
                "the target has no space, inodes or quota left, not even for this element's own account of it"
            )
        return f"element {index}{node}: {reason}" + (f": {why}" if why else "")

    def _out_of_memory(self, index: int) -> bool:
        status = self.statuses.get(index)
        return status is not None and status.out_of_memory

    def _short_of_memory(self, index: int) -> str:
        """What an element had that ran out of memory, and the key that gives the next one more."""
        word = self.statuses[index].reason.partition(":")[0] or "out of memory"
        options = self.cluster.of(self.step)
        key = "cluster.memory"
        if options.memory != self.cluster.options.memory:
            key = f"cluster.steps.{self.step}.memory"
        if options.memory is None:
            return f"{word}: it had what the cluster gives where nothing is asked for; set {key}"
        return f"{word}: it had {human.size(options.memory)}; raise {key}"

    def _free(self) -> str:
        """What the target's file system says is free now; a quota may leave less."""
        try:
            space = facts(self.run.folder)
        except OSError:
            return ""
        inodes = "" if space.free_inodes is None else f" and {space.free_inodes:,} inodes"
        return f"free now, without regard to quotas: {human.size(space.free_bytes)}{inodes}"

    def _newest_logs(self) -> dict[int, Path]:
        """Where the last attempt of each element wrote, in an array of the cluster."""
        name = re.compile(rf"{re.escape(self.step)}(?:-from(\d+))?-\d+_(\d+)\.log")
        newest: dict[int, tuple[float, Path]] = {}
        try:
            for entry in os.scandir(self.run.logs):
                if (match := name.fullmatch(entry.name)) and entry.is_file():
                    index = int(match[1] or 0) + int(match[2])
                    seen = (entry.stat().st_mtime, Path(entry.path))
                    newest[index] = max(seen, newest.get(index, seen))
        except OSError:
            return {}
        return {index: path for index, (_, path) in newest.items()}


def _look_anew(folder: Path) -> None:
    """List a file's folder: an NFS client may have cached that the file does not exist, and asks its server
    again after that."""
    try:
        os.listdir(folder)
    except OSError:
        return


def _last_lines(log: Path, count: int = 3) -> list[str]:
    """The last lines of an element's log, for an element that left no outcome."""
    try:
        with plain_files.opened(log) as stream:
            stream.seek(max(0, stream.seek(0, 2) - 2048))
            return stream.read().decode(errors="replace").splitlines()[-count:]
    except OSError:
        return []
