"""`penstock adopt`: a tree that is there already, compared with a dataset's source, and with --seal published
as a release. Exit status 4 means that it differs, or that --seal needs a decision first."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli import output
from penstock.errors import ConfigError

if TYPE_CHECKING:
    import argparse

    from penstock.cli.session import Session
    from penstock.config.settings import Config
    from penstock.core.documents.step_results import AdoptionResult, SealingResult


def run(parsed: argparse.Namespace, session: Session) -> int:
    """0 where the tree is what the source holds, or is a release now. Raises FindingsError (4)."""
    from penstock.steps import adopt_step

    config = session.config()
    (name,) = session.names(config, [parsed.dataset])
    if parsed.leave_extra and not parsed.seal:
        raise ConfigError("--leave-extra is for --seal", hint="without --seal nothing is moved")
    if parsed.seal:
        return _seal(parsed, session, config, name)
    request = adopt_step.Request(parsed.tree, read_source=parsed.read_source)
    with session.context(config) as context:
        result = adopt_step.run(context, name, request)
    # After the display has closed: the table is the result.
    session.receipt(result)
    _show(parsed, result)
    adopt_step.judge(result)
    return 0


def _show(parsed: argparse.Namespace, result: AdoptionResult) -> None:
    from penstock.steps import adopt_step
    from penstock.views import adoption_text

    if parsed.json:
        for one in adopt_step.differences(result):
            output.show_json(one)
        output.show_json({**result, "differences": []})
    elif parsed.progress == "json":
        output.show_json(result)
    else:
        output.show(adoption_text.comparison(result))


def _seal(parsed: argparse.Namespace, session: Session, config: Config, name: str) -> int:
    """Compare, note the intention, say what will be done, do it; or go on with what was begun."""
    from penstock.steps import adopt_seal, adopt_step

    tree = Path(os.path.realpath(parsed.tree))
    with session.context(config) as context:
        begun = adopt_seal.under_way(context, name, tree)
        if begun is None:
            request = adopt_step.Request(parsed.tree, read_source=parsed.read_source, seal=True)
            compared = adopt_step.run(context, name, request)
    if begun is None:
        _show(parsed, compared)
        adopt_seal.refuse(compared, leave_extra=parsed.leave_extra)
        with session.context(config) as context:
            adopt_seal.mark(context, name, compared)
        # After all that can be refused.
        for sentence in adopt_seal.intended(context, name, compared):
            output.say(sentence)
    with session.context(config) as context:
        result = adopt_seal.go_on(context, name, begun)
    session.receipt(result)
    _show_sealed(parsed, result)
    return 0


def _show_sealed(parsed: argparse.Namespace, result: SealingResult) -> None:
    from penstock.views import adoption_text

    if parsed.json or parsed.progress == "json":
        output.show_json(result)
    else:
        output.show(adoption_text.sealed(result))
