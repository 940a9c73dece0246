"""Which shard an element of verify reads: one that another host wrote, where there is one.

Elements call `shard_for` once, as they begin: it reads receipts of copy, and makes the files below. The
controller and the report call `taken`, which reads them.

A cold read (past the caches of the machine that reads) on another node than the writer's proves more
(`cold-other-node`). Which node an element gets is known only when it runs: so the elements of one array
choose their shards among themselves.

    claims/verify/<name>/NNNNN          shard NNNNN is taken: made by O_EXCL
    claims/verify/<name>/element-NNNNN  the shard that element NNNNN took, and takes again after a requeue

The name is the array's (`ArraySpec.name`) and not its number: two clusters over one file system give one run
arrays of the same number.

There are as many elements as shards, and each shard is taken by one element. Where an element dies between
its two files, its shard stays without a receipt and is submitted again. Receipts, records and outcomes carry
the shard's number, whichever element wrote them. Where the array is not known (the local backend, an element
run by hand), an element reads the shard of its own number.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from penstock.dataset import receipts
from penstock.dataset.submission_log import ArrayBook
from penstock.fs import durable, plain_files
from penstock.fs.errno_map import storage_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from penstock.core.layout import RunLayout
    from penstock.host.job_environment import JobEnvironment

STEP = "verify"
LOOKED_AT = 64
"""How many receipts an element reads to find a shard that another host wrote: where one host wrote thousands
of shards, each element would read all of them."""


def shard_for(run: RunLayout, step: str, index: int, host: str, environment: JobEnvironment) -> int:
    """The shard that this element reads. Raises FailedError when the files above cannot be written."""
    array, name = environment.array, environment.array_name
    if step != STEP or not array or not name:
        return index
    indices = ArrayBook(run.arrays).indices(name)
    if len(indices) < 2 or index not in indices:
        return index
    try:
        return _take(run.folder / "claims" / STEP / name, index, indices, lambda s: _writer(run, s) == host)
    except OSError as error:
        raise storage_error(error, "a shard cannot be claimed", str(run.folder)) from error


def chosen_by_elements(step: str, indices: Sequence[int]) -> bool:
    """Whether elements of such an array choose their shards among themselves, where they run on nodes."""
    return step == STEP and len(indices) > 1


def taken(run: RunLayout, array_name: str, known: Mapping[int, int] | None = None) -> dict[int, int]:
    """Which element of an array took which shard, as {shard: element}. What is `known` is not read again: an
    element's file never changes."""
    folder = run.folder / "claims" / STEP / array_name
    takers = dict(known or {})
    before = set(takers.values())
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(folder):
            kind, _, element = name.partition("-")
            if kind == "element" and element.isdecimal() and int(element) not in before:
                # Empty for the moment in which it is written: the next call reads it.
                with contextlib.suppress(OSError, ValueError):
                    takers[int(plain_files.read(folder / name))] = int(element)
    return takers


def _take(folder: Path, index: int, indices: Sequence[int], own: Callable[[int], bool]) -> int:
    durable.make_dirs(folder)
    note = folder / f"element-{index:05d}"
    try:
        return int(plain_files.read(note))
    except (FileNotFoundError, ValueError):
        pass
    taken = set(os.listdir(folder))
    for shard in _order(index, indices, own, taken):
        try:
            os.close(
                os.open(folder / f"{shard:05d}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            )
        except FileExistsError:
            continue
        durable.write_file(note, b"%d" % shard)
        return shard
    # Another element died between its two files: all shards are taken. This one reads the shard of its own
    # number once more; the shard that nobody read is submitted again.
    return index


def _order(index: int, indices: Sequence[int], own: Callable[[int], bool], taken: set[str]) -> Iterator[int]:
    """Shards in the order of preference:

    | shard                   | written here | order |
    |-------------------------|--------------|-------|
    | of the element's number | no           | 1     |
    | another, not taken      | no           | 2     |
    | of the element's number | yes          | 3     |
    | another, not taken      | yes          | 4     |

    Who wrote a shard is looked up for LOOKED_AT of them; others count as written here.
    """
    at = indices.index(index)
    late: list[int] = []
    for shard in (*indices[at:], *indices[:at]):
        if f"{shard:05d}" in taken:
            continue
        if len(late) >= LOOKED_AT or own(shard):
            late.append(shard)
        else:
            yield shard
    yield from late


def _writer(run: RunLayout, shard: int) -> str:
    receipt = receipts.element(run, "copy", shard)
    return receipt.host if receipt else ""
