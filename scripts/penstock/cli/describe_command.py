"""`penstock describe`: a release in a standard form, on standard output or in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli import output

if TYPE_CHECKING:
    import argparse

    from penstock.cli.session import Session


def run(parsed: argparse.Namespace, session: Session) -> int:
    """Print the description of a release, or write it to --out. What the configuration leaves out that
    catalogues ask for is named on standard error."""
    from penstock.description import beside
    from penstock.steps import describing
    from penstock.storage import durable

    config = session.config()
    name = session.only(config, parsed.name)
    with session.context(config) as context:
        found = describing.run(context, name, parsed.release, parsed.form)
        if parsed.out is None:
            for piece in found.pieces:
                output.show_piece(piece)
        else:
            parsed.out.parent.mkdir(parents=True, exist_ok=True)
            with durable.output(parsed.out) as file:
                beside.write_pieces(file, found.pieces)
    if found.left_out:
        keys = ", ".join(f"`{key}`" for key in found.left_out)
        output.say(f"{name}: catalogues ask for more than the file that `describe` names has: {keys}")
    session.receipt(
        {
            "dataset": name,
            "release": found.release,
            "form": parsed.form,
            "out": str(parsed.out) if parsed.out else None,
            "left_out": list(found.left_out),
        }
    )
    return 0
