"""What one preflight saw: the results of all checks, and the errors among them. One run names all
problems."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from penstock.core.checks import CheckResult, sentence
from penstock.core.documents import node_answer
from penstock.core.errors import InterruptedRunError, PenstockError, PreflightError, all_of
from penstock.core.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.core.documents.node_answer import NodeAnswer
    from penstock.core.documents.step_results import PreflightResult
    from penstock.dataset.context import Context


class Looks:
    """Collects results. A check reports what stops the run in one of two ways, and both give a row and an
    error with the same words: it raises a PenstockError inside `at`, or it reports a result whose verdict is
    `stop`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._results: list[CheckResult] = []
        self._errors: list[PenstockError] = []
        self._nodes: list[NodeAnswer] = []
        self._on_nodes: dict[tuple[str, str, str, str], list[str]] = {}
        """By what stops the run on nodes (`PreflightError`'s arguments) their names."""

    @contextlib.contextmanager
    def at(self, about: str) -> Iterator[None]:
        """One check: a PenstockError that leaves it becomes a row about this, unless an earlier check met the
        same, and the next check is made. Raises InterruptedRunError once a signal has come."""
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
        """The results of a target whose servers are away, and the one error of those that stop the run."""
        self._results += results
        self._errors.append(error)

    def saw(
        self, *results: CheckResult, what: str = "this is not in order", where: str = "", node: str = ""
    ) -> None:
        """Results of checks that raise nothing. `what` and `where` begin the error of those that stop the
        run: one error for all of them. `node`: the node on which it is so, with whose name `about` of the
        results ends (`ACL on n1`); nodes that are stopped by the same have one error."""
        self._results += results
        stops = _of(results, "stop")
        if not stops:
            return
        end = f" on {printable(node)}" if node else ""
        why = "; ".join(f"{one.about.removesuffix(end)}: {one.found}" for one in stops)
        hint = "; ".join(dict.fromkeys(one.mend for one in stops if one.mend))
        if node:
            self._on_nodes.setdefault((what, where, why, hint), []).append(printable(node))
        else:
            self._errors.append(PreflightError(what, where=where, why=why, hint=hint))

    def heard(self, answer: NodeAnswer) -> None:
        """A node's answer to the probe, for the document."""
        self._nodes.append(answer)

    def document(self, dataset: str) -> PreflightResult:
        """All results, as the step's receipt has them."""
        return {
            "dataset": dataset,
            "checked": [sentence(one) for one in _of(self._results, "ok", "note")],
            "warnings": [sentence(one) for one in _of(self._results, "warning")],
            "results": list(self._results),
            "nodes": [node_answer.NODE_ANSWER.to_json(one) for one in self._nodes],
        }

    def error(self) -> PenstockError | None:
        """The error that ends the step: the only one, or one PreflightError that names all, with the exit
        status of all where they agree; None where nothing stops the run."""
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
    return [one for one in results if one.verdict in verdicts]


def _stopped(about: str, error: PenstockError) -> CheckResult:
    """The row of an error: its message, and its hint as what to do."""
    text = str(error).removesuffix(f"\n  {error.hint}") if error.hint else str(error)
    found = " ".join(line.strip() for line in text.splitlines())
    return CheckResult(about, printable(found), "stop", mend=printable(error.hint))
