"""`penstock run`: all steps through Snakemake, with a summary and the exit statuses of the table."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cli import above, exits, output, receipts
from penstock.cli.session import ABOVE, PROGRESS
from penstock.core.layout import DatasetLayout
from penstock.errors import ConfigError, FindingsError, PreflightError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

    from penstock.cli.session import Session
    from penstock.config.model import Config

RESULTS = Path("results")
STATE = RESULTS / ".workflow"


def run(parsed: argparse.Namespace, session: Session) -> int:
    """Stage the datasets. Returns 0 when all are published; else the status of the first step
    that failed, 130 or 143 after a signal, 4 where an audit's findings stand against what is published."""
    config = session.config()
    names = session.names(config, parsed.dataset)
    invocation = f"{time.time_ns():020d}"
    folder = _exits_folder()
    try:
        status = _snakemake(_command(parsed, names), invocation, folder.resolve(), session)
        left = exits.all_left(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    code = _exit_status(status, left, session)
    if not parsed.dry_run:
        findings = _summaries(config, names, invocation, left, session)
        code = code or (FindingsError.exit_code if findings else 0)
    return code


def _exits_folder() -> Path:
    """Where the steps leave their exit statuses. Raises PreflightError in a folder that is not writable."""
    try:
        STATE.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix="exits-", dir=STATE))
    except PermissionError as error:
        raise PreflightError(
            "receipts and reports cannot be written",
            where=str(STATE.absolute()),
            why=str(error.strerror),
            hint="run it in a working directory of your own, with `--config` for the configuration",
        ) from None


def home() -> Path:
    """The folder of the Snakefile: the working directory's own, or that of this checkout.
    Raises ConfigError when there is none."""
    for folder in (Path.cwd(), Path(__file__).resolve().parents[3]):
        if (folder / "Snakefile").is_file() and (folder / "workflow" / "rules").is_dir():
            return folder
    raise ConfigError(
        "the workflow is not here", where=str(Path.cwd()), hint="run it in a checkout of penstock"
    )


def _command(parsed: argparse.Namespace, names: list[str]) -> list[str]:
    folder = home()
    words = [sys.executable, "-m", "penstock.cli.workflow", "--snakefile", str(folder / "Snakefile")]
    words += ["--workflow-profile", str(folder / "profiles" / "default")]
    if parsed.backend == "slurm":
        words += ["--profile", str(folder / "profiles" / "slurm")]
    elif parsed.backend:
        # Constants, as in profiles/slurm: Snakemake's own memory and disk are functions that warn.
        words += ["--default-resources", f"backend={parsed.backend}", "mem_mb=1000", "disk_mb=1000"]
    words += ["--configfile", str(parsed.config.absolute())]
    if parsed.cores is not None:
        words += ["--cores", str(parsed.cores)]
    if parsed.dry_run:
        words += ["--dry-run"]
    settings = []
    if parsed.dataset:
        # JSON, so that a dataset called `1e5` stays a name.
        settings.append(f"dataset={json.dumps(names)}")
    if parsed.new_release:
        settings.append("new_release=true")
    if settings:
        words += ["--config", *settings]
    return words


def _snakemake(command: list[str], invocation: str, folder: Path, session: Session) -> int:
    """Its exit status. Signals that reach this process are passed on to all below it."""
    names = [*os.environ.get(ABOVE, "").split(), above.name(os.getpid())]
    surroundings = {
        **os.environ,
        ABOVE: " ".join(names),
        exits.EXITS: str(folder),
        "PENSTOCK_INVOCATION": invocation,
        PROGRESS: session.parsed.progress,
        **_cache(),
    }
    # A group of its own: Ctrl-C reaches this process alone, which passes it on once.
    with subprocess.Popen(command, env=surroundings, process_group=0) as process:
        try:
            with _told_of_stop(process, session):
                return process.wait()
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            raise


def _cache() -> dict[str, str]:
    """Snakemake keeps a cache in the home, which a service account or a node may not have: then it
    goes beside the receipts."""
    wanted = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    there = next(folder for folder in (wanted, *wanted.parents) if folder.exists())
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return {}
    return {"XDG_CACHE_HOME": str((STATE / "cache").resolve())}


@contextlib.contextmanager
def _told_of_stop(process: subprocess.Popen[bytes], session: Session) -> Iterator[None]:
    """While inside, a signal to this process goes to the group: SIGINT is what Snakemake and the
    steps both take as a tidy stop."""

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


def _exit_status(status: int, left: list[exits.Left], session: Session) -> int:
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


def _summaries(
    config: Config, names: list[str], invocation: str, left: list[exits.Left], session: Session
) -> bool:
    """Show them; tells whether findings stand against a release that was told of as published."""
    from penstock.steps.reporting import verdict_of
    from penstock.views import summary

    found = receipts.listings(RESULTS, invocation)["listed"]
    findings = False
    for name in names:
        result = _result(name, found.get(name), left, session)
        if result["status"] != "FAILED":
            # Its report may be older than the last audit.
            layout = DatasetLayout(config.target.root, name, config.target.state_root)
            result |= verdict_of(layout, str(result["release"]))
            findings = findings or result["status"] == "FINDINGS"
        output.show(summary.render(result))
    return findings


def _result(
    name: str, listed: Mapping[str, Any] | None, left: list[exits.Left], session: Session
) -> dict[str, Any]:
    failed = next((one for one in left if one.dataset == name), None)
    if listed is not None and failed is None:
        reported = _read(RESULTS / name / str(listed["run"]) / "report.json")
        if reported is not None:
            return _unchanged(reported, listed) if listed.get("published") else reported
    why = left[0].why if left else "see above"
    if failed is not None:
        named = failed.why.startswith(f"{failed.command}: ")
        why = failed.why if named else f"{failed.command}: {failed.why}"
    status = "FAILED"
    if session.stop.event.is_set():
        status, why = "STOPPED", "what was done is kept; the same command goes on"
    scanned = {} if listed is None else {"scanned": {"files": listed["scanned"]}}
    return {"dataset": name, "status": status, "why": why, **scanned}


def _unchanged(reported: Mapping[str, Any], listed: Mapping[str, Any]) -> dict[str, Any]:
    """The summary of a run that found everything published: what was done before is not told as
    if it had been done now."""
    kept = ("dataset", "release", "path", "current", "report", "run", "evidence", "status")
    nothing = {"files": 0, "bytes": 0}
    return {
        **{key: reported[key] for key in kept if key in reported},
        "scanned": {"files": listed["scanned"]},
        "unchanged": {"files": listed["files"], "bytes": listed["bytes"]},
        "copied": nothing,
        "why": f"everything is published already, in {listed['release']}; nothing was copied",
    }


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found
