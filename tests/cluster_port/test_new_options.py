"""Which partition a new configuration asks for."""

from __future__ import annotations

import pytest

from penstock.cluster.slurm.site import NewOptions, choice
from penstock.config.settings import JobOptions


@pytest.mark.parametrize(
    ("default", "others", "taking", "chosen"),
    [
        ("data", ["cpu"], {"data", "cpu"}, NewOptions("data")),
        (None, [], {None}, NewOptions(None)),
        ("data", ["long", "cpu"], {"cpu"}, NewOptions("cpu", default=False)),
        ("data", ["long", "cpu"], {"long", "cpu"}, NewOptions("long", default=False, others=["cpu"])),
        ("data", ["long"], set(), NewOptions("data", refused="data is closed")),
    ],
)
def test_the_default_is_taken_before_the_best_of_the_others(
    default: str | None, others: list[str], taking: set[str | None], chosen: NewOptions
) -> None:
    def tried(name: str | None) -> JobOptions | str:
        return JobOptions(partition=name) if name in taking else f"{name} is closed"

    made = choice(default, others, tried)
    assert made._replace(others=list(made.others)) == chosen._replace(others=list(chosen.others))
