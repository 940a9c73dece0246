"""`usage/<step>/<name>.json`: what an element (a worker: one process of a job array) used since it started.
Pure; `host.resource_usage` measures it, `jobs.elements.element_account` writes the file."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from typing import NamedTuple

from penstock.core.documents.typed_json import Document


class ElementUsage(NamedTuple):
    """`host.resource_usage` has the table of where the figures come from; times are seconds, sizes bytes, and
    0 is not known."""

    array: str = ""
    """The name of its array (`ArraySpec.name`)."""
    number: int = 0
    """The worker's, over all arrays of the step."""
    restarts: int = 0
    """How often the scheduler had started the worker again."""
    host: str = ""
    began: float = 0.0
    """Seconds since the epoch, by the node's clock."""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    """Of the element, its engine's processes, and whatever else it started."""
    cpus: int = 0
    """CPUs that it was granted."""
    node_cpus: int = 0
    """CPUs that the node has."""
    memory_peak: int = 0
    """Of its processes: an upper bound, since it is the sum of their own peaks."""
    processes: int = 0
    """How many processes that sum is of."""
    job_memory_peak: int = 0
    """Of the job's own control group, cached files included."""
    job_memory_file: str = ""
    """The file that said so: `memory.peak` or `memory.max_usage_in_bytes`."""


ELEMENT_USAGE = Document(ElementUsage, "what an element used")
