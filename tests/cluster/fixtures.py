"""Fixtures: a running cluster for the whole session, its configuration in each test's environment.

A conftest takes them by `from tests.cluster.fixtures import slurm, slurm_accounting`.
"""

from __future__ import annotations

import atexit
import contextlib
from typing import TYPE_CHECKING

import pytest
from tests.cluster.machine import Machine, missing
from tests.cluster.settings import NODES, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.filesystems.bed import Bed

_running: dict[str, Machine] = {}


def need_slurm(settings: Settings) -> None:
    """Skips, with the reason, where this machine cannot run such a cluster."""
    if problem := missing(settings):
        pytest.skip(problem)


def machine(settings: Settings) -> Machine:
    """The cluster with these settings, started at its first use in this process and ended with
    it. Skips, with a reason, where the packages are not installed."""
    need_slurm(settings)
    key = repr(settings)
    if key not in _running:
        made = Machine.new(settings)
        atexit.register(made.down)
        made.up()
        made.guard()
        _running[key] = made
    return _running[key]


def borrowed(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """The cluster, named by this test's environment; idle and whole again afterwards."""
    lent = machine(settings)
    monkeypatch.setenv("SLURM_CONF", str(lent.conf))
    monkeypatch.setenv("PATH", lent.env["PATH"])
    yield lent
    lent.tidy()


@contextlib.contextmanager
def on_mounts(bed: Bed) -> Iterator[Machine]:
    """A cluster of its own whose nodes see, each by its own mount, what this process sees at the first mount
    of `bed`. Skips where the packages are not installed."""
    settings = Settings()
    need_slurm(settings)
    made = Machine.new(settings, views={node: bed.on(number) for number, node in enumerate(NODES, 1)})
    try:
        made.up()
        made.guard()
        yield made
    finally:
        made.down()


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """Four nodes, without slurmdbd."""
    yield from borrowed(Settings(), monkeypatch)


@pytest.fixture
def slurm_accounting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """Four nodes with slurmdbd. The controller forgets jobs 2 s after their end."""
    yield from borrowed(Settings(accounting=True, min_job_age=2), monkeypatch)


@pytest.fixture
def slurm_confined(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """One node that has this machine's CPUs, keeps a core, and confines its jobs. Skips where this machine
    has no cgroups of version 1, with the kernel's word."""
    yield from borrowed(Settings(confined=True), monkeypatch)
