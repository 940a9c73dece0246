from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.cluster.fixtures import slurm, slurm_accounting, slurm_confined
from tests.cluster.place import Place
from tests.support.wheel import installation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.machine import Machine

__all__ = ["installation", "place", "slurm", "slurm_accounting", "slurm_confined"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With xdist's `--dist loadgroup` tests of a special cluster stay in one process, which starts it once.
    Tests that may take longest begin first."""
    on_slurm = [item for item in items if item.get_closest_marker("slurm")]
    if config.pluginmanager.hasplugin("xdist"):
        for item in on_slurm:
            if group := _cluster(item):
                item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: -_limit(item))


def _cluster(item: pytest.Item) -> str:
    params = item.callspec.params if hasattr(item, "callspec") else {}
    fixtures = getattr(item, "fixturenames", ())
    if "slurm_accounting" in fixtures or params.get("cluster") is True:
        return "accounting"
    if "slurm_confined" in fixtures:
        return "confined"
    if "other" in fixtures:
        return "two clusters"
    return f"mounts {params['mounts']}" if "mounts" in params else ""


def _limit(item: pytest.Item) -> float:
    """Seconds that a test on SLURM may take, where that is more than others may."""
    limit = item.get_closest_marker("timeout")
    return limit.args[0] if limit and item.get_closest_marker("slurm") else 0.0


@pytest.fixture
def place(slurm: Machine) -> Iterator[Place]:
    """An ordinary user's place of work on the four nodes."""
    with Place(slurm) as made:
        yield made
