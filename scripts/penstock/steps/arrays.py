"""Runs a step's elements as job arrays until every one of them has its receipt.

Guarantees: an element with a good receipt is not run again; an array that still lives is met
again, also by another controller; one index is never in two live arrays; an element counts as
done by its receipt, once the cluster says that it ended.
"""

from __future__ import annotations

import secrets
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.cluster.port import ArraySpec, State, Status
from penstock.errors import (
    FailedError,
    FindingsError,
    LockedError,
    NoSpaceError,
    SourceChangedError,
    TransientError,
)
from penstock.steps.arraybook import ArrayBook
from penstock.steps.progress import Progress
from penstock.storage import durable
from penstock.storage.facts import facts
from penstock.views import units

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from penstock.cluster.port import Cluster
    from penstock.core.layout import RunLayout
    from penstock.errors import PenstockError
    from penstock.steps.arraybook import Submission
    from penstock.steps.context import Context

T = TypeVar("T")

SHOWN = 20
"""Failed files that an error message names; all of them are in the outcome files."""
RECEIPT_GRACE = 30.0
"""Seconds in which a receipt written on another node must become visible here."""


@dataclass
class _Watch:
    """What one call of `run_array` knows of its elements."""

    context: Context
    dataset: str
    run: RunLayout
    step: str
    receipt_ok: Callable[[int], bool]
    indices: Sequence[int]
    book: ArrayBook
    command: Sequence[str]
    statuses: dict[int, Status] = field(default_factory=dict)
    progress: Progress = field(default_factory=Progress)
    asked_in_vain: bool = False


def run_array(
    context: Context,
    dataset: str,
    run: RunLayout,
    step: str,
    indices: Sequence[int],
    receipt_ok: Callable[[int], bool],
    command: Sequence[str] | None = None,
) -> Mapping[int, Status]:
    """Return when every index has a good receipt; the last statuses of those that ran. `command`
    (without the index) is for other elements than those of shards.

    Raises FailedError that names the elements, reasons and files (exit status 5 when every
    failure is a changed source, 6 when one is a full target), and InterruptedRunError on a
    signal: local elements have ended tidily by then, SLURM's run on and are met again.
    """
    words = command or element_command(context, run, step)
    watch = _Watch(context, dataset, run, step, receipt_ok, indices, ArrayBook(run.arrays), words)
    tries: Counter[int] = Counter()
    while True:
        for submission, array in _living(watch):
            _wait(watch, submission, array)
        missing = [i for i in indices if not receipt_ok(i)]
        if not missing:
            return watch.statuses
        again = [i for i in missing if _may_run(watch, i, tries[i])]
        if not again:
            raise _failure(watch, missing)
        chosen = _one_array(again, context.cluster.max_array())
        if any(tries[i] for i in chosen):
            text = f"{len(chosen)} failed elements are submitted again"
            context.emit("note", dataset, step, text=text)
        tries.update(chosen)
        _submit(watch, chosen)


def still_alive(context: Context, dataset: str, run: RunLayout, step: str) -> list[str]:
    """Ids of arrays of this step that have elements which may still write."""
    watch = _Watch(context, dataset, run, step, lambda _: False, (), ArrayBook(run.arrays), ())
    return [array for _, array in _living(watch)]


def _one_array(indices: Sequence[int], most: int) -> list[int]:
    """The first indices that fit one array: in number and, for SLURM's limit on the largest
    index, in span."""
    return [i for i in indices[:most] if i - indices[0] < most]


def _submit(watch: _Watch, indices: Sequence[int]) -> None:
    context, run, step = watch.context, watch.run, watch.step
    context.stop.check()
    name = f"penstock-{watch.dataset}-{run.folder.name}-{step}-{secrets.token_hex(4)}"
    for index in indices:
        run.outcome(step, index).unlink(missing_ok=True)
        for folder in (run.receipt(step, index), run.outcome(step, index), run.progress(step, index)):
            durable.make_dirs(folder.parent)
    durable.make_dirs(run.logs)
    spec = ArraySpec(name, step, tuple(indices), watch.command, run.logs, {"dataset": watch.dataset})
    watch.book.intend(name, step, context.cluster.kind, indices)
    watch.book.submitted(name, _patiently(watch, partial(_submit_once, context.cluster, spec)))


def _submit_once(cluster: Cluster, spec: ArraySpec) -> str:
    """Submit unless an earlier try, whose answer was lost, has done so."""
    return cluster.find(spec.name) or cluster.submit(spec)


def element_command(context: Context, run: RunLayout, step: str) -> list[str]:
    """The command line of an element, but for its index."""
    python = context.config.cluster.python or sys.executable
    words = ["element", "--run", str(run.folder.absolute()), "--step", step, "--attempt", "auto"]
    return [python, "-m", "penstock", *words]


def _living(watch: _Watch) -> Iterable[tuple[Submission, str]]:
    """Submissions of this step with elements that may be alive, with their ids."""
    cluster = watch.context.cluster
    for submission in watch.book.open(watch.step):
        if submission.kind != cluster.kind:
            if submission.kind == "local":
                watch.book.ended(submission.name)
                continue
            raise LockedError(
                f"elements of {watch.step} may still run on {submission.kind}",
                where=watch.dataset,
                why=f"array {submission.array or submission.name}",
                hint=f"go on with that backend, or end them with `penstock cancel {watch.dataset}`",
            )
        array = submission.array
        if not array:
            array = _patiently(watch, partial(cluster.find, submission.name)) or ""
            if array:
                watch.book.submitted(submission.name, array)
        if not array:
            watch.book.ended(submission.name)
            continue
        statuses = _states(watch, array, submission.indices)
        if all(s.state.ended for s in statuses.values()):
            watch.book.ended(submission.name)
        else:
            yield submission, array


def _wait(watch: _Watch, submission: Submission, array: str) -> None:
    """Until every element of the array ended and its receipt, if it was DONE, is to be seen."""
    cluster, stop = watch.context.cluster, watch.context.stop
    begun = time.monotonic()
    ended_at: float | None = None
    try:
        while True:
            statuses = _states(watch, array, submission.indices)
            _tell(watch, statuses)
            now = time.monotonic()
            if all(s.state.ended for s in statuses.values()):
                late = any(s.state is State.DONE and not watch.receipt_ok(i) for i, s in statuses.items())
                ended_at = ended_at or now
                if not late or cluster.kind == "local" or now - ended_at > RECEIPT_GRACE:
                    break
            stop.wait(cluster.interval(now - begun))
    except BaseException:
        _leave(watch, array)
        raise
    watch.book.ended(submission.name)


def _leave(watch: _Watch, array: str) -> None:
    cluster = watch.context.cluster
    if cluster.kind == "local":
        cluster.cancel(array)
    else:
        text = (
            f"array {array} runs on; the same command goes on with it, "
            f"`penstock cancel {watch.dataset}` ends it"
        )
        watch.context.emit("warning", watch.dataset, watch.step, text=text)


def _states(watch: _Watch, array: str, indices: Sequence[int]) -> Mapping[int, Status]:
    return _patiently(watch, lambda: watch.context.cluster.states(array, indices))


def _patiently(watch: _Watch, ask: Callable[[], T]) -> T:
    """Ask until the cluster answers; a controller that is down for hours ends nothing."""
    begun = time.monotonic()
    while True:
        try:
            answer = ask()
        except TransientError as error:
            if not watch.asked_in_vain:
                watch.asked_in_vain = True
                text = f"the cluster does not answer, asking on: {error}"
                watch.context.emit("warning", watch.dataset, watch.step, text=text)
            pause = watch.context.cluster.interval(time.monotonic() - begun)
            watch.context.stop.wait(max(pause, error.after or 0.0))
            continue
        if watch.asked_in_vain:
            watch.asked_in_vain = False
            watch.context.emit("note", watch.dataset, watch.step, text="the cluster answers again")
        return answer


def _tell(watch: _Watch, statuses: Mapping[int, Status]) -> None:
    context, dataset, step = watch.context, watch.dataset, watch.step
    for index, status in statuses.items():
        old = watch.statuses.get(index)
        if old is None or (old.state, old.reason, old.node) != (status.state, status.reason, status.node):
            data = {"state": status.state.value, "node": status.node, "reason": status.reason}
            context.emit("element", dataset, step, index=index, **data)
    watch.statuses.update(statuses)
    files, size, failed = watch.progress.total(watch.run, step, watch.indices)
    states = Counter(s.state.value for s in watch.statuses.values())
    context.emit("progress", dataset, step, files=files, bytes=size, failed=failed, states=dict(states))


def _outcome(watch: _Watch, index: int) -> dict[str, Any]:
    """What an element wrote when it ended without a receipt; {} when it could not."""
    try:
        found = durable.read_json(watch.run.outcome(watch.step, index))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _may_run(watch: _Watch, index: int, tries: int) -> bool:
    """
    tries in this call | outcome file        | run (again)
    none               | any                 | yes
    more than retries  | any                 | no
    else               | says retry is vain  | no
    else               | of verify, damaged  | no: those files are copied again first
    else               | says retry may help | yes
    else               | none, exit status 6 | no: the target has no room for it
    else               | none (was killed)   | yes
    """
    if tries == 0:
        return True
    outcome = _outcome(watch, index)
    if watch.step == "verify" and outcome.get("failures"):
        return False
    if not outcome and _exit_status(watch, index) == NoSpaceError.exit_code:
        return False
    return tries <= watch.context.config.cluster.retries and bool(outcome.get("retry", True))


def _exit_status(watch: _Watch, index: int) -> int:
    """How an element ended that left no outcome (a full target has no room for one), as far as the
    cluster tells."""
    status = watch.statuses.get(index)
    word, _, number = status.reason.partition(" ") if status else ("", "", "")
    return int(number) if word == "exit" and number.isdecimal() else 1


def _failure(watch: _Watch, missing: Sequence[int]) -> PenstockError:
    lines: list[str] = []
    codes: set[int] = set()
    shown = 0
    for index in missing:
        outcome = _outcome(watch, index)
        status = watch.statuses.get(index)
        codes.add(int(outcome.get("exit_code") or _exit_status(watch, index)))
        reason = (status.reason or status.state.value) if status else "not run"
        node = f" on {status.node}" if status and status.node else ""
        why = outcome.get("error") or ""
        if not outcome and _exit_status(watch, index) == NoSpaceError.exit_code:
            why = (
                "the target has no space, inodes or quota left, not even for this element's own account of it"
            )
        lines.append(f"element {index}{node}: {reason}" + (f": {why}" if why else ""))
        if not outcome:
            log = _log(watch, index)
            lines += [f"  {line}" for line in _last_lines(log)]
            lines.append(f"  its log: {log}")
        named = outcome.get("failures", ())[: max(0, SHOWN - shown)]
        shown += len(named)
        lines += [f"  {path!r}: {cause}" for path, cause in named]
        left = int(outcome.get("failed", 0)) - len(named)
        if left > 0:
            lines.append(f"  and {left} more, see {watch.run.outcome(watch.step, index)}")
    hint = "what was done is kept; the same command goes on"
    kind: type[PenstockError] = FailedError
    if 6 in codes:
        kind, hint = NoSpaceError, "make room (or raise the quota); the same command goes on"
        lines += [free] if (free := _free(watch)) else []
    elif codes == {5}:
        kind, hint = SourceChangedError, "list the source again: `penstock list`, then the same command"
    elif codes == {FindingsError.exit_code}:
        kind = FindingsError
        hint = (
            "what could be proven is kept; lower `verify.source_checksum`, or have the source state checksums"
        )
    lines += [hint]
    return kind(
        f"{watch.step}: {units.counted(len(missing), 'element')} did not finish",
        where=watch.dataset,
        hint="\n  ".join(lines),
    )


def _free(watch: _Watch) -> str:
    """What the target's file system says is free now; a quota may leave less."""
    try:
        found = facts(watch.run.folder)
    except OSError:
        return ""
    inodes = "" if found.free_inodes is None else f" and {found.free_inodes:,} inodes"
    return f"free now, without regard to quotas: {units.size(found.free_bytes)}{inodes}"


def _log(watch: _Watch, index: int) -> Path:
    """Where the last attempt of an element wrote, on either backend."""
    arrays = [path for path in watch.run.logs.glob(f"{watch.step}-*_{index}.log") if path.is_file()]
    newest = max(arrays, key=lambda path: path.stat().st_mtime, default=None)
    return newest or watch.run.logs / f"{watch.step}-{index}.log"


def _last_lines(log: Path, count: int = 3) -> list[str]:
    """The end of what an element said, when it could leave nothing else."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, 2) - 2048))
            return stream.read().decode(errors="replace").splitlines()[-count:]
    except OSError:
        return []
