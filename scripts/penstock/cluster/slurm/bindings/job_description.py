"""Translates the arguments of `sbatch` into the fields of pyslurm's `JobSubmitDescription`.

Only `submission` defines a job, as sbatch's options: so both ways submit the same. A job with an option that
has no row here goes through `sbatch`: pyslurm does not carry the option, or it was not tried.
"""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

from penstock.cluster.slurm.submission import handed_on

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_WARNING = re.compile(r"B:([A-Z0-9]+)@([0-9]+)")


def attributes(arguments: Sequence[str], script: str) -> dict[str, object] | None:
    """Translate these arguments of sbatch, `sbatch` first; None where pyslurm does not carry an option."""
    asked: dict[str, object] = {"script": script, "environment": handed_on()}
    for word in arguments[1:]:
        option, _, value = word.partition("=")
        row = _OPTIONS[option](value) if option in _OPTIONS else None
        if row is None:
            return None
        asked.update(row)
    return asked


def _text(name: str) -> Callable[[str], Mapping[str, object]]:
    return lambda value: {name: value}


def _number(name: str) -> Callable[[str], Mapping[str, object] | None]:
    # A text of digits raises TypeError for a time limit, and 0 is never sent.
    return lambda value: {name: int(value)} if value.isdecimal() and int(value) > 0 else None


def _several(name: str) -> Callable[[str], Mapping[str, object]]:
    return lambda value: {name: value.split(",")}


def _fixed(**row: object) -> Callable[[str], Mapping[str, object]]:
    return lambda _: row


def _warned(value: str) -> Mapping[str, object] | None:
    """Translate `B:USR1@120`: a signal for the batch script alone, so many seconds before the end of its
    time."""
    if (match := _WARNING.fullmatch(value)) is None:
        return None
    number = int(signal.Signals[f"SIG{match[1]}"])
    return {"signal": {"signal": number, "time": int(match[2]), "batch_only": True}}


_OPTIONS: Mapping[str, Callable[[str], Mapping[str, object] | None]] = {
    "--parsable": _fixed(),
    "--job-name": _text("name"),
    "--comment": _text("comment"),
    "--array": _text("array"),
    "--requeue": _fixed(is_requeueable=True),
    "--no-requeue": _fixed(is_requeueable=False),
    "--signal": _warned,
    "--open-mode": _text("log_files_open_mode"),
    "--input": _text("standard_in"),
    "--output": _text("standard_output"),
    "--chdir": _text("working_directory"),
    "--nodes": _number("nodes"),
    "--ntasks": _number("ntasks"),
    "--cpus-per-task": _number("cpus_per_task"),
    "--partition": _several("partitions"),
    "--account": _text("account"),
    "--qos": _text("qos"),
    "--reservation": _several("reservations"),
    "--constraint": _text("constraints"),
    "--licenses": _several("licenses"),
    "--time": _number("time_limit"),
    "--mem": _text("memory_per_node"),
    "--core-spec": _number("cores_reserved_for_system"),
    "--exclusive": _fixed(resource_sharing="exclusive"),
    "--nodelist": _several("required_nodes"),
    "--exclude": _several("excluded_nodes"),
    "--wckey": _text("wckey"),
}
