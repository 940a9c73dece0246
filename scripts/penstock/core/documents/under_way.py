"""`under-way.json` in a dataset's folder: what its owner stages now and will still write, for others'
plans."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.

from typing import Annotated, NamedTuple

from penstock.core.documents.typed_json import INLINE, LARGEST, Document, ProcessName, between

Count = Annotated[int, between(0, LARGEST)]


class StillToWrite(NamedTuple):
    """What a run, repair or rehearsal will still write."""

    bytes: Count = 0  # in whole blocks
    files: Count = 0  # files and folders
    chunk_files: Count = 0  # that the files will be on storage targets (Lustre: objects); 0: not known
    uid: int = -1  # of the files; where it was read, the owner of the document
    gid: int = -1  # of the files
    pool: str = ""  # the storage pool of the files, as the vendor's commands call it; "": not known


class UnderWay(NamedTuple):
    """The process that stages the dataset, or the job that will."""

    step: str  # by the table of steps; `submit`: a submitted controller waits for SLURM
    since: str  # UTC, ISO 8601: when this controller or job began, or was submitted
    host: str = ""
    job: str = ""  # decimal number of the job that ends with the staging; "": none
    cluster: str = ""
    controller: ProcessName = ""  # the workflow above the step; "": a step by hand
    writes: Annotated[StillToWrite, INLINE] = StillToWrite()
    made: bool = False  # a submission made the dataset's folder, which goes with the notice

    def continues(self, before: "UnderWay") -> bool:
        """Return whether it is work of the same job, or outside jobs of the same controller."""
        if self.job or before.job:
            return (self.job, self.cluster) == (before.job, before.cluster)
        return bool(self.controller) and (self.host, self.controller) == (before.host, before.controller)


UNDER_WAY = Document(UnderWay, "what is under way of a dataset")
