"""`penstock sign`: signs a release of before, or a history as it stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli import output
from penstock.errors import ConfigError

if TYPE_CHECKING:
    import argparse

    from penstock.cli.session import Session


def run(parsed: argparse.Namespace, session: Session) -> int:
    """Sign one release of a dataset; with --accept its history alone."""
    from penstock.steps import sign_release

    config = session.config()
    name = session.only(config, parsed.name)
    if parsed.accept and parsed.release:
        raise ConfigError("--accept is about the history of all releases", hint="name no release")
    with session.context(config) as context:
        if parsed.accept:
            done = sign_release.accept(context, name, parsed.accept)
        else:
            done = sign_release.run(context, name, parsed.release)
    what = f"{name}: {done['release'] or 'the history'}"
    output.show(
        f"{what} is signed" if done["signed"] else f"{what} was signed already, and the signature holds"
    )
    if done["trusted"]:
        output.say(f"{name}: {done['trusted']}")
    session.receipt(done)
    return 0
