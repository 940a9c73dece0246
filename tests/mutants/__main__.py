"""Whether the tests notice a wrong product: each mutant of the table is applied, and its test must fail.

    python -m tests.mutants [--jobs N] [--only NAME]...

Each named test is run without any mutant first, and must pass. Exit status: 0 all mutants were killed, 1 one
survived, its text does not stand exactly once in the product, or its test did not pass without it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from tests.mutants.scratch import Scratch, places
from tests.mutants.table import MUTANTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.mutants.scratch import Outcome, Place
    from tests.mutants.table import Mutant

KILLED = "killed"


class Verdict(NamedTuple):
    """What became of one mutant."""

    mutant: Mutant
    place: Place | None
    word: str
    """KILLED, or what is wrong."""
    text: str = ""
    """What pytest wrote, where something is wrong."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="run so many at once")
    parser.add_argument("--only", action="append", metavar="NAME", help="this mutant alone; may be repeated")
    said = parser.parse_args()
    if unknown := set(said.only or ()) - {one.name for one in MUTANTS}:
        parser.error(f"no such mutant: {', '.join(sorted(unknown))}")
    chosen = [one for one in MUTANTS if not said.only or one.name in said.only]
    verdicts = judged(chosen, max(1, said.jobs))
    show(verdicts)
    return any(one.word != KILLED for one in verdicts)


def judged(mutants: Sequence[Mutant], jobs: int) -> list[Verdict]:
    """The verdicts, by the files of the tests."""
    files: dict[str, list[Mutant]] = {}
    for one in mutants:
        files.setdefault(one.test.partition("::")[0], []).append(one)
    jobs = min(jobs, len(files))
    with tempfile.TemporaryDirectory(prefix="penstock-mutants-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        free: SimpleQueue[Scratch] = SimpleQueue()
        for number in range(jobs):
            own = Path(folder, str(number))
            own.mkdir()
            free.put(Scratch(own))

        def judge(some: Sequence[Mutant]) -> list[Verdict]:
            scratch = free.get()
            try:
                return _of_one_file(some, scratch)
            finally:
                free.put(scratch)

        with ThreadPoolExecutor(jobs) as threads:
            return list(chain.from_iterable(threads.map(judge, files.values())))


def _of_one_file(mutants: Sequence[Mutant], scratch: Scratch) -> list[Verdict]:
    whole = scratch.run(sorted({one.test for one in mutants}))
    verdicts = []
    for one in mutants:
        verdicts.append(_judge(one, scratch, whole))
        print(f"{verdicts[-1].word:>8}  {one.name}", file=sys.stderr, flush=True)
    return verdicts


def _judge(mutant: Mutant, scratch: Scratch, whole: Outcome) -> Verdict:
    found = places(mutant.old)
    if len(found) != 1:
        return Verdict(mutant, None, f"its text stands {len(found)} times in the product")
    (place,) = found
    if not whole.of(mutant.test, whole.passed) or whole.of(mutant.test, whole.failed):
        return Verdict(mutant, place, "its test does not pass without it", whole.text)
    with scratch.changed(place.file, mutant.old, mutant.new):
        try:
            ended = scratch.run([mutant.test])
        except subprocess.TimeoutExpired:
            return Verdict(mutant, place, "its test does not end")
    if ended.status == 0:
        return Verdict(mutant, place, "survived", ended.text)
    if ended.status != 1 or not ended.of(mutant.test, ended.failed):
        return Verdict(mutant, place, f"no verdict: pytest ended with {ended.status}", ended.text)
    return Verdict(mutant, place, KILLED)


def show(verdicts: Sequence[Verdict]) -> None:
    """Print the table, and of what is wrong pytest's own words."""
    for one in verdicts:
        package = one.place.package if one.place else "-"
        where = f" (outside `make test`: {one.mutant.outside})" if one.mutant.outside else ""
        print(f"{package:<12} {one.word:<8} {one.mutant.name}\n{'':<21} {one.mutant.test}{where}")
    for one in verdicts:
        if one.word != KILLED and one.text:
            print(f"\n--- {one.mutant.name}: {one.word}\n{one.text[-4000:]}")
    words = Counter(one.word for one in verdicts)
    packages = {one.place.package for one in verdicts if one.place}
    told = ", ".join(f"{number} {word}" for word, number in words.most_common())
    print(f"\n{len(verdicts)} mutants in {len(packages)} packages: {told}")


if __name__ == "__main__":
    sys.exit(main())
