"""The cluster contract over a real SLURM, with and without slurmdbd."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.cluster.fixtures import borrowed
from tests.cluster.settings import Settings
from tests.support.cluster_contract import ClusterContract

from penstock.cluster.registry import open_cluster
from penstock.config.settings import ClusterConfig, JobOptions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.cluster.port import Cluster

pytestmark = pytest.mark.slurm


@pytest.fixture(
    params=[False, pytest.param(True, marks=pytest.mark.later_release)],
    ids=["without slurmdbd", "with slurmdbd"],
)
def cluster(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    settings = Settings(accounting=True, min_job_age=2) if request.param else Settings()
    for _ in borrowed(settings, monkeypatch):
        options = JobOptions(core_spec=2, max_elements=3)
        yield open_cluster(ClusterConfig(backend="slurm", options=options))


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    return tmp_path


class TestSlurm(ClusterContract):
    pass
