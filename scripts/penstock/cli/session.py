"""What surrounds a running command: the log file, the stop flag, the display, and the command's link to the
workflow that started it ("the workflow above").

A step must not outlive its Snakemake, since an orphan would keep the dataset locked for the next run. So the
workflow passes the processes above the step (`PENSTOCK_ABOVE`) and a folder (`PENSTOCK_WORKFLOW`) in the
environment. A step stops when any of these processes has ended. It holds a shared lock on the file `steps` in
the folder, so that the next workflow can wait for the step's end.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import shlex
import signal
import sys
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar

from penstock.cli import output
from penstock.cli.error_report import close_log, logged, open_log
from penstock.config import command_options
from penstock.core.errors import ConfigError, FailedError, InterruptedRunError, PreflightError
from penstock.core.human import did_you_mean, in_quotes
from penstock.dataset.context import Context, Stop
from penstock.fs.safe_open import NO_SPACE
from penstock.workflow import controller
from penstock.workflow import controller as ancestors

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from penstock.config.settings import Config, TargetConfig
    from penstock.look.views.text_layout import Line
    from penstock.look.views.view_choice import View
    from penstock.workflow.controller import CommandFailure

R = TypeVar("R")


class Session:
    """A context manager. Its exit closes the log and ends the watch and the locks."""

    def __init__(self, parsed: argparse.Namespace) -> None:
        self.parsed = parsed
        self.stop = Stop()
        self._cleanup = contextlib.ExitStack()
        # Name of the command that failed, if another than this one failed: `list-failure` only reports a
        # failed earlier `list-group`, and exits with its status.
        self.failed = ""
        self.failure: CommandFailure | None = None
        # The signal handler calls this function, if it is set. `penstock run` sets one that passes the signal
        # on to Snakemake.
        self.on_stop: Callable[[int], None] | None = None

    def __enter__(self) -> Self:
        return self

    def start(self) -> None:
        """Open the log, and watch the processes above. Raises ConfigError for an unwritable log or receipt,
        and PreflightError if the working directory was removed."""
        try:
            os.getcwd()
        except FileNotFoundError:
            raise PreflightError(
                "the working directory was removed",
                where=os.readlink("/proc/self/cwd").removesuffix(" (deleted)"),
                hint="change into a folder that is there: `cd` to the same path, where it was made anew",
            ) from None
        if getattr(self.parsed, "json_document", False):
            output.only_document()
        self._cleanup.callback(close_log, open_log(self.parsed.log))
        _refuse_unwritable(self.parsed.receipt)
        self._cleanup.enter_context(ancestors.watched(" ".join(ancestors.above()), self._orphaned))
        self._lock_steps()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cleanup.close()

    def _orphaned(self) -> None:
        logging.getLogger("penstock").warning("the workflow above has ended: stopping")
        self.stop.orphaned = True
        if self.stop.event.is_set() or not callable(signal.getsignal(signal.SIGTERM)):
            self.stop.set(signal.SIGTERM)
        else:  # the signal's handler ends the main thread's wait, too
            os.kill(os.getpid(), signal.SIGTERM)

    def _lock_steps(self) -> None:
        folder = os.environ.get(ancestors.WORKFLOW)
        if folder and os.path.isdir(folder):
            fd = os.open(f"{folder}/steps", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._cleanup.callback(os.close, fd)
            fcntl.flock(fd, fcntl.LOCK_SH)

    # What commands need ----------------------------------------------------------------------

    @property
    def file(self) -> Path:
        """The configuration's path. Raises ConfigError."""
        return command_options.required(self.parsed.config)

    def config(self) -> Config:
        """Load the configuration, with --backend merged in, within the site file's bounds. Commands that
        stage (`rights.stages`) get a ConfigError for values that exceed the bounds, and for programs named
        in the configuration if other accounts can write that file (see `config.loader.refuse`). Also raises
        the errors of `reached`."""
        from penstock.config import loader
        from penstock.config.loader import load
        from penstock.dataset import rights
        from penstock.host import kernel_facts

        staging = rights.stages(self.parsed.command, vars(self.parsed))
        in_job = kernel_facts.current_job().proven
        config = load(self.file, self.parsed.backend, staging=staging, in_job=in_job)
        config = loader.bounded(config, self.file, staging=staging)
        if self.parsed.asks_servers:
            reached(config.target)
        return config

    def names(self, config: Config, requested: Sequence[str]) -> list[str]:
        """Return the command's datasets, each only once. Raises ConfigError for unknown datasets."""
        unknown = [name for name in requested if name not in config.datasets]
        if unknown:
            raise ConfigError(
                f"no dataset is named {', '.join(map(in_quotes, unknown))}"
                f"{did_you_mean(unknown, config.datasets)}",
                where=f"{self.file}: datasets",
                hint=f"the configuration has: {', '.join(config.datasets)}",
            )
        return list(dict.fromkeys(requested)) or list(config.datasets)

    def only(self, config: Config, name: str | None) -> str:
        """Return the command's only dataset."""
        names = self.names(config, [name] if name else [])
        if len(names) != 1:
            raise ConfigError("which dataset?", hint=f"the configuration has: {', '.join(names)}")
        return names[0]

    def each(
        self, config: Config, names: Sequence[str], work: Callable[[Context, str], R]
    ) -> tuple[list[R], int]:
        """As `apart`, but `work` also gets a context."""
        with self.context(config) as context:
            return self.apart(names, partial(work, context))

    def apart(self, names: Sequence[str], work: Callable[[str], R]) -> tuple[list[R], int]:
        """Call `work` for each dataset in turn. Return the results and the first exit status other than 0.
        With one dataset its error is raised; with several, errors are printed and the work goes on."""
        code = 0
        results: list[R] = []
        for name in names:
            try:
                results.append(work(name))
            except InterruptedRunError:
                raise
            except Exception as error:  # a bug that one dataset causes does not end the others
                from penstock.cli.error_report import failure

                if len(names) == 1:
                    raise
                failed = failure(error, self)
                output.say(f"{name}: {failed.text}")
                code = code or failed.code
        return results, code

    @property
    def program(self) -> str:
        """The command for hints: `penstock` with --config, --backend and --as-root. A --config that changes
        nothing is left out."""
        words = ["penstock"]
        config_file, otherwise = self.parsed.config, command_options.chosen()
        if config_file is not None and (otherwise is None or config_file.absolute() != otherwise.absolute()):
            words += ["--config", str(config_file)]
        if self.parsed.backend:
            words += ["--backend", self.parsed.backend]
        if self.parsed.as_root:
            words.append("--as-root")
        return shlex.join(words)

    @contextlib.contextmanager
    def context(self, config: Config) -> Iterator[Context]:
        """Open the display, and yield the steps' context."""
        from penstock.cluster.registry import open_cluster
        from penstock.core import run_steps
        from penstock.target import notices

        with self.display() as view:
            sink = logged(view)

            def warn(text: str) -> None:
                sink(run_steps.Warned("", "slurm", text))

            def paused(text: str) -> None:
                sink(run_steps.Warned("", "pause", text))

            cluster = open_cluster(config.cluster, config.target.root, changed=self.stop.stir, warn=warn)
            controller = "".join(ancestors.above()[-1:])
            with notices.watching(notices.PauseWatch(config.target.root, paused)):
                yield Context(config, cluster, sink, self.stop, program=self.program, controller=controller)

    @contextlib.contextmanager
    def display(self) -> Iterator[View]:
        """Open a view on standard error. In a step of `penstock run` it writes JSON. In any other workflow,
        only one of the concurrent steps draws on the terminal; the others write lines."""
        from penstock.look.views.view_choice import open_view

        kind = self.parsed.progress
        if kind == "auto" and controller.below_run():
            kind = "json"
        if kind == "auto" and sys.stderr.isatty():
            kind = "rich" if self._owns_terminal() else "lines"
        view = open_view(kind, sys.stderr)
        try:
            yield view
        finally:
            view.close()

    def _owns_terminal(self) -> bool:
        folder = os.environ.get(ancestors.WORKFLOW)
        if not folder or not os.path.isdir(folder):
            return True
        fd = os.open(f"{folder}/display", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._cleanup.callback(os.close, fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    @property
    def as_json(self) -> bool:
        return bool(getattr(self.parsed, "json", False)) or self.parsed.progress == "json"

    def show(self, result: object, text: Callable[[], str] | None) -> None:
        """Print a result as JSON, or as text unless that is None."""
        if self.as_json:
            output.show_json(result)
        elif text is not None:
            output.show(text())

    def show_rows(
        self, rows: Iterable[object], lines: Callable[[int], Iterable[Line]], *, hints: bool = False
    ) -> None:
        """Print rows as JSON, or as the lines that `lines` makes for the given number of columns."""
        if self.as_json:
            for row in rows:
                output.show_json(row)
        else:
            output.show_lines(lines(output.columns()), hints=hints)

    def receipt(self, result: Mapping[str, object]) -> None:
        """Write the result to --receipt, durably and atomically; a device is written directly. Print it with
        the --json of commands that answer with one document."""
        if getattr(self.parsed, "json_document", False):
            output.show_document(result)
        from penstock.core import typed_json
        from penstock.fs import small_files

        path: Path | None = self.parsed.receipt
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                small_files.write_result(path, typed_json.plain(result))
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                raise FailedError(
                    "the receipt cannot be written",
                    where=str(path),
                    why=error.strerror or "",
                    hint="the command did its work; start the FIFO's reader first, or name a file",
                ) from None


def reached(target: TargetConfig) -> TargetConfig:
    """Raise TargetAwayError if a server of the target is away. A call there would wait for minutes, and no
    signal would end it."""
    from penstock.fs import watched_facts

    for folder in filter(None, (target.root, target.state_root)):
        watched_facts.require_answer(folder)
    return target


def _refuse_unwritable(receipt: Path | None) -> None:
    """Raise ConfigError before any work if `Session.receipt` could not write."""
    if receipt is None:
        return
    import tempfile  # imported here, since the import takes milliseconds

    try:
        if receipt.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not receipt.exists() or receipt.is_file():  # the receipt is written by a rename
            receipt.parent.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=receipt.parent).close()
        elif not os.access(receipt, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        if error.errno in NO_SPACE:
            return
        raise ConfigError(
            "the receipt cannot be written",
            where=str(receipt),
            why=error.strerror or "",
            hint="name a file by --receipt in a folder that this account may write; nothing was done",
        ) from None
