"""`usage/<step>/<name>.json`: what an element used since it started."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from typing import NamedTuple

from penstock.core.documents.typed_json import Document


class ElementUsage(NamedTuple):
    """Times are seconds, sizes bytes; 0: not known. `host.resources` has the figures' origins."""

    array: str = ""  # its array's name (`ArraySpec.name`)
    number: int = 0  # of the worker, over all arrays of the step
    restarts: int = 0  # earlier starts by the scheduler
    host: str = ""
    began: float = 0.0  # seconds since the epoch, by the node's clock
    seconds: float = 0.0
    cpu_seconds: float = 0.0  # of the element, its engine's processes, and all others that it started
    cpus: int = 0  # granted to it
    node_cpus: int = 0  # of the node
    memory_peak: int = 0  # of its processes: an upper bound, the sum of their own peaks
    processes: int = 0  # number of processes in that sum
    job_memory_peak: int = 0  # of the job's own control group, with cached files
    job_memory_file: str = ""  # its origin: `memory.peak` or `memory.max_usage_in_bytes`


ELEMENT_USAGE = Document(ElementUsage, "what an element used")
