"""Run a step's shards by workers, the elements of job arrays, until each shard has its receipt.

The "book" (`arrays.jsonl`) records each submission, so that the next controller finds arrays that are still
running, and waits for them. Workers divide the shards among themselves (`jobs.shard_claims`). A shard with a
good receipt is not done again. The number of live workers never exceeds the limit (`cluster.max_elements` or
`penstock limit`), nor the number of shards left.

A step ends when all receipts exist and all workers have ended. Once all receipts exist, it waits at most
`RECEIPT_GRACE` for an unresponsive cluster, or for workers that the cluster does not know. Only a new command
replaces workers that a person cancelled. While the PAUSE file exists at the root, nothing is submitted, and
the step does not fail for lack of workers.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from functools import partial
from typing import TYPE_CHECKING

from penstock.cluster.port import ArraySpec, State, Status, abilities_of
from penstock.core import human
from penstock.core.errors import FailedError, LockedError, PreflightError, QueueFullError, TransientError
from penstock.core.run_steps import BY_NAME
from penstock.dataset import documents
from penstock.dataset import holder as holders
from penstock.dataset.submitted_arrays import cancelled
from penstock.fs import small_files
from penstock.fs.capabilities import facts
from penstock.host import interpreter
from penstock.jobs import array_supervision, element_outcomes, worker_ends
from penstock.jobs.array_supervision import KeptOut
from penstock.jobs.array_watch import (
    BETWEEN,
    RECEIPT_GRACE,
    Watch,
    WatchedArray,
    ask,
    look,
    patiently,
    tell,
    tell_amounts,
    watch_of,
)
from penstock.target import notices

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.core.element_documents import ArrayLine
    from penstock.core.estimates import Estimate
    from penstock.core.layout import RunLayout
    from penstock.dataset.context import Context


CANCEL_GRACE = 120.0  # seconds that a cancelled step waits for its elements; the next run waits for the rest
ARRAYS = 16  # most live arrays of one step
TOGETHER = 60.0  # seconds for which a few ended workers are collected, so that one array replaces them


def _nothing(files: int, size: int) -> None:
    del files, size


def run_array(
    context: Context,
    dataset: str,
    run: RunLayout,
    step: str,
    indices: Sequence[int],
    receipt_ok: Callable[[int], bool],
    amounts: Callable[[int, int], None] = _nothing,
    expected: Callable[[int], Estimate] | None = None,
) -> Mapping[int, Status]:
    """Have workers do these shards; return the last status of each worker by its number.

    Returns when every shard has a good receipt. `amounts` gets the files and bytes done. `expected` estimates
    a shard's time, from which a job's time limit follows if `cluster.time` is `auto`.

    Raises PreflightError if this process's own job keeps its workers from starting. Raises LockedError if
    workers may live that only another cluster or backend can end. Raises FailedError with shards, reasons and
    files, also after a cancellation. Its exit status is 5 if every failure is a changed source, 6 if any
    failure is a full target. Raises InterruptedRunError on a signal: local workers have then ended tidily,
    and SLURM's continue.
    """
    link, ops = None, context.ops_hold if BY_NAME[step].copies else None
    shared = BY_NAME[step].fetches and context.config.bandwidth.folder is not None
    left = sum(not receipt_ok(index) for index in indices) if shared or ops else 0
    if left and shared:
        from penstock.jobs.bandwidth import link_hold

        link = link_hold(context, context.layout(dataset), step, run.folder.name)
    with link or contextlib.nullcontext():
        watch = watch_of(context, dataset, run, step, receipt_ok, indices)
        watch.amounts, watch.expected = amounts, expected
        watch.reads_back = reads_back_beside(context, run, step)

        def share(elements: int, *, first: bool = False) -> None:
            processes = max(1, min(elements, left))
            if link:
                watch.uses = link.uses
                link.begin(processes, context.stop.wait, first=first)
            if ops:
                try:
                    # This process makes no metadata operations while its workers run.
                    ops.begin(processes, context.stop.wait, first=first)
                except FailedError:
                    context.ops_hold = None  # each element then holds a share of its own

        watch.widen = share
        share(array_supervision.read_slots(context, run, step), first=not any(watch.book.open(step)))
        watch.command = element_command(context, run, step, link.holder if link else "")
        statuses = _watched(watch)
        if ops:
            with contextlib.suppress(FailedError):
                ops.begin(1, context.stop.wait, first=True)
        return statuses


def _watched(watch: Watch) -> Mapping[int, Status]:
    context, dataset = watch.context, watch.dataset
    watch.excluded = [*watch.book.excluded(time.time() - element_outcomes.HOURS * 3600)]
    begun = time.monotonic()
    kept_out = KeptOut(watch)
    watch.all_proven()
    watch.done_before.update(watch.done)
    try:
        _meet(watch)
        while True:
            if who := watch.cancelled.said():
                _cancel(watch, who)
            array_supervision.obey(watch)
            takeable = [] if watch.all_proven() else _takeable(watch)
            if not takeable:
                _cancel_waiting(watch)
            if watch.all_proven() and (not watch.live or _ended_by_receipts(watch)):
                tell_amounts(watch)
                return watch.statuses
            paused = notices.standing_pause() is not None
            if not paused and takeable and _submit_some(watch, takeable):
                begun = time.monotonic()
            elif not (watch.live or watch.queue.full or paused) and not _may_submit(watch, takeable):
                error = watch.ends.failure(watch.open, watch.ended_by_person, watch.call)
                error.where = dataset
                raise error
            else:
                _rest(watch, context.cluster.interval(time.monotonic() - begun))
            _look(watch)
            kept_out.check()
    except BaseException:
        _leave(watch)
        raise


def _takeable(watch: Watch) -> list[int]:
    return [
        index
        for index in watch.open
        if index not in watch.claims
        or (watch.ends.judged(index, watch.claims[index][0]) and not watch.ends.given_up(index, watch.call))
    ]


def _wanted(watch: Watch, takeable: Sequence[int]) -> int:
    slots = array_supervision.watched_slots(watch)
    at_work = {claim.number if claim.worker else -index - 1 for index, (_, claim) in watch.standing()}
    return min(slots - watch.ended_by_person, len(takeable) + len(at_work))


def _may_submit(watch: Watch, takeable: Sequence[int]) -> bool:
    return bool(takeable) and _wanted(watch, takeable) > 0 and not worker_ends.in_vain(watch)


def still_alive(
    context: Context,
    dataset: str,
    run: RunLayout,
    step: str,
    *,
    patient: bool = True,
    indices: Sequence[int] = (),
    receipt_ok: Callable[[int], bool] = lambda _: False,
) -> list[str]:
    """Return the ids of this step's arrays whose workers may still write; submit nothing.

    With `patient`, waits until the cluster answers or all these shards have good receipts. Otherwise raises
    TransientError if the cluster does not answer. Raises LockedError in the same cases as `run_array`.
    """
    watch = watch_of(context, dataset, run, step, receipt_ok, indices)
    watch.patient = patient
    return [live.array for live in _living(watch)]


def element_command(context: Context, run: RunLayout, step: str, link_holder: str = "") -> list[str]:
    """Return the command line of a worker, without its array and number. `link_holder` is the run's holder on
    the network link (`share_rule`), or "" if each worker holds a share of its own."""
    root = str(context.config.target.root.absolute())
    words = ["element", "--run", str(run.folder.absolute()), "--root", root, "--step", step]
    words += ["--retries", str(context.config.cluster.retries)]
    if BY_NAME[step].copies:
        target = context.config.target
        words += ["--keep-free", str(target.kept(facts(target.root).total_bytes))]
    if BY_NAME[step].copies and context.ops:
        words += ["--ops", str(context.ops)]
        words += ["--ops-holder", context.ops_hold.holder] if context.ops_hold else []
    if reads_back_beside(context, run, step):
        words.append("--read-back")
    bandwidth = context.config.bandwidth
    if BY_NAME[step].fetches and bandwidth.folder is not None:
        words += ["--bandwidth-folder", str(bandwidth.folder.absolute())]
        words += ["--link-holder", link_holder] if link_holder else []
        words += ["--bandwidth", str(bandwidth.rate)] if bandwidth.rate is not None else []
        words += ["--requests", str(bandwidth.requests)] if bandwidth.requests is not None else []
    return [*interpreter.command("penstock", context.config.cluster.python), *words]


def reads_back_beside(context: Context, run: RunLayout, step: str) -> bool:
    """Return whether workers of this step also read copied files back.

    Workers of copy do so if workers of verify would get the same resources. They do not for an adopted tree,
    whose files a later step still changes.
    """
    cluster = context.config.cluster
    return (
        step == "copy"
        and cluster.of(step) == cluster.of("verify")
        and documents.read_adopted_tree(run) is None
    )


def _meet(watch: Watch) -> None:
    """Watch the arrays of earlier submissions that are still running."""
    for live in _living(watch):
        _refuse_older(watch, live)
        watch.live.append(live)
        watch.own_arrays.add(live.submission.name)
        counts = f"{live.alive} of {human.counted(len(live.statuses), 'element')} wait or run"
        if live.statuses:
            watch.note(f"array {live.array} of an earlier controller lives and is watched: {counts}")
    if watch.live:
        tell(watch)
        # An earlier controller may have died between noting a limit and setting it, or a person may have set
        # the limit while no controller ran.
        array_supervision.let_go(watch)
        array_supervision.share_out(watch, again=True)
    worker_ends.judge(watch)
    _close(watch)


def _living(watch: Watch) -> list[WatchedArray]:
    """Return this step's arrays of which elements may be alive."""
    cluster = watch.context.cluster
    arrays: list[WatchedArray] = []
    for submission in watch.book.open(watch.step):
        _refuse_beyond(watch, submission)
        if submission.kind != cluster.kind:
            watch.book.ended(submission.name)
            continue
        array = submission.array
        if not array:
            array = patiently(watch, partial(array_supervision.array_of, watch, submission))
            if array:
                watch.book.submitted(submission.name, array)
        if not array:
            watch.book.ended(submission.name)
            continue
        cluster.recall(array, submission.name, submission.spec_cores)
        arrays.append(
            WatchedArray(submission, array, submission.at_once or array_supervision.watched_slots(watch))
        )
    ask(watch, *arrays)
    for live in arrays:
        if live.over:
            watch.book.ended(live.submission.name, live.starts)
    return [live for live in arrays if not live.over]


def _refuse_beyond(watch: Watch, submission: ArrayLine) -> None:
    """Raise LockedError for an array that may be running out of this process's reach.

    | submission               | backend here   | then                                             |
    |--------------------------|----------------|--------------------------------------------------|
    | SLURM's                  | local          | LockedError                                      |
    | of another cluster       | SLURM          | LockedError                                      |
    | local, elements may live | any            | LockedError (`array_supervision.may_write`)      |
    | any other                | any            | continues                                        |
    """
    cluster, context, dataset = watch.context.cluster, watch.context, watch.dataset
    where, why, hint = "", "", ""
    array = f"array {submission.array or submission.name}"
    end = f"`{context.program} cancel {dataset}`"
    if abilities_of(submission.kind).elements_end_with_controller:
        why = array_supervision.may_write(context, context.layout(dataset), watch.run, submission)
        by = holders.from_json(submission.by)
        where = by.host if by and why else ""
        hint = "wait until they have ended, or end that process"
    elif submission.kind != cluster.kind:
        where, why = submission.kind, array
        hint = f"go on with that backend, or end them with {end}"
    elif submission.cluster and submission.cluster != (name := patiently(watch, cluster.name)):
        where, why = f"cluster {submission.cluster}", f"{array}, and this is cluster {name}"
        hint = f"go on where that cluster's commands are, or end them there with {end}"
    if where:
        raise LockedError(
            f"elements of {watch.step} may still run on {where}", where=dataset, why=why, hint=hint
        )


def _refuse_older(watch: Watch, live: WatchedArray) -> None:
    """Raise LockedError for a live array of an older version, whose elements ignore claims."""
    if not live.submission.workers:
        raise LockedError(
            f"elements of {watch.step} that an older version submitted have not ended",
            where=watch.dataset,
            why=f"array {live.array}",
            hint="wait until they have ended, or end them with "
            f"`{watch.context.program} cancel {watch.dataset}`",
        )


def _submit_some(watch: Watch, takeable: Sequence[int]) -> bool:
    """Submit one array of as many workers as the limit still allows beside the live workers."""
    alive = sum(
        not status.state.ended and number not in watch.silent
        for live in watch.live
        for number, status in live.statuses.items()
    )
    workers = _wanted(watch, takeable) - alive
    few = len(watch.live) > 1 and workers * 10 < alive + workers
    soon = few and time.monotonic() - watch.submitted < TOGETHER
    if workers < 1 or soon or len(watch.live) >= ARRAYS or worker_ends.in_vain(watch):
        # No further array takes slots now, so the arrays with waiting workers share all of them.
        array_supervision.share_out(watch)
        return False
    workers = min(workers, watch.queue.free(), patiently(watch, watch.context.cluster.max_elements))
    return workers >= 1 and _submit(watch, takeable, workers)


def _submit(watch: Watch, shards: Sequence[int], workers: int) -> bool:
    """Submit one array; return False if the cluster takes no more elements for now."""
    context, run, step = watch.context, watch.run, watch.step
    context.stop.check()
    name = f"penstock-{watch.dataset}-{run.folder.name}-{step}-{secrets.token_hex(4)}"
    files = run.receipt(step, 0), run.outcome(step, 0, 0), run.progress(step, 0)
    for folder in (*(path.parent for path in files), run.claims(step), run.logs):
        small_files.make_dirs(folder)
    base = max((line.base + line.workers for line in watch.book.all() if line.step == step), default=0)
    limit = worker_ends.time_limit(watch, shards, workers)
    spec = ArraySpec(
        name, step, range(workers), [*watch.command, "--array", name], run.logs, _labels(watch), workers,
        base=base, time=limit, exclude=tuple(worker_ends.excluded(watch)),
    )  # fmt: skip
    cluster = patiently(watch, context.cluster.name)
    alone = context.config.cluster.of(step).node_alone if context.cluster.abilities.has_nodes else None
    cores = patiently(watch, partial(context.cluster.spec_cores, step))
    # The array also covers held shards: if a holder gives up its shard, a running worker takes it at once.
    intended = watch.book.intend(
        name, step, context.cluster.kind, watch.open, cluster, workers=workers, call=watch.call,
        base=base, time=limit, whole_nodes=alone, at_once=workers, spec_cores=cores,
    )  # fmt: skip
    # The array is recorded before the lock is checked. A run that takes over the dataset reads the book under
    # the lock: either it finds this array, or this check raises.
    context.assert_held()
    try:
        array = patiently(watch, array_supervision.once(watch, spec))
    except QueueFullError as error:
        if not watch.queue.full:
            watch.warn(f"the queue is full, asking on: {error}")
        watch.queue.refused(workers, str(error))
        return False
    if watch.queue.full:
        watch.note("the queue takes elements again")
    watch.queue.taken()
    watch.submitted = time.monotonic()
    watch.book.submitted(name, array)
    # The book is not read back: a run that has taken over the dataset meanwhile may have removed it.
    live = WatchedArray(intended._replace(array=array, at=time.time()), array, workers)
    live.statuses = {base + number: Status(State.PENDING) for number in range(workers)}
    watch.live.append(live)
    watch.own_arrays.add(name)
    again = sum(index in watch.claims for index in shards)
    if again:
        watch.note(
            f"{human.counted(workers, 'element')} for {human.counted(again, 'shard')} to be tried again"
        )
    return True


def _labels(watch: Watch) -> dict[str, str]:
    labels = {"dataset": watch.dataset, "step": watch.step}
    try:
        release = small_files.read_json(watch.run.run_file).get("release")
    except (OSError, ValueError, AttributeError):
        release = None  # the array gets no label `release`
    return {**labels, "release": release} if isinstance(release, str) and release else labels


def _look(watch: Watch) -> None:
    """Query all arrays at once, report their elements' states, and drop arrays that have ended. Once all
    receipts exist, an unresponsive cluster is not queried again."""
    if watch.asked_in_vain is None or not watch.all_proven():
        look(watch, watch.live)
    if watch.asked_in_vain is None:
        array_supervision.end_doubles(watch)
    tell(watch)
    _refuse_beyond_limit(watch)
    worker_ends.judge(watch)
    _close(watch)


def _refuse_beyond_limit(watch: Watch) -> None:
    """Raise PreflightError if elements ask for more than a single job may have. These elements are cancelled
    first, so that a later run, with other limits, submits them again."""
    for live in watch.live:
        beyond = {index: status for index, status in live.statuses.items() if status.beyond_limit}
        if beyond:
            with contextlib.suppress(TransientError):
                watch.context.cluster.cancel(live.array, [n - live.submission.base for n in beyond])
            raise PreflightError(
                "elements ask for more than a single job may have, and would never start",
                where=watch.dataset,
                why=f"{next(iter(beyond.values())).reason}; {human.counted(len(beyond), 'element')} of array "
                f"{live.array} {'is' if len(beyond) == 1 else 'are'} cancelled",
                hint="`sacctmgr show qos` and `sacctmgr show assoc` list the limits: ask for less "
                "(cluster.cpus, memory, time), or choose another cluster.qos or account",
            )


def _rest(watch: Watch, seconds: float) -> None:
    """Wait for the next query, or until the last receipt exists; report progress meanwhile."""
    until = time.monotonic() + (seconds if watch.proven_at is None else min(seconds, BETWEEN))
    while (left := until - time.monotonic()) > 0:
        watch.context.stop.wait(min(left, BETWEEN))
        if watch.proven_at is None and watch.all_proven():
            return
        if left > BETWEEN:
            tell(watch)


def _cancel_waiting(watch: Watch) -> None:
    """Cancel the waiting workers, since live workers hold every open shard. If a holder gives up a shard, it
    goes to other holders, or to workers of a further array."""
    # A waiting worker that holds a shard has begun since the last query.
    kept = watch.dismissed | watch.held().keys()
    for live in watch.live:
        pending = [number for number, s in live.statuses.items() if s.state is State.PENDING]
        waiting = [number for number in pending if number not in kept]
        if waiting and watch.asked_in_vain is None:
            with contextlib.suppress(TransientError):
                watch.context.cluster.cancel(live.array, [n - live.submission.base for n in waiting])
                watch.dismissed.update(waiting)


def _ended_by_receipts(watch: Watch) -> bool:
    """Return whether the step is done although the cluster reports live arrays.

    | all receipts exist and        | elements without an end, as reported by the  |                        |
    | nothing more is read back     | cluster                                      | done                   |
    |-------------------------------|----------------------------------------------|------------------------|
    | for less than RECEIPT_GRACE   | any                                          | no                     |
    | for RECEIPT_GRACE or longer   | they wait, or run                            | no: they are cancelled |
    | for RECEIPT_GRACE or longer   | COMPLETING, not known, or nothing at all     | yes                    |
    """
    cluster, silent = watch.context.cluster, watch.asked_in_vain is not None
    if watch.still_read(RECEIPT_GRACE):
        watch.proven_at = time.monotonic()
    if watch.proven_at is None or time.monotonic() - watch.proven_at < RECEIPT_GRACE:
        return False
    for live in watch.live:
        left = [s for s in live.statuses.values() if not (s.state.ended or s.unknown or s.completing)]
        if left and not silent and live.array not in watch.superfluous:
            watch.superfluous.add(live.array)
            waits = f"{human.counted(len(left), 'element')} of array {live.array}"
            watch.note(f"all receipts are there, and {waits} did not end: cancelled, since its work is done")
            with contextlib.suppress(TransientError):
                cluster.cancel(live.array)
        if left and not silent:
            return False
    for live in watch.live:
        watch.note(f"all receipts are there: array {live.array} is not waited for ({_shown(watch, live)})")
        watch.book.ended(live.submission.name, live.starts)
    watch.live.clear()
    return True


def _shown(watch: Watch, live: WatchedArray) -> str:
    if watch.asked_in_vain is not None:
        return "the cluster does not answer"
    if any(s.unknown for s in live.statuses.values()):
        return "the cluster does not know it"
    return "the cluster still cleans up after its processes"


def _close(watch: Watch) -> None:
    for live in list(watch.live):
        # A worker's receipt may become visible here late. The worker's end is not judged before then.
        if live.over and all(number in watch.judged for number in live.statuses):
            watch.book.ended(live.submission.name, live.starts)
            watch.live.remove(live)


def _cancel(watch: Watch, who: str) -> None:
    """Obey `penstock cancel`: end the arrays, wait for their elements, and raise FailedError."""
    cluster = watch.context.cluster
    for live in watch.live:
        patiently(watch, partial(cluster.cancel, live.array))
    begun = time.monotonic()
    if watch.live:
        watch.note(f"cancelled {who}: waiting for {', '.join(a.array for a in watch.live)} to end")
    while watch.live and time.monotonic() - begun < CANCEL_GRACE:
        ask(watch, *watch.live)
        for live in list(watch.live):
            if live.over:
                watch.book.ended(live.submission.name, live.starts)
                watch.live.remove(live)
        if watch.live:
            watch.context.stop.wait(cluster.interval(time.monotonic() - begun))
    raise cancelled(watch.dataset, watch.step, who)


def _leave(watch: Watch) -> None:
    for live in watch.live:
        if watch.context.cluster.abilities.elements_end_with_controller:
            watch.context.cluster.cancel(live.array)
        else:
            text = (
                f"array {live.array} runs on; the same command goes on with it, "
                f"`{watch.context.program} cancel {watch.dataset}` ends it"
            )
            watch.warn(text)
    tell_amounts(watch)
