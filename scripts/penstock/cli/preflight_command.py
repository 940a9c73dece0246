"""`penstock preflight`: the table of all that was looked at, also where something stops the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli import output, step_commands

if TYPE_CHECKING:
    import argparse

    from penstock.cli.session import Session
    from penstock.core.documents.step_results import PreflightResult


def run(parsed: argparse.Namespace, session: Session) -> int:
    """Look at each dataset in turn, and print what was seen: a table, or with --json or `--progress json` a
    line of JSON. Returns the first failure's exit status; raises the error of the only dataset."""
    from penstock.steps import preflight_step

    config = session.config()
    names = session.names(config, parsed.dataset)
    step_commands.one_receipt(parsed, names)
    with session.context(config) as context:
        looked = {name: preflight_step.look(context, name) for name in names}
    code = 0
    # After the display has closed: these are the results.
    for name, (result, error) in looked.items():
        if error is None:
            session.receipt(result)
        if parsed.receipt is None or parsed.json:
            _show(parsed, result)
        if error is not None:
            if len(names) == 1:
                step_commands.add_name(error, name, config)
                raise error
            output.say(f"{name}: {error}")
            code = code or error.exit_code
    return code


def _show(parsed: argparse.Namespace, result: PreflightResult) -> None:
    if parsed.json or parsed.progress == "json":
        output.show_json(result)
    else:
        output.show_checks(result["dataset"], result["results"])
