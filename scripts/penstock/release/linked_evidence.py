"""What a release's seal says of its linked files, where they may be carried over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.documents import linked_damage
from penstock.core.documents.seal import Amount, SealedLinked
from penstock.core.linked_reading import SAMPLE, at_most_95
from penstock.errors import FailedError
from penstock.filesystem import plain_files

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.core.documents.element_receipt import ElementReceipt
    from penstock.core.documents.seal import SealedCarried
    from penstock.state.run import Run


def sealed(run: Run, verified: Sequence[ElementReceipt], carried: SealedCarried) -> SealedLinked | None:
    """For the seal; None where all linked files are read as a rule, or nothing is linked. `carried` is
    counted in the records, the rest by the elements of verify."""
    if run.plan.linked is None:
        return None
    read: dict[str, Amount] = {}
    for one in verified:
        for why, (files, size) in one.read_links.items():
            before = read.get(why, Amount())
            read[why] = Amount(before.files + files, before.bytes + size)
    sampled = read.get(SAMPLE, Amount()).files
    return SealedLinked(
        files=carried.files + sum(amount.files for amount in read.values()),
        bytes=carried.bytes + sum(amount.bytes for amount in read.values()),
        read_now={why: read[why] for why in sorted(read)},
        carried=carried,
        deviations=deviations(run),
        at_most_95=at_most_95(carried.files, sampled) if carried.files else None,
    )


def deviations(run: Run) -> int:
    """Linked files that were found with other bytes. Raises FailedError."""
    path = run.folder.linked_damage
    try:
        marks = sorted(path.iterdir()) if path.is_dir() else []
        return sum(linked_damage.from_json(plain_files.read(one), one).files for one in marks)
    except (OSError, ValueError) as error:
        raise FailedError("a file of the run cannot be read", where=str(path), why=str(error)) from error
