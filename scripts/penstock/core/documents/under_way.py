"""`under-way.json` in a dataset's folder: what its owner stages now, for other accounts. Pure;
`dataset.staging_notice` reads and writes the file."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.

from typing import NamedTuple

from penstock.core.documents.typed_json import Document, ProcessName


class UnderWay(NamedTuple):
    """The process that stages the dataset, or the job that will."""

    step: str
    """By the table of steps; `submit` while a submitted controller waits for SLURM."""
    since: str
    """When this controller or job began to stage it, or was submitted: UTC, ISO 8601."""
    host: str = ""
    job: str = ""
    """The number of the job whose end is the end of the staging, decimal; "" where it is in none."""
    cluster: str = ""
    controller: ProcessName = ""
    """The workflow above the step; "" for a step by hand."""

    def continues(self, before: "UnderWay") -> bool:
        """Whether it is the work of the same job, or outside jobs of the same controller."""
        if self.job or before.job:
            return (self.job, self.cluster) == (before.job, before.cluster)
        return bool(self.controller) and (self.host, self.controller) == (before.host, before.controller)


UNDER_WAY = Document(UnderWay, "what is under way of a dataset")
