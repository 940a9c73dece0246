"""Notices: calls `notify.command` once for each event of a dataset.

Commands call `send` as they end. It finds the notices owed from the dataset's state, so the next command
sends the notices that a killed command owed. For each notice a mark is made:

    <state>/notices/<event>-<id>    made by O_EXCL before `notify.command` is called, emptied once that ended

| event     | owed for                                                       | id             |
|-----------|----------------------------------------------------------------|----------------|
| failed    | a noted failure (`staging_notice`), except by a signal         | its time       |
| findings  | a gate that damage closed                                      | release, why   |
| published | the newest publication, until it is LATE seconds old           | release, time  |
| stale     | a last success older than `notify.stale`                       | its time       |

If a mark is not empty, its notice was interrupted. The notice may have arrived, so it is reported and not
repeated. If no mark can be made, as on a full target, the notice is sent anyway.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import time
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from penstock.config import loader
from penstock.core.dataset_documents import Publication
from penstock.core.errors import PenstockError
from penstock.core.human import SECOND, nanoseconds
from penstock.dataset import gate, release_records, staging_notice
from penstock.dataset import holder as holders
from penstock.dataset.context import layout_of
from penstock.fs import small_files
from penstock.host import command
from penstock.target import dataset_folders

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping
    from pathlib import Path

    from penstock.config.settings import Config
    from penstock.core.layout import DatasetLayout

LATE = 7 * 86400.0  # seconds after which a publication is no longer announced


# pattern for a command that a person is advised to run
_COMMAND = re.compile(r"(?:^|(?<=`))penstock (?!--config )")


class Notice(NamedTuple):
    """An event of a dataset. `id` is unique among events of its kind; "": no mark is made."""

    event: str
    id: str
    why: str = ""
    # advice; the commands in it name the configuration file, which the recipient may not know
    go_on: str = ""
    release: str = ""

    @property
    def mark(self) -> str:
        return f"{self.event}-{self.id}"


def send(config: Config, file: Path, failed: Mapping[str, str] | None = None) -> dict[str, list[str]]:
    """Send the notices owed for all datasets that this account stages. Raises only InterruptedRunError.
    Returns, by dataset, a sentence for each notice that may not have arrived. `failed`: why datasets failed
    just now, in case no note could be made, as when the target is missing. All calls share `notify.timeout`;
    the next command sends the other notices."""
    said: dict[str, list[str]] = {}
    budget = command.TimeBudget(config.notify.timeout)
    for name in config.datasets if config.notify.command else ():
        layout, lines, owed = layout_of(config.target, name), said.setdefault(name, []), list[Notice]()
        try:
            loader.refuse(config, file, ("notify.command",))
            if not os.path.lexists(layout.state):
                layout = staging_notice.own_layout(layout)
            owed += _owed(config, layout)
            _forget(layout, {notice.mark for notice in owed})
            if failed and name in failed and staging_notice.find_end(layout) is None:
                owed.append(Notice("failed", "", failed[name], f"penstock run {name}"))
            program = f"penstock --config {shlex.quote(str(file.absolute()))} "
            owed = [notice._replace(go_on=_COMMAND.sub(program, notice.go_on)) for notice in owed]
        except (PenstockError, OSError, ValueError) as error:
            lines.append(f"not all notices were sent: {error}".partition("\n")[0])
        for notice in owed:
            if notice.event in config.notify.events:
                lines += _once(config, layout, notice, budget)
    return said


def _owed(config: Config, layout: DatasetLayout) -> Iterator[Notice]:
    again, now = f"penstock run {layout.dataset}", time.time()
    if (end := staging_notice.find_end(layout)) and not end.stopped:
        yield Notice("failed", f"{end.given.at:.3f}", "; ".join(filter(None, (end.why, end.hint))), again)
    if not (dataset_folders.owns(layout) and dataset_folders.check_marker(layout)):
        return
    judgement = gate.judged(layout, config.target.owners)
    release, error = judgement.release, judgement.error
    if judgement.state == gate.DAMAGED and error:
        words = judgement.problem
        yield Notice("findings", f"{release}-{crc32(words.encode()):08x}", words, error.hint, release)
    for line in release_records.history_lines(layout):
        if isinstance(line, Publication):
            published = nanoseconds(line.at) / SECOND
            if now - published < LATE:
                yield Notice("published", f"{line.release}-{published:.0f}", release=line.release)
            break
    success = staging_notice.last_success(layout)
    if success and now - success > config.notify.stale:
        yield Notice("stale", f"{success:.0f}", f"no run for {(now - success) / 86400:.1f} d", again, release)


def _forget(layout: DatasetLayout, owed: Container[str]) -> None:
    """Remove marks of events that are over, so that they are announced if they happen again."""
    with contextlib.suppress(FileNotFoundError):
        for mark in layout.notices.iterdir():
            if mark.name not in owed and not mark.name.startswith("."):
                mark.unlink(missing_ok=True)


def _once(config: Config, layout: DatasetLayout, notice: Notice, budget: command.TimeBudget) -> list[str]:
    """Call `notify.command`, unless a mark says that it was called; return errors as sentences."""
    mark, me = layout.notices / notice.mark, holders.this_process("", "notify")
    if not budget.left() and not (notice.id and mark.exists()):
        took = f"notify.command took all of its {config.notify.timeout:.0f} s"
        later = "the next command sends it" if notice.id else "no later command knows of it"
        return [f"the notice `{notice.event}` was not sent: {took}; {later}"]
    with contextlib.suppress(OSError):
        if notice.id:
            small_files.make_dirs(mark.parent)
            if not small_files.create_file(mark, me.to_json()):
                by = holders.parse(small_files.read(mark))
                if by is None or holders.lives(by):
                    return []
                small_files.write_file(mark, b"")
                return [f"the notice `{notice.event}` was cut off: nobody knows whether it arrived"]
    about = {"dataset": layout.dataset, "root": str(layout.root), "account": me.user, "host": me.host}
    text = json.dumps({"format": 1, **notice._asdict(), **about, "at": me.since}) + "\n"
    notify = config.notify
    answer = command.run(notify.command, budget, notify.timeout, given=text, heard=False)
    with contextlib.suppress(OSError):
        if notice.id:
            small_files.write_file(mark, b"")
    return [] if answer.ok else [f"the notice `{notice.event}` did not arrive: {answer.words}"]
