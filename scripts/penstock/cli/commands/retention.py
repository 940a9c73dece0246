"""The commands `penstock gc`, `remove` and `rollback`: remove releases, or lead `current` back to an earlier
one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from penstock.cli import flags, output
from penstock.cli.command_table import CommandFunctions
from penstock.core.errors import ConfigError, PreflightError

if TYPE_CHECKING:
    import argparse

    from penstock.cli.session import Session
    from penstock.core.step_results import Collected
    from penstock.dataset.context import Context


GC_EXAMPLES = ("penstock gc --dry-run", "penstock gc imagenet --unpin job-4711")


def gc_arguments(parser: argparse.ArgumentParser) -> None:
    flags.datasets(parser)
    flags.removal(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON, a line a dataset")


def run_gc(parsed: argparse.Namespace, session: Session) -> int:
    """Remove what nothing holds, also after a dataset that another run holds. Returns the first exit status
    other than 0."""
    from penstock.fs import scratch
    from penstock.jobs import bandwidth as link_folder
    from penstock.keep import retention_steps
    from penstock.look.views import text_layout

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
        session.show(result, partial(text_layout.collected, result, output.columns(piped=0)))
    return code


GC = CommandFunctions(gc_arguments, run_gc, GC_EXAMPLES)


REMOVE_EXAMPLES = (
    "penstock remove imagenet 20261101-1f2e3d4c --dry-run",
    "penstock remove imagenet --all --now",
)
HELD = PreflightError.exit_code


def remove_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="DATASET", help="whose releases")
    parser.add_argument(
        "release", nargs="*", default=[], metavar="RELEASE", help="which ones; none with --all"
    )
    parser.add_argument(
        "--all", action="store_true",
        help="all of them, with `current`, the history and all state: the dataset is gone then",
    )  # fmt: skip
    flags.removal(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument(
        "--now", action="store_true",
        help="do not wait for gc.grace: readers that have not pinned may still read it",
    )  # fmt: skip


def run_remove(parsed: argparse.Namespace, session: Session) -> int:
    """Remove releases, or the dataset with --all. Returns HELD where a reader or run took hold of one after
    the command began: it stays."""
    from penstock.keep import retention_steps
    from penstock.look.views import text_layout

    config = session.config()
    name = session.only(config, parsed.name)
    if parsed.all == bool(parsed.release):
        raise ConfigError("which releases?", hint="name them, or remove the dataset with all of them: --all")
    work = (
        retention_steps.remove_all if parsed.all else partial(retention_steps.remove, releases=parsed.release)
    )
    with session.context(config) as context:
        result = work(context, name, dry_run=parsed.dry_run, now=parsed.now, unpinned=tuple(parsed.unpin))
    session.receipt(result)
    session.show(result, partial(text_layout.collected, result, output.columns(piped=0)))
    stay = not parsed.dry_run and any(release["held_by"] for release in result["releases"])
    return HELD if stay else 0


REMOVE = CommandFunctions(remove_arguments, run_remove, REMOVE_EXAMPLES)


ROLLBACK_EXAMPLES = ("penstock rollback imagenet", "penstock rollback imagenet 20261101-1f2e3d4c")


def rollback_arguments(parser: argparse.ArgumentParser) -> None:
    flags.json_document(parser)
    flags.dataset(parser, "name")
    parser.add_argument(
        "release", nargs="?", metavar="RELEASE",
        help="default: the one that was current before this one was published",
    )  # fmt: skip


def run_rollback(parsed: argparse.Namespace, session: Session) -> int:
    from penstock.keep import retention_steps

    config = session.config()
    name = session.only(config, parsed.name)
    with session.context(config) as context:
        result = retention_steps.rollback(context, name, parsed.release)
    release, left = result["release"], result["left"]
    if result["finished"]:
        text = f"the interrupted rollback from {left} is finished: current is {release}"
    elif left:
        text = f"current is {release}; it was {left}"
    else:
        text = f"current is {release} already"
    output.show(f"{name}: {text}")
    session.receipt(result)
    return 0


ROLLBACK = CommandFunctions(rollback_arguments, run_rollback, ROLLBACK_EXAMPLES)
