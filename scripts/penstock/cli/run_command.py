"""`penstock run`: all steps through Snakemake, with a summary and the exit statuses of the table."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, cast

from penstock.assets import workflow
from penstock.cli import (
    ancestors,
    controller,
    exit_files,
    installation,
    output,
    submission,
    workflow_receipts,
)
from penstock.cli.log_file import LOG
from penstock.cli.session import VIEW
from penstock.config import strict_yaml
from penstock.errors import FailedError, FindingsError, PreflightError
from penstock.runtime import interpreter, process_limit
from penstock.state.cancel_mark import INVOCATION

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

    from penstock.cli.session import Session
    from penstock.config.settings import Config
    from penstock.core.documents.step_results import ListResult
    from penstock.views.keys import Result, TimedAmount

RESULTS = Path("results")
STATE = RESULTS / ".workflow"
"""What the controllers of a working directory share."""
PROCESSES = 16
"""Processes and threads that a run of one dataset needs at least: this one, Snakemake, a step, an element and
its worker, with their threads."""


def run(parsed: argparse.Namespace, session: Session) -> int:
    """Stage the datasets. Returns 0 when all are PASSED: the run's release stands by its seal, and the gate
    is open; else the status of the first step that failed, 130 or 143 after a signal, 4 where the gate is
    closed. With --submit 0 when a job that does this is there (`submission`)."""
    if parsed.submit:
        return submission.run(parsed, session, may_begin=lambda: controller.refuse_second(STATE))
    if parsed.parsable:
        submission.refuse_parsable()
    installation.check_snakemake()
    config = session.config()
    names = session.names(config, parsed.dataset)
    if parsed.dry_run:
        return _preview(config, names, parsed, session)
    invocation = f"{time.time_ns():020d}"
    controller.refuse_second(STATE)
    if (room := process_limit.room()) is not None and room < PROCESSES:
        raise process_limit.too_few()
    folder = _exits_folder(names)
    try:
        status = _snakemake(_command(parsed, session.file, names), invocation, folder.resolve(), session)
        left = exit_files.all_left(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    code = _exit_status(status, left, session)
    found = workflow_receipts.listings(RESULTS, invocation)["listed"]
    results = {name: _result(name, found.get(name), left, session) for name in names}
    for name in found.keys() & results.keys():
        results[name] = _judged(results[name], found[name], config)
    _note_stop(results, config, code)
    _summaries(results, parsed)
    statuses = {result["status"] for result in results.values()}
    if "FINDINGS" in statuses:
        code = code or FindingsError.exit_code
    if statuses != {"PASSED"}:
        code = code or FailedError.exit_code
    session.receipt({"exit": code, "invocation": invocation, "datasets": results})
    return code


def _exits_folder(names: list[str]) -> Path:
    """Where the steps leave their exit statuses. Raises PreflightError in a folder where receipts, or
    Snakemake's own state, cannot be written."""
    own = Path(".snakemake")
    # Another account's run may have left some. Snakemake does without a log.
    later = [RESULTS / name for name in names] + [own / "metadata", own / "incomplete"]
    needed = [STATE, RESULTS / workflow_receipts.LISTINGS, own, *(at for at in later if at.exists())]
    for folder in needed:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise _unfit(folder, "a file has the name of a folder") from None
        except PermissionError as error:
            raise _unfit(folder, str(error.strerror)) from None
        if not os.access(folder, os.W_OK | os.X_OK):
            raise _unfit(folder, "this account may not write into it")
    return Path(tempfile.mkdtemp(prefix="exits-", dir=STATE))


def _unfit(folder: Path, why: str) -> PreflightError:
    return PreflightError(
        "receipts and reports cannot be written",
        where=str(folder.absolute()),
        why=why,
        hint="run it in a working directory of your own, with `--config` for the configuration",
    )


def _preview(config: Config, names: list[str], parsed: argparse.Namespace, session: Session) -> int:
    from penstock.steps import dry_run
    from penstock.views import result_texts

    result = dry_run.run(config, names)
    if parsed.progress == "json":
        output.show_json(result)
    else:
        output.show(result_texts.preview(result))
    session.receipt(result)
    return 0


def _command(parsed: argparse.Namespace, file: Path, names: list[str]) -> list[str]:
    folder = workflow()
    words = interpreter.command("penstock.cli.snakemake_start")
    words += ["--snakefile", str(folder / "workflow" / "Snakefile"), "--workflow-profile", "none"]
    options = _profile(folder / "profiles" / "default")
    profile = folder / "profiles" / str(parsed.backend)
    if parsed.backend and profile.is_dir():
        options = {**_profile(profile), **options}
    elif parsed.backend:
        # Constants, as in the profiles: Snakemake's own memory and disk are functions that warn.
        options["default-resources"] = [f"backend={parsed.backend}", "mem_mb=1000", "disk_mb=1000"]
    if parsed.cores is not None:
        options["cores"] = parsed.cores
    for name, value in options.items():
        given = value if isinstance(value, list) else [value]
        words += [f"--{name}", *(str(part) for part in given if part is not True)]
    words += ["--configfile", str(file.absolute())]
    settings = []
    if parsed.dataset:
        # JSON, so that a dataset called `1e5` stays a name.
        settings.append(f"dataset={json.dumps(names)}")
    if parsed.new_release:
        settings.append("new_release=true")
    if parsed.copy_unchanged:
        settings.append("copy_unchanged=true")
    if settings:
        words += ["--config", *settings]
    return words


def _profile(folder: Path) -> dict[str, object]:
    """A profile's options, which Snakemake is given as words: of a profile that it reads itself it would
    report the path."""
    found: dict[str, object] = strict_yaml.read(folder / "config.v8+.yaml").value
    return found


def _snakemake(command: list[str], invocation: str, folder: Path, session: Session) -> int:
    """Its exit status. Signals that reach this process are passed on to all below it."""
    surroundings = {
        # What a person sets there is for workflows of their own: a profile, a cache of outputs, plugins.
        **{name: value for name, value in os.environ.items() if not name.startswith("SNAKEMAKE_")},
        **ancestors.handed_down(),
        exit_files.EXITS: str(folder),
        INVOCATION: invocation,
        VIEW: session.parsed.progress,
        # Of Snakemake, which looks there and keeps nothing: an account's home may be full, or there is none.
        **dict.fromkeys(("XDG_CACHE_HOME", "XDG_CONFIG_HOME"), str((STATE / "cache").resolve())),
    }
    if session.parsed.log is not None:
        surroundings[LOG] = str(session.parsed.log.absolute())
    # A group of its own: Ctrl-C reaches this process alone, which passes it on once. Blocked until the
    # child listens to it (cli.snakemake_start): an interpreter that is starting answers it with a traceback.
    masked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process = subprocess.Popen(command, env=surroundings, process_group=0)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, masked)
    with process:
        try:
            with _stop_passed_on(process, session):
                return process.wait()
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            raise


@contextlib.contextmanager
def _stop_passed_on(process: subprocess.Popen[bytes], session: Session) -> Iterator[None]:
    """While inside, a signal to this process is passed on to Snakemake's process group as SIGINT, by which
    Snakemake and the steps stop tidily."""

    def tell(_: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)

    session.on_stop = tell
    try:
        if session.stop.event.is_set():
            tell(session.stop.signal_number)
        yield
    finally:
        session.on_stop = None


def _exit_status(status: int, left: list[exit_files.Left], session: Session) -> int:
    """
    stopped by a signal | Snakemake's | a step left one | this command's
    yes                 | any         | any             | 128 + the signal's number
    no                  | 0           | any             | 0
    no                  | 1           | yes             | that of the first one
    no                  | 1           | no              | 1
    """
    if session.stop.event.is_set():
        return 128 + session.stop.signal_number
    if status == 0:
        return 0
    return left[0].exit if left else 1


def _judged(result: Result, listed: ListResult, config: Config) -> Result:
    """The summary of a dataset that no step failed for, with what `gate` judges of it now: audits may be
    newer than the release's report, and the release may be damaged since."""
    from penstock.state import gate, run_store
    from penstock.state.context import layout_of
    from penstock.steps.report_step import judged

    if result["status"] in ("FAILED", "STOPPED"):
        return result
    layout = layout_of(config.target, listed["dataset"])
    if run_store.sealed_run(layout, listed["release"]) != listed["run"]:
        why = f"release {listed['release']} was listed, and is not published; see above"
        return {"dataset": listed["dataset"], "status": "FAILED", "why": why}
    return {**result, **judged(gate.judged(layout, config.target.owners))}


def _note_stop(results: Mapping[str, Result], config: Config, code: int) -> None:
    """A signal that came while no step was at work, which would have noted it."""
    from penstock.core.documents.last_end import LastEnd
    from penstock.state import last_end
    from penstock.state.context import layout_of
    from penstock.steps import run_state

    for name, result in results.items():
        layout = layout_of(config.target, name)
        if result["status"] == "STOPPED" and last_end.find(layout) is None:
            run_state.note(layout, LastEnd("", code, "stopped"))


def _summaries(results: Mapping[str, Result], parsed: argparse.Namespace) -> None:
    """On standard output and in the log: a block, or with `--progress json` a line, for each dataset."""
    from penstock.views import summary

    for result in results.values():
        text = summary.render(result)
        logging.getLogger("penstock").info("%s", text.rstrip("\n"))
        if parsed.progress == "json":
            output.show_json(result)
        else:
            output.show(text)


def _result(name: str, listed: ListResult | None, left: list[exit_files.Left], session: Session) -> Result:
    failed = next((one for one in left if one.dataset == name), None)
    if listed is not None and failed is None:
        reported = _read(RESULTS / name / listed["run"] / "report.json")
        if reported is not None:
            return _unchanged(reported, listed) if listed["published"] else reported
    why = left[0].why if left else "see above"
    if failed is not None:
        named = failed.why.startswith(f"{failed.command}: ")
        why = failed.why if named else f"{failed.command}: {failed.why}"
    status = "FAILED"
    if session.stop.event.is_set():
        status, why = "STOPPED", "what was done is kept; the same command goes on"
    scanned: Result = {} if listed is None else {"scanned": {"files": listed["scanned"]}}
    return {"dataset": name, "status": status, "why": why, **scanned}


def _unchanged(reported: Result, listed: ListResult) -> Result:
    """The summary of a run that found everything published: without the figures of the earlier copy, which
    this run did not do, and without what audits had found when the report was written (`_judged`)."""
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
        found: Result = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found
