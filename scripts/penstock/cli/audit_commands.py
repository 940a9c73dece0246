"""`penstock audit` and `penstock repair`. Findings go to standard output; exit status 4 means that damage is
left."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from penstock.cli import output
from penstock.errors import ConfigError, PenstockError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

    from penstock.cli.session import Session
    from penstock.state.context import Context

R = TypeVar("R", bound="Mapping[str, object]")


def audit(parsed: argparse.Namespace, session: Session) -> int:
    """Audit each dataset in turn, also after one that is damaged."""
    from penstock.core.audit_selection import Choice
    from penstock.steps import audit_step
    from penstock.views import findings_text

    if parsed.overrule:
        return _each(
            parsed,
            session,
            lambda context, name: audit_step.overrule(context, name, parsed.overrule, parsed.release),
            findings_text.overruled,
            lambda _: None,
        )
    request = audit_step.Request(
        release=parsed.release,
        choice=Choice("sample", parsed.sample) if parsed.sample else Choice(),
        rotate=parsed.fraction or 0,
        limit=parsed.limit,
        into=parsed.into,
    )
    return _each(
        parsed,
        session,
        lambda context, name: audit_step.run(context, name, request),
        findings_text.audit,
        audit_step.judge,
    )


def repair(parsed: argparse.Namespace, session: Session) -> int:
    """Repair each dataset in turn by its newest finished audit."""
    from penstock.steps import repair_step
    from penstock.views import findings_text

    return _each(
        parsed,
        session,
        lambda context, name: repair_step.run(context, name, parsed.release),
        findings_text.repair,
        repair_step.judge,
    )


def _each(
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
        if parsed.progress == "json":
            output.show_json(result)
        else:
            output.show(render(result))
        try:
            judge(result)
        except PenstockError as error:
            if len(names) == 1:
                raise
            output.say(str(error))
            code = code or error.exit_code
    return code
