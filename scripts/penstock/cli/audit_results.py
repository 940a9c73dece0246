"""What `penstock audit` and `penstock repair` have in common: each dataset in turn, and findings, which go to
standard output and end the command with 4."""

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


def each(
    parsed: argparse.Namespace,
    session: Session,
    work: Callable[[Context, str], R],
    render: Callable[[R], str],
    judge: Callable[[R], None],
) -> int:
    """Returns the first exit status that is not 0. Writes --receipt also where there are findings."""
    config = session.config()
    names = session.names(config, parsed.dataset)
    if len(names) != 1 and (parsed.receipt is not None or parsed.release is not None):
        raise ConfigError("--receipt and --release are about one dataset", hint="name the dataset")
    results, code = session.each(config, names, work)
    # After the display has closed: the tables are the result.
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
