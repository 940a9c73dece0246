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


@pytest.fixture
def place(slurm: Machine) -> Iterator[Place]:
    """An ordinary user's place of work on the four nodes."""
    with Place(slurm) as made:
        yield made
