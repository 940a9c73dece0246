"""`penstock run`: all steps through Snakemake, with a summary."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from penstock.cli import flags, output, run_results, submission
from penstock.cli.command_table import CommandFunctions
from penstock.cli.commands import stagings
from penstock.cli.error_report import LOG
from penstock.cli.run_results import FLAGS, RESULTS, RunScreen
from penstock.cli.session import reached
from penstock.config import strict_yaml
from penstock.core import human
from penstock.core.errors import (
    CancelledError,
    FailedError,
    FindingsError,
    InterruptedRunError,
    LockedError,
    PenstockError,
    PreflightError,
    SourceChangedError,
    TransientError,
    signal_name,
)
from penstock.core.human import in_quotes
from penstock.dataset import staging_notice
from penstock.dataset.context import layout_of
from penstock.dataset.submitted_arrays import INVOCATION, CancelMark
from penstock.host import interpreter, kernel_facts, waits
from penstock.workflow import (
    controller,
    controller_job,
    installation,
    workflow_receipts,
)
from penstock.workflow.assets import workflow

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.cli.session import Session
    from penstock.config.settings import Config
    from penstock.dataset.context import Context
    from penstock.look.views import run_summary
    from penstock.look.views.keys import Result
    from penstock.look.views.text_layout import Line

STATE = RESULTS / ".workflow"  # folder that the controllers of a working directory share
# steps that keep none of their work if they are stopped before their end
ANEW = frozenset({"list", "list-group", "list-failure", "plan"})
# Seconds for one call that asks SLURM to start the controller again, and the number of calls. Each call waits
# for slurmctld.
REQUEUES, TRIES = 15.0, 4
CANCELS = 2.0  # seconds between two checks for `penstock cancel` while the controller waits to try again
# Processes and threads of a run of one dataset, at least: this process, Snakemake, step, element and worker,
# with their threads.
PROCESSES = 16

EXAMPLES = ("penstock run", "penstock run imagenet --submit")


def arguments(parser: argparse.ArgumentParser) -> None:
    flags.json_document(parser)
    flags.datasets(parser)
    flags.new_release(parser)
    flags.copy_unchanged(parser)
    parser.add_argument("--cores", type=_cores, metavar="N", help="steps at once (default: the profile's)")
    parser.add_argument(
        "--dry-run", action="store_true", help="list the source and say what would be done; change nothing"
    )
    parser.add_argument(
        "--list", action="store_true", help="with --dry-run: name each file that would be copied"
    )
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="at the end, print all figures of each dataset"
    )
    flags.submit(parser, "run as a SLURM job of one core, for sites that allow no long process here")


def _cores(text: str) -> int:
    if not re.fullmatch("[0-9]{1,5}", text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{in_quotes(text)} is not a number of steps at once: 1 or more")
    return int(text)


def run(parsed: argparse.Namespace, session: Session) -> int:
    """Stage the datasets. Returns 0 when all are PASSED: the seal of the run's release stands, and the gate
    is open. Else the first failed step's status, 129, 130 or 143 after a signal, 4 where the gate is closed.
    A submitted controller tries again by `controller_job.next_try`. With --submit, 0 means that a job does
    this."""
    from penstock.config import loader

    if parsed.submit:
        loader.refuse(session.config(), session.file)
        return submission.run(parsed, session, may_begin=lambda: controller.refuse_second(STATE))
    if parsed.parsable:
        submission.refuse_parsable()
    installation.check_snakemake()
    config = session.config()
    names = session.names(config, parsed.dataset)
    if parsed.dry_run:
        reached(config.target)
        return _preview(config, names, session)
    loader.refuse(config, session.file)
    stagings.refuse_another(config)
    if (room := kernel_facts.room()) is not None and room < PROCESSES:
        raise kernel_facts.too_few()
    results: dict[str, Result] = {}
    rows: dict[str, run_summary.Row] = {}
    changes, submitted = 0, controller_job.SUBMITTED in os.environ
    if submitted and kernel_facts.current_job().restarts:
        names = controller_job.uncancelled(config, names)
        if not names:
            raise CancelledError("the run was cancelled", hint="the same command stages it again")
    wanted = names
    while True:
        invocation = f"{time.time_ns():020d}"
        # Marks of `penstock cancel` are on the target, whose servers preflight has not checked yet. So they
        # are read only if needed.
        again = wanted if submitted else ()
        marks = [CancelMark.of(layout_of(config.target, name), "run") for name in again]
        try:
            controller.refuse_second(STATE)
            code, left = _staged(parsed, config, wanted, invocation, session, results, rows)
        except LockedError as error:
            if not submitted:
                raise
            code, left = error.exit_code, [controller.Left("run", error.exit_code, text=str(error))]
        wait = controller_job.next_try(left, changes) if submitted else None
        if wait is None or not _may_try_again(left, wait, changes, marks, session):
            break
        changes += any(step.exit == SourceChangedError.exit_code for step in left)
        wanted = _unpublished(names, results)
    if submitted and session.stop.out_of_time:
        wanted = _unpublished(names, results)
        if wanted and _requeued(config, controller_job.uncancelled(config, wanted), left, session):
            return code
    with _ended(session):
        for name in names if submitted else ():
            staging_notice.withdraw(layout_of(config.target, name), controller_job.own_job())
        run_results.note_ends(results, config, code, left, session)
        run_results.notify(results, config, session)
    if session.stop.event.is_set():
        # A submitted controller that published all before its time ended releases the jobs that wait for it.
        code = 128 + session.stop.signal_number if wanted or not session.stop.out_of_time else 0
    if len(names) > 1 and not session.as_json:
        run_results.show_table(results, [rows[name] for name in names if name in rows], code, session)
    else:
        run_results.show_each(results, session)
    if why := stagings.at_end_of_run(config):
        run_results.show_remark(why, session)
    session.receipt({"exit": code, "invocation": invocation, "datasets": results})
    return code


def _unpublished(names: Sequence[str], results: Mapping[str, Result]) -> list[str]:
    return [name for name in names if name not in results or results[name]["status"] != "PASSED"]


def _requeued(
    config: Config, names: Sequence[str], left: Sequence[controller.Left], session: Session
) -> bool:
    """Have SLURM start this controller again, whose time has ended; return whether it does.

    Its end by TIMEOUT would cancel jobs that wait for it.

    | what was not done when the time ended                  | then                                  |
    |--------------------------------------------------------|---------------------------------------|
    | listings or plans alone, which begin anew each time    | it ends: they need a longer time      |
    | nothing but what a person has cancelled                | it ends                               |
    | any other work                                         | it is started again                   |
    """
    from penstock.cluster.registry import open_cluster

    anew = bool(left) and all(step.command in ANEW for step in left)
    if anew or not names:
        text = "cluster.steps.submit.time is too short for its listing" if anew else "all of it is cancelled"
        run_results.show_remark(f"its time has ended: {text}", session)
        return False
    cluster = open_cluster(replace(config.cluster, backend="slurm"))
    with waits.tidying(REQUEUES):
        for name in names:
            staging_notice.submitted(layout_of(config.target, name), controller_job.own_job(), cluster)
        for _ in range(TRIES):
            try:
                cluster.requeue(kernel_facts.current_job().job)
            except TransientError as error:
                text = f"whether it is started again is not known: {error}"
            except PenstockError as error:
                run_results.show_remark(f"its time has ended: it is not started again: {error}", session)
                return False
            else:
                text = "it is started again, as the same job"
                break
    run_results.show_remark(f"its time has ended: {text}", session)
    return True


def _staged(
    parsed: argparse.Namespace,
    config: Config,
    names: list[str],
    invocation: str,
    session: Session,
    results: dict[str, Result],
    rows: dict[str, run_summary.Row],
) -> tuple[int, list[controller.Left]]:
    """Run the workflow once; return its status and failed steps. Fills `results` and `rows`."""
    folder = _exits_folder(names)
    try:
        with _screen(names, folder, session) as screen:
            command = _command(parsed, config, session.file, names)
            status = _snakemake(command, invocation, folder.resolve(), session, screen.said)
            screen.finish()
            code = _exit_status(status, screen.left, session)
            with _ended(session):
                gathered, shown = run_results.gather(names, invocation, config, screen, session)
            code = _exit_status(status, screen.left, session)
            left = screen.left
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    results |= gathered
    rows |= {row.dataset: row for row in shown}
    statuses = {result["status"] for result in gathered.values()}
    if "FINDINGS" in statuses:
        code = code or FindingsError.exit_code
    if statuses != {"PASSED"}:
        code = code or FailedError.exit_code
    return code, left


def _ended(session: Session) -> contextlib.AbstractContextManager[None]:
    """While inside, results are shown and noted even after a signal."""
    return waits.tidying() if session.stop.event.is_set() else contextlib.nullcontext()


def _may_try_again(
    left: Sequence[controller.Left],
    seconds: float,
    changes: int,
    marks: Sequence[CancelMark],
    session: Session,
) -> bool:
    """Report why to try again, and wait; return False once a dataset is cancelled. Raises
    InterruptedRunError."""
    changed = [step for step in left if step.exit == SourceChangedError.exit_code]
    first = (changed or list(left))[0]
    about = f"{first.dataset}: " if first.dataset else ""
    what = "the source changed while it was copied; it is listed anew" if changed else f"{first.why}; again"
    count = f" (time {changes + 1} of {controller_job.CHANGES})" if changed else ""
    run_results.show_remark(f"{about}{what} in {human.duration(seconds)}{count}", session)
    until = time.monotonic() + seconds
    while (still := until - time.monotonic()) > 0:
        if who := next((who for mark in marks if (who := mark.said())), ""):
            run_results.show_remark(f"cancelled {who}: it is not tried again", session)
            return False
        try:
            session.stop.wait(min(still, CANCELS))
        except InterruptedRunError:
            if not session.stop.out_of_time:
                raise
            return False  # SLURM starts the controller again
    return True


def _exits_folder(names: list[str]) -> Path:
    """Make the folder for the steps' exit statuses. Raises PreflightError where receipts, or Snakemake's
    state, cannot be written."""
    own = Path(".snakemake")
    # Another account's run may have left these. Snakemake works without its log.
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


def _preview(config: Config, names: list[str], session: Session) -> int:
    """Show what a run would do. Returns the first exit status of a run that cannot begin, else 0."""
    from penstock.look.views import text_layout
    from penstock.run import rehearsal

    with session.context(config) as context:
        result = rehearsal.dry_run(context, names)
        session.show(result, partial(text_layout.preview, result))
        if session.parsed.list:
            for name in names:
                if "problem" not in result["datasets"][name]:
                    output.show_lines(_copied(context, name))
    session.receipt(result)
    return next((preview["exit"] for preview in result["datasets"].values() if "exit" in preview), 0)


def _copied(context: Context, name: str) -> Iterator[Line]:
    """Yield a line for each file that a run would copy, as `penstock diff` shows it."""
    from penstock.cli.commands import comparisons
    from penstock.core.catalogue_rows import DiffRow
    from penstock.look import release_comparison
    from penstock.look.difference import ADDED, CHANGED, UNPROVEN

    if not os.path.lexists(context.layout(name).current):
        with release_comparison.listing(context, name) as now:
            for batch in now.rows(["path", "size"]):
                for path, size in zip(batch["path"].to_pylist(), batch["size"].to_pylist(), strict=True):
                    yield comparisons.row(DiffRow(ADDED, path, None, size, None))
        return
    with release_comparison.with_source(context, name, None).difference as difference:
        for kind in (CHANGED, UNPROVEN, ADDED):
            yield from map(comparisons.row, difference.rows(kind))


def _command(parsed: argparse.Namespace, config: Config, file: Path, names: list[str]) -> list[str]:
    folder = workflow()
    words = interpreter.command("penstock.cli.snakemake_start")
    words += ["--snakefile", str(folder / "workflow" / "Snakefile"), "--workflow-profile", "none"]
    options = _profile(folder / "profiles" / "default")
    profile = folder / "profiles" / str(parsed.backend)
    if parsed.backend and profile.is_dir():
        options = {**_profile(profile), **options}
    elif parsed.backend:
        # These are constants, as in the profiles, since Snakemake's own defaults are functions that warn.
        options["default-resources"] = [f"backend={parsed.backend}", "mem_mb=1000", "disk_mb=1000"]
    if parsed.cores is not None:
        options["cores"] = parsed.cores
    for name, value in options.items():
        values = value if isinstance(value, list) else [value]
        words += [f"--{name}", *(str(text) for text in values if text is not True)]
    words += ["--configfile", str(file.absolute())]
    settings = []
    if parsed.dataset or names != list(config.datasets):
        # The values are passed as JSON, so that a dataset called `1e5` stays a name.
        settings.append(f"dataset={json.dumps(names)}")
    settings += [f"{name}=true" for name in FLAGS if getattr(parsed, name)]
    if settings:
        words += ["--config", *settings]
    return words


def _profile(folder: Path) -> dict[str, object]:
    """Read a profile's options, which become words: Snakemake would report a profile's path."""
    options: dict[str, object] = strict_yaml.read(folder / "config.v8+.yaml").value
    return options


def _screen(names: list[str], folder: Path, session: Session) -> RunScreen:
    from penstock.look.views.view_choice import open_view

    file = session.file

    def place(name: str) -> str:
        try:
            line = strict_yaml.read(file).line(("datasets", name))
        except (OSError, strict_yaml.StrictYamlError):  # the file was changed since it was read
            return f"datasets.{name} in {file}"
        return f"datasets.{name} in {file}, line {line}"

    view = open_view(session.parsed.progress, sys.stderr, names)
    return RunScreen(view, folder, place if len(names) > 1 else None)


def _snakemake(command: list[str], invocation: str, folder: Path, session: Session, said: BinaryIO) -> int:
    """Run Snakemake, whose output goes to `said`; return its exit status. Signals are passed on to all
    below."""
    surroundings = {
        # A person's Snakemake settings (profiles, caches, plugins) are meant for other workflows.
        **{name: value for name, value in os.environ.items() if not name.startswith("SNAKEMAKE_")},
        **controller.handed_down(),
        controller.EXITS: str(folder),
        INVOCATION: invocation,
        # Snakemake keeps nothing in this folder; an account's home may be full or missing.
        **dict.fromkeys(("XDG_CACHE_HOME", "XDG_CONFIG_HOME"), str((STATE / "cache").resolve())),
    }
    if session.parsed.log is not None:
        surroundings[LOG] = str(session.parsed.log.absolute())
    # The child gets its own process group, so Ctrl-C reaches only this process, which passes it on once.
    # SIGINT is blocked until the child handles it (`cli.snakemake_start`), since an interpreter that is
    # starting would print a traceback.
    masked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process = subprocess.Popen(command, env=surroundings, process_group=0, stdout=said, stderr=said)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, masked)
    with process:
        try:
            with _stop_passed_on(process, folder, session):
                status = process.wait()
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            raise
    if status < 0 and not session.stop.event.is_set():
        error = FailedError(
            f"Snakemake was ended by {signal_name(-status)}",
            why="another process sent it, or the kernel, where memory was short",
            hint="the steps that it started stop by themselves; the same command goes on",
        )
        controller.write_exit(folder, controller.Left("snakemake", 1, text=str(error), reason=error.what))
    return status


@contextlib.contextmanager
def _stop_passed_on(process: subprocess.Popen[bytes], folder: Path, session: Session) -> Iterator[None]:
    """Pass signals on to Snakemake's process group as SIGINT, which stops Snakemake and steps tidily."""

    def tell(number: int) -> None:
        controller.pass_on_signal(folder, number)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)

    session.on_stop = tell
    try:
        if session.stop.event.is_set():
            tell(session.stop.signal_number)
        yield
    finally:
        session.on_stop = None


def _exit_status(status: int, left: list[controller.Left], session: Session) -> int:
    """Derive this command's exit status:

    stopped by a signal | Snakemake's | a step left one | this command's
    yes                 | any         | any             | 128 + the signal's number
    no                  | 0           | any             | 0
    no                  | 1           | yes             | that of the first one
    no                  | 1           | no              | 1
    no                  | by a signal | any             | 1
    """
    if session.stop.event.is_set():
        return 128 + session.stop.signal_number
    if status == 0:
        return 0
    return left[0].exit if left and status > 0 else 1


RUN = CommandFunctions(arguments, run, EXAMPLES)
