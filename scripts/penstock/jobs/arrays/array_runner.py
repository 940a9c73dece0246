"""Runs a step's elements as job arrays until every one of them has its receipt.

Each step with elements, audit and repair call `run_array`. It submits arrays (of processes on this machine,
or on a SLURM cluster), watches them by one query at a time, cancels what is superfluous, and writes the
folder's `arrays.jsonl`: the "book" of submissions, by which the next controller finds arrays that still live.

Guarantees:

- An element with a good receipt is not run again.
- An array that still lives is found and awaited by the next controller.
- One index is never alive in two arrays. An element that failed is submitted again in a further array, while
  other elements of the first one still run.
- Over all of the step's arrays no more than `cluster.max_elements` elements run at once, or as many as a
  person said by `penstock limit DATASET --nodes N`.
- An element counts as done by its receipt, once the cluster says that it ended; of a cluster that does not
  know it, or does not answer, that is not waited for longer than `RECEIPT_GRACE`.
- What a person cancelled is submitted again only by a new command.
- While PAUSE stands at the root, nothing is submitted, and nothing fails for that.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from functools import partial
from typing import TYPE_CHECKING

from penstock.cluster.abilities import abilities_of
from penstock.cluster.port import ArraySpec, State, Status
from penstock.core import events, human
from penstock.core.documents.array_line import ArrayLine
from penstock.core.errors import LockedError, PreflightError, QueueFullError, TransientError
from penstock.core.step_table import BY_NAME
from penstock.dataset import holder as holders
from penstock.dataset.cancel_mark import cancelled
from penstock.fs import durable
from penstock.host import interpreter
from penstock.jobs.arrays import (
    array_throttle,
    element_ends,
    local_elements,
    node_failures,
    unanswered_submissions,
)
from penstock.jobs.arrays.array_watch import (
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
from penstock.jobs.arrays.controller_deadlock import KeptOut
from penstock.target import pause

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.core.job_time import Estimate
    from penstock.core.layout import RunLayout
    from penstock.dataset.context import Context

CANCEL_GRACE = 120.0
"""Seconds that a cancelled step waits for its elements to end; the next run waits for those that still
live."""
ARRAYS = 4
"""The most live arrays of one step."""


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
    widen: Callable[[int], None] = lambda _: None,
    expected: Callable[[int], Estimate] | None = None,
) -> Mapping[int, Status]:
    """Run the elements of these indices. Returns, when every index has a good receipt, the last status of
    each element that ran. `amounts` is called with the files and bytes that are done, at each look at the
    elements; `widen` with a number of elements, before more than ever run at once since a person said so.
    `expected` estimates how long the element of an index takes: what it asks for where `cluster.time` is
    `auto`.

    Raises PreflightError where the job that this process is keeps its elements from starting; FailedError
    that names the elements, reasons and files (exit status 5 when every failure is a changed source, 6 when
    one is a full target), also when a person cancelled the dataset or elements of it; LockedError where
    elements may live that only another cluster or backend can end; and InterruptedRunError on a signal:
    local elements have ended tidily by then, SLURM's run on, and the next call finds them.
    """
    watch = watch_of(context, dataset, run, step, receipt_ok, indices, element_command(context, run, step))
    watch.amounts, watch.widen, watch.expected = amounts, widen, expected
    watch.excluded = [*watch.book.excluded(time.time() - node_failures.HOURS * 3600)]
    watch.limits = watch.book.raised(step)
    begun = time.monotonic()
    room = KeptOut(watch)
    try:
        _meet(watch)
        while True:
            if who := watch.cancelled.said():
                _cancel(watch, who)
            array_throttle.obey(watch)
            missing = watch.missing()
            if not missing and not watch.live:
                return watch.statuses
            if not missing and _ended_by_receipts(watch):
                return watch.statuses
            paused = pause.standing() is not None
            if not paused and _submit_some(watch, missing):
                begun = time.monotonic()
            elif not (watch.live or watch.queue.full or paused):
                error = watch.ends.failure(missing)
                error.where = dataset
                raise error
            else:
                _rest(watch, context.cluster.interval(time.monotonic() - begun))
            _look(watch)
            room.check()
    except BaseException:
        _leave(watch)
        raise


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
    """Ids of arrays of this step that have elements which may still write; submits nothing. With `patient` it
    waits until the cluster answers, or these indices all have good receipts; otherwise it raises
    TransientError. Raises LockedError as `run_array`."""
    watch = watch_of(context, dataset, run, step, receipt_ok, indices)
    watch.patient = patient
    return [one.array for one in _living(watch)]


def element_command(context: Context, run: RunLayout, step: str) -> list[str]:
    """The command line of an element, but for its index."""
    root = str(context.config.target.root.absolute())
    words = ["element", "--run", str(run.folder.absolute()), "--root", root, "--step", step]
    words += ["--attempt", "auto"]
    if BY_NAME[step].copies and context.ops:
        words += ["--ops", str(context.ops), "--at-once", str(array_throttle.read_slots(context, run, step))]
    bandwidth = context.config.bandwidth
    if BY_NAME[step].fetches and bandwidth.folder is not None:
        words += ["--bandwidth-folder", str(bandwidth.folder.absolute())]
        words += ["--bandwidth", str(bandwidth.rate)] if bandwidth.rate is not None else []
        words += ["--requests", str(bandwidth.requests)] if bandwidth.requests is not None else []
    return [*interpreter.command("penstock", context.config.cluster.python), *words]


def _meet(watch: Watch) -> None:
    """Watch the arrays of earlier submissions that still live."""
    for live in _living(watch):
        watch.live.append(live)
        watch.ends.met.update(index for index, status in live.statuses.items() if not status.state.ended)
        told = f"{live.alive} of {human.counted(len(live.statuses), 'element')} wait or run"
        if live.statuses:
            watch.note(f"array {live.array} of an earlier controller lives and is watched: {told}")
    if watch.live:
        tell(watch)
        # An earlier controller may have noted a number that it did not live to tell the cluster.
        array_throttle.share_out(watch, again=True)
        element_ends.judge(watch)
        _close(watch)


def _living(watch: Watch) -> list[WatchedArray]:
    """Submissions of this step with elements that may be alive."""
    cluster = watch.context.cluster
    arrays: list[WatchedArray] = []
    for submission in watch.book.open(watch.step):
        _refuse_beyond(watch, submission)
        if submission.kind != cluster.kind:
            watch.book.ended(submission.name)
            continue
        array = submission.array
        if not array:
            array = patiently(watch, partial(unanswered_submissions.array_of, watch, submission))
            if array:
                watch.book.submitted(submission.name, array)
        if not array:
            watch.book.ended(submission.name)
            continue
        cluster.recall(array, submission.name, submission.spec_cores)
        arrays.append(
            WatchedArray(submission, array, submission.at_once or array_throttle.watched_slots(watch))
        )
    ask(watch, *arrays)
    for live in arrays:
        if live.over:
            watch.book.ended(live.submission.name, live.starts)
    return [live for live in arrays if not live.over]


def _refuse_beyond(watch: Watch, submission: ArrayLine) -> None:
    """Raises LockedError for an array that may live where this process cannot ask or end it.

    | submission               | here           | then                                             |
    |--------------------------|----------------|--------------------------------------------------|
    | SLURM's                  | local          | LockedError                                      |
    | of another cluster       | SLURM          | LockedError                                      |
    | local, elements may live | any            | LockedError (`local_elements.may_write`)             |
    | else                     | any            | goes on                                          |
    """
    cluster, context, dataset = watch.context.cluster, watch.context, watch.dataset
    where, why, hint = "", "", ""
    array = f"array {submission.array or submission.name}"
    end = f"`{context.program} cancel {dataset}`"
    if abilities_of(submission.kind).elements_end_with_controller:
        why = local_elements.may_write(context, context.layout(dataset), watch.run, submission)
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


def _submit_some(watch: Watch, missing: Sequence[int]) -> bool:
    """Submit one array of the missing indices that may run and for which slots are free."""
    again = [i for i in missing if watch.ends.may_run(i, watch.tries[i])]
    if not again or len(watch.live) >= ARRAYS:
        # No further array takes slots: those whose elements wait get all of them.
        array_throttle.share_out(watch)
        return False
    room = _room(watch, retry=any(watch.tries[i] for i in again))
    if room < 1:
        return False
    span = watch.context.cluster.max_array()
    most = min(span, _places(watch))
    if most < 1:
        return False
    # What fits one array: in number and, for SLURM's limit on the largest index, in span.
    chosen = [i for i in again[:most] if i - again[0] < span]
    ran = [i for i in chosen if watch.tries[i]]
    note = watch.ends.again(ran) if ran else ""
    free = {i for i in ran if watch.ends.uses_no_retry(i)}
    if not _submit(watch, chosen, room):
        watch.ends.free.update(free)  # what says so was removed for the next try
        return False
    if note:
        watch.note(note)
    watch.tries.update(i for i in chosen if i not in free)
    watch.ends.free.difference_update(chosen)
    return True


def _places(watch: Watch) -> int:
    """How many elements a further array may have; 0 for some looks after the cluster refused even one, since
    its queue is full."""
    return min(watch.queue.free(), patiently(watch, watch.context.cluster.max_elements))


def _room(watch: Watch, *, retry: bool) -> int:
    """How many elements of a further array may run at once, so that all arrays together stay within the
    step's slots. Where one array may fill every slot and elements wait to be run again (`retry`), that array
    is throttled by one slot, which is free when the next of its elements ends. `_submit_some` returns it."""
    slots = array_throttle.watched_slots(watch)
    free = slots - sum(live.used for live in watch.live)
    if free >= 1 or not retry:
        return free
    first = watch.live[0]
    if first.pending and first.at_once >= slots > 1 and len(watch.live) == 1:
        array_throttle.throttle(watch, first, first.at_once - 1)
        free = slots - sum(live.used for live in watch.live)
    return free


def _submit(watch: Watch, indices: Sequence[int], at_once: int) -> bool:
    """False where the cluster takes no more elements for now."""
    context, run, step = watch.context, watch.run, watch.step
    context.stop.check()
    name = f"penstock-{watch.dataset}-{run.folder.name}-{step}-{secrets.token_hex(4)}"
    for index in indices:
        run.outcome(step, index).unlink(missing_ok=True)
    for place in (run.receipt, run.outcome, run.progress):
        durable.make_dirs(place(step, indices[0]).parent)
    durable.make_dirs(run.logs)
    base = indices[0] if indices[-1] >= context.cluster.max_array() else 0
    limit = element_ends.limit_of(watch, indices)
    submission = ArrayLine(
        name, step=step, kind=context.cluster.kind, indices=tuple(indices), base=base, time=limit
    )
    spec = ArraySpec(
        name, step, tuple(submission.numbers), watch.command, run.logs, _labels(watch), at_once,
        base=base, time=limit, exclude=tuple(element_ends.excluded(watch)),
    )  # fmt: skip
    cluster = patiently(watch, context.cluster.name)
    alone = context.config.cluster.of(step).node_alone if context.cluster.abilities.has_nodes else None
    cores = patiently(watch, partial(context.cluster.spec_cores, step))
    watch.book.intend(
        name, step, context.cluster.kind, indices, cluster,
        base=base, time=limit, whole_nodes=alone, at_once=at_once, spec_cores=cores,
    )  # fmt: skip
    # The lock is checked after the array is noted: a run that overtakes this one reads the notes under the
    # lock, so it either finds this array, or this check raises.
    context.assert_held()
    try:
        array = patiently(watch, unanswered_submissions.once(watch, spec))
    except QueueFullError as error:
        if not watch.queue.full:
            watch.context.emit(events.Warned(watch.dataset, step, f"the queue is full, asking on: {error}"))
        watch.queue.refused(len(indices), str(error))
        return False
    if watch.queue.full:
        watch.note("the queue takes elements again")
    watch.queue.taken()
    watch.book.submitted(name, array)
    watch.left.difference_update(indices)
    watch.latest.update(dict.fromkeys(indices, array))
    live = WatchedArray(submission._replace(array=array, at=time.time()), array, at_once)
    live.statuses = dict.fromkeys(indices, Status(State.PENDING))
    watch.live.append(live)
    return True


def _labels(watch: Watch) -> dict[str, str]:
    """The labels by which people find the array in the cluster's own listings."""
    labels = {"dataset": watch.dataset, "step": watch.step}
    try:
        release = durable.read_json(watch.run.run_file).get("release")
    except (OSError, ValueError, AttributeError):
        release = None  # the array goes without this label
    return {**labels, "release": release} if isinstance(release, str) and release else labels


def _look(watch: Watch) -> None:
    """Query the elements' states, one query for all arrays; report them; drop arrays that have ended. A
    cluster that does not answer is not asked once all receipts are there."""
    if watch.asked_in_vain is None or not watch.all_proven():
        look(watch, watch.live)
    if watch.asked_in_vain is None:
        unanswered_submissions.end_doubles(watch)
    tell(watch)
    _refuse_beyond_limit(watch)
    element_ends.judge(watch)
    _close(watch)


def _refuse_beyond_limit(watch: Watch) -> None:
    """Raises PreflightError where elements ask for more than a single job may have. They are ended before, so
    that a further run, with other limits, submits them anew."""
    for live in watch.live:
        beyond = {index: status for index, status in live.statuses.items() if status.beyond_limit}
        if beyond:
            with contextlib.suppress(TransientError):
                watch.context.cluster.cancel(live.array, [index - live.submission.base for index in beyond])
            raise PreflightError(
                "elements ask for more than a single job may have, and would never start",
                where=watch.dataset,
                why=f"{next(iter(beyond.values())).reason}; {human.counted(len(beyond), 'element')} of array "
                f"{live.array} {'is' if len(beyond) == 1 else 'are'} cancelled",
                hint="`sacctmgr show qos` and `sacctmgr show assoc` list the limits: ask for less "
                "(cluster.cpus, memory, time), or choose another cluster.qos or account",
            )


def _rest(watch: Watch, seconds: float) -> None:
    """Wait that long for the next query, or until the last receipt is there; report progress meanwhile."""
    until = time.monotonic() + (seconds if watch.proven_at is None else min(seconds, BETWEEN))
    while (left := until - time.monotonic()) > 0:
        watch.context.stop.wait(min(left, BETWEEN))
        if watch.proven_at is None and watch.all_proven():
            return
        if left > BETWEEN:
            tell(watch)


def _ended_by_receipts(watch: Watch) -> bool:
    """Whether the step is done although arrays of it live, as far as the cluster says.

    | all receipts are there        | elements without an end, as the cluster says | then                   |
    |-------------------------------|----------------------------------------------|------------------------|
    | not for RECEIPT_GRACE         | any                                          | no                     |
    | longer                        | they wait, or run                            | no: they are cancelled |
    | longer                        | COMPLETING, not known, or nothing at all     | yes                    |
    """
    now = time.monotonic()
    if not watch.all_proven() or watch.proven_at is None or now - watch.proven_at < RECEIPT_GRACE:
        return False
    cluster, silent = watch.context.cluster, watch.asked_in_vain is not None
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
        # A receipt that an element wrote on its node may become visible here later: `under_way` waits for it.
        if live.over and not any(watch.under_way(live, i) for i in live.submission.indices):
            watch.book.ended(live.submission.name, live.starts)
            watch.live.remove(live)


def _cancel(watch: Watch, who: str) -> None:
    """Obey the mark of `penstock cancel`: end the arrays, wait for their elements. Raises FailedError."""
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
            watch.context.emit(events.Warned(watch.dataset, watch.step, text))
    tell_amounts(watch)
