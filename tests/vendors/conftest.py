"""BeeGFS' commands, Lustre's and WEKA's as stand-ins on PATH (`tests.vendors.beegfs_cluster`,
`lustre_cluster`, `weka_cluster`); a shell and the usual commands are there beside them, and none of the real
ones."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
from tests.vendors.beegfs_cluster import Cluster, mounted
from tests.vendors.lustre_cluster import Lustre
from tests.vendors.weka_cluster import Weka

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=[7, 8])
def beegfs(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The commands of each version in turn."""
    return _on_path(Cluster(tmp_path / "beegfs", request.param), monkeypatch)


@pytest.fixture
def beegfs7(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return _on_path(Cluster(tmp_path / "beegfs", 7), monkeypatch)


@pytest.fixture
def beegfs8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return _on_path(Cluster(tmp_path / "beegfs", 8), monkeypatch)


@pytest.fixture
def lustre(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lustre:
    assert not shutil.which("lfs"), "a real Lustre is here"
    made = Lustre(tmp_path / "lustre")
    monkeypatch.setenv("PATH", f"{made.bin}:{os.environ['PATH']}")
    return made


@pytest.fixture
def weka(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Weka:
    assert not shutil.which("weka"), "a real WEKA is here"
    made = Weka(tmp_path / "weka", tmp_path)
    monkeypatch.setenv("PATH", f"{made.bin}:{os.environ['PATH']}")
    return made


@pytest.fixture
def target_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose file system goes as BeeGFS."""
    folder = tmp_path / "target"
    folder.mkdir()
    mounted(monkeypatch, folder)
    return folder


def _on_path(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    assert not any(shutil.which(name) for name in ("beegfs", "beegfs-ctl")), "a real BeeGFS is here"
    monkeypatch.setenv("PATH", f"{cluster.bin}:{os.environ['PATH']}")
    return cluster
