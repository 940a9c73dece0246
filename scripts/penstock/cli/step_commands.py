"""The commands that are steps: the same code for all, `penstock.steps.<module>.run`."""

from __future__ import annotations

import contextlib
import importlib
from typing import TYPE_CHECKING, cast

from penstock.cli import output
from penstock.errors import CancelledError, ConfigError, InterruptedRunError, LockedError, PenstockError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.cli.session import Session
    from penstock.config.settings import Config
    from penstock.core.documents.step_results import ListResult, PlanResult
    from penstock.state.context import Context
    from penstock.views.keys import Result as ReportResult

    Result = Mapping[str, object]
    """What a step returns: one of `core.documents.step_results`."""


def run(parsed: argparse.Namespace, session: Session) -> int:
    """Run the step for each dataset in turn, also after one that failed. Returns the first failure's exit
    status."""
    config = session.config()
    names = session.names(config, parsed.dataset)
    one_receipt(parsed, names)
    html = getattr(parsed, "html", None)
    options = {} if html is None else {"html": html}
    code = 0
    results = []
    with session.context(config) as context:
        context.run = getattr(parsed, "run", None) or ""
        context.new_release = getattr(parsed, "new_release", False)
        context.copy_unchanged = getattr(parsed, "copy_unchanged", False)
        for name in names:
            try:
                result = one(parsed.command, context, name, **options)
            except InterruptedRunError:
                raise
            except PenstockError as error:
                if len(names) == 1:
                    add_name(error, name, config)
                    raise
                output.say(f"{name}: {error}")
                code = code or error.exit_code
                continue
            session.receipt(result)
            if parsed.receipt is None:
                results.append(result)
    # After the display has closed: these are the results.
    for result in results:
        _show(parsed, result)
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


def _show(parsed: argparse.Namespace, result: Result) -> None:
    """What people ask for by the command; a step that moves data has its line on standard error."""
    from penstock.views import result_texts

    if parsed.progress == "json":
        output.show_json(result)
    elif parsed.command == "list":
        output.show(result_texts.listing(cast("ListResult", result)))
    elif parsed.command == "plan":
        output.show(result_texts.plan(cast("PlanResult", result)))
    elif parsed.command == "report":
        from penstock.views import summary

        output.show(summary.render(cast("ReportResult", result)))


def one(command: str, context: Context, name: str, **options: object) -> Result:
    """One step of one dataset; returns its result. How a step ended that did not come to its end is noted for
    `status`."""
    step = importlib.import_module(f"penstock.steps.{command}_step")
    with _noted(context, name, command):
        result: Result = step.run(context, name, **options)
        return result


@contextlib.contextmanager
def _noted(context: Context, dataset: str, step: str) -> Iterator[None]:
    """While inside, an error or a signal that ends the step is noted for the dataset: not that another
    command holds the dataset, nor that a report cannot be written."""
    from penstock.cli.error_report import explained
    from penstock.core.documents.marks import LastEnd
    from penstock.steps import run_state

    try:
        yield
    except Exception as raised:
        error = explained(raised)
        code = error.exit_code if isinstance(error, PenstockError) else 1
        stopped = isinstance(error, (CancelledError, InterruptedRunError))
        first, *more = str(error).splitlines() or [""]
        # What an element said of itself stands between the message and its hint.
        why = "; ".join([first, *(line.strip() for line in more[:-1][:1])])
        hint = more[-1].strip() if more else ""
        if context.stop.event.is_set():
            code, why, stopped = 128 + context.stop.signal_number, context.stop.why, True
        elif not isinstance(error, PenstockError):
            why = f"unexpected {type(error).__name__}: {why}"
        if step != "report" and not isinstance(error, LockedError):
            run_state.note(context.layout(dataset), LastEnd(step, code, why, hint, stopped=stopped))
        raise
