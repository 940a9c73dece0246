"""The steps, in the order in which a run takes them, and what differs between them: one table. Pure.

The command line, the views, the elements, the configuration (`cluster.steps`) and the judgement whether a run
is alive read it; tests compare the rules of the workflow with it. `penstock.run.<name>_step` does the work.
"""

from __future__ import annotations

from typing import NamedTuple


class Step(NamedTuple):
    """One step. Each `bool` says what holds for it, and is False where the table does not set it."""

    name: str
    summary: str
    """One line of the help."""
    of_run: bool = True
    """Part of staging a dataset; audit and repair work on a release that is published."""
    after_list: bool = False
    """Works on the run that list made (`--run`)."""
    leaves_receipt: bool = False
    """Ends with a receipt in the run's state on the target, by which status and report know that it ended."""
    makes_change: bool = False
    """Writes to the dataset, and holds its lock meanwhile."""
    in_elements: bool = False
    """Elements of a job array do its work, one a shard."""
    copies: bool = False
    """Its elements copy files: they record each in a journal, change the target's metadata, within
    `target.ops`, and beat for the notice of their run, which says how much it will still write."""
    fetches: bool = False
    """Its elements read the source, within `bandwidth`."""
    shares_rate: bool = False
    """Its elements got their shares of a rate (`--limit`) when it was planned: more of them at once than
    `cluster.max_elements` would pass it."""
    moves_bytes: bool = False
    """Reads or writes the data itself, so that a rate in bytes means something."""
    colour: str = "d"
    """The colour of its bars in the report, as a class of the style sheet."""


TABLE = (
    Step("preflight", "try target, source and cluster; change nothing"),
    Step(
        "list",
        "list the source and freeze what is to be staged",
        makes_change=True,
    ),
    Step(
        "plan",
        "check names, compare with the current release, balance shards",
        after_list=True,
        makes_change=True,
    ),
    Step(
        "copy",
        "copy all shards into staging, and read back what is copied",
        after_list=True,
        leaves_receipt=True,
        makes_change=True,
        in_elements=True,
        copies=True,
        fetches=True,
        moves_bytes=True,
        colour="a",
    ),
    Step(
        "permissions",
        "set and check group, modes and ACLs of folders, giants and adopted trees",
        after_list=True,
        leaves_receipt=True,
        makes_change=True,
        colour="c",
    ),
    Step(
        "verify",
        "read back what copy did not, past the caches, and compare",
        after_list=True,
        leaves_receipt=True,
        makes_change=True,
        in_elements=True,
        moves_bytes=True,
        colour="b",
    ),
    Step(
        "publish",
        "walk once more, seal, and reveal the release by one rename",
        after_list=True,
        leaves_receipt=True,
        makes_change=True,
    ),
    Step("report", "write the HTML report and the closing summary", after_list=True),
    Step(
        "audit",
        "read a published release back and compare it with its manifest",
        of_run=False,
        in_elements=True,
        shares_rate=True,
        moves_bytes=True,
        colour="c",
    ),
    Step(
        "adopt",
        "compare a tree that is there already with the dataset's source",
        of_run=False,
        in_elements=True,
        fetches=True,
        moves_bytes=True,
        colour="b",
    ),
    Step(
        "repair",
        "fetch anew what the last audit found damaged, and only that",
        of_run=False,
        makes_change=True,
        in_elements=True,
        copies=True,
        fetches=True,
        moves_bytes=True,
    ),
)

BY_NAME = {step.name: step for step in TABLE}
OF_RUN = tuple(step.name for step in TABLE if step.of_run)
"""Names of steps, in the table's order; so are the tuples that follow."""
SINGLE = tuple(step.name for step in TABLE if step.of_run and step.makes_change)
"""Called one at a time by `penstock step NAME`; the others are commands of their own."""
AFTER_LIST = tuple(step.name for step in TABLE if step.after_list)
"""The workflow has a rule for each; their results lie in `results/<dataset>/<run>/`."""
CHANGES_AFTER_LIST = frozenset(step.name for step in TABLE if step.after_list and step.makes_change)
WITH_RECEIPT = tuple(step.name for step in TABLE if step.leaves_receipt)
IN_ELEMENTS = tuple(step.name for step in TABLE if step.in_elements)
RUN_IN_ELEMENTS = tuple(step.name for step in TABLE if step.in_elements and step.of_run)
MOVES_BYTES = frozenset(step.name for step in TABLE if step.moves_bytes)


def typed(words: str) -> str:
    """What follows `penstock` on a command line that begins with a step or another command."""
    return f"step {words}" if words.partition(" ")[0] in SINGLE else words


def colour(name: str) -> str:
    """The class, in the style sheet, of a step's bars; of an unknown step a class that exists too."""
    step = BY_NAME.get(name)
    return step.colour if step is not None else "d"
