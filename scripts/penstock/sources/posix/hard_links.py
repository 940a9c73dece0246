"""Names of one dataset that share one file, counted while a folder is listed.

Each name becomes a file of its own in a release: a release is read by many jobs and repaired file by file,
and repairing one name must not change another. The extra space that this takes is reported in the plan. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MOST = 1_000_000
"""Files that are remembered at a time until all their names came: some 100 MB. Files beyond are not
counted."""


class HardLinks:
    """Counts names of files that have several; `saw` is called with each. `keep` says which names belong to
    the dataset."""

    def __init__(self, keep: Callable[[str], bool] | None = None, most: int = MOST) -> None:
        self._keep, self._most = keep, most
        self._names: dict[tuple[int, int], tuple[int, int]] = {}
        self._files = self._of = self._bytes = 0

    def saw(self, path: str, place: tuple[int, int], names: int, size: int) -> None:
        """One of the `names` of the file at `place` (device and inode), of `size` bytes."""
        if self._keep is not None and not self._keep(path):
            return
        left, counted = self._names.pop(place, (names, 0))
        if counted:
            self._files += 1
            self._of += counted == 1
            self._bytes += size
        # A file is forgotten with its last name, so that memory does not grow with the dataset.
        if left > 1 and len(self._names) < self._most:
            self._names[place] = left - 1, counted + 1

    @property
    def counts(self) -> Mapping[str, int]:
        """`of` files have several names in the dataset; `files` counts their names beyond the first, and
        `bytes` what these take in a release. Lower bounds where more than MOST files were remembered at a
        time. Empty when there are none."""
        return {"files": self._files, "of": self._of, "bytes": self._bytes} if self._files else {}
