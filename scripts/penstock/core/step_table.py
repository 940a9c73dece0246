"""The table of steps, in the order of a run, with their differences. Tests compare the workflow's rules with
this table. `penstock.run.<name>_step` does the work."""

from __future__ import annotations

from typing import NamedTuple


class Step(NamedTuple):
    """A step. Each `bool` is a property of the step, if the table sets it."""

    name: str
    summary: str  # a line of the help
    of_run: bool = True  # part of staging a dataset; audit and repair work on a published release
    after_list: bool = False  # works on the run that list made (`--run`)
    # ends with a receipt in the run's state, from which status and report know of the end
    leaves_receipt: bool = False
    makes_change: bool = False  # writes to the dataset, under its lock
    in_elements: bool = False  # elements of a job array do its work, shard by shard
    # Its elements copy files. They record each file in a journal, change the target's metadata within
    # `target.ops`, and update the notice of how much their run will still write.
    copies: bool = False
    fetches: bool = False  # its elements read the source, within `bandwidth`
    # Its elements got their shares of a rate (`--limit`) when the step was planned. More elements at once
    # than `cluster.max_elements` would exceed that rate.
    shares_rate: bool = False
    moves_bytes: bool = False  # reads or writes the data itself, so that a rate in bytes has a meaning
    colour: str = "d"  # colour of its bars in the report, as a class of the style sheet


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
# The names of steps of a run, in the table's order. So are the names in the tuples below.
OF_RUN = tuple(step.name for step in TABLE if step.of_run)
# Steps that run as `penstock step NAME`; the other steps are commands of their own.
SINGLE = tuple(step.name for step in TABLE if step.of_run and step.makes_change)
# Steps with a rule in the workflow; their results are in `results/<dataset>/<run>/`.
AFTER_LIST = tuple(step.name for step in TABLE if step.after_list)
CHANGES_AFTER_LIST = frozenset(step.name for step in TABLE if step.after_list and step.makes_change)
WITH_RECEIPT = tuple(step.name for step in TABLE if step.leaves_receipt)
IN_ELEMENTS = tuple(step.name for step in TABLE if step.in_elements)
RUN_IN_ELEMENTS = tuple(step.name for step in TABLE if step.in_elements and step.of_run)
MOVES_BYTES = frozenset(step.name for step in TABLE if step.moves_bytes)


def typed(words: str) -> str:
    """Return the words to type after `penstock` for a step or another command."""
    return f"step {words}" if words.partition(" ")[0] in SINGLE else words


def colour(name: str) -> str:
    """Return the style sheet's class for a step's bars. Unknown steps get a class that exists."""
    step = BY_NAME.get(name)
    return step.colour if step is not None else "d"
