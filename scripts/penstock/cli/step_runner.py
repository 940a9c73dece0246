"""Runs a step, `penstock.run.<name>_step` (preflight: `penstock.doctor`), for datasets: of the commands that
are steps, and of the workflow's listing."""

from __future__ import annotations

import contextlib
import importlib
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.core.errors import (
    CancelledError,
    ConfigError,
    InterruptedRunError,
    LockedError,
    PenstockError,
    TargetAwayError,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from penstock.cli.session import Session
    from penstock.config.settings import Config
    from penstock.dataset.context import Context

    Result = Mapping[str, object]
    """What a step returns: one of `core.documents.step_results`."""


def run(
    parsed: argparse.Namespace, session: Session, text: Callable[[Any], str] | None = None, **options: object
) -> int:
    """Run the step that is the command for each dataset in turn, also after one that failed. `text` renders a
    result, which is printed where no receipt takes it; of a step that moves data the display has a line, and
    no text is printed. Returns the first failure's exit status."""
    config = session.config()
    names = session.names(config, parsed.dataset)
    one_receipt(parsed, names)

    def work(context: Context, name: str) -> Result:
        context.run = getattr(parsed, "run", None) or ""
        context.new_release = getattr(parsed, "new_release", False)
        context.copy_unchanged = getattr(parsed, "copy_unchanged", False)
        try:
            result = run_step(parsed.command, context, name, **options)
        except InterruptedRunError:
            raise
        except PenstockError as error:
            if len(names) == 1:
                add_name(error, name, config)
            raise
        session.receipt(result)
        return result

    results, code = session.each(config, names, work)
    # After the display has closed: these are the results.
    for result in results if parsed.receipt is None else ():
        session.show(result, partial(text, result) if text is not None else None)
    return code


def one_receipt(parsed: argparse.Namespace, names: Sequence[str]) -> None:
    """Raises ConfigError where --receipt is to hold the results of several datasets."""
    if parsed.receipt is not None and len(names) != 1:
        raise ConfigError("--receipt takes the result of one dataset", hint="name the dataset")


def add_name(error: PenstockError, name: str, config: Config) -> None:
    """Let the error of a command's only dataset name it, where the configuration has others: in a run of many
    datasets each step is a command of its own."""
    if len(config.datasets) > 1 and name not in str(error):
        error.what = f"{name}: {error.what}"


def run_step(command: str, context: Context, name: str, **options: object) -> Result:
    """One step of one dataset; returns its result. How a step ended that did not come to its end is noted for
    `status`."""
    room = "doctor" if command == "preflight" else "run"
    step = importlib.import_module(f"penstock.{room}.{command}_step")
    with _noted(context, name, command):
        result: Result = step.run(context, name, **options)
        return result


@contextlib.contextmanager
def _noted(context: Context, dataset: str, step: str) -> Iterator[None]:
    """While inside, an error or a signal that ends the step is noted for the dataset: not that another
    command holds the dataset, nor that a report cannot be written, nor that the target is away, where the
    note's file would wait for it."""
    from penstock.cli.error_report import explained
    from penstock.core.documents.marks import LastEnd
    from penstock.jobs import dataset_state

    try:
        yield
    except Exception as raised:
        error = explained(raised)
        code = error.exit_code if isinstance(error, PenstockError) else 1
        stopped = isinstance(error, (CancelledError, InterruptedRunError))
        first, *more = str(error).splitlines() or [""]
        # What an element said of itself, and of a file, stands between the message and its hint.
        why = "; ".join([first, *(line.strip() for line in more[:-1][:2])])
        hint = more[-1].strip() if more else ""
        if context.stop.event.is_set():
            code, why, stopped = 128 + context.stop.signal_number, context.stop.why, True
        elif not isinstance(error, PenstockError):
            why = f"unexpected {type(error).__name__}: {why}"
        if step != "report" and not isinstance(error, (LockedError, TargetAwayError)):
            dataset_state.note(context.layout(dataset), LastEnd(step, code, why, hint, stopped=stopped))
        raise
