"""Connections that break within a body: what can be pinned goes on at the break, and not for ever."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.engine_runs import content, read_tree, rewrite
from tests.support.hostile import Hostile
from tests.support.hostile_gcs import HostileGcs
from tests.support.large import ranges, run_of

from penstock.config.settings import SourceConfig
from penstock.engine.pump import PROGRESS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.engine_runs import ShardRun

MIB = 1 << 20
SIZE = 4 * MIB + 77
DATA = content(5, SIZE)
LAST = SIZE - 1
SMALLER: dict[str, Any] = {"large_bytes": 2 * MIB, "part_bytes": 3 * MIB}
"""What a copy task is told, so that DATA goes in two parts."""


@contextmanager
def shard(
    folder: Path, mode: str, kind: str = "s3", data: bytes = DATA, made: type[Hostile] = Hostile
) -> Iterator[tuple[Hostile, ShardRun]]:
    """A server that answers every GET of one object, `big`, in this mode, and a shard of it."""
    with Hostile({"big": data}) as honest:
        run = run_of(honest, folder)
    with (HostileGcs if kind == "gcs" else made)({"big": data}, modes={"big": mode}) as server:
        url, options = f"{kind}://bucket/", {"endpoint_url": server.endpoint, "anon": True}
        if kind == "az":
            options["account_name"] = "account"
        if kind == "web":
            url, options = server.url(), {}
        run.dataset = replace(run.dataset, sources=(SourceConfig(url, storage_options=options),))
        if isinstance(server, HostileGcs):
            rewrite(run, [run.entries[0]._replace(token=server.generation("big"))])
        yield server, run


def spans(*ends: int) -> dict[str, int]:
    """The ranges that are asked for once each, by where they begin; the last of `ends` is where they end."""
    *begins, end = ends
    return {f"bytes={begin}-{end}" if begin else "": 1 for begin in begins}


@pytest.mark.parametrize("kind", ["s3", "az", "gcs", "web"])
@pytest.mark.parametrize("mode", ["each", "eachchunk"])
def test_each_mib_that_came_is_asked_for_once(tmp_path: Path, kind: str, mode: str) -> None:
    with shard(tmp_path, f"{mode}:{MIB}", kind) as (server, run):
        outcome = run.copy()
        assert (outcome.failures, outcome.files, outcome.bytes) == ([], 1, SIZE)
        assert ranges(server) == spans(0, MIB, 2 * MIB, 3 * MIB, 4 * MIB, LAST)
        assert outcome.retries == 4
        if kind != "gcs":
            conditions = {asked.headers.get("if-match") for asked in server.asked}
            assert conditions == {f'"{run.entries[0].token}"'}
        assert run.reread().failures == []
    assert read_tree(run.data) == {"big": DATA}


def test_parts_go_on_within_their_ranges(tmp_path: Path) -> None:
    with shard(tmp_path, f"each:{MIB}") as (server, run):
        assert run.copy(**SMALLER).failures == []
        begins = [0, MIB, 2 * MIB]
        first = {f"bytes={begin}-{3 * MIB - 1}": 1 for begin in begins}
        assert ranges(server) == first | {f"bytes={begin}-{LAST}": 1 for begin in (3 * MIB, 4 * MIB)}
        assert run.reread().failures == []
    assert read_tree(run.data) == {"big": DATA}


def test_a_giants_part_goes_on_within_its_range(tmp_path: Path) -> None:
    with shard(tmp_path, f"each:{MIB}") as (server, run):
        rewrite(run, [run.entries[0]._replace(part=0, offset=0, length=2 * MIB + 1)])
        assert run.copy().failures == []
        assert ranges(server) == {f"bytes={begin}-{2 * MIB}": 1 for begin in (0, MIB, 2 * MIB)}


def test_a_small_object_goes_on_too(tmp_path: Path) -> None:
    data = DATA[: 900 << 10]
    piece = 200 << 10
    with shard(tmp_path, f"each:{piece}", data=data) as (server, run):
        assert run.copy().failures == []
        # Its first request is for all of it, into one buffer: what came of that is asked for again.
        begins = [piece, 2 * piece, 3 * piece, 4 * piece]
        assert ranges(server) == {"": 2} | {f"bytes={begin}-{len(data) - 1}": 1 for begin in begins}
    assert read_tree(run.data) == {"big": data}


@pytest.mark.parametrize("holds", [True, False])
def test_a_checksum_is_of_all_that_came(tmp_path: Path, *, holds: bool) -> None:
    text = hashlib.sha256(DATA).hexdigest() if holds else "0" * 64
    with shard(tmp_path, f"each:{MIB}") as (_, run):
        rewrite(run, [run.entries[0]._replace(checksum=f"sha256:full:{text}")])
        outcome = run.copy()
    assert [failure.contradicts for failure in outcome.failures] == ([] if holds else [True])
    assert read_tree(run.data) == ({"big": DATA} if holds else {})


@pytest.mark.parametrize("sent", [0, 1, PROGRESS - 1])
def test_a_server_that_hardly_gives_anything_is_given_up(tmp_path: Path, sent: int) -> None:
    with shard(tmp_path, f"each:{sent}") as (server, run):
        outcome = run.copy(engine={"attempts": 3})
        assert server.count("big") == 3
    (failure,) = outcome.failures
    assert (failure.exit_code, failure.retry) == (1, True)
    assert "Connection reset by peer" in failure.why
    assert read_tree(run.data) == {}


@pytest.mark.parametrize("token", ["", "W/weak", "4194381 Tue, 07 May 2024 07:08:09 GMT"])
def test_what_cannot_be_pinned_begins_anew(tmp_path: Path, token: str) -> None:
    with shard(tmp_path, f"each:{MIB}*2", "web") as (server, run):
        server.etags["big"] = token
        rewrite(run, [run.entries[0]._replace(token="")])
        assert run.copy().failures == []
        assert ranges(server) == {"": 3}
    assert read_tree(run.data) == {"big": DATA}


def test_a_break_behind_the_last_byte_begins_anew(tmp_path: Path) -> None:
    """Nothing is left to ask for, and the end did not come: whether the bytes are whole is not known."""
    with shard(tmp_path, f"badchunk:{SIZE}*1") as (server, run):
        assert run.copy().failures == []
        assert ranges(server) == {"": 2}
    assert read_tree(run.data) == {"big": DATA}


def test_a_server_without_ranges_gives_it_from_the_first_byte(tmp_path: Path) -> None:
    class Rangeless(Hostile):
        """Breaks off twice, and ignores ranges."""

        def _mode(self, key: str, mode: str) -> str:
            broken = super()._mode(key, f"each:{MIB}*3")
            return "rangeignored" if self.asked[-1].range or not broken else broken

    with shard(tmp_path, f"each:{MIB}", made=Rangeless) as (server, run):
        assert run.copy().failures == []
        assert ranges(server) == {"": 3, f"bytes={MIB}-{LAST}": 2}
    assert read_tree(run.data) == {"big": DATA}


@pytest.mark.parametrize("obeys", [True, False])
def test_an_object_that_changed_at_the_break_is_never_spliced(tmp_path: Path, *, obeys: bool) -> None:
    class Changing(Hostile):
        """Has other bytes from the second GET on."""

        def _mode(self, key: str, mode: str) -> str:
            first = self.count(key) == 1
            return mode if first else "412" if obeys else "changed"

    with shard(tmp_path, f"each:{MIB}", made=Changing) as (server, run):
        outcome = run.copy()
        assert server.count("big") == 2
    (failure,) = outcome.failures
    assert (failure.exit_code, failure.retry) == (5, False)
    assert read_tree(run.data) == {}


def test_a_server_that_is_away_for_a_while_costs_no_byte(tmp_path: Path) -> None:
    class Busy(Hostile):
        """Breaks off after a MiB, then asks twice for patience."""

        def _mode(self, key: str, mode: str) -> str:
            return {1: f"each:{MIB}", 2: "slowdown", 3: "error500"}.get(self.count(key), "")

    with shard(tmp_path, f"each:{MIB}", made=Busy) as (server, run):
        outcome = run.copy()
        assert outcome.failures == []
        assert ranges(server) == {"": 1, f"bytes={MIB}-{LAST}": 3}
        assert outcome.retried.keys() > {"HTTP 503", "HTTP 500"}
    assert read_tree(run.data) == {"big": DATA}
