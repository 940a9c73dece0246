"""Which promises of space hold. A promise is a small file below a root by which a run says what it will still
write there.

`promises` and `ops_share` ask. `judged` and `read` are pure; `verdict` and `controller_here` look at
processes of this machine. Nothing is written.

A promise lives by the lock of its dataset. Another account cannot read that lock (its folder has mode 0700),
so the promise says itself what the lock says: who holds it, and it is touched with the lock's heartbeat.
`judged` takes this process's word for what it can see here, and no clock's for what it cannot: a promise
whose step cannot be seen is void only when it was watched and stood still (`jobs.ownership.promises`).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from penstock.core import human
from penstock.core.documents.promise import PROMISE, RESTING, Promise
from penstock.core.errors import PenstockError
from penstock.core.text import brief
from penstock.dataset import holder as holders
from penstock.host.heartbeat import HEARTBEAT, PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.dataset.holder import Holder
    from penstock.target.cross_account_files import Posting

REST = 360 * HEARTBEAT
"""Seconds (one hour) for which a promise holds after a step that a person called by hand."""
LIVING, DOUBTFUL, VOID = "living", "doubtful", "void"
"""Verdicts: the promise counts; it counts until it was watched and stood still; it does not count any
more."""
_MOST_FILES = 1 << 48
_MOST_AT_ONCE = 1 << 16


class PostedPromise(NamedTuple):
    """A promise as it was read."""

    name: str
    made: float
    """When it was last touched, in seconds since the epoch, by the file system's clock."""
    promise: Promise

    @property
    def by(self) -> Holder | None:
        """The process that works for it, or did last; None where that is not said in a way that is known."""
        return holders.from_json(dict(self.promise.by))

    def __str__(self) -> str:
        """One phrase for people: whose it is, how much, until when."""
        promise, by = self.promise, self.by
        user = f"{brief(by.user)}, uid {promise.uid}" if by else f"uid {promise.uid}"
        until = (
            f"for {human.duration(REST)} after the last step" if promise.state == RESTING else "while it runs"
        )
        who = f"repair of release {promise.repairs}" if promise.repairs else f"run {promise.run}"
        return (
            f"{brief(who)} of dataset {brief(promise.dataset)} ({user}): "
            f"{human.size(promise.bytes)} ({promise.bytes:,} bytes) and "
            f"{human.counted(promise.files, 'file')}, {until}, "
            f"last sign of life at {time.strftime('%H:%M:%S', time.localtime(self.made))}"
        )


def judged(
    state: str, process: bool | None, controller: bool | None, age: float, *, stays: bool = False
) -> str:
    """What a promise is worth that was last touched `age` seconds ago, by the file system's own times.
    `process` and `controller`: whether the step's process and the workflow above it live (None: it cannot be
    seen from here, or there is none); `stays`: whether the run's elements go on without the step.

    | state           | process | its elements | workflow | age            | verdict  |
    |-----------------|---------|--------------|----------|----------------|----------|
    | asked, working  | alive   |              |          |                | living   |
    | asked, working  | dead    | end with it  |          |                | void     |
    | asked, working  | dead    | go on        |          | up to PATIENCE | living   |
    | asked, working  | dead    | go on        |          | more           | doubtful |
    | asked, working  | unknown |              |          | up to PATIENCE | living   |
    | asked, working  | unknown |              |          | more           | doubtful |
    | resting         |         |              | alive    |                | living   |
    | resting         |         |              | dead     |                | void     |
    | resting         |         |              | unknown  | up to REST     | living   |
    | resting         |         |              | unknown  | more           | void     |
    """
    if state == RESTING:
        lives = age <= REST if controller is None else controller
        return LIVING if lives else VOID
    if process:
        return LIVING
    if process is False and not stays:
        return VOID
    return LIVING if age <= PATIENCE else DOUBTFUL


def verdict(posted: PostedPromise, now: float) -> str:
    """`judged`, by the processes that can be seen on this machine. `now`: seconds since the epoch, by the
    file system's clock."""
    promise, by = posted.promise, posted.by
    process = holders.lives(by) if by else None
    return judged(promise.state, process, _controller(promise, by), now - posted.made, stays=promise.stays)


def _controller(promise: Promise, by: Holder | None) -> bool | None:
    if by is None or not promise.controller or not holders.is_here(by):
        return None
    return bool(controller_here(promise.controller))


def controller_here(controller: str) -> str:
    """`controller` (a process's id and start time, `PID.START`) where that process lives on this machine;
    else ""."""
    pid, _, start = controller.partition(".")
    return controller if pid.isdecimal() and holders.start_time(int(pid)) == start else ""


def read(postings: Iterable[Posting], capacity: int) -> tuple[list[PostedPromise], list[str]]:
    """The promises that can be true on a file system of `capacity` bytes, in the order of `postings`; and a
    phrase for people about each file that is refused.

    | the file                                        | then                             |
    |-------------------------------------------------|----------------------------------|
    | is not whole: it is being written               | passed over: its run counts later|
    | is no promise, or of a newer format             | named, not counted               |
    | says another uid than its owner's               | named, not counted               |
    | promises more than the file system can hold, or | named, not counted               |
    | less than nothing                               |                                  |
    | else                                            | counted, whoever made it         |
    """
    posted: list[PostedPromise] = []
    refused: list[str] = []
    for posting in postings:
        if posting.value is None:
            continue
        try:
            promise = PROMISE.from_value(posting.value, posting.name)
        except (PenstockError, ValueError) as error:
            refused.append(f"{human.printable(posting.name)}, of uid {posting.uid}: {brief(error, 300)}")
            continue
        if promise.uid != posting.uid:
            refused.append(
                f"{human.printable(posting.name)}, of uid {posting.uid}: it speaks for uid {promise.uid}"
            )
        elif not (
            0 <= promise.bytes <= capacity
            and 0 <= promise.files <= _MOST_FILES
            and 0 <= promise.chunk_files <= _MOST_FILES
            and 0 <= promise.at_once <= _MOST_AT_ONCE
            and promise.ops >= 0
        ):
            text = (
                f"{promise.bytes:,} bytes and {promise.files:,} files ({promise.chunk_files:,} chunk files) "
                f"by {promise.at_once:,} elements on {human.size(capacity)}"
            )
            refused.append(f"{human.printable(posting.name)}, of uid {posting.uid}: {text}")
        else:
            posted.append(PostedPromise(posting.name, posting.made, promise))
    return posted, refused
