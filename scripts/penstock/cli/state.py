"""Commands that read the state of datasets: status, path, gate; and cancel."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from penstock.core.layout import DATA, DatasetLayout
from penstock.errors import FindingsError

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from penstock.cli.session import Session
    from penstock.config.model import Config


def status(parsed: argparse.Namespace, session: Session) -> int:
    """What is published and what is under way, for each dataset."""
    from penstock.steps import status as step

    config = session.config()
    names = session.names(config, parsed.dataset)
    with session.context(config) as context:
        found = [step.run(context, name) for name in names]
    if len(found) == 1:
        session.receipt(found[0])
    if parsed.progress == "json":
        for one in found:
            print(json.dumps(one, sort_keys=True, default=str))
    else:
        print(render(found), end="")
    return 0


def render(found: list[dict[str, object]]) -> str:
    """Plain text, one block a dataset."""
    lines = []
    for one in found:
        lines.append(str(one.get("dataset", "")))
        for key, value in one.items():
            if key != "dataset" and value not in (None, "", [], {}):
                text = value if isinstance(value, (str, int, float)) else json.dumps(value, default=str)
                lines.append(f"  {key.replace('_', ' '):<14}{text}")
    return "".join(f"{line}\n" for line in lines)


def path(parsed: argparse.Namespace, session: Session) -> int:
    """Print the data folder of the release that `current` names now: a job resolves it once, and
    keeps reading the same release whatever is published later."""
    config = session.config()
    print(published(_layout(config, session.only(config, parsed.dataset))))
    return 0


def gate(parsed: argparse.Namespace, session: Session) -> int:
    """Exit 0 when a published, sealed release is there; FindingsError (4) when not."""
    config = session.config()
    name = session.only(config, parsed.dataset)
    folder = published(_layout(config, name))
    print(f"{name}: {folder.parent.name} is published, in {folder}")
    return 0


def cancel(parsed: argparse.Namespace, session: Session) -> int:
    """End the arrays of the datasets' unfinished runs; what was copied stays and is resumed."""
    from penstock.steps import cancelling

    config = session.config()
    names = session.names(config, parsed.dataset)
    with session.context(config) as context:
        for name in names:
            ended = cancelling.run(context, name)
            print(f"{name}: {', '.join(ended) or 'nothing runs'}")
    return 0


def _layout(config: Config, name: str) -> DatasetLayout:
    return DatasetLayout(config.target.root, name, config.target.state_root)


def published(layout: DatasetLayout) -> Path:
    """The current release's data folder, by the release's own name. Raises FindingsError when
    nothing is published, or the pointer leads nowhere."""
    from penstock.steps.runbook import sealed_run

    try:
        link = os.readlink(layout.current)
    except OSError:
        raise FindingsError(
            "nothing is published", where=str(layout.current), hint=f"run `penstock run {layout.dataset}`"
        ) from None
    folder, _, release = link.partition("/")
    if folder != layout.releases.name or not release or "/" in release or release.startswith("."):
        raise FindingsError("the pointer names no release", where=str(layout.current), why=repr(link))
    if sealed_run(layout, release) is None or not (layout.release(release) / DATA).is_dir():
        raise FindingsError(
            "the current release is not whole",
            where=str(layout.release(release)),
            why="its seal (release.json) or its data is missing",
        )
    return layout.release(release) / DATA
