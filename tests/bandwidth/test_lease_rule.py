from __future__ import annotations

import pytest
from tests.bandwidth import lease_rule
from tests.bandwidth.rule_trial import RULES, Trial


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("late", [0.0, 2.0, 60.0])
def test_z1_neither_rule_passes_the_cap_whatever_hangs_dies_changes_or_is_seen_late(
    rule: str, late: float
) -> None:
    trials = [Trial(rule, seed, late, hangs=0.02).run() for seed in range(3)]
    assert max(trial.worst for trial in trials) <= 1.0 + 1e-9
    assert min(trial.worst for trial in trials) > 0.9


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("late", [0.0, 60.0])
def test_z1_where_nothing_hangs_nobody_waits_for_longer_than_a_dead_holder_counts(
    rule: str, late: float
) -> None:
    for seed in range(3):
        trial = Trial(rule, seed, late, hangs=0.0).run()
        assert trial.starved() == 0
        assert max(trial.waits(alone=False)) < lease_rule.ABANDONED + late + lease_rule.VALID


def test_a_lease_begins_at_once_where_listings_are_never_late_and_nobody_else_is_there() -> None:
    assert max(Trial("lease", 1, 0.0, hangs=0.0).run().waits(alone=True)) < 1.0


@pytest.mark.parametrize(("name", "value"), [("ABANDONED", 30.0), ("LIVES", 600.0)])
def test_the_model_finds_more_than_the_cap_where_l2_or_l4_does_not_hold(
    name: str, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_rule, name, value)
    assert any(Trial("lease", seed, 60.0, hangs=0.02).run().worst > 1.01 for seed in range(12))
