"""Collects the results and errors of all checks of a preflight. Also reads the facts about the file systems
of its folders, within a deadline, so that an unresponsive file system blocks no check.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.config.source_kinds import FOLDER, folder, of_url
from penstock.core import node_answer
from penstock.core.errors import (
    ConfigError,
    InterruptedRunError,
    PenstockError,
    PreflightError,
    TargetAwayError,
    all_of,
)
from penstock.core.human import printable, printable_lines
from penstock.core.node_answer import MountSeen
from penstock.core.run_steps import CheckResult, sentence
from penstock.fs.servers import TARGET
from penstock.fs.watched_facts import SilentFolder, watched_facts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstock.config.settings import BandwidthConfig, SourceConfig, TargetConfig
    from penstock.core.node_answer import NodeAnswer
    from penstock.core.step_results import PreflightResult
    from penstock.dataset.context import Context
    from penstock.fs.capabilities import StorageFacts


class Answers:
    """Facts about folders' file systems, which are all queried at once. A folder whose file system does not
    respond is silent; make no further call on such a folder."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._facts = watched_facts(list(folders))

    def silent(self, *folders: Path | None) -> bool:
        """Return whether any of these folders is unresponsive."""
        return any(isinstance(self._facts.get(path), SilentFolder) for path in folders if path is not None)

    def require(self, path: Path, what: str) -> None:
        """If the folder is unresponsive, raise PreflightError, or TargetAwayError if `what` is `TARGET`.
        `what` describes the folder in the message."""
        answer = self._facts[path]
        if isinstance(answer, SilentFolder):
            raise answer.error(what, TargetAwayError if what == TARGET else PreflightError)

    def facts(self, path: Path, what: str) -> StorageFacts:
        """Return a folder's facts. Raises the errors of `require`, or OSError if the facts cannot be read."""
        self.require(path, what)
        answer = self._facts[path]
        if isinstance(answer, OSError):
            raise answer
        assert not isinstance(answer, SilentFolder)
        return answer

    def mount(self, path: Path) -> MountSeen:
        """Return a folder's facts in the form for documents, with `error` if there are none."""
        answer = self._facts[path]
        if isinstance(answer, SilentFolder):
            return MountSeen(str(path), error=f"no answer within {answer.seconds:.0f} s")
        if isinstance(answer, OSError):
            return MountSeen(str(path), error=answer.strerror or str(answer))
        return MountSeen(
            path=str(path),
            kind=answer.kind,
            options=answer.mount_options,
            device=answer.device,
            free_bytes=answer.free_bytes,
            total_bytes=answer.total_bytes,
            free_inodes=answer.free_inodes,
            durability=answer.durability,
            read_only=answer.read_only,
            passable=answer.passable,
        )


def roots(target: TargetConfig) -> list[Path]:
    return [path for path in (target.root, target.state_root) if path is not None]


def cap_folders(bandwidth: BandwidthConfig) -> list[Path]:
    return [] if bandwidth.folder is None else [bandwidth.folder]


def folders(sources: Sequence[SourceConfig]) -> list[Path]:
    """List the sources that are folders. Invalid URLs are skipped; opening the sources reports them."""
    folders = []
    for source in sources:
        with contextlib.suppress(ConfigError):
            if of_url(source.url) is FOLDER:
                folders.append(Path(folder(source.url)))
    return folders


class Looks:
    """Collects results. A check stops the run with a PenstockError inside `at`, or with a result whose
    verdict is `stop`. In both cases report and run get the same words."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._results: list[CheckResult] = []
        self._errors: list[PenstockError] = []
        self._nodes: list[NodeAnswer] = []
        # {arguments of the PreflightError that stops the run: names of the nodes with that error}
        self._on_nodes: dict[tuple[str, str, str, str], list[str]] = {}

    @contextlib.contextmanager
    def at(self, about: str) -> Iterator[None]:
        """Context for a check. A PenstockError raised within becomes a result, unless an earlier check raised
        the same error. Raises InterruptedRunError after a signal."""
        self._context.stop.check()
        try:
            yield
        except InterruptedRunError:
            raise
        except PenstockError as error:
            if str(error) not in map(str, self._errors):
                self._results.append(_stopped(about, error))
            self._errors.append(error)

    def gone(self, error: PenstockError, *results: CheckResult) -> None:
        """Add the results for a target with unreachable servers, and the error that covers them all."""
        self._results += results
        self._errors.append(error)

    def saw(
        self, *results: CheckResult, what: str = "this is not in order", where: str = "", node: str = ""
    ) -> None:
        """Add results, and a single error for all of them that stop the run. The error begins with `what` and
        `where`. `node` is the node concerned, whose name ends each `about` (`ACL on n1`). Nodes with equal
        problems share an error."""
        self._results += results
        stops = _of(results, "stop")
        if not stops:
            return
        end = f" on {printable(node)}" if node else ""
        why = "; ".join(f"{result.about.removesuffix(end)}: {result.found}" for result in stops)
        hint = "; ".join(dict.fromkeys(result.mend for result in stops if result.mend))
        if node:
            self._on_nodes.setdefault((what, where, why, hint), []).append(printable(node))
        else:
            self._errors.append(PreflightError(what, where=where, why=why, hint=hint))

    def heard(self, answer: NodeAnswer) -> None:
        """Add a node's answer to the document."""
        self._nodes.append(answer)

    def document(self, dataset: str) -> PreflightResult:
        """Return all results in the form of the step's receipt."""
        return {
            "dataset": dataset,
            "checked": [sentence(result) for result in _of(self._results, "ok", "note")],
            "warnings": [sentence(result) for result in _of(self._results, "warning")],
            "results": list(self._results),
            "nodes": [node_answer.NODE_ANSWER.to_json(answer) for answer in self._nodes],
        }

    def error(self) -> PenstockError | None:
        """Return the error that ends the step, or None. Several errors are joined into a PreflightError,
        which has their exit status if it is equal for all."""
        errors = list({str(error): error for error in [*self._errors, *self._errors_on_nodes()]}.values())
        if len(errors) < 2:
            return errors[0] if errors else None
        joined = all_of(f"{len(errors)} things stop the run", errors)
        codes = {error.exit_code for error in errors}
        if len(codes) == 1:
            joined.exit_code = codes.pop()
        return joined

    def _errors_on_nodes(self) -> Iterator[PreflightError]:
        for (what, where, why, hint), nodes in self._on_nodes.items():
            place = f"on the node{'s' if len(nodes) > 1 else ''} {', '.join(sorted(nodes))}"
            yield PreflightError(f"{place}, {what}", where=where, why=why, hint=hint)


def _of(results: Iterable[CheckResult], *verdicts: str) -> list[CheckResult]:
    return [result for result in results if result.verdict in verdicts]


def _stopped(about: str, error: PenstockError) -> CheckResult:
    """Make the result for an error, from the error's message and hint."""
    text = str(error).removesuffix(f"\n  {error.hint}") if error.hint else str(error)
    message = " ".join(line.strip() for line in text.splitlines())
    return CheckResult(about, printable(message), "stop", mend=printable_lines(error.hint))
