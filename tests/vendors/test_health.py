"""Rows of the table in `vendors.health`."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.run_steps import gravest
from penstock.fs import stores
from penstock.fs.stores import (
    Pattern,
    Server,
    Silence,
    StoreStatus,
    Target,
)

GOOD = Target("storage", "101", pool="1", total_bytes=10, free_bytes=5, capacity="normal",
              reachability="online", consistency="good")  # fmt: skip
META = GOOD._replace(role="metadata", id="1", pool="")
UP = Server("storage", "stor01", "1", True)


def judged(**changes: Any) -> list[tuple[str, str]]:
    status = StoreStatus("BeeGFS 7", (META, GOOD), (UP,), Pattern("raid0", 1 << 19, 4, "1"))
    return [(one.verdict, f"{one.about}: {one.found}") for one in stores.judge(status._replace(**changes))]


def test_all_in_order_is_one_result() -> None:
    """A2"""
    assert judged() == [
        ("ok", "BeeGFS 7: 1 storage targets, 1 metadata targets, 1 servers reached: all in order")
    ]


@pytest.mark.parametrize("role", ["storage", "metadata"])
def test_a2_a_server_that_is_not_reached_stops_with_its_name(role: Any) -> None:
    """A2"""
    ((verdict, text),) = judged(servers=(UP, Server(role, "stor07", "7", False)))
    assert (verdict, text) == (
        "stop",
        f"BeeGFS 7 {role} server stor07 [ID: 7]: not reached from this machine",
    )


def test_a7_management_away_is_a_warning_with_its_deadline() -> None:
    """A7"""
    for changes in (
        {"servers": (UP, Server("management", "mgmt", "1", False))},
        {"silences": (Silence("targets", "beegfs target list", "connection refused", "management"),)},
    ):
        found = [one for one in judged(**changes) if one[0] != "ok"]
        assert [verdict for verdict, _ in found] == ["warning"]
        assert "management server" in found[0][1]
        assert "sysTargetOfflineTimeoutSecs=900" in found[0][1]


@pytest.mark.parametrize(
    ("changes", "verdict", "words"),
    [
        ({"reachability": "offline"}, "stop", "offline"),
        ({"reachability": "probably-offline"}, "stop", "probably offline"),
        ({"consistency": "bad"}, "stop", "bad"),
        ({"consistency": "needs-resync"}, "warning", "needs a resync"),
        ({"consistency": "resyncing"}, "warning", "is being resynced"),
        ({"capacity": "emergency"}, "stop", "capacity pool emergency"),
        ({"capacity": "low"}, "warning", "capacity pool low"),
        ({"total_bytes": None}, "warning", "gave no figures"),
    ],
)
def test_a1_each_state_of_a_target(changes: dict[str, Any], verdict: str, words: str) -> None:
    """A1: one `emergency` target stops. A target of another pool is a note."""
    ((seen, text),) = judged(targets=(META, GOOD._replace(id="104", node="stor01", **changes)))
    assert seen == verdict
    assert text.startswith("BeeGFS 7 storage target 104 on stor01: ")
    assert words in text
    ((seen, text),) = judged(targets=(META, GOOD, GOOD._replace(id="9", pool="2", **changes)))
    assert seen == "note"
    assert "not placed there" in text
    assert gravest(stores.judge(StoreStatus("BeeGFS 7", (META._replace(**changes),)))) == verdict


def test_a_question_without_an_answer_is_a_note() -> None:
    found = judged(silences=(Silence("quotas", "beegfs quota list-usage", "no answer within 12 s"),))
    assert found[-1] == (
        "note",
        "BeeGFS 7 quotas: not known: `beegfs quota list-usage`: no answer within 12 s",
    )
