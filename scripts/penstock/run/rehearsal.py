"""Previews of a run: `penstock run --dry-run`, which changes nothing, and `penstock rehearse`, which really
copies a sample of a dataset's objects on this node, and reads it back.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, cast

from penstock.config.quantities import Assumption
from penstock.core import estimates, human, run_steps
from penstock.core.errors import FailedError, InterruptedRunError, NoSpaceError, PenstockError, PreflightError
from penstock.core.layout import DATA
from penstock.core.run_documents import (
    FILE_COST,
    REHEARSAL,
    Leg,
    Rehearsal,
    knee,
    size_distance,
    spread_by_size,
)
from penstock.dataset import documents, release_records, staging_notice
from penstock.dataset.context import HELD
from penstock.fs import small_files
from penstock.fs.capabilities import facts
from penstock.host.kernel_facts import host_name
from penstock.jobs import forecast
from penstock.jobs.bandwidth import reading
from penstock.jobs.dataset_state import holding
from penstock.jobs.forecast import TargetStores
from penstock.jobs.shares import rate_of
from penstock.look import explanation, release_comparison, status_report
from penstock.tables import run_tables
from penstock.tables.run_tables import ShardWriter, whole_files
from penstock.target import dataset_folders, modes, notices
from penstock.target.room_watch import RoomWatch
from penstock.target.tree_removal import remove_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from penstock.core.step_results import DryRunResult, Preview, StatusResult
    from penstock.dataset.context import Context
    from penstock.engine.tasks import Outcome
    from penstock.jobs.bandwidth import LinkShare
    from penstock.look.release_comparison import Listing

    Measured = tuple[Leg, Sequence[int]]
    """A leg (copies with one number of streams), and the sizes of its files in bytes."""


# `penstock run --dry-run`: what a run would do, and how long its copy would take.
#
# The sources' listing is written to TMPDIR. As in `penstock status`, the cluster is queried for arrays of an
# unfinished run.


def dry_run(context: Context, datasets: Sequence[str], step: str = "run") -> DryRunResult:
    """Preview `run` or `audit`: {"datasets": {name: {sources, target, backend, state, ...}}}. An error in
    reading a dataset or its source becomes its `problem`, with the exit status that a run would end with."""
    return {"datasets": {name: _one(context, name, step) for name in datasets}}


def _one(context: Context, name: str, step: str) -> Preview:
    dataset = context.dataset(name)
    preview: Preview = {
        "dataset": name,
        "sources": [source.url for source in dataset.sources],
        "target": str(context.layout(name).folder),
        "backend": context.config.cluster.backend,
    }
    try:
        status = status_report.run(context, name)
    except (PenstockError, OSError) as error:
        return {**preview, **_problem(error)}
    kept = ("state", "current", "files", "bytes", "lock")
    shown = {key: value for key, value in status.items() if key in kept}
    if why := status.get("why"):
        shown["state"] = f"{status['state']}: {why}"
    takes = {} if step == "audit" or status.get("seen") else _takes(context, name)
    return cast("Preview", {**preview, **shown, "would": _would(status, step), **takes})


def _takes(context: Context, name: str) -> Mapping[str, object]:
    try:
        plan = explanation.of_dataset(context, name, Assumption())
    except (PenstockError, OSError) as error:
        return _problem(error)
    copied = f"{human.counted(plan.copied.files, 'file')}, {human.size(plan.copied.bytes or 0)}"
    if not plan.copied.files:
        return {"takes": "nothing is copied"}
    return {"takes": f"{copied}; {estimates.sentence(plan.forecast, plan.nodes)}"}


def _problem(error: PenstockError | OSError) -> Preview:
    return {
        "problem": str(error),
        "exit": error.exit_code if isinstance(error, PenstockError) else FailedError.exit_code,
    }


def _would(status: StatusResult, step: str) -> str:
    """Describe the next action in words.

    | command | published | a run is under way | then                                         |
    |---------|-----------|--------------------|----------------------------------------------|
    | audit   | no        |                    | there is nothing to audit                    |
    | audit   | yes       |                    | read `current` back                          |
    | run     | no        | no                 | list, and stage all of it                    |
    | run     | yes       | no                 | list, and stage what changed                 |
    | run     | any       | yes                | list, and continue if the source is the same |

    If another account stages the dataset, a run by this account would do nothing.
    """
    current, following = status.get("current"), status.get("work", {}).get("step")
    if step == "audit":
        return f"read release {current} back and compare it" if current else "nothing: no release to audit"
    if status.get("seen"):
        return "nothing: another account stages this dataset, and a run by this one is refused"
    if following:
        return f"list the source; if it is unchanged, go on with {following}, else begin a new release"
    if current:
        return f"list the source; if it changed, stage a new release that links what {current} has"
    return "list the source, and copy, verify and publish all of it"


# `penstock rehearse`: a sample of a dataset's objects, copied and read back for real on this node.
#
# The engine copies slices of the sample, each as a shard, into a hidden folder of `releases`, and removes
# them. `rehearsal.json` keeps the figures. The dataset's lock, `engine.limit`, the link's cap, `target.ops`,
# quotas and the PAUSE file apply as for a copy. If the process is killed, the next command that takes the
# lock removes the hidden folder.

STEP = "rehearse"
NAME = "rehearsal"  # stands for run and release in the dataset's lock
MOST = 16384  # number of objects in a sample, at most
# number of files in the first slice: enough to represent all sizes, to 1/64
# (`core.run_documents.spread_by_size`)
FIRST = 64
# Factor; the first slice is subtracted from a slice that has at least this many times as many files.
MUCH_LARGER = 3
# Each further slice is made so large that, at the last slice's rate, it takes the fraction FILLED of the
# leg's remaining time. No slice begins when the fraction LAST of the leg's time, or less, is left.
FILLED, LAST = 0.6, 0.1

# Fields that the measurement of reading a shard back shares with that of copying it.
SHARED = ("shard", "rows", "journals", "data", "engine", "verify", "run", "attempt", "host")


class _OutOfTimeError(FailedError):
    """The current slice does not end within the time of its leg."""


def rehearse(
    context: Context, dataset: str, seconds: float, streams: Sequence[int] = ()
) -> tuple[Rehearsal, Sequence[int]]:
    """Rehearse for `seconds`, with a leg for each number in `streams`; () means one leg with a copy's own
    number of streams.

    Returns the content of `rehearsal.json`, and the sizes of the files of its `leg`. Raises PreflightError if
    no object can be copied, and FailedError if a copy failed or the time was too short for a slice. Raises
    NoSpaceError, LockedError, InterruptedRunError, and the errors of listing.
    """
    layout, giant = context.layout(dataset), context.config.plan.giant_bytes
    dataset_folders.check_owner(layout)

    def say(text: str) -> None:
        context.emit(run_steps.Noted(dataset, STEP, text))

    try:
        with release_comparison.listing(context, dataset) as now:
            sample, files = _draw(now, giant)
            dataset_folders.prepare(layout)
            with (
                holding(context, dataset, "", STEP, release=NAME),
                reading(
                    context.config.bandwidth, "", f"{STEP} {dataset}", NAME, say, context.stop.wait
                ) as share,
            ):
                stage = _Stage(context, dataset, sample, share)
                context.emit(run_steps.Started(dataset, STEP))
                each = seconds / max(1, len(streams))
                try:
                    done = sweep(
                        streams,
                        lambda number: stage.leg(number, each),
                        partial(_cut_short, context, dataset, "further numbers of streams"),
                    )
                finally:
                    remove_tree(layout.rehearsal, context.spend)
                apart = [round(size_distance(sizes, _sizes(now, giant)), 4) for _, sizes in done]
                legs = tuple(leg._replace(distance=d) for (leg, _), d in zip(done, apart, strict=True))
                at, drawn = release_records.now(), sample.num_rows
                kept = Rehearsal(dataset, at, host_name(), files, drawn, legs, knee(legs), stage.durability)
                leg = kept.leg
                before = estimates.seconds(leg.files, leg.bytes, 1, forecast.element_rates(layout))
                kept = kept._replace(model_error=round(before / leg.seconds - 1, 3))
                documents.write(REHEARSAL, layout.rehearsal_result, kept)
                context.emit(run_steps.Ended(dataset, STEP, {"files": leg.files, "bytes": leg.bytes}))
    except InterruptedRunError as error:
        error.hint = "nothing of the sample is left; the same command begins anew"
        raise
    return kept, done[legs.index(leg)][1]


def sweep(
    streams: Sequence[int],
    leg: Callable[[int | None], Measured],
    cut_short: Callable[[NoSpaceError], None] = lambda _: None,
) -> list[Measured]:
    """Do a leg with each number of streams, or a single leg if there are no numbers. If a later leg finds no
    room, earlier legs are kept, and `cut_short` is called."""
    done: list[Measured] = []
    for number in streams or (None,):
        try:
            done.append(leg(number))
        except NoSpaceError as error:
            if not done:
                raise
            cut_short(error)
            break
    return done


def _cut_short(context: Context, dataset: str, what: str, error: NoSpaceError) -> None:
    text = f"{what} did not fit, and what was measured before is kept: {error.reason}"
    context.emit(run_steps.Warned(dataset, STEP, text))


def _draw(now: Listing, giant_bytes: int) -> tuple[pa.RecordBatch, int]:
    """Return the sample as rows of a shard, spread by size, and the number of objects that it represents.

    Giants are left out. Objects are drawn at random, since neighbours in the order of the paths often have
    the same size.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    files, taken = 0, []
    for batch in now.rows(run_tables.LISTING_FORM.schema.names):
        small = batch.filter(pc.less(batch["size"], giant_bytes))
        chance = pc.random(small.num_rows, initializer=files)
        taken.append(pa.Table.from_batches([small]).append_column("chance", chance))
        files += small.num_rows
        whole = pa.concat_tables(taken)
        taken = [whole.take(pc.select_k_unstable(whole, MOST, [("chance", "ascending")]))]
    if not files:
        giants = f"all objects have {human.size(giant_bytes)} (plan.giant_bytes) or more"
        raise PreflightError(
            "there is nothing to rehearse with",
            where=" ".join(now.urls),
            why=giants if now.gathered.files else "the source has no object",
            hint="correct the dataset's source and filters",
        )
    by_size = pc.sort_indices(taken[0]["size"]).take(pa.array(spread_by_size(taken[0].num_rows)))
    (sample,) = taken[0].take(by_size).drop_columns("chance").combine_chunks().to_batches()
    return whole_files(sample), files


def _sizes(now: Listing, giant_bytes: int) -> Iterator[list[int]]:
    import pyarrow.compute as pc

    for batch in now.rows(["size"]):
        yield batch.filter(pc.less(batch["size"], giant_bytes))["size"].to_pylist()


class _Stage:
    def __init__(
        self, context: Context, dataset: str, sample: pa.RecordBatch, share: LinkShare | None
    ) -> None:
        self._context, self._layout, self._config = context, context.layout(dataset), context.dataset(dataset)
        self._sample, self._sizes = sample, sample["size"].to_pylist()
        self._next = self._files = 0
        # Bytes copied before this slice, bytes copied so far, and bytes copied at the slice's end.
        self._before = self._moved = self._at_end = 0
        ops = rate_of(context.ops_hold, context.ops) if context.ops else None
        self._paces = (ops, share)
        target, store = context.config.target, facts(self._layout.root)
        keep, traits = target.kept(store.total_bytes), store.traits
        self._gid = modes.group_id(self._config.permissions)
        self._room = RoomWatch(
            self._layout.releases, keep, self._gid, reserves=traits.preallocate, local=traits.local
        )
        self._until = self._looked = time.monotonic()
        self._rested = False
        self.durability = ""

    def leg(self, streams: int | None, seconds: float) -> Measured:
        """Copy slices with `streams` streams (None: as in a copy) until the time, or the sample, is used up.

        Returns the figures of the largest slice that ended in time and without a PAUSE, minus the first slice
        (`_beyond`). The leg's distance is not yet known. Raises the errors of `rehearse`.
        """
        self._looked = time.monotonic()
        self._until = self._looked + seconds
        done: list[Measured] = []
        count, left = FIRST, len(self._sizes)
        while left and count and (not done or self._until - time.monotonic() > seconds * LAST):
            while notices.standing_pause() is not None:
                self._context.stop.wait(HELD)
                self._check()
            began, self._rested = time.monotonic(), False
            places = [(self._next + place) % len(self._sizes) for place in range(min(count, left))]
            self._next += len(places)
            try:
                copied, read = self._slice(self._sample.take(places), streams)
            except (_OutOfTimeError, NoSpaceError) as error:
                if not done:
                    raise
                # no other process writes in this folder
                remove_tree(self._layout.rehearsal, self._context.spend)
                if isinstance(error, NoSpaceError):
                    _cut_short(self._context, self._config.name, "a further slice of the sample", error)
                break
            if self._rested:
                continue
            left -= len(places)
            took, reread = round(copied.seconds, 3), round(read.seconds, 3)
            leg = Leg(streams or copied.streams, copied.files, copied.bytes, took, reread, 1.0)
            done.append((leg, [self._sizes[place] for place in places]))
            now = time.monotonic()
            work = (copied.bytes + FILE_COST * copied.files) / (now - began) * FILLED * (self._until - now)
            start = self._next % len(self._sizes)
            sums = accumulate(size + FILE_COST for size in self._sizes[start:] + self._sizes[:start])
            count = sum(work_so_far <= work for work_so_far in sums)
        largest, sizes = max(done, key=lambda measured: measured[0].files)
        return _beyond(done[0][0], largest), sizes

    def _slice(self, rows: pa.RecordBatch, streams: int | None) -> tuple[Outcome, Outcome]:
        import pyarrow.compute as pc

        from penstock.engine.copy_shard import copy_shard
        from penstock.engine.reread_shard import reread_shard
        from penstock.engine.tasks import CopyTask, RereadTask

        context, layout, folder = self._context, self._layout, self._layout.rehearsal
        target, gid = context.config.target, self._gid
        stores = TargetStores(layout, target, gid)
        totals = forecast.Totals(to_place=stores.sizes)
        totals.add(rows["size"].to_pylist())
        notice = layout.repair_under_way
        self._before, self._at_end = self._moved, self._moved + totals.bytes
        try:
            forecast.take(context, layout, notice, STEP, totals, stores)
            small_files.make_dirs(folder / DATA)
            stores.stripe(folder / DATA, totals)
            writer = ShardWriter(folder / "shard.parquet", 0)
            writer.add_columns(rows.take(pc.sort_indices(rows["path"])))
            # Checksum files beside the data are not fetched, so the rehearsal must not require a checksum.
            verify, engine = context.config.verify, context.config.engine
            if verify.source_checksum == "require":
                verify = replace(verify, source_checksum="auto")
            copy = CopyTask(
                shard=writer.close(),
                rows=folder / "shard.parquet",
                journals=folder / "journal",
                data=folder / DATA,
                dataset=self._config,
                engine=replace(engine, streams=streams or engine.streams),
                run=NAME,
                attempt=NAME,
                host=host_name(),
                verify=verify,
                gid=gid,
            )
            copied = _whole(copy_shard(copy, self._report, self._check, *self._paces))
            shared = {name: getattr(copy, name) for name in SHARED}
            reread = RereadTask(records=folder / "records.parquet", named=target.filesystem, **shared)
            read = _whole(reread_shard(reread, lambda *_: None, self._check))
            remove_tree(folder, context.spend)
        finally:
            staging_notice.written(layout, notice)
        self._files, self._moved = self._files + copied.files, self._before + copied.bytes
        self.durability = copied.durability
        return copied, read

    def _report(self, files: int, size: int, failed: int) -> None:
        done, self._moved = self._files + files, self._before + size
        self._context.emit(
            run_steps.Progressed(self._config.name, STEP, files=done, bytes=self._moved, failed=failed)
        )

    def _check(self) -> None:
        """Raise at the end of the leg's time, which does not run while the PAUSE file exists."""
        self._context.stop.signalled()
        self._room(self._moved, max(0, self._at_end - self._moved))
        now = time.monotonic()
        if notices.standing_pause() is not None:
            self._rested = True
            self._until += now - self._looked
        self._looked = now
        if now > self._until:
            raise _OutOfTimeError(
                "the time is too short for the first files of the rehearsal",
                where=self._config.name,
                why=f"{FIRST} files were not copied and read back within it",
                hint="give it more by --time",
            )


def _beyond(first: Leg, largest: Leg) -> Leg:
    """Return the largest slice minus the first slice, or the largest itself if it is not much larger. Both
    include the start of the engine's processes, which a shard does only once in many minutes."""
    more = largest._replace(
        files=largest.files - first.files,
        bytes=largest.bytes - first.bytes,
        seconds=round(largest.seconds - first.seconds, 3),
        read_seconds=round(largest.read_seconds - first.read_seconds, 3),
    )
    enough = (
        largest.files >= MUCH_LARGER * first.files and min(more.seconds, more.read_seconds, more.bytes) > 0
    )
    return more if enough else largest


def _whole(outcome: Outcome) -> Outcome:
    for path, why, *_ in outcome.failures:
        raise FailedError(
            "a file of the rehearsal was not copied and read back",
            where=path,
            why=why,
            hint="a copy would fail there, too: `penstock preflight` tries source and target",
        )
    return outcome
