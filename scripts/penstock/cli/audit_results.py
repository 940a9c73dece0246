"""Runs `penstock audit` and `penstock repair` over datasets, prints results, derives the exit status."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from penstock.cli import output
from penstock.core.errors import ConfigError, PenstockError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

    from penstock.cli.session import Session
    from penstock.dataset.context import Context

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
    raised; of several, errors are printed and the first exit status other than 0 is returned. Raises
    ConfigError before any work for --receipt or --release with several."""
    from penstock.keep import notices

    config = session.config()
    names = session.names(config, parsed.dataset)
    if len(names) != 1 and (parsed.receipt is not None or parsed.release is not None):
        raise ConfigError("--receipt and --release are about one dataset", hint="name the dataset")
    results, code = session.each(config, names, work)
    for name, lines in notices.send(config, session.file).items():
        for line in lines:
            output.say(f"{name}: {line}")
    # `session.each` has closed the display: from here standard output gets results alone.
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
