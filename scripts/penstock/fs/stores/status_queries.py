"""Runs the commands for a store's status one after the other, within a budget, and keeps which got no
answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.fs.stores.facts import Silence
from penstock.host import command

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.fs.stores.facts import SilenceCause

BUDGET = 40.0  # seconds for all commands of a status


class StatusQueries:
    """The queries for a status. `cause` classifies a failed command's words. No method raises."""

    def __init__(self, cause: Callable[[str], SilenceCause] = lambda _: "") -> None:
        self._budget, self._cause = command.TimeBudget(BUDGET), cause
        self.silences: list[Silence] = []

    def ask(
        self, about: str, argv: Sequence[str], useful: Callable[[str], object] = lambda _: False
    ) -> command.Answer:
        """Run the command, and return its answer; `about` names the query in messages. The answer counts
        where the exit status is 0, or `useful` accepts its output: a silent target makes the command for a
        whole table fail. Else it is kept as a silence. Once the management service did not answer, no further
        command is run: each would wait for it, 3.2 s on BeeGFS 7.4.7."""
        away = next((silence for silence in self.silences if silence.cause == "management"), None)
        if away is not None:
            self.silent(about, argv, away.why, away.cause)
            return command.Answer(tuple(argv), why=away.why)
        answer = command.run(argv, self._budget)
        if not (answer.ok or useful(answer.out)):
            self.silent(about, argv, answer.words, self._cause(answer.words))
        return answer

    def silent(self, about: str, argv: Sequence[str], why: str, cause: SilenceCause = "") -> None:
        """Keep that a query got no answer."""
        self.silences.append(Silence(about, " ".join(argv), why, cause))
