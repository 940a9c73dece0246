"""Small objects that are asked for before their turn: whole shards, from good stores and from bad."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.test_kill import check_journal, gone, start, until
from tests.support import commands
from tests.support.engine_runs import content, make_tree, read_tree, rewrite, shard_run, workers_of
from tests.support.hostile import GATHERED, Hostile
from tests.support.s3server import S3Server

from penstock.core.errors import InterruptedRunError
from penstock.core.model import Entry, Reuse
from penstock.engine import journal
from penstock.engine.sizing import AHEAD, MOST_STREAMS
from penstock.engine.stream import AHEAD_BYTES, BLOCK, Prefetch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.engine_runs import ShardRun

ALONE = {"workers": 1}
"""One thread at first, which has AHEAD requests out."""


def mixed(count: int) -> dict[str, int]:
    """Sizes of files in one folder: small ones, and all that stands in their way."""
    files = {f"d/f{i:03d}": (i * 37) % 9000 for i in range(count)}
    files |= {f"d/f{i:03d}-empty": 0 for i in (0, 10, 11, 12)}
    files |= {f"d/f{i:03d}-half": 600_000 + i for i in (20, 21, 22, 30)}
    files |= {
        "d/f040-block": BLOCK,
        "d/f041-block": BLOCK,
        "d/f042-less": BLOCK - 1,
        "d/f043-more": BLOCK + 1,
    }
    return files | {"d/f050-large": 5_000_001, "d/f060-giant": 6_500_000, "d/f061-giant": 6_000_000}


def shard(folder: Path, server: S3Server | Hostile, **more: Any) -> ShardRun:
    return shard_run(folder, f"s3://{server.bucket}/", endpoint_url=server.endpoint, anon=True, **more)


def kept(run: ShardRun) -> dict[str, bytes]:
    """What is there, without temporaries that a kill left."""
    return {path: data for path, data in read_tree(run.data).items() if ".p." not in path}


# ---- whole shards


@pytest.mark.parametrize(
    "engine",
    [ALONE, pytest.param({"workers": 2}, marks=pytest.mark.thorough), {"workers": 1, "streams": 3}, {}],
)
def test_all_sizes_come_right_and_once(tmp_path: Path, engine: dict[str, int]) -> None:
    source = make_tree(tmp_path / "source", mixed(150))
    with S3Server(source, options=["--checksums"]) as server:
        run = shard(tmp_path / "run", server, giant=6_000_000)
        asked = len(server.requests())
        outcome = run.copy(engine=engine)
        gets = [one.key for one in server.requests()[asked:] if one.method == "GET"]
    assert outcome.failures == []
    assert outcome.retries == 0
    assert read_tree(run.data) == read_tree(source)
    assert sorted(gets) == sorted(entry.key for entry in run.entries)
    copied = journal.replay(run.journals, run.shard.digest)
    assert {one.source_grade for row, one in copied.items() if run.entries[row].part < 0} == {"full"}


@pytest.mark.parametrize(
    "engine", [ALONE, pytest.param({"workers": 2, "streams": 4}, marks=pytest.mark.thorough)]
)
def test_linked_rows_between_are_not_asked_for(tmp_path: Path, engine: dict[str, int]) -> None:
    source = make_tree(tmp_path / "source", mixed(150))
    with S3Server(source) as server:
        base = shard(tmp_path / "base", server, giant=6_000_000)
        base.copy()
        run = shard(tmp_path / "run", server, giant=6_000_000)
        known = {
            base.entries[row].path: one
            for row, one in journal.replay(base.journals, base.shard.digest).items()
            if base.entries[row].part < 0
        }
        reused = [entry.path for entry in run.entries if entry.part < 0][::3]
        missing = reused[::5]
        for path in missing:
            os.unlink(base.data / path)
        changes = {path: Reuse(known[path].digest) for path in reused}
        rewrite(run, [entry._replace(reuse=changes.get(entry.path)) for entry in run.entries])
        asked = len(server.requests())
        outcome = run.copy(base=base.data, engine=engine)
        gets = [one.key for one in server.requests()[asked:] if one.method == "GET"]
    assert outcome.failures == []
    linked = set(reused) - set(missing)
    assert outcome.linked == len(linked)
    assert sorted(gets) == sorted(entry.key for entry in run.entries if entry.path not in linked)
    assert read_tree(run.data) == read_tree(source)


# ---- how many are on their way


SMALL = {f"d/{n:03d}": content(n, 100 * (n % 7)) for n in range(64)}
FIRST = list(SMALL)[:GATHERED]


def ports(server: Hostile) -> int:
    """Connections over which objects were asked for."""
    return len({one.port for one in server.asked if one.key})


def test_one_thread_has_many_on_their_way(tmp_path: Path) -> None:
    """The first ones, which are one thread's, are answered when all of them are there."""
    assert GATHERED == AHEAD
    with Hostile(SMALL, dict.fromkeys(FIRST, "gathered")) as server:
        run = shard(tmp_path / "run", server)
        outcome = run.copy(engine=ALONE | {"timeout": 20.0})
        assert [server.count(key) for key in SMALL] == [1] * len(SMALL)
        assert ports(server) >= AHEAD
    assert (outcome.failures, outcome.retries) == ([], 0)
    assert read_tree(run.data) == SMALL


@pytest.mark.parametrize("limit", [None, 100_000_000])
@pytest.mark.parametrize("streams", [1, 2, 8])
def test_streams_that_are_configured_are_all_requests(
    tmp_path: Path, streams: int, limit: int | None
) -> None:
    with Hostile(SMALL) as server:
        run = shard(tmp_path / "run", server)
        outcome = run.copy(engine={"workers": 1, "streams": streams, "limit": limit})
        assert [server.count(key) for key in SMALL] == [1] * len(SMALL)
        assert 1 <= ports(server) <= streams
    assert (outcome.failures, outcome.retries) == ([], 0)
    assert read_tree(run.data) == SMALL


@pytest.mark.parametrize(
    ("size", "engine", "expected"),
    [
        (1000, {}, True),
        (1000, {"limit": 100_000_000}, False),
        (1000, {"streams": 4}, False),
        (BLOCK + 1, {}, False),
    ],
    ids=["small", "a limit", "streams configured", "not small"],
)
def test_who_asks_ahead_says_so(tmp_path: Path, size: int, engine: dict[str, int], *, expected: bool) -> None:
    with Hostile({f"d/{n}": content(n, size) for n in range(8)}) as server:
        outcome = shard(tmp_path / "run", server).copy(engine=engine)
    assert outcome.failures == []
    assert (f"each asks for up to {AHEAD} objects ahead at first" in outcome.why) is expected


def test_bytes_on_their_way_are_bounded(tmp_path: Path) -> None:
    objects = {f"d/{n:02d}": content(n, 600_000) for n in range(15)}
    with Hostile(objects) as server:
        run = shard(tmp_path / "run", server)
        outcome = run.copy(engine=ALONE)
        assert 1 < ports(server) <= AHEAD_BYTES // 600_000
        assert [server.count(key) for key in objects] == [1] * len(objects)
    assert outcome.failures == []
    assert read_tree(run.data) == objects


# ---- stores that misbehave

MODES = {
    # What it does, how often it is asked, what is said of it in the end.
    "fine": ("", 1, ""),
    "internal": ("error500*1", 2, ""),
    "cut": ("cut*2", 3, ""),
    "reset": ("reset*1", 2, ""),
    "chunk": ("badchunk*1", 2, ""),
    "lengthless": ("nolen*1", 2, ""),
    "flipped": ("flipcrc*1", 2, ""),
    "checked": ("crc", 1, ""),
    "redirected": ("redirect*1", 2, ""),
    "silent": ("silent*1", 2, ""),
    "short": ("shortlen", 4, "length"),
    "long": ("long", 4, "length"),
    "broken": ("flipcrc", 2, "crc32"),
    "checksums": ("falsecrc", 2, "crc32"),
    "login": ("errhtml200", 1, "no object of the store"),
    "zipped": ("gzip", 1, "Content-Encoding"),
    "other": ("changed", 1, "changed"),
    "gone": ("404", 1, "gone"),
    "412": ("412", 1, "changed"),
    "denied": ("denied", 1, "refuses"),
    # After these nothing is asked for ahead.
    "patience": ("slowdown*2", 3, ""),
    "always": ("slowdown", 4, "patience"),
}


@pytest.mark.parametrize("order", [1, -1], ids=["in order", "the other way"])
def test_each_fault_costs_its_own_rows_alone(tmp_path: Path, order: int) -> None:
    """Faults next to one another, so that each falls among what another one has on its way."""
    names = list(MODES)[::order]
    keys = {f"d/{n:02d}{i}-{name}": name for i in range(2) for n, name in enumerate(names)}
    keys |= {f"{key}-good": "fine" for key in list(keys)[::2]}
    objects = {key: content(n, 50 + 997 * (n % 90)) for n, key in enumerate(sorted(keys))}
    with Hostile(objects, {key: MODES[name][0] for key, name in keys.items()}) as server:
        run = shard(tmp_path / "run", server)
        outcome = run.copy(engine=ALONE | {"attempts": 4, "timeout": 1.0})
        counts = {key: server.count(key) for key in objects}
        assert ports(server) > 2
    whys = {failure.path: failure.why for failure in outcome.failures}
    here = read_tree(run.data)
    for key, name in keys.items():
        why = MODES[name][2]
        if why:
            assert key not in here
            assert why in whys[key], key
        else:
            assert here[key] == objects[key]
            assert key not in whys
    assert counts == {key: MODES[name][1] for key, name in keys.items()}
    assert here.keys() | whys.keys() == objects.keys()


# ---- stopped and killed


def rest(run: ShardRun, server: Hostile, recorded: set[int], hanging: int = 0) -> None:
    """The next attempt fetches exactly what no journal holds, each once."""
    # The server goes on to read what an ended process had asked for; one that it keeps hanging stays open.
    commands.until(lambda: server.kept() <= hanging, "the end of the first attempt's connections")
    asked = len(server.asked)
    outcome = run.copy(engine=ALONE)
    assert outcome.failures == []
    assert outcome.resumed_files == len(recorded)
    gets = [one.key for one in server.asked[asked:] if one.method == "GET"]
    assert sorted(gets) == sorted(e.key for row, e in enumerate(run.entries) if row not in recorded)
    assert kept(run) == server.objects
    assert len(check_journal(run)) == len(run.entries)


SILENT = 190
"""Number of the object at which the copy that is killed hangs."""


def test_killed_with_many_on_their_way(tmp_path: Path) -> None:
    objects = {f"d/{n:03d}": content(n, 100 * (n % 50)) for n in range(400)}
    with Hostile(objects, {f"d/{SILENT}": "silent*1"}) as server:
        run = shard(tmp_path / "run", server)
        process = start(run, **ALONE)

        def stuck() -> bool:
            # At the silent object, with those behind it asked for (they are in one batch with it).
            asked = all(server.count(f"d/{n}") > 0 for n in (SILENT, SILENT + AHEAD - 1))
            return asked and any(path.stat().st_size > 500 for path in run.journals.glob("a1-*"))

        until(stuck, process)
        process.kill()
        process.wait()
        gone(process.pid)
        recorded = set(check_journal(run))
        assert recorded
        assert SILENT not in recorded
        rest(run, server, recorded, hanging=1)


@pytest.mark.cold_start
def test_stopped_with_many_on_their_way(tmp_path: Path) -> None:
    objects = {f"d/{n:04d}": content(n, 100 * (n % 50)) for n in range(900)}
    with Hostile(objects) as server:
        run = shard(tmp_path / "run", server)

        def stop() -> None:
            if sum(1 for one in server.asked if one.key) > 200:
                raise InterruptedRunError(signal.SIGTERM)

        with pytest.raises(InterruptedRunError):
            run.copy(stop=stop, engine=ALONE)
        assert workers_of(os.getpid()) == []
        recorded = set(check_journal(run))
        fetched = sum(1 for one in server.asked if one.key)
        # Nothing is thrown away but what was on its way.
        assert fetched - MOST_STREAMS <= len(recorded) <= fetched < len(objects)
        rest(run, server, recorded)


# ---- the window itself


@st.composite
def rows(draw: st.DrawFn) -> list[Entry]:
    found: list[Entry] = []
    for n in range(draw(st.integers(0, 30))):
        kind = draw(st.sampled_from(["tiny"] * 4 + ["small", "block", "large", "giant", "reuse", "local"]))
        size = {"small": 300_000, "block": BLOCK, "large": BLOCK + 1, "giant": 9 * BLOCK}.get(kind, n)
        one = Entry(f"p{n}", f"k{n}", size, "t", 0, length=size)
        if kind == "giant":
            found += [one._replace(part=part, offset=part * BLOCK, length=BLOCK) for part in range(9)]
        elif kind == "reuse":
            found.append(one._replace(reuse=Reuse("xxh3_128:00")))
        else:
            found.append(one._replace(source=int(kind == "local")))
    return found


@settings(max_examples=100, deadline=None)
@given(rows(), st.integers(1, AHEAD), st.booleans(), st.data())
def test_the_window(entries: list[Entry], depth: int, linking: bool, data: st.DataObject) -> None:
    asked: list[Entry] = []
    asker: Callable[[int], Callable[[Entry], None] | None] = lambda n: None if n else asked.append  # noqa: E731
    prefetch = Prefetch(asker, linking=linking)
    prefetch.begin(entries, depth)
    wanted = [
        entry
        for entry in entries
        if entry.size <= BLOCK and entry.part < 0 and not entry.source and not (linking and entry.reuse)
    ]
    for n, entry in enumerate(entries):
        if entry.reuse and linking and data.draw(st.booleans()):
            continue  # linked: its turn never comes
        for _ in range(data.draw(st.sampled_from([1, 1, 1, 2]))):  # again, when it is tried again
            if prefetch:
                prefetch.turn(entry)
        # Each once and in order, none too late, none too early.
        assert asked == wanted[: len(asked)]
        out = [one for one in asked if one in entries[n:]]
        assert (entry in out) is (entry in wanted and depth > 1)
        assert len(out) <= depth
        assert sum(one.size for one in out) <= AHEAD_BYTES
    if depth > 1 and entries and not (linking and entries[-1].reuse):
        assert asked == wanted
