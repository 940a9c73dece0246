"""What `penstock plan` says of a dataset's next run, for its screen and for programs. Pure."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.core.ceilings import Forecast, Work
from penstock.core.documents.catalogue_rows import DiffCount


class OtherSteps(NamedTuple):
    """What a run takes after its copy, as the newest published run took it."""

    release: str
    seconds: float
    """Of permissions, verify and publish."""


class SizeClass(NamedTuple):
    """Files of one class of sizes."""

    most: int | None
    """Bytes that the largest of them may have; None: giants."""
    files: int
    bytes: int


class Explanation(NamedTuple):
    """What a run would do. Sizes are bytes, times seconds."""

    dataset: str
    """"" where all of it is assumed."""
    files: int
    bytes: int | None
    """None: the source gives no sizes, and nobody assumed them."""
    copied: Work
    """What the source sends; the other files lie on the target already."""
    nodes: int
    """Elements at once: on SLURM each is a node's."""
    forecast: Forecast
    """Of the copy."""
    price: float | None = None
    """In the currency of the prices that were given; None: none was given."""
    current: str = ""
    """The release that it is compared with; "" where there is none."""
    changes: Mapping[str, DiffCount] = {}
    """What differs from that release, by kind (`difference.KINDS`)."""
    classes: Sequence[SizeClass] = ()
    """Of all files; empty where they were assumed."""
    shards: int | None = None
    other_steps: OtherSteps | None = None
    """None: no run of the dataset has shown how long they take."""
    requests: Mapping[str, int] = {}
    """`get` and `list`, the fewest that it takes; empty where the source is no store of objects."""
    queue: Sequence[str] = ()
    """When elements would start, as the cluster says."""
    space: Sequence[str] = ()
    """What the run takes of the target, its quotas and storage targets, and what they have."""
