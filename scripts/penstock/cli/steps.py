"""The commands that are steps: the same code for all, `penstock.steps.<module>.run`."""

from __future__ import annotations

import importlib
import json
import sys
from typing import TYPE_CHECKING, Any

from penstock.errors import ConfigError, InterruptedRunError, PenstockError

if TYPE_CHECKING:
    import argparse

    from penstock.cli.session import Session
    from penstock.steps.context import Context

MODULES = {
    "preflight": "preflight",
    "list": "listing",
    "plan": "planning",
    "copy": "copying",
    "permissions": "permissions",
    "verify": "verifying",
    "publish": "publishing",
    "report": "reporting",
}


def run(parsed: argparse.Namespace, session: Session) -> int:
    """The step for each dataset in turn; a failed one does not keep the others from it. The exit
    status is the first failure's."""
    from penstock.steps import on_node

    joined = parsed.joined is not None
    config = on_node.joined_config(parsed.config) if joined else session.config()
    names = session.names(config, parsed.dataset)
    if parsed.receipt is not None and len(names) != 1:
        raise ConfigError("--receipt takes the result of one dataset", hint="name the dataset")
    code = 0
    with session.context(config) as context:
        context.run = getattr(parsed, "run", None) or ""
        for name in names:
            try:
                result = one(parsed, context, name)
            except InterruptedRunError as error:
                if joined:
                    on_node.note_failure(parsed.receipt, parsed.command, error)
                raise
            except PenstockError as error:
                if joined:
                    on_node.note_failure(parsed.receipt, parsed.command, error)
                if len(names) == 1:
                    raise
                sys.stderr.write(f"penstock: {name}: {error}\n")
                code = code or error.exit_code
                continue
            session.receipt(result)
            if parsed.progress == "json" and parsed.receipt is None:
                print(json.dumps(result, sort_keys=True, default=str))
    return code


def one(parsed: argparse.Namespace, context: Context, name: str) -> dict[str, Any]:
    """One step of one dataset, here or on a node; returns its result."""
    from penstock.steps import on_node

    joined = parsed.joined is not None
    if not joined and on_node.wanted(context.config, parsed.command):
        result: dict[str, Any] = on_node.run(context, name, parsed.command)
        return _tidied(parsed, context, name, result)
    step = importlib.import_module(f"penstock.steps.{MODULES[parsed.command]}")
    if parsed.command == "report" and parsed.html is not None:
        reported: dict[str, Any] = step.run(context, name, html=parsed.html)
        return reported
    result = step.run(context, name)
    return result if joined else _tidied(parsed, context, name, result)


def _tidied(
    parsed: argparse.Namespace, context: Context, name: str, result: dict[str, Any]
) -> dict[str, Any]:
    from penstock.cli import receipts

    if parsed.command == "list" and parsed.receipt is not None:
        receipts.tidy(parsed.receipt, context.layout(name), result)
    return result
