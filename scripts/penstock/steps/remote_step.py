"""A light step on a node: the same step, as an array of one element.

Guarantee: the controller returns the step's result, or raises its error with its exit status. A controller
that is started again after a kill finds the element again. The controller holds no lock meanwhile: the step
takes the dataset's lock where it runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cluster.abilities import abilities_of
from penstock.config.serialization import from_json, to_json
from penstock.config.settings import Config
from penstock.core import events
from penstock.core.documents.element_outcome import ElementOutcome
from penstock.core.layout import RunLayout
from penstock.errors import ConfigError, FailedError, InterruptedRunError, PenstockError
from penstock.policy import rights
from penstock.runtime import interpreter
from penstock.state import outcomes
from penstock.storage.registry import open_storage

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from penstock.core.layout import DatasetLayout
    from penstock.state.context import Context

INDEX = 0
NODES = "nodes"


def wanted(config: Config, step: str) -> bool:
    """Whether the configuration sends this step to a node."""
    return abilities_of(config.cluster.backend).has_nodes and step in config.cluster.on_nodes


def folder(layout: DatasetLayout, step: str) -> RunLayout:
    """Receipt, logs and array ids of this step's elements."""
    return RunLayout(layout.state / NODES / step)


def run(context: Context, dataset: str, step: str) -> Mapping[str, object]:
    """Do the step on a node; returns its result."""
    from penstock.arrays.array_runner import still_alive

    layout = context.layout(dataset)
    context.storage.prepare(layout)
    place = folder(layout, step)
    context.storage.make_dirs(place.folder)
    frozen = place.folder / "config.json"
    config = to_json(context.config)
    if still_alive(context, dataset, place, step) and _read(context, frozen) != config:
        # An element of another configuration: let it end, then do what is asked for now.
        text = f"waiting for a {step} that began with another configuration"
        context.emit(events.Noted(dataset, step, text))
        _do(context, dataset, step, place, frozen)
    if not still_alive(context, dataset, place, step):
        place.receipt(step, INDEX).unlink(missing_ok=True)
        context.storage.write_json(frozen, config)
    return _do(context, dataset, step, place, frozen)


def _do(context: Context, dataset: str, step: str, place: RunLayout, frozen: Path) -> Mapping[str, object]:
    from penstock.arrays.array_runner import run_array

    receipt = place.receipt(step, INDEX)
    command = [
        *interpreter.command("penstock", context.config.cluster.python), "--config", str(frozen),
        "--progress", "lines", "--receipt", str(receipt), *rights.handed_on(), step, dataset,
        *(("--run", context.run) if context.run else ()),
        *(("--new-release",) if context.new_release and step == "list" else ()),
        *(("--copy-unchanged",) if context.copy_unchanged and step == "plan" else ()), "--joined",
    ]  # fmt: skip
    try:
        run_array(context, dataset, place, step, (INDEX,), lambda _: receipt.exists(), command)
    except InterruptedRunError:
        raise
    except PenstockError as error:
        raise _theirs(place, step) or error from error
    result = _read(context, receipt)
    if not isinstance(result, dict):
        raise FailedError(f"{step} on a node left no receipt that can be read", where=str(receipt))
    if context.run and result.get("run") != context.run:
        raise FailedError(
            f"the {step} that ended on a node was another run's",
            where=dataset,
            why=f"it did {result.get('run')}, this is {context.run}",
            hint="the same command goes on",
        )
    context.emit(events.Ended(dataset, step, result))
    return result


def _read(context: Context, path: Path) -> object:
    try:
        return context.storage.read_json(path)
    except (OSError, ValueError):
        return None


def _theirs(place: RunLayout, step: str) -> PenstockError | None:
    """The error that the step itself reported on the node, if it came that far."""
    try:
        told = outcomes.load(place, step, INDEX)
    except (OSError, ValueError):
        return None
    if not told.what:
        return None
    error = FailedError(told.what, where=told.where, why=told.why, hint=told.hint)
    error.exit_code = told.exit_code
    return error


# On the node -------------------------------------------------------------------------------


def joined_config(frozen: Path) -> Config:
    """The configuration that the controller froze. Raises ConfigError."""
    try:
        return from_json(Config, open_storage().read_json(frozen))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            "the controller's configuration cannot be read here", where=str(frozen), why=str(error)
        ) from error


def note_failure(receipt: Path, step: str, error: PenstockError) -> None:
    """Write the error to the file from which the controller reads it."""
    place = RunLayout(receipt.parents[2])
    outcome = ElementOutcome(
        exit_code=error.exit_code,
        retry=isinstance(error, InterruptedRunError) or error.retry,
        error=str(error),
        what=error.what,
        where=error.where,
        why=error.why,
        hint=error.hint,
    )
    outcomes.write(place, step, INDEX, outcome)
