"""Each temper catches a program that is right without it; and what a temper must not break."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.filesystems.bed import Bed
from tests.filesystems.naive import NAIVE, Naive, direct
from tests.filesystems.sets import SETS
from tests.support.commands import until

OPTIONS = Path(__file__).parent / "temperfs/tempers.go"


def _comes_out_right(naive: Naive, *, tempered: bool) -> bool:
    tempers = {**naive.always, **(naive.tempers if tempered else {})}
    power = naive.power and (tempered or bool(naive.tempers))
    with Bed(nodes=naive.nodes, power=power, **tempers) as bed:
        try:
            return naive.program(bed, tempered)
        except OSError:
            return False


@pytest.mark.parametrize("naive", NAIVE, ids=lambda naive: naive.program.__name__)
def test_a_naive_program_is_right_without_the_temper_and_caught_by_it(naive: Naive) -> None:
    assert _comes_out_right(naive, tempered=False)
    assert not _comes_out_right(naive, tempered=True)


def test_every_temper_catches_a_program() -> None:
    lines = OPTIONS.read_text().partition("type Tempers struct")[2].partition("\n}")[0].splitlines()
    tempers = {line.split('json:"')[1].split('"')[0] for line in lines if 'json:"' in line}
    caught = {name for naive in NAIVE for name in (*naive.tempers, *naive.always)}
    assert caught == tempers
    assert {name for tempers in SETS.values() for name in tempers} <= tempers


def test_direct_reads_pass_a_mounts_cache() -> None:
    with Bed(nodes=2, cache="close-to-open", attr_seconds=60.0) as bed:
        here, there = (node / "file" for node in bed.nodes)
        here.write_bytes(b"old!")
        with there.open("rb", buffering=0) as kept, here.open("r+b", buffering=0) as writer:
            assert kept.read() == b"old!"
            writer.write(b"new!")
            assert here.read_bytes() == b"new!", "a mount sees what it wrote itself"
            os.fsync(writer.fileno())
            kept.seek(0)
            assert kept.read() == b"old!"
            writer.seek(0)
            writer.write(b"last")
            assert direct(there, 4) == b"new!", "the servers have nothing newer"
            os.fsync(writer.fileno())
            assert direct(there, 4) == b"last"


def test_a_coherent_cache_is_called_back() -> None:
    with Bed(nodes=2, cache="coherent") as bed, open(bed.nodes[0] / "file", "wb", buffering=0) as stream:
        stream.write(b"bytes")
        assert (bed.store / "file").stat().st_size == 0
        assert (bed.nodes[1] / "file").read_bytes() == b"bytes"


def test_the_log_tells_who_did_what() -> None:
    with Bed(nodes=2) as bed:
        (bed.nodes[1] / "odd\n%\udcff").write_text("x")
        with pytest.raises(FileNotFoundError):
            os.stat(bed.nodes[0] / "none")
        assert [one.node for one in bed.asked("write", "odd\n%\udcff")] == [1]
        assert [(one.node, one.errno) for one in bed.asked("lookup", "none")] == [(0, 2)]


OWNER = """
import os, sys
from tests.filesystems.bed import Bed
with Bed(nodes=2) as bed:
    print(bed._process.pid, *bed.nodes, sep="\\n", flush=True)
    os.kill(os.getpid(), 9)
"""


def test_nothing_outlives_a_killed_owner() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root mounts")
    done = subprocess.run(
        [sys.executable, "-c", OWNER],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == -9, done.stderr
    pid, *nodes = done.stdout.split()
    until(lambda: not Path("/proc", pid).exists(), "the file system to end")
    mounted = Path("/proc/self/mountinfo").read_text()
    assert not [node for node in nodes if node in mounted]
    for folder in (Path(nodes[0]).parent,):
        with contextlib.suppress(FileNotFoundError):
            subprocess.run(["rm", "-rf", folder], check=True)
