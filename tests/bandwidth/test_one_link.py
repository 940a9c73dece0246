"""Four engines on one link: the sum of what they receive, as their own counters have it.

It measures seconds, so it needs a machine that has CPU to spare (`make test-patience`). On the nodes of a
cluster: `tests/slurm/test_one_link.py`.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.filesystems.bed import Bed
from tests.support.commands import ROOT, until
from tests.support.link_meter import LATE, LIMITS, Meter, held, objects, shown
from tests.support.s3server import S3Server
from tests.support.staging_runs import context_for
from tests.support.whole_way import go

from penstock.config.settings import BandwidthConfig, EngineConfig, PlanConfig, SourceConfig
from penstock.dataset import run_store
from penstock.jobs.array_runner import element_command
from penstock.jobs.bandwidth import link_hold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.jobs.shares import Hold


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in memory: the cap is not to be the disk's."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-link-", dir="/dev/shm"))
    yield folder
    shutil.rmtree(folder)


@pytest.mark.real_patience
@pytest.mark.timeout(290)
@pytest.mark.parametrize("late", [0, 2])
def test_z1_four_engines_keep_one_cap_on_a_link(memory: Path, late: int) -> None:
    """Z1: two datasets with target roots of their own, two elements each; `link_meter.shown` says what must
    hold. `late`: seconds for which a node believes a listing, an entry and a size that it saw; each element
    on its own node."""
    with contextlib.ExitStack() as stack:
        place: Callable[..., list[str]] = lambda _, *command: [*command]  # noqa: E731
        link = memory / "link"
        if late:
            bed = stack.enter_context(Bed(nodes=4, cache="close-to-open", **dict.fromkeys(LATE, late)))
            place, link = bed.on, bed.nodes[0] / "link"
        objects(memory / "objects")
        server = stack.enter_context(S3Server(memory / "objects"))
        (memory / "config.yaml").write_text(
            f"target: {{root: {memory}}}\ndatasets: {{data: {{source: {memory}}}}}\n"
            f"bandwidth: {{folder: {link}}}\n"
        )
        limit(memory, "4MB/s")
        elements, controllers = [], []
        for name in ("one", "other"):
            (memory / name / "target").mkdir(parents=True)
            hold, commands = _planned(memory / name, server, link)
            controllers.append(stack.enter_context(hold))
            hold.begin(2, time.sleep)
            for index, base in enumerate(commands):
                command = [*base[:-1], "--link-holder", hold.holder, base[-1]]
                node = len(elements)
                log = stack.enter_context((memory / f"{name}{index}.log").open("wb"))
                started = subprocess.Popen(
                    place(node, *command), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
                stack.callback(_end, started)
                elements.append(started)
        holders = link / "holders"
        until(lambda: held(holders) == [0.5, 0.5], "two equal shares")
        meter = stack.enter_context(Meter(server.pid, [one.pid for one in elements]))
        until(meter.all_move, "bytes of each engine")

        def kill() -> None:
            controllers[0]._stop.set()  # as if it was killed: its files stay
            for element in elements[:2]:
                element.send_signal(signal.SIGKILL)

        assert not shown(meter, holders, lambda rate: limit(memory, rate), kill)


def _planned(folder: Path, server: S3Server, link: Path) -> tuple[Hold, list[list[str]]]:
    """A dataset's holder of the link, and the commands of its two elements."""
    context = context_for(folder, "s3://bucket/", plan=PlanConfig(**LIMITS["plan"]))
    options = {"endpoint_url": server.endpoint, "anon": True}
    dataset = replace(context.config.datasets["data"], sources=(SourceConfig("s3://bucket/", "", options),))
    context.config = replace(
        context.config,
        datasets={"data": dataset},
        bandwidth=BandwidthConfig(folder=link),
        engine=EngineConfig(**LIMITS["engine"]),
    )
    go(context, upto="plan")
    run = run_store.open_run(context.layout("data"))
    assert len(run.indices) == 2
    command = element_command(context, run.folder, "copy")
    hold = link_hold(context, run.layout, "copy", run.id)
    assert hold is not None
    return hold, [[*command, str(index)] for index in run.indices]


def limit(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "--config", str(folder / "config.yaml"), "limit", *words],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
