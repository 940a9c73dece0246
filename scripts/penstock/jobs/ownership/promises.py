"""What a run will still write, promised to all other runs below the same root: `<root>/.promises/<name>`.

Plan and repair make a `SpacePromise`; each step that holds the dataset's lock keeps an `OwnPromise`; copy
lowers the promise, publish and cancel withdraw it; `ops_share` reads all of them. This module reads, writes
and removes files in that folder, touches it to read the file system's clock, and queries the cluster whether
a run lives.

The problem: two runs are planned onto a file system that has room for one of them. Each sees the same free
space; the second fails hours later, with both half copied. A lock over the root would make every plan wait,
and accounts that do not know each other share none. So plan posts what its run will write, then counts: free
space, vendors' targets and quotas, less what the other living runs have promised. A promise is lowered while
its run copies, and withdrawn when it is published, cancelled, or plan refuses. Of two plans at one moment
each has posted before it counts, so at least one sees the other:

| the other promise is           | its name is | then this plan                                         |
|--------------------------------|-------------|--------------------------------------------------------|
| `working` or `resting`         | any         | counts it                                              |
| `asked`, its plan still counts | older       | counts it, and yields: it is refused where both do not |
|                                |             | fit, though the older may be refused, too              |
| `asked`                        | younger     | waits, where that decides, until it yields or passes,  |
|                                |             | for PATIENCE at most; then counts it                   |

Names begin with the time at which they were made, so the order is the same for all. Both may be refused,
both never pass.

Whether a run is dead is decided as for a lock, with one addition: a promise that cannot be seen to live is
watched (`promise_judgement`). A promise that counts no more is void; the next plan that may remove it does.

Limits: runs below another root of the same file system are not seen. A folder's listing may be some seconds
old on another node (NFS): two plans within them may both pass. A promise that was void and whose run goes on
(a node that froze, a person who called copy a day after plan) is made anew by the next copy, which does not
count: that run may end with exit status 6, and be resumed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, TypeVar

from penstock.core import events
from penstock.core.documents.promise import ASKED, PROMISE, REMOVAL, RESTING, WORKING, Promise, repaired_by
from penstock.core.errors import InterruptedRunError, NoSpaceError, PenstockError
from penstock.core.step_table import RUN_IN_ELEMENTS
from penstock.dataset import holder as holders
from penstock.fs import clock
from penstock.fs.capabilities import facts
from penstock.fs.owners import account
from penstock.host.heartbeat import HEARTBEAT, PATIENCE, SHORT, stands_still
from penstock.jobs.ownership import liveness
from penstock.jobs.ownership.promise_judgement import (
    DOUBTFUL,
    REST,
    VOID,
    PostedPromise,
    controller_here,
    read,
    verdict,
)
from penstock.target import cross_account_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context

T = TypeVar("T")
CHANGING = frozenset({"plan", "permissions", "publish"})
"""Steps of a run that change many files in their own process: they have a part of `target.ops`."""
_NAMED = 40
"""Characters of a run's id in the name of its promise: the name of a release may be long."""
LOOK = 2.0
"""Seconds in which a promise that is waited for is read twice; HEARTBEAT where that is shorter."""


class OwnPromise:
    """The promise of a run while one of its steps holds the dataset's lock. Never raises: a promise that
    cannot be kept is none for the others, and no reason to fail."""

    def __init__(self, layout: DatasetLayout, run: str, controller: str = "") -> None:
        self._layout, self._run = layout, run
        self._controller = controller
        self._name = self._step = ""

    def begin(self, step: str) -> None:
        """Name this process in the promise, as the one that works for the run in this step."""
        by = asdict(holders.this_process(self._run, step))
        self._step = step
        controller = controller_here(self._controller)
        at_once = max(self._elements(), 1 if step in CHANGING else 0)
        self._change(state=WORKING, by=by, controller=controller, at_once=at_once)

    def beat(self) -> None:
        """To be called with each heartbeat of the lock."""
        with contextlib.suppress(OSError):
            if not self._name and (seen := _own(self._layout, self._run)):
                self._name = seen.name
            # Where it was promised anew since, the next one is found.
            name, self._name = self._name, ""
            if name:
                cross_account_files.touch(self._layout.promises, name)
                self._name = name

    def end(self) -> None:
        """Mark the promise as resting: no step holds the lock. Elements that go on without this process keep
        their part of the budget of metadata operations."""
        self._change(state=RESTING, at_once=0 if self._step in CHANGING else self._elements())

    def _elements(self) -> int:
        """Of elements that may be at work without this process."""
        with contextlib.suppress(OSError):
            if (seen := _own(self._layout, self._run)) and seen.promise.stays:
                return seen.promise.at_once
        return 0

    def _change(self, **what: object) -> None:
        with contextlib.suppress(OSError):
            if own := _own(self._layout, self._run):
                self._name = own.name
                value = PROMISE.to_json(own.promise._replace(**what))  # type: ignore[arg-type]
                cross_account_files.repost(self._layout.promises, own.name, value)


class SpacePromise:
    """The promise that a step makes for a run, or for a repair (`documents.promise.of_repair`). The caller
    holds the dataset's lock."""

    def __init__(self, context: Context, layout: DatasetLayout, run: str, step: str) -> None:
        self._context, self._run, self._layout, self._step = context, run, layout, step
        self._name = ""
        self._void: set[tuple[str, float]] = set()
        self._certain: set[str] = set()
        """Promises of plans that counted for too long."""
        self._told: set[str] = set()
        self._of_repair = bool(repaired_by(run))

    def ask(self, size: int, files: int, gid: int, chunk_files: int = 0) -> None:
        """Post the promise of `size` bytes, `files` files and, where known, `chunk_files` chunk files (the
        files on the servers of a parallel file system), for group `gid`; in place of what this dataset
        promised before. Where it cannot be posted, a warning says so. Raises InterruptedRunError."""
        context, layout = self._context, self._layout
        promise = Promise(
            run=self._run,
            dataset=layout.dataset,
            uid=os.geteuid(),
            gid=gid,
            bytes=size,
            files=files,
            chunk_files=chunk_files,
            lock=str(layout.lock),
            state=ASKED,
            cluster=_cluster(context),
            at_once=1,
            ops=context.ops,
            stays=not context.cluster.abilities.elements_end_with_controller,
            controller=controller_here(context.controller),
            by=asdict(holders.this_process(self._run, self._step)),
        )
        name = f"{time.time_ns():020d}.{self._run[:_NAMED]}.{secrets.token_hex(4)}"
        try:
            cross_account_files.make_folder_as_above(self._layout.promises)
            if cross_account_files.post(self._layout.promises, name, PROMISE.to_json(promise)):
                self._name = name
            # Last: at no moment has a run that goes on promised nothing.
            self._drop_before()
        except (OSError, PenstockError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            self._warn(
                f"what this run will write cannot be promised to others in {self._layout.promises}: {why}; "
                "runs that are planned while it copies count this space as free. Where several accounts "
                f"stage below this root: {self._opened()}"
            )

    def _opened(self) -> str:
        """Who lets all accounts post, and how."""
        folder = self._layout.promises
        if folder.is_dir():
            return f"chmod 1777 {folder}, as {account(folder.stat().st_uid)} or uid 0"
        return f"mkdir -m 1777 {folder}, as the root's owner"

    def admitted(self, count: Callable[[Sequence[Promise]], T]) -> T:
        """What `count` returns for the promises of the other runs that live, or may live; void promises are
        removed then. `count` may be called several times. Where it depends on runs that may go, this waits
        for up to PATIENCE seconds at a time, with a warning. Raises what `count` raises, and its NoSpaceError
        with the names of the runs that take the room; InterruptedRunError."""
        while True:
            others = self._others()
            try:
                counted = count([seen.promise for seen in others])
                break
            except NoSpaceError as error:
                if not others:
                    raise
                count(())  # raises where other runs are not the reason
                waited = [seen for seen in others if self._may_go(seen)]
                if not waited or not self._fits(count, [seen for seen in others if seen not in waited]):
                    raise _refused(error, others) from None
                self._settle(waited)
        self._sweep()
        return counted

    def keep(self, pool: str, chunk_files: int = 0) -> None:
        """Mark the promise as one of a plan that passed. The files will lie in this pool ("": not known) as
        so many chunk files (0: not known)."""
        self._repost(state=WORKING, pool=pool, chunk_files=chunk_files)

    def drop(self) -> None:
        """Withdraw it: nothing was planned."""
        if self._name:
            with contextlib.suppress(OSError):
                cross_account_files.withdraw(self._layout.promises, self._name)

    def _others(self) -> list[PostedPromise]:
        """Those of the living and the doubtful, by name."""
        posted, refused = _read(self._layout)
        for text in refused:
            if text not in self._told:
                self._told.add(text)
                self._warn(f"not counted as a promise of space: {text}; in {self._layout.promises}")
        now = self._now(posted)
        return [
            one
            for one in posted
            if one.name != self._name and (one.name, one.made) not in self._void and verdict(one, now) != VOID
        ]

    def _now(self, seen: Iterable[PostedPromise]) -> float:
        """The file system's time: of this run's own promise, which the lock's heartbeat touches."""
        own = next((one.made for one in seen if one.name == self._name), None)
        return clock.now(self._layout.promises) if own is None else own

    def _may_go(self, posted: PostedPromise) -> bool:
        """Whether a promise is worth waiting for."""
        if posted.name in self._certain:
            return False
        younger = bool(self._name) and posted.promise.state == ASKED and posted.name > self._name
        return younger or self._doubtful(posted)

    def _doubtful(self, seen: PostedPromise) -> bool:
        everything, _ = _read(self._layout)
        return verdict(seen, self._now(everything)) == DOUBTFUL

    @staticmethod
    def _fits(count: Callable[[Sequence[Promise]], T], others: Sequence[PostedPromise]) -> bool:
        try:
            count([seen.promise for seen in others])
        except NoSpaceError:
            return False
        return True

    def _settle(self, waited: Sequence[PostedPromise]) -> None:
        """Wait until one of these is gone or says something else; where none does for long enough, the
        doubtful are void, and plans that still count are counted."""
        doubtful = [seen for seen in waited if self._doubtful(seen)]
        patience = SHORT if doubtful and all(map(self._ended, doubtful)) else PATIENCE
        named = "; ".join(map(str, waited))
        self._warn(f"waiting for up to {patience:.0f} s whether these runs live: {named}")
        first = {seen.name: seen for seen in waited}

        def moved() -> bool:
            now = {seen.name: seen for seen in _read(self._layout)[0]}
            return any(
                name not in now
                or now[name].promise.state != seen.promise.state
                or (seen in doubtful and now[name].made != seen.made)
                for name, seen in first.items()
            )

        if stands_still(patience, min(LOOK, HEARTBEAT), self._context.stop.wait, moved):
            self._void.update((seen.name, seen.made) for seen in doubtful)
            self._certain.update(seen.name for seen in waited if seen not in doubtful)

    def _ended(self, seen: PostedPromise) -> bool:
        by = seen.by
        return bool(by and by.job and liveness.scheduler(self._context, by.job, by.cluster))

    def _drop_before(self) -> None:
        """Withdraw what was promised before for this dataset, except where elements may live.

        | by                     | the promise of                              | is withdrawn |
        |------------------------|---------------------------------------------|--------------|
        | a run                  | an earlier attempt, another run, a repair   | yes          |
        | a repair               | an earlier attempt, another repair          | yes          |
        |                        | a run, which goes on after the repair       | no           |
        """
        context, folder = self._context, self._layout.promises
        for posted in _of_dataset(self._layout):
            promise = posted.promise
            of_another_run = promise.run != self._run
            if posted.name == self._name or (of_another_run and self._of_repair and not promise.repairs):
                continue
            if of_another_run and alive(context, self._layout, promise.run):
                continue
            with contextlib.suppress(OSError):
                cross_account_files.withdraw(folder, posted.name)

    def _sweep(self) -> None:
        """Remove what is void and may be removed: in a sticky folder an account's own alone. What a killed
        process left of a change is removed an hour later, by the file system's clock."""
        posted, _ = _read(self._layout)
        now = self._now(posted)
        for posting in posted:
            if posting.name != self._name and (
                (posting.name, posting.made) in self._void or verdict(posting, now) == VOID
            ):
                with contextlib.suppress(OSError):
                    cross_account_files.withdraw(self._layout.promises, posting.name)
        own = next((one for one in posted if one.name == self._name), None)
        if own is not None:
            with contextlib.suppress(OSError):
                cross_account_files.sweep_unfinished(self._layout.promises, own.made - REST)

    def _repost(self, **what: object) -> None:
        if not self._name:
            return
        with contextlib.suppress(OSError):
            if seen := _own(self._layout, self._run):
                value = PROMISE.to_json(seen.promise._replace(**what))  # type: ignore[arg-type]
                cross_account_files.repost(self._layout.promises, self._name, value)

    def _warn(self, text: str) -> None:
        self._context.emit(events.Warned(self._layout.dataset, self._step, text=text))


def again(
    context: Context, layout: DatasetLayout, run: str, step: str, size: int, files: int, gid: int
) -> None:
    """Promise `size` bytes and `files` files for a run that is under way, where nothing is promised for it
    since another plan took the run for dead. Nothing for 0 bytes. What others need is not counted."""
    if size:
        join(context, layout, run, step, gid, size, files)


def join(
    context: Context, layout: DatasetLayout, run: str, step: str, gid: int, size: int = 0, files: int = 0
) -> None:
    """As `again`, also where nothing will be written: others then see its share of `target.ops`."""
    try:
        missing = _own(layout, run) is None
    except OSError:
        return
    if missing:
        promise = SpacePromise(context, layout, run, step)
        promise.ask(size, files, gid)
        promise.keep("")


def lower(layout: DatasetLayout, run: str, size: int, files: int) -> None:
    """The run will write no more than `size` bytes and `files` files from now on; more than it promised
    changes nothing. Never raises PenstockError or OSError."""
    with contextlib.suppress(OSError):
        own = _own(layout, run)
        if own and (size < own.promise.bytes or files < own.promise.files):
            promise = own.promise
            left = promise._replace(
                bytes=min(size, promise.bytes),
                files=min(files, promise.files),
                chunk_files=_chunk_files_left(promise, files),
            )
            cross_account_files.repost(layout.promises, own.name, PROMISE.to_json(left))


def _chunk_files_left(promise: Promise, files: int) -> int:
    """Of so many files that are left: their part of all, at least one each."""
    if not files or not promise.files:
        return 0
    left = min(files, promise.files)
    return min(promise.chunk_files, max(left, -(-promise.chunk_files * left // promise.files)))


def at_once(context: Context, layout: DatasetLayout, run: str, elements: int) -> None:
    """So many elements of the run may be at work at once. Never raises PenstockError or OSError."""
    with contextlib.suppress(OSError):
        if seen := _own(layout, run):
            value = PROMISE.to_json(seen.promise._replace(at_once=elements, ops=context.ops))
            cross_account_files.repost(layout.promises, seen.name, value)


def withdraw(layout: DatasetLayout, which: Callable[[Promise], bool] = lambda _: True) -> None:
    """Remove this account's promises by the dataset's runs and repairs for which `which` is true: they have
    ended, or were cancelled. Never raises PenstockError or OSError."""
    with contextlib.suppress(OSError):
        for seen in _of_dataset(layout):
            if which(seen.promise):
                cross_account_files.withdraw(layout.promises, seen.name)


def _read(layout: DatasetLayout) -> tuple[list[PostedPromise], list[str]]:
    """All promises below the root; none where they cannot be read."""
    try:
        postings = cross_account_files.postings(layout.promises)
    except OSError:
        return [], []
    posted, refused = read(postings.posted, facts(layout.root).total_bytes)
    if postings.others:
        refused.append(f"{postings.others} that are no plain files")
    return posted, refused


def read_all(layout: DatasetLayout) -> list[PostedPromise]:
    """All promises below the root that can be true, by name; none where they cannot be read."""
    with contextlib.suppress(OSError):
        return _read(layout)[0]
    return []


def own_of(posted: Iterable[PostedPromise], layout: DatasetLayout, run: str) -> PostedPromise | None:
    """The promise that this account made for this run (or repair) of the dataset; None where there is
    none."""
    lock, uid = str(layout.lock), os.geteuid()
    mine = (one for one in posted if (one.promise.lock, one.promise.uid, one.promise.run) == (lock, uid, run))
    return next(mine, None)


def _of_dataset(layout: DatasetLayout) -> list[PostedPromise]:
    """This account's of this dataset, by runs and repairs: a removal needs no lock of the dataset for its
    files, and its part ends with it."""
    lock, uid = str(layout.lock), os.geteuid()
    posted, _ = _read(layout)
    return [
        one
        for one in posted
        if one.promise.lock == lock and one.promise.uid == uid and one.promise.run != REMOVAL
    ]


def _own(layout: DatasetLayout, run: str) -> PostedPromise | None:
    return own_of(_read(layout)[0], layout, run)


def alive(context: Context, layout: DatasetLayout, run: str) -> bool:
    """Whether elements of this run or repair of the dataset may still write; true as well where that cannot
    be found out now. Queries the cluster, and does not wait for it. Raises InterruptedRunError."""
    folder, steps = layout.run(run), RUN_IN_ELEMENTS
    if release := repaired_by(run):
        folder, steps = layout.repair(release), ("repair",)
    try:
        return bool(liveness.arrays_of(context, layout.dataset, folder, steps=steps, patient=False))
    except InterruptedRunError:
        raise
    except PenstockError:
        return True


def _cluster(context: Context) -> str:
    with contextlib.suppress(PenstockError):
        return context.cluster.name()
    return ""


def _refused(error: NoSpaceError, others: Sequence[PostedPromise]) -> NoSpaceError:
    named = "\n  ".join(["", *map(str, others)])
    return NoSpaceError(
        error.what,
        where=error.where,
        why=f"{error.why}. Other runs below this root will still write:{named}",
        hint="wait for them, have their owners end them (`penstock cancel`), make room, or stage less; "
        "nothing was copied",
    )
