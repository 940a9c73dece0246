"""`penstock handover`: what root has to do so that another account owns a dataset. Executes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli import output

if TYPE_CHECKING:
    import argparse

    from penstock.cli.session import Session


def run(parsed: argparse.Namespace, session: Session) -> int:
    """Print the commands, as lines for a shell: all that is not a command is a comment."""
    from penstock.core.text import printable
    from penstock.steps import handover

    config = session.config()
    name = session.only(config, parsed.name)
    with session.context(config) as context:
        found = handover.run(context, name, parsed.account)
    session.receipt(found)
    if parsed.progress == "json":
        output.show_json(found)
        return 0
    lines = [f"# dataset {name}, from {found['old']} to {found['new']}; nothing of this was done", "#"]
    if found["alive"]:
        lines += ["# NOT NOW: something works for it, or may. Wait, or let its owner `penstock cancel` it:"]
        lines += [f"#   {one}" for one in found["alive"]]
    else:
        lines.append("# no run of it is alive, as far as this account sees")
    lines += ["#", "# as root, in bash, while nothing runs:", *found["commands"], "#", "# then:"]
    lines += [f"# - {one}" for one in found["then"]]
    output.show("\n".join(printable(line) for line in lines))
    return 0
