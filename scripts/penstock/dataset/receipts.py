"""Receipts: small durable proofs of what a step or an element did, and when they still hold. An element is
the process that does one shard, a part of the plan; `copy/N` is the receipt of the copy of shard N.

A step begins no element whose receipt holds. Called by all steps. Writes receipts alone; reads, to check
them, files of the run and files beside a release's data.

| receipt          | holds while                                                                       |
|------------------|-----------------------------------------------------------------------------------|
| copy/N           | it names this run and the plan's shard N                                          |
| permissions      | it names the attempts of all copy receipts as they are now                        |
| verify/N         | it names this run, shard N, the attempt of copy/N; the records are those it wrote |
| publish          | the release stands, sealed by this run                                            |
| audit/N, adopt/N | it names this job and the plan's shard N                                          |
| repair/N         | the same; what it says of each file is what it wrote                              |
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from penstock.core.documents.element_receipt import ELEMENT_RECEIPT, ElementReceipt
from penstock.core.documents.step_results import RECEIPTS
from penstock.core.documents.typed_json import NOTHING
from penstock.core.errors import LOOK_AT_FILE, FailedError
from penstock.dataset import documents
from penstock.dataset.element_progress import Progress
from penstock.dataset.submission_log import ArrayBook
from penstock.fs import durable, plain_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from penstock.core.documents.seal import SealedManifest
    from penstock.core.documents.step_results import StepReceipt
    from penstock.core.layout import RunLayout
    from penstock.dataset.run import Run

T = TypeVar("T")


def element(run: RunLayout, step: str, index: int) -> ElementReceipt | None:
    """An element's receipt, or None when there is none. A damaged one counts as missing, and is made again.
    Raises FailedError when the file cannot be read, NewerFormatError."""
    return documents.find_whole(ELEMENT_RECEIPT, run.receipt(step, index))


def step(run: RunLayout, name: str) -> StepReceipt | None:
    """As `element`, for the receipt of a whole step of the run."""
    receipt: StepReceipt | None = documents.find_whole(RECEIPTS[name], run.receipt(name))
    return receipt


def seconds(receipt: StepReceipt) -> float:
    """What the step took: all commands that worked on it, where they counted; else from its start to its end,
    to the millisecond."""
    return receipt.get("seconds") or round(receipt["ended"] - receipt["started"], 3)


def write_step(run: RunLayout, receipt: StepReceipt) -> None:
    """Durable on return. Raises by `errno_map.storage_error`: NoSpaceError on a full target."""
    documents.write(RECEIPTS[receipt["step"]], run.receipt(receipt["step"]), receipt)


def drop(path: Path) -> None:
    """Remove a receipt, durably; one that is missing is no error. Raises FailedError."""
    try:
        path.unlink(missing_ok=True)
        if path.parent.is_dir():
            durable.fsync_dir(path.parent)
    except OSError as error:
        raise _stays(path, error) from error


def stands(path: Path, holds: Callable[[], bool]) -> bool:
    """Whether an element's receipt is there and holds; one that does not hold is removed, durably, and False
    is returned. One that is being made, or changes while it is judged, stays. Another one, which a process
    put in its place after that, is put back: only where this process dies between these two calls is that one
    lost. Raises as `drop` and `holds`."""
    judged = _content(path)
    if judged is None:
        return False
    if _being_made(path):
        return holds()
    if holds():
        return True
    if _content(path) != judged:
        return holds()
    aside = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        os.rename(path, aside)
        taken = _content(aside)
        if taken is not None and taken != judged:
            durable.create_file(path, taken)
        os.unlink(aside)
        durable.fsync_dir(path.parent)
    except FileNotFoundError:
        return False  # another process removed it
    except OSError as error:
        raise _stays(path, error) from error
    return False


def _being_made(path: Path) -> bool:
    """Whether it is a link to the file that gets this name (`durable.give_name`), or was a moment ago. What
    is read by such a link may be there in one moment and not in the next."""
    if not path.is_symlink():
        return False
    try:
        return plain_files.UNFINISHED.fullmatch(os.path.basename(os.readlink(path))) is not None
    except OSError:
        return True


def _content(path: Path) -> bytes | None:
    """None: there is no file. What is no plain file has no bytes."""
    try:
        return plain_files.read(path)
    except FileNotFoundError:
        return None
    except plain_files.NotPlainError:
        return b""
    except OSError as error:
        raise FailedError(
            "a receipt cannot be read", where=str(path), why=str(error), hint=LOOK_AT_FILE
        ) from error


def _stays(path: Path, error: OSError) -> FailedError:
    return FailedError("a receipt cannot be removed", where=str(path), why=str(error), hint=LOOK_AT_FILE)


def held(run: Run, name: str) -> Callable[[int], bool]:
    """A function that says, for an element's index, whether its receipt of this step holds, by the table
    above. It raises as `element`; KeyError for an index that the plan has not."""
    further = _FURTHER.get(name)

    def holds(index: int) -> bool:
        receipt = element(run.folder, name, index)
        return (
            receipt is not None
            and receipt.run == run.plan.run
            and receipt.shard == run.shards[index].digest
            and (further is None or further(run, index, receipt))
        )

    return holds


def _read_back(run: Run, index: int, receipt: ElementReceipt) -> bool:
    """The digest of the records is checked when they are read."""
    return (
        receipt.copied_by == copied_by(run.folder, index)
        and run.folder.records(index).exists()
        # Another shard may have found a linked file with other bytes since.
        and not (receipt.carried[0] and run.folder.linked_damage.exists())
    )


def _fetched(run: Run, index: int, receipt: ElementReceipt) -> bool:
    path = run.folder.fetched(index)
    return path.exists() and file_digest(path) == receipt.seen


_FURTHER: Mapping[str, Callable[[Run, int, ElementReceipt], bool]] = {
    "verify": _read_back,
    "repair": _fetched,
}
"""What must be so besides, by the table above."""


def of_elements(run: Run, name: str) -> list[ElementReceipt]:
    """The receipts of all elements of a step, in the order of the plan's shards; an empty one where there is
    none."""
    return [element(run.folder, name, index) or ElementReceipt() for index in run.indices]


def fsync_ends(elements: Iterable[ElementReceipt]) -> str:
    """Where the fsyncs of nodes that wrote files ended short of a disk, each text once, in words; "" where
    the mounts say that they reached the disks everywhere."""
    return "; ".join(sorted({one.fsync_ends for one in elements if one.fsync_ends}))


def copied_by(run: RunLayout, index: int) -> str:
    """The attempt that finished a shard's copy, or ""."""
    found = element(run, "copy", index)
    return found.attempt if found else ""


def copied_elsewhere(run: RunLayout, index: int, host: str) -> bool:
    """Whether another node than this host copied a shard, or nobody knows which: a cold read there proves
    more (`cold-other-node`)."""
    receipt = element(run, "copy", index)
    return receipt is None or receipt.host != host


def copies(run: Run) -> str:
    """Digest of the attempts that finished each shard: it changes with any copy made anew."""
    text = "\n".join(copied_by(run.folder, index) for index in run.indices)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def need(run: Run, step: str) -> None:
    """Raises FailedError unless every element of an earlier step has its receipt."""
    holds = held(run, step)
    missing = [index for index in run.indices if not holds(index)]
    if missing:
        raise FailedError(
            f"{step} is not complete",
            where=run.dataset,
            why=f"{len(missing)} of {len(run.indices)} shards have no receipt",
            hint=f"run `penstock {step} {run.dataset}` first",
        )


def head(run: Run, name: str, started: float) -> StepReceipt:
    """The keys that every step's receipt has; `started` in seconds since the epoch, and it ended now."""
    return {
        "step": name,
        "dataset": run.dataset,
        "run": run.id,
        "release": run.release,
        "published": False,
        "started": started,
        "ended": time.time(),
    }


class DoneBefore(NamedTuple):
    """What earlier commands did of a shard."""

    bytes: int  # at least: by the progress file, which is some seconds behind where an attempt was killed
    claims: int


def bytes_before(run: Run, step: str, claims: Mapping[int, int]) -> Mapping[int, DoneBefore]:
    """What earlier commands did of each shard, for `moved`; `claims`: how many each shard has. Shards with
    rows that are linked, taken over or carried over are left out: an attempt that is killed does not say how
    many bytes those had."""
    progress = Progress()
    progress.total(run.folder, step, run.indices)
    return {
        index: DoneBefore(progress.bytes_of(index), claims.get(index, 0))
        for index in run.indices
        if not run.shards[index].reused
    }


def moved(
    elements: Iterable[ElementReceipt],
    since: float = 0.0,
    before: Mapping[int, DoneBefore] = NOTHING,
    claims: Mapping[int, int] = NOTHING,
) -> int:
    """Bytes that elements copied or read themselves after `since` (seconds since the epoch): all attempts, of
    shards in `before`, which have so many `claims` now; of others the attempt that finished each shard,
    without what it found done, linked or carried over, so that a rate made of the sum is never too high."""
    return sum(
        receipt.bytes - _before(receipt, since, before.get(receipt.index), claims.get(receipt.index, 0))
        for receipt in elements
        if receipt.ended > since
    )


def read_beside_copy(run: Run, verified: Sequence[ElementReceipt]) -> int:
    """Of these receipts of verify, the bytes that elements of copy read: before verify's first array."""
    return moved(verified) - moved(verified, ArrayBook(run.folder.arrays).began("verify"))


def _before(receipt: ElementReceipt, since: float, done: DoneBefore | None, claims: int) -> int:
    """An element that outlives its controller had moved some when the next one came. Where one attempt did
    all that this command moved, its own count is exact."""
    at_first = receipt.bytes - receipt.done_bytes + receipt.linked_bytes
    late = max([at_first, *(size for after, _, size in receipt.samples if receipt.started + after <= since)])
    return late if done is None or claims <= done.claims + 1 else min(late, done.bytes)


def keep(
    run: Run,
    receipt: StepReceipt,
    elements: Sequence[ElementReceipt] = (),
    done: Mapping[int, DoneBefore] = NOTHING,
    claims: Mapping[int, int] = NOTHING,
) -> None:
    """Write a step's receipt, durable on return, and complete `receipt` in place: `started` and `seconds`
    then count earlier calls of the step, too; `moved_bytes` and `moved_seconds` are what `elements` moved in
    this call, `done` being what was done before it (`bytes_before`), and `claims` how many each shard has
    now. The file keeps those of the last call that moved any. Raises as `write_step`."""
    before = step(run.folder, receipt["step"])
    seconds = receipt["ended"] - receipt["started"]
    if elements:
        receipt["moved_bytes"] = moved(elements, receipt["started"], done, claims)
        # Workers of copy may read back after the last byte was copied.
        last = max(element.ended for element in elements) - receipt["started"]
        receipt["moved_seconds"] = round(min(seconds, last) if last > 0 else seconds, 3)
    if before is not None:
        receipt["started"] = before.get("started", receipt["started"])
        seconds += before.get("seconds", 0.0)
    receipt["seconds"] = round(seconds, 3)
    kept = receipt
    if before is not None and "moved_bytes" in before and not receipt.get("moved_bytes"):
        kept = {**receipt, "moved_bytes": before["moved_bytes"], "moved_seconds": before["moved_seconds"]}
    write_step(run.folder, kept)


def published(run: Run, name: str) -> StepReceipt:
    """The receipt of a step that has nothing to do because the release is published."""
    info = run.info
    return {**head(run, name, time.time()), "published": True, "files": info.files, "bytes": info.bytes}


def file_digest(path: Path) -> str:
    """`sha256:<hex>` of a small file of the run. Raises OSError, NotPlainError."""
    with plain_files.opened(path) as stream:
        status = os.fstat(stream.fileno())
        if status.st_size > _LARGE and status.st_blocks * 512 * _SPARSE < status.st_size:
            # A hole of a terabyte is read for half an hour.
            raise plain_files.NotPlainError(f"nearly all of its {status.st_size} bytes are a hole", path)
        return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"


_LARGE, _SPARSE = 1 << 30, 64
"""Bytes of a file that is looked at for holes; no file system compresses a file of a run to such a part."""


def is_sealed(path: Path, sealed: SealedManifest | None) -> bool:
    """Whether a file beside `data/` is the one that the seal names; one of another size is not read. Raises
    OSError, NotPlainError."""
    if sealed is None or sealed.bytes not in (None, os.lstat(path).st_size):
        return False
    return file_digest(path) == sealed.sha256
