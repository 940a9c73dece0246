"""The closing walk against a plain comparison of sets, over trees that were spoiled at random."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.run.test_closing import closed, entry_of, seen, whole
from tests.support.staging_runs import tree

from penstock.core.human import in_quotes

PATH = st.lists(st.text("ab-\udcff", min_size=1, max_size=2), min_size=1, max_size=3).map("/".join)
SPOIL = st.tuples(st.sampled_from(["remove", "grow", "touch", "folder", "link", "file"]), st.integers(0, 99))


def _files(paths: set[str]) -> list[str]:
    """Those that can be files beside one another, in the order of their bytes."""
    above = {path[:at] for path in paths for at, char in enumerate(path) if char == "/"}
    return sorted(paths - above, key=os.fsencode)


def _spoil(data: Path, path: str, how: str) -> None:
    place = data / path
    if how in ("remove", "folder", "link"):
        place.unlink(missing_ok=True)
    if how == "grow":
        with place.open("ab") as stream:
            stream.write(b"x")
    elif how == "touch":
        os.utime(place, ns=(1, 1))
    elif how == "folder":
        (place / "in").mkdir(parents=True)
    elif how == "link":
        place.symlink_to("nowhere")
    elif how == "file":
        place.with_name(place.name + "+").touch()


def _wanted(data: Path, paths: list[str], times: dict[str, tuple[int, int]]) -> dict[str, int]:
    """Counts of missing, touched and extra, by looking at each name alone."""
    counts = {"missing": 0, "touched": 0, "extra": 0}
    for path in paths:
        place = data / path
        if not os.path.lexists(place) or (place.is_dir() and not place.is_symlink()):
            counts["missing"] += 1
        elif place.is_symlink() or (place.lstat().st_size, place.lstat().st_mtime_ns) != times[path]:
            counts["touched"] += 1
    for folder, folders, files in os.walk(data):
        for name in folders + files:
            path = os.path.relpath(os.path.join(folder, name), data)
            if name in folders and not os.path.islink(data / path):
                counts["extra"] += not any(one.startswith(f"{path}/") for one in paths)
            else:
                counts["extra"] += path not in times
    return {kind: count for kind, count in counts.items() if count}


@settings(deadline=None, max_examples=150)
@given(st.sets(PATH, min_size=1, max_size=30), st.lists(SPOIL, max_size=4), st.integers(1, 7))
def test_whatever_was_done_to_a_tree_is_told(
    paths: set[str], spoils: list[tuple[str, int]], many: int
) -> None:
    names = _files(paths)
    folder = Path(tempfile.mkdtemp())
    try:
        data = tree(folder / "data", {name: b"1" * (len(name) % 3) for name in names})
        records = [seen(data, name) for name in names]
        times = {record.path: (record.size, record.mtime_ns) for record in records}
        for number, (how, which) in enumerate(spoils):
            if which % len(names) not in [other % len(names) for _, other in spoils[:number]]:
                _spoil(data, names[which % len(names)], how)
        rows = [whole(record, number // many) for number, record in enumerate(records)]
        got, deviations = closed(data, rows, [entry_of(record) for record in records])
        assert got == records
        assert deviations.counts == _wanted(data, names, times)
        where = {path: number // many for number, path in enumerate(names)}
        told = {shard for path, shard in where.items() if in_quotes(path) in "\n".join(deviations.lines())}
        assert deviations.shards <= told
    finally:
        shutil.rmtree(folder)
