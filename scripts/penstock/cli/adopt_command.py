"""`penstock adopt`: a tree that is there already, compared with a dataset's source. Exit status 4 means that
it differs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli import output

if TYPE_CHECKING:
    import argparse

    from penstock.cli.session import Session


def run(parsed: argparse.Namespace, session: Session) -> int:
    """0 where the tree is what the source holds. Raises FindingsError (4) where it differs."""
    from penstock.steps import adopt_step

    config = session.config()
    (name,) = session.names(config, [parsed.dataset])
    request = adopt_step.Request(parsed.tree, read_source=parsed.read_source)
    with session.context(config) as context:
        result = adopt_step.run(context, name, request)
    # After the display has closed: the table is the result.
    session.receipt(result)
    if parsed.json:
        for one in adopt_step.differences(result):
            output.show_json(one)
        output.show_json({**result, "differences": []})
    elif parsed.progress == "json":
        output.show_json(result)
    else:
        from penstock.views import adoption_text

        output.show(adoption_text.comparison(result, parsed.names))
    adopt_step.judge(result)
    return 0
