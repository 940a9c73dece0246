"""A job file of fio, the storage tester, with the file sizes of a sample (`penstock rehearse --fio`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.balance import FILE_COST

if TYPE_CHECKING:
    from collections.abc import Sequence

_WIDTH = 4  # bits: each class of sizes reaches to 16 times the previous
_GLOBAL = """\
; Sizes of files of {dataset}, for {streams} streams. `cd` into a folder of the target, and `fio` this file.
[global]
directory=.
rw=write
ioengine=psync
bs=1m
fallocate=none
create_on_open=1
file_service_type=sequential
openfiles=1
{sync}=1
unlink=1
group_reporting=1
"""


def text(dataset: str, sizes: Sequence[int], streams: int, durability: str) -> str:
    """Return the job file for files of these sizes, in bytes; at least one.

    Each class of sizes is a job, whose files have any size between its smallest and its largest. Its
    processes are its part of the `streams`, by work, at least one. Empty files get one byte: fio makes none.
    `durability`: `fsync` (each file), or `syncfs` (once at the end).
    """
    classes: dict[int, list[int]] = {}
    for size in sizes:
        classes.setdefault(-(-max(1, size).bit_length() // _WIDTH), []).append(max(1, size))
    whole = sum(sizes) + FILE_COST * len(sizes)
    sync = "fsync_on_close" if durability == "fsync" else "end_fsync"
    jobs = [_GLOBAL.format(dataset=dataset, streams=streams, sync=sync)]
    for number, members in sorted(classes.items()):
        part = (sum(members) + FILE_COST * len(members)) / whole
        processes = min(len(members), max(1, round(streams * part)))
        jobs.append(
            f"[below-2^{number * _WIDTH}]\n"
            f"filesize={min(members)}-{max(members)}\n"
            f"nrfiles={-(-len(members) // processes)}\n"
            f"numjobs={processes}\n"
        )
    return "\n".join(jobs)
