"""Where comparisons lie: `.penstock/adoptions/<id>/`, each laid out like a run, so that its elements are run
by the code that runs those of copy and verify.

    adoption.json      which tree, which listing, how
    listing.parquet, stated.parquet, empty-folders.json, run.json, plan.json, shards/, receipts/adopt/,
                       arrays.jsonl: as in a run
    survey/NNNNN/      what the elements saw of a shard's rows
    differences.jsonl, result.json: at the end; a comparison without result.json is not finished

The same tree and the same listing meet the same comparison again: rows of files that were not touched since,
and were read within a week, are not read again.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from typing import TYPE_CHECKING

from penstock.core.differences import from_json, to_json
from penstock.core.documents import adoption_description
from penstock.core.layout import RunLayout
from penstock.errors import FailedError
from penstock.storage import durable
from penstock.storage.registry import open_storage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from penstock.config.settings import PlanConfig
    from penstock.core.differences import Difference
    from penstock.core.documents.adoption_description import Adoption
    from penstock.core.layout import DatasetLayout

NEW = ".new-"
"""What the folder of a listing begins with that is still being made."""
KEPT = 5
"""Comparisons of a dataset that stay."""
STALE = 7 * 86400
"""Seconds after which a file is read again: what was read so long ago proves little today."""


def description(run: RunLayout) -> Path:
    return run.folder / "adoption.json"


def differences(run: RunLayout) -> Path:
    return run.folder / "differences.jsonl"


def result(run: RunLayout) -> Path:
    return run.folder / "result.json"


def identity(tree: Path, seen: os.stat_result, listing: str, plan: PlanConfig) -> str:
    """The id of the comparison of this tree, of which `seen` is the top folder's stat, with this listing."""
    told = [str(tree), seen.st_dev, seen.st_ino, listing, plan.giant_bytes, plan.part_bytes]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


def describe(run: RunLayout, adoption: Adoption) -> None:
    """Durable on return."""
    durable.write_json(description(run), adoption_description.to_json(adoption))


def described(run: RunLayout) -> Adoption:
    """What `describe` wrote. Raises FailedError when it is missing or damaged."""
    path = description(run)
    try:
        return adoption_description.from_json(path.read_bytes(), path)
    except (OSError, ValueError) as error:
        raise FailedError(
            "a comparison's description cannot be read",
            where=str(run.folder),
            why=str(error),
            hint="remove this folder: the same command compares anew",
        ) from error


def keep(run: RunLayout, found: Iterable[Difference]) -> None:
    """Write differences as they come, durably. Memory does not grow with their number."""
    with durable.Growing(differences(run)) as file:
        for one in found:
            file.stream.write(json.dumps(to_json(one), sort_keys=True).encode() + b"\n")
        file.close()


def kept(run: RunLayout) -> Iterator[Difference]:
    """What `keep` wrote. Raises FailedError when the file is missing or damaged."""
    path = differences(run)
    try:
        with path.open("rb") as stream:
            for line in stream:
                yield from_json(line)
    except (OSError, ValueError) as error:
        raise FailedError(
            "a comparison's differences cannot be read", where=str(path), why=str(error)
        ) from error


def tidy(layout: DatasetLayout, but: str) -> None:
    """Remove the oldest comparisons, and listings that no comparison was made of; never that of the id
    `but`."""
    folders = []
    for name in os.listdir(layout.adoptions):
        run = RunLayout(layout.adoptions / name)
        if name == but:
            continue
        if name.startswith(NEW) or not description(run).exists():
            open_storage().remove_tree(run.folder)
        else:
            folders.append((_touched(run), run))
    for _, run in sorted(folders, key=lambda one: one[0], reverse=True)[KEPT - 1 :]:
        open_storage().remove_tree(run.folder)


def _touched(run: RunLayout) -> float:
    """When the comparison last ended or began, in seconds since the epoch."""
    paths = [path for path in (result(run), run.run_file, description(run)) if path.exists()]
    return max((path.stat().st_mtime for path in paths), default=0.0)


def too_old(seen_ns: int) -> bool:
    """Whether a row that was read then has to be read again."""
    return time.time_ns() - seen_ns > STALE * 10**9
