"""What `penstock plan` says of a dataset's next run, for its screen and for programs."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.core.ceilings import Forecast, Work
from penstock.core.documents.catalogue_rows import DiffCount


class OtherSteps(NamedTuple):
    """Time for the steps after a run's copy, by the newest published run."""

    release: str
    seconds: float  # of permissions, verify and publish


class SizeClass(NamedTuple):
    """Files of a class of sizes."""

    most: int | None  # bytes of the largest possible file; None: giants
    files: int
    bytes: int


class Explanation(NamedTuple):
    """What a run would do. Sizes are bytes, times seconds."""

    dataset: str  # "": all figures are assumed
    files: int
    bytes: int | None  # None: neither the source nor the user gave sizes
    copied: Work  # what the source sends; other files are on the target already
    nodes: int  # elements at once: on SLURM each has its own node
    forecast: Forecast  # of the copy
    price: float | None = None  # in the currency of the given prices; None: no prices
    current: str = ""  # the release that it is compared with; "": none
    changes: Mapping[str, DiffCount] = {}  # differences from that release, by kind (`difference.KINDS`)
    classes: Sequence[SizeClass] = ()  # of all files; empty: sizes were assumed
    shards: int | None = None
    other_steps: OtherSteps | None = None  # None: no run of the dataset has shown their time
    requests: Mapping[str, int] = {}  # the fewest `get` and `list` requests; empty: not an object store
    queue: Sequence[str] = ()  # when elements would start, by the cluster
    # what the run needs of the target, its quotas and storage targets, and what they have
    space: Sequence[str] = ()
