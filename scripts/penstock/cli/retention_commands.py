"""Commands about releases that are published: rollback, gc, remove."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

from penstock.cli import output
from penstock.errors import ConfigError, PreflightError

if TYPE_CHECKING:
    import argparse

    from penstock.cli.session import Session
    from penstock.core.documents.step_results import Collected
    from penstock.state.context import Context


HELD = PreflightError.exit_code


def rollback(parsed: argparse.Namespace, session: Session) -> int:
    """Lead `current` back to a release, or forward to one."""
    from penstock.steps import rollback_step

    config = session.config()
    name = session.only(config, parsed.name)
    with session.context(config) as context:
        found = rollback_step.run(context, name, parsed.release)
    release, left = found["release"], found["left"]
    if found["finished"]:
        text = f"the interrupted rollback from {left} is finished: current is {release}"
    elif left:
        text = f"current is {release}; it was {left}"
    else:
        text = f"current is {release} already"
    output.show(f"{name}: {text}")
    session.receipt(found)
    return 0


def gc(parsed: argparse.Namespace, session: Session) -> int:
    """Remove what nothing holds, of each dataset in turn, also after one that another run holds. Returns the
    first exit status that is not 0."""
    from penstock.steps import gc_step

    config = session.config()
    names = session.names(config, parsed.dataset)
    if parsed.unpin and len(names) != 1:
        raise ConfigError("--unpin is about the pins of one dataset", hint="name the dataset")

    def work(context: Context, name: str) -> Collected:
        return gc_step.gc(context, name, dry_run=parsed.dry_run, unpinned=tuple(parsed.unpin))

    found, code = session.each(config, names, work)
    session.receipt({"datasets": {one["dataset"]: one for one in found}})
    for one in found:
        _show(parsed, one)
    return code


def remove(parsed: argparse.Namespace, session: Session) -> int:
    """Remove releases by name, or with --all the dataset. Returns HELD where a reader or a run came to hold
    one after the command had begun: that one stays."""
    from penstock.steps import gc_step

    config = session.config()
    name = session.only(config, parsed.name)
    if parsed.all == bool(parsed.release):
        raise ConfigError("which releases?", hint="name them, or remove the dataset with all of them: --all")
    work = gc_step.remove_all if parsed.all else partial(gc_step.remove, releases=parsed.release)
    with session.context(config) as context:
        found = work(context, name, dry_run=parsed.dry_run, now=parsed.now, unpinned=tuple(parsed.unpin))
    session.receipt(found)
    _show(parsed, found)
    stay = not parsed.dry_run and any(one["held_by"] for one in found["releases"])
    return HELD if stay else 0


def _show(parsed: argparse.Namespace, found: Collected) -> None:
    from penstock.views import gc_text

    if parsed.json or parsed.progress == "json":
        output.show_json(found)
    else:
        output.show(gc_text.collected(found, output.columns() if sys.stdout.isatty() else 0))
