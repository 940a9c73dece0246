"""`penstock limit`: the cap of the link that all runs share; --nodes: how many elements of a dataset run at
once."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from penstock.cli import output
from penstock.cli.command_table import CommandFunctions
from penstock.core.errors import ConfigError, PreflightError
from penstock.core.human import in_quotes

if TYPE_CHECKING:
    from penstock.cli.session import Session
    from penstock.config.settings import BandwidthConfig
    from penstock.jobs.bandwidth import Cap, Overview

EXAMPLES = ("penstock limit 40Gbit/s", "penstock limit imagenet --nodes 2")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", nargs="?", metavar="RATE",
        help="such as 40Gbit/s or 5GB/s; none: what the configurations say; default: print what is set. "
        "With --nodes a dataset",
    )  # fmt: skip
    parser.add_argument(
        "--nodes", type=_elements, metavar="N",
        help="of a dataset: elements of a step that may run at once from now on, each on a node, or "
        "`auto`: as cluster.max_elements says",
    )  # fmt: skip


def _elements(text: str) -> int:
    if text == "auto":
        return 0
    if not re.fullmatch("[0-9]{1,7}", text) or int(text) < 1:
        raise argparse.ArgumentTypeError(
            f"{in_quotes(text)} is not a number of elements at once: 1 or more, or auto"
        )
    return int(text)


def run(parsed: argparse.Namespace, session: Session) -> int:
    """Set the elements at once with --nodes; else set a given cap, and print it with its holders."""
    if parsed.nodes is not None:
        return _nodes(parsed, session)
    if parsed.what is not None and (wrong := _wrong_rate(parsed.what)) is not None:
        raise ConfigError(
            f"{in_quotes(parsed.what)} is no cap of the link: it {wrong}",
            hint=f"the elements of a dataset are limited by `penstock limit {parsed.what} --nodes N`",
        )
    return _limit_bandwidth(parsed, session)


def _nodes(parsed: argparse.Namespace, session: Session) -> int:
    from penstock.jobs import array_orders

    config = session.config()
    if parsed.what is not None and parsed.what not in config.datasets and _wrong_rate(parsed.what) is None:
        raise ConfigError(
            f"{parsed.what} is a cap of the link, and --nodes is of a dataset",
            hint="`penstock limit DATASET --nodes N`; the cap is set by `penstock limit RATE` alone",
        )
    name = session.only(config, parsed.what)
    with session.context(config) as context:
        sentences = array_orders.throttle(context, name, parsed.nodes)
    wanted = parsed.nodes or "as many as cluster.max_elements says"
    output.show(f"{name}: elements of a step at once, from now on: {wanted}")
    for line in sentences:
        output.show(f"  {line}")
    session.receipt({"dataset": name, "at_once": parsed.nodes, "told": sentences})
    return 0


def _wrong_rate(text: str) -> str | None:
    from penstock.config.quantities import read_rate

    try:
        if text != "none":
            read_rate(text)
    except ValueError as error:
        return str(error)
    return None


def _bandwidth_config(parsed: argparse.Namespace, session: Session) -> BandwidthConfig:
    """Return the configuration's settings of the link, or without one the site file's."""
    from penstock.config import command_options, loader
    from penstock.config.settings import BandwidthConfig

    site = None if command_options.chosen(parsed.config) else loader.site_file()
    if site is None or site.bounds.bandwidth.folder is None:
        return session.config().bandwidth
    own = site.bounds.bandwidth
    return BandwidthConfig(own.folder, link=own.link, requests=own.requests)


def _limit_bandwidth(parsed: argparse.Namespace, session: Session) -> int:
    from penstock.jobs.bandwidth import Cap, overview, set_cap

    config = _bandwidth_config(parsed, session)
    if config.folder is None:
        raise ConfigError(
            "no cap is shared",
            where=f"{session.file}: bandwidth.folder",
            hint="name a folder there that all who use the link can write, from each node",
        )
    if parsed.what is not None:
        set_cap(config.folder, parsed.what)
    cap_state, own = overview(config.folder), Cap.configured(config)
    holds = own.lower(cap_state.said)
    output.show(rendered(cap_state, own, holds))
    session.receipt(
        {
            "folder": str(config.folder),
            "rate": holds.rate,
            "requests": holds.requests,
            "wrong": cap_state.wrong,
            "held": [holder._asdict() for holder in cap_state.held],
        }
    )
    # The cap file does not count, so new elements read nothing.
    return PreflightError.exit_code if cap_state.wrong else 0


def rendered(cap_state: Overview, own: Cap, holds: Cap) -> str:
    """Render the cap, its origin, and a line for each holder."""
    from penstock.core import human

    def rate(value: int | None) -> str:
        return "no cap" if value is None else f"{human.rate(value)} ({value * 8 / 1e9:.6g} Gbit/s)"

    def requests(value: int | None) -> str:
        return "no cap" if value is None else f"{value:,} a second"

    lines = [
        f"bytes     {rate(holds.rate)}",
        f"            by the cap file: {rate(cap_state.said.rate)}; by the configuration: {rate(own.rate)}",
        f"requests  {requests(holds.requests)}",
    ]
    if cap_state.wrong:
        lines += [f"the cap file does not count: {cap_state.wrong}", f"  {cap_state.mend}"]
    for holder in cap_state.held:
        rate_text = "" if holds.rate is None else f", {human.rate(int(holds.rate * holder.part))}"
        lines.append(f"{holder.part:>5.1%}{rate_text}: {holder.who}")
    if not cap_state.held:
        lines.append("no run has a part of it")
    return "\n".join(lines)


LIMIT = CommandFunctions(arguments, run, EXAMPLES)
