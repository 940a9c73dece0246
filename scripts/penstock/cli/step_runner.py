"""Runs a step, `penstock.run.<name>_step` (preflight: `penstock.doctor`), for datasets. Used by commands that
are steps, by audits and repairs, and by the workflow's listing.
"""

from __future__ import annotations

import contextlib
import importlib
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.cli import output
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
    """The result of a step: one of the types in `core.step_results`."""


R = TypeVar("R", bound="Mapping[str, object]")


def run_each(
    parsed: argparse.Namespace,
    session: Session,
    work: Callable[[Context, str], R],
    render: Callable[[R], str],
    judge: Callable[[R], None],
) -> int:
    """Call `work(context, dataset)` for each dataset, send notices, then print each result. `judge` raises
    FindingsError (exit status 4) after the result was printed and written. The error of an only dataset is
    raised. Errors of several datasets are printed, and the first exit status other than 0 is returned. Raises
    ConfigError before any work for --receipt or --release with several datasets."""
    from penstock.keep import notices

    config = session.config()
    names = session.names(config, parsed.dataset)
    if len(names) != 1 and (parsed.receipt is not None or parsed.release is not None):
        raise ConfigError("--receipt and --release are about one dataset", hint="name the dataset")
    results, code = session.each(config, names, work)
    for name, lines in notices.send(config, session.file).items():
        for line in lines:
            output.say(f"{name}: {line}")
    # `session.each` has closed the display. From here on only results are printed on standard output.
    for result in results:
        session.receipt(result)
        session.show(result, partial(render, result))
        try:
            judge(result)
        except PenstockError as error:
            if len(names) == 1:
                raise
            output.say(str(error))
            code = code or error.exit_code
    return code


def run(
    parsed: argparse.Namespace, session: Session, text: Callable[[Any], str] | None = None, **options: object
) -> int:
    """Run the command's step for each dataset in turn, and return the first failure's status. `text` renders
    a result, which is printed without --receipt. Steps that move data show a line of the display instead."""
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
    # The display is closed, so results can be printed.
    for result in results if parsed.receipt is None else ():
        session.show(result, partial(text, result) if text is not None else None)
    return code


def one_receipt(parsed: argparse.Namespace, names: Sequence[str]) -> None:
    """Raise ConfigError if --receipt would contain the results of several datasets."""
    if parsed.receipt is not None and len(names) != 1:
        raise ConfigError("--receipt takes the result of one dataset", hint="name the dataset")


def add_name(error: PenstockError, name: str, config: Config) -> None:
    """Add an only dataset's name to its error if the configuration has others. A run starts each step as a
    command of its own."""
    if len(config.datasets) > 1 and name not in str(error):
        error.what = f"{name}: {error.what}"


def run_step(command: str, context: Context, name: str, **options: object) -> Result:
    """Run a step of a dataset, and note a failure for `status`."""
    room = "doctor" if command == "preflight" else "run"
    step = importlib.import_module(f"penstock.{room}.{command}_step")
    with _noted(context, name, command):
        result: Result = step.run(context, name, **options)
        return result


@contextlib.contextmanager
def _noted(context: Context, dataset: str, step: str) -> Iterator[None]:
    """Note how a step failed inside the block. Not noted are another command's lock, an unwritable report,
    and a target that is away, where the note would wait."""
    from penstock.cli.error_report import explained
    from penstock.core.dataset_documents import LastEnd
    from penstock.jobs import dataset_state

    try:
        yield
    except Exception as raised:
        error = explained(raised)
        code = error.exit_code if isinstance(error, PenstockError) else 1
        stopped = isinstance(error, (CancelledError, InterruptedRunError))
        first, *more = str(error).splitlines() or [""]
        # The messages of an element or a file are between the error's message and its hint.
        why = "; ".join([first, *(line.strip() for line in more[:-1][:2])])
        hint = more[-1].strip() if more else ""
        if context.stop.event.is_set():
            code, why, stopped = 128 + context.stop.signal_number, context.stop.why, True
        elif not isinstance(error, PenstockError):
            why = f"unexpected {type(error).__name__}: {why}"
        if step != "report" and not isinstance(error, (LockedError, TargetAwayError)):
            dataset_state.note(context.layout(dataset), LastEnd(step, code, why, hint, stopped=stopped))
        raise
