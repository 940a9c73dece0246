"""What copying would recall from an archive: files of folders to copy, without data in place.

Plan counts them before a byte moves, and stops until the dataset's `recall` allows it. Linked and taken-over
files are read at no source: they do not count.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Self

from penstock.config.source_kinds import FOLDER, folder, of_url
from penstock.core import human
from penstock.core.errors import LOOK_AT_FILE, NAMED_FILES, PreflightError
from penstock.fs.errno_map import printable
from penstock.fs.store_checks import data_states
from penstock.run.planning import row_sums

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from penstock.dataset.run import Run
    from penstock.fs.data_states import DataStates


class SourceRecall:
    """A count of files to recall, in one pass over a run's files. A context manager."""

    def __init__(self, run: Run) -> None:
        """Raises PreflightError where the folder of a source cannot be looked at."""
        self._dataset, self._allowed = run.dataset, run.config.dataset.recall
        self._asked: dict[int, DataStates] = {}
        self._files: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._named: list[str] = []
        for number, url in enumerate(run.info.sources):
            if of_url(url) is not FOLDER:
                continue
            path = Path(folder(url))
            try:
                states = data_states(path.parent if path.is_file() else path)
            except OSError as error:
                self.close()
                raise PreflightError(
                    "the source folder cannot be looked at",
                    where=url,
                    why=error.strerror or str(error),
                    hint=LOOK_AT_FILE,
                ) from None
            if states is not None:
                self._asked[number] = states

    def close(self) -> None:
        for states in self._asked.values():
            states.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, batch: pa.RecordBatch, sizes: Sequence[int]) -> None:
        """Count the files to copy, among these rows of the plan, whose data is elsewhere; sizes in bytes."""
        if not self._asked:
            return
        to_copy: dict[int, dict[str, int]] = {}
        columns = (batch["source"].to_pylist(), batch["key"].to_pylist(), sizes, row_sums.lying(batch))
        for source, key, size, lies in zip(*columns, strict=True):
            if source in self._asked and not lies:
                to_copy.setdefault(source, {})[os.fsdecode(key)] = size
        for source, files in to_copy.items():
            for key, state in self._asked[source].away([*files]).items():
                self._files[state.place] += 1
                self._bytes[state.place] += files[key]
                if len(self._named) < NAMED_FILES:
                    self._named.append(
                        f"{printable(key)}: {state.place}, {state.why}, {human.size(files[key])}"
                    )

    def sentence(self) -> str:
        if not self._files:
            return ""
        counts = (
            f"{human.counted(self._files[place], 'file')}, {human.size(self._bytes[place])}, {place}"
            for place in sorted(self._files)
        )
        return f"of the source's data is not in place: {'; '.join(counts)}"

    def check(self) -> None:
        """Raise PreflightError where the copy would recall more bytes than `recall` allows."""
        total = self._bytes.total()
        if total <= self._allowed:
            return
        count = self._files.total()
        named = [
            *self._named,
            *([f"and {count - len(self._named)} more"] if count > len(self._named) else []),
        ]
        raise PreflightError(
            "copying would have files of the source fetched from an archive",
            where=self._dataset,
            why="\n  ".join([f"{self.sentence()}; `recall` allows {human.size(self._allowed)}:", *named]),
            hint=f"set `datasets.{self._dataset}.recall` to {_enough(total)} or more, and the copy fetches "
            "them by reading; or have them restored by the archive's own command first, in the order of its "
            "tapes; or leave them out by `exclude`",
        )


def _enough(count: int) -> str:
    """Return a size of at least so many bytes, as the configuration writes it."""
    for unit, scale in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= scale:
            return f"{-(-count // scale)}{unit}"
    return f"{count}B"
