"""`penstock gc`: removes releases that nothing holds."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from penstock.cli import flags, output
from penstock.cli.command_table import CommandFunctions
from penstock.core.errors import ConfigError

if TYPE_CHECKING:
    import argparse

    from penstock.cli.session import Session
    from penstock.core.step_results import Collected
    from penstock.dataset.context import Context

EXAMPLES = ("penstock gc --dry-run", "penstock gc imagenet --unpin job-4711")


def arguments(parser: argparse.ArgumentParser) -> None:
    flags.datasets(parser)
    flags.removal(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON, a line a dataset")


def run(parsed: argparse.Namespace, session: Session) -> int:
    """Remove what nothing holds, also after a dataset that another run holds. Returns the first exit status
    other than 0."""
    from penstock.fs import scratch
    from penstock.jobs import bandwidth as link_folder
    from penstock.keep import retention_steps
    from penstock.look.views import result_texts

    config = session.config()
    names = session.names(config, parsed.dataset)
    if parsed.unpin and len(names) != 1:
        raise ConfigError("--unpin is about the pins of one dataset", hint="name the dataset")

    def work(context: Context, name: str) -> Collected:
        return retention_steps.gc(context, name, dry_run=parsed.dry_run, unpinned=tuple(parsed.unpin))

    results, code = session.each(config, names, work)
    if not parsed.dry_run:
        scratch.sweep()
        if config.bandwidth.folder is not None:
            link_folder.swept(config.bandwidth.folder)
    session.receipt({"datasets": {result["dataset"]: result for result in results}})
    for result in results:
        session.show(result, partial(result_texts.collected, result, output.columns(piped=0)))
    return code


GC = CommandFunctions(arguments, run, EXAMPLES)
