"""The screen of `penstock run` while its steps work, the results of its datasets, and the closing text."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast

from penstock.cli import output
from penstock.core import run_steps
from penstock.core.errors import InterruptedRunError
from penstock.fs.capabilities import traits_of_mount
from penstock.look.views import keys, run_summary
from penstock.workflow import controller, workflow_receipts

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from penstock.cli.session import Session
    from penstock.config.settings import Config
    from penstock.core.step_results import ListResult
    from penstock.dataset.gate import Judgement
    from penstock.look.views.keys import Result, TimedAmount
    from penstock.look.views.view_choice import View


# The screen of `penstock run` while its steps work.
#
# Snakemake and its child processes write to a single file: events as lines of JSON
# (`look.views.line_view.JsonLines`), and anything else as text. A thread shows that file and failed steps'
# messages in a single view. A pipe could fill up or lose its reader. With a file no step waits for the screen
# or fails because of it.

SAID = "said"
INTERVAL = 0.2  # seconds between two reads of the file
BLOCK = 1 << 20
# {step: what it changed when it failed}, for steps whose message does not say so
CHANGED = {"preflight": "nothing was changed", "list": "nothing was copied", "plan": "nothing was copied"}


class RunScreen:
    """A context manager. Its exit ends the thread and closes the view and the file."""

    def __init__(self, view: View, folder: Path, place: Callable[[str], str] | None) -> None:
        """`folder` contains exit statuses. `place` locates a dataset in the configuration, in a run of
        several datasets."""
        self._view, self._folder, self._place = view, folder, place
        self.said = (folder / SAID).open("ab")  # file to which Snakemake and its children write
        self._reader = (folder / SAID).open("rb")
        self._rest = b""
        self._left: dict[str, controller.Left] = {}
        self._shown: set[str] = set()
        self._begun: dict[tuple[str, str], float] = {}
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="screen", daemon=True)
        self.seconds: dict[str, float] = {}  # {dataset: seconds for which its steps worked}

    @property
    def left(self) -> list[controller.Left]:
        """How failed steps ended, beginning with the earliest."""
        return [self._left[name] for name in sorted(self._left)]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish()
        self._view.close()
        self._reader.close()
        self.said.close()

    def finish(self) -> None:
        """Show the remaining output after Snakemake has ended."""
        if not self._ending.is_set():
            self._ending.set()
            self._thread.join()
            with contextlib.suppress(OSError):
                self._look()
            if self._rest:
                self._line(self._rest)

    def failed(self, dataset: str, how: str, text: str) -> None:
        """Show a problem of one of several datasets. For an only dataset, its summary has the problem."""
        if self._place is not None:
            self._view.failed(dataset, message(dataset, how, output.pasted(text)))

    def _follow(self) -> None:
        while not self._ending.wait(INTERVAL):
            with contextlib.suppress(OSError):
                self._look()

    def _look(self) -> None:
        # Failures are read before the file, and shown after it, so that the file has all that a step wrote.
        new = controller.read_new_exits(self._folder, self._left)
        while block := self._reader.read(BLOCK):
            *lines, self._rest = (self._rest + block).split(b"\n")
            for line in lines:
                self._line(line)
        for left in new:
            self._fail(left)

    def _line(self, line: bytes) -> None:
        text = line.decode("utf-8", "surrogateescape")
        try:
            event = run_steps.event_from_json(text)
        except ValueError:
            self._view.say(text)
            return
        self._time(event)
        self._view(event)

    def _fail(self, left: controller.Left) -> None:
        """Show a failure only once. A dataset's listing reports it, and again the job with the same
        status."""
        key = left.dataset or left.text
        if key in self._shown:
            return
        self._shown.add(key)
        self._end(left.dataset)
        if self._place is None:
            text = f"penstock: {output.pasted(left.text)}" if left.text else ""
            self._view.failed(left.dataset, text, left.how)
        elif left.how == run_steps.STOPPED:  # the closing table reports the stop once for all datasets
            self._view.failed(left.dataset, "", left.how)
        elif left.how == run_steps.CANCELLED:
            self._view.failed(left.dataset, message(left.dataset, "", output.pasted(left.text)), left.how)
        else:
            text = left.text.removeprefix(f"{left.dataset}: ").removeprefix(f"{left.command}: ")
            if left.command in CHANGED:
                text += f"\n  {self._place(left.dataset)}; {CHANGED[left.command]}"
            self.failed(left.dataset, f"FAILED in {left.command}", text)

    def _time(self, event: run_steps.Event) -> None:
        key, now = (event.dataset, event.step), event.at or time.monotonic()
        if isinstance(event, run_steps.Started):
            self._begun[key] = now
        elif isinstance(event, run_steps.Ended):
            self._add(key, now)

    def _end(self, dataset: str) -> None:
        now = time.monotonic()
        for key in [key for key in self._begun if key[0] == dataset]:
            self._add(key, now)

    def _add(self, key: tuple[str, str], now: float) -> None:
        seconds = now - self._begun.pop(key, now)
        self.seconds[key[0]] = self.seconds.get(key[0], 0.0) + seconds


def message(dataset: str, how: str, text: str) -> str:
    """Return the message about one of several datasets.

    >>> print(message("c", "FAILED in copy", "1 shard did not finish\\n  see the log"))
    c  FAILED in copy: 1 shard did not finish
       see the log
    """
    first, *more = text.split("\n")
    begins = f"{dataset}  {how}: " if how else f"{dataset}  "
    return "\n".join([f"{begins}{first}".lstrip(), *(f" {line}" for line in more)])


RESULTS = Path("results")
# options of `run` that become values of the workflow's configuration
FLAGS = ("new_release", "copy_unchanged")
# Characters of the suggested command for the failed datasets, at most. Instead of a longer one, the command
# for all requested datasets is suggested, which finds published datasets unchanged.
AGAIN = 72


def gather(
    names: Sequence[str], invocation: str, config: Config, screen: RunScreen, session: Session
) -> tuple[dict[str, Result], list[run_summary.Row]]:
    """Return each dataset's result, and its row of the closing table."""
    listings = workflow_receipts.listings(RESULTS, invocation)["listed"]
    results = {name: _result(name, listings.get(name), screen.left, session) for name in names}
    judgements = {name: _judge(results, listings[name], config) for name in names if name in listings}
    rows = [_row(results[name], listings.get(name), judgements.get(name), screen, config) for name in names]
    return results, rows


def _judge(results: dict[str, Result], listed: ListResult, config: Config) -> Judgement | None:
    """Put the gate's judgement into a dataset's result, unless a step failed. Audits may be newer than the
    report, and may have found damage since."""
    from penstock.dataset import gate, run_store
    from penstock.dataset.context import layout_of
    from penstock.run.report_step import judged

    name = listed["dataset"]
    if results[name]["status"] in ("FAILED", "STOPPED"):
        return None
    layout = layout_of(config.target, name)
    if run_store.sealed_run(layout, listed["release"]) != listed["run"]:
        why = f"release {listed['release']} was listed, and is not published; see above"
        results[name] = {"dataset": name, "status": "FAILED", "why": why}
        return None
    judgement = gate.judged(layout, config.target.owners)
    results[name] = {**results[name], **judged(judgement, judgement)}
    return judgement


def _row(
    result: Result,
    listed: ListResult | None,
    judgement: Judgement | None,
    screen: RunScreen,
    config: Config,
) -> run_summary.Row:
    """Return a row of the closing table. Also show a problem of the release that no step reported."""
    name = result["dataset"]
    row = run_summary.Row(name, run_summary.READY, "published", seconds=screen.seconds.get(name))
    if judgement is None or listed is None:
        left = next((left for left in screen.left if left.dataset in (name, "")), None)
        if result["status"] == "STOPPED":
            return row._replace(kind=run_summary.STOPPED, result=left.how if left else run_steps.STOPPED)
        why = left.reason.removeprefix(f"{name}: ") if left else ""
        return row._replace(kind=run_summary.FAILED, result="FAILED", why=why)
    if listed["published"]:
        row = row._replace(result="unchanged", carried=listed["bytes"])
    else:
        none: TimedAmount = {}
        kept = [result.get("unchanged", none), result.get("taken", none)]
        carried = sum(amount.get("bytes", 0) for amount in kept)
        row = row._replace(copied=result.get("copied", none).get("bytes") or None, carried=carried or None)
    if judgement.stored is not None:
        servers = not traits_of_mount(os.path.realpath(config.target.root)).local
        fresh, seal = not listed["published"], judgement.stored.seal
        row = row._replace(proof=run_summary.proof(seal, time.time(), fresh=fresh, servers=servers))
    if judgement.error is not None:
        state = judgement.state
        hint = f"\n  {judgement.error.hint}" if judgement.error.hint else ""
        screen.failed(name, state.upper(), f"{judgement.problem}{hint}")
        kind = run_summary.DAMAGED if state == run_summary.DAMAGED else run_summary.FAILED
        return row._replace(kind=kind, result=state.upper(), why=judgement.problem)
    if judgement.release != listed["release"]:
        row = row._replace(result=f"{row.result}, not current")
    return row


def note_ends(
    results: Mapping[str, Result],
    config: Config,
    code: int,
    left: Sequence[controller.Left],
    session: Session,
) -> None:
    """Note for `status` how datasets ended of which no step reported the end: after a signal between steps,
    or because Snakemake was killed."""
    from penstock.core.dataset_documents import LastEnd
    from penstock.dataset import staging_notice
    from penstock.dataset.context import layout_of
    from penstock.jobs import dataset_state

    said = {step.dataset for step in left}
    for name, result in results.items():
        layout, stopped = layout_of(config.target, name), result["status"] == "STOPPED"
        if (stopped or (result["status"] == "FAILED" and name not in said)) and staging_notice.find_end(
            layout
        ) is None:
            why = session.stop.why if stopped else result["why"]
            dataset_state.note(layout, LastEnd("", code or 1, why, stopped=stopped))


def notify(results: dict[str, Result], config: Config, session: Session) -> None:
    """Send notices, unless a signal came; the next command does so then. Failures become warnings in the
    summary, or lines."""
    from penstock.keep import notices

    failed = {name: result["why"] for name, result in results.items() if result["status"] == "FAILED"}
    sent: Mapping[str, list[str]] = {}
    try:
        if not session.stop.event.is_set():
            sent = notices.send(config, session.file, failed)
    except InterruptedRunError as error:
        output.say(f"notices were not sent: {error}")
    for name, lines in sent.items():
        if lines and name in results:
            results[name]["warnings"] = [*results[name].get("warnings", ()), *lines]
        for line in lines if len(results) > 1 or name not in results else ():
            output.say(f"{name}: {line}")


def show_table(
    results: Mapping[str, Result], rows: Sequence[run_summary.Row], code: int, session: Session
) -> None:
    left = [row.dataset for row in rows if row.kind in (run_summary.FAILED, run_summary.STOPPED)]
    command = " ".join([session.program, "run", *_options(session.parsed)])
    again = " ".join([command, *left])
    if len(left) == len(rows) or len(again) > AGAIN:
        again = " ".join([command, *session.parsed.dataset])
    reports = [report for result in results.values() if (report := result.get("report"))]
    where = os.path.relpath(reports[0]) if len(reports) == 1 else f"{RESULTS}/*/*/report.html"
    lines = run_summary.ending(
        rows,
        code,
        again=again if left else "",
        report=where if reports else "",
        columns=output.columns(),
    )
    logging.getLogger("penstock").info("%s", "\n".join(line.text for line in lines))
    if sys.stdout.isatty():
        output.show("")  # below the live table's last lines
    output.show_lines(lines)


def _options(parsed: argparse.Namespace) -> list[str]:
    return [f"--{name.replace('_', '-')}" for name in FLAGS if getattr(parsed, name)]


def show_each(results: Mapping[str, Result], session: Session) -> None:
    """Print a block for each dataset, all its figures with --verbose, or a line with `--progress json`. The
    log gets all figures."""
    from penstock.look.views import run_summary

    for result in results.values():
        text = run_summary.render(result)
        logging.getLogger("penstock").info("%s", text.rstrip("\n"))
        if session.as_json:
            output.show_json(result)
        else:
            output.show(text if session.parsed.verbose else run_summary.short(result))


def show_remark(text: str, session: Session) -> None:
    """Print and log a remark below the closing text. It does not make the run fail."""
    logging.getLogger("penstock").warning("%s", text)
    (output.say if session.as_json else output.show)(f"! {output.pasted(text)}")


def _result(name: str, listed: ListResult | None, left: list[controller.Left], session: Session) -> Result:
    failed = next((step for step in left if step.dataset == name), None)
    if listed is not None and failed is None:
        reported = _read(RESULTS / name / listed["run"] / "report.json")
        if reported is not None:
            return _unchanged(reported, listed) if listed["published"] else reported
    why = left[0].why if left else "see above"
    if failed is not None:
        named = failed.why.startswith(f"{failed.command}: ")
        why = failed.why if named else f"{failed.command}: {failed.why}"
    status = "STOPPED" if failed is not None and failed.how != run_steps.FAILED else "FAILED"
    if session.stop.event.is_set() and (failed is None or status == "STOPPED"):
        status, why = "STOPPED", "what was done is kept; the same command goes on"
    scanned: Result = {} if listed is None else {"scanned": {"files": listed["scanned"]}}
    return {"dataset": name, "status": status, "why": why, **scanned}


def _unchanged(reported: Result, listed: ListResult) -> Result:
    """Return the result of a run that copied nothing. It lacks the earlier copy's figures and the audit
    findings of the earlier report (`_judge` adds the current ones)."""
    kept = ("dataset", "release", "current", "report", "run", "evidence")
    nothing: TimedAmount = {"files": 0, "bytes": 0}
    why = f"everything is published already, in {listed['release']}; nothing was copied"
    if listed["current"] != listed["release"]:
        why += f"; `current` was set to {listed['current']} since, and stays there until the source changes"
    return {
        **cast("Result", {key: reported.get(key) for key in kept if key in reported}),
        "status": "PASSED",
        "scanned": {"files": listed["scanned"]},
        "unchanged": {"files": listed["files"], "bytes": listed["bytes"]},
        "copied": nothing,
        "why": why,
    }


def _read(path: Path) -> Result | None:
    try:
        return keys.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None
