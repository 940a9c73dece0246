"""cancel: end what still runs of a dataset's arrays. What was copied stays and is resumed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.steps.arraybook import ArrayBook

if TYPE_CHECKING:
    from penstock.steps.context import Context


def run(context: Context, dataset: str) -> list[str]:
    """Ids of the arrays that were told to end: of every run and audit of the dataset, not of the
    last run alone. Takes no lock: the controller that holds it may be the one that hangs. Elements of the
    local backend end with their controller and have no array to cancel."""
    cluster, layout = context.cluster, context.layout(dataset)
    told = []
    folders = (layout.runs, layout.state / "nodes", layout.state / "audits")
    books = [book for folder in folders for book in sorted(folder.glob("*/arrays.jsonl"))]
    for book in books:
        for submission in ArrayBook(book).open():
            if submission.kind != cluster.kind:
                continue
            array = submission.array or cluster.find(submission.name)
            if array:
                cluster.cancel(array)
                told.append(array)
    return told
