"""Metrics of a run on a real cluster whose element is requeued: counters, alerts and panels."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.support import prometheus

from penstock.config.settings import TargetConfig
from penstock.core.layout import DatasetLayout
from penstock.look import metrics

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.place import Place

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(420)]


def test_z6_counters_never_fall_over_a_requeue_and_alerts_and_panels_have_series(
    place: Place, tmp_path: Path
) -> None:
    """Z6"""
    prometheus.need()
    texts: list[str] = []

    def looked(name: str) -> float:
        """The value of this series now; -1 where there is none."""
        root = TargetConfig(place.target)
        layouts = [DatasetLayout(place.target, "a")] if (place.target / "a").exists() else []
        texts.append(metrics.text(root, layouts, None).decode())
        series = prometheus.samples(texts[-1])
        return next((value for key, value in series.items() if key.startswith(f"penstock_{name}{{")), -1)

    place.fill("a", 60)
    place.configure(["a"], cluster={"max_elements": 1}, engine={"limit": "4MiB/s"})
    place.ends(place.penstock("run"))
    assert looked("releases_published_total") == 1
    copied = looked("copied_bytes_total")
    assert copied == sum(path.stat().st_size for path in place.source.rglob("*.bin"))

    place.fill("a", 260)  # the 60 are written anew: all 260 are to be copied
    place.configure(["a"], cluster={"max_elements": 1}, engine={"limit": "400KiB/s"})
    process = place.penstock("run")
    place.until(lambda: place.running() and looked("run_copied_bytes") > copied, "bytes copied", process)
    (element,) = place.running()
    done = place.machine.run("scontrol", "requeue", element)
    assert done.returncode == 0, done.stderr
    place.until(lambda: looked("state") == 1 and not place.running(), "the requeue", process)
    before = looked("run_copied_bytes")
    place.until(lambda: looked("run_copied_bytes") > before, "bytes of the second attempt", process)
    place.ends(process)
    claims = [json.loads(path.read_text()) for path in place.target.rglob("claims/copy/*.json")]
    assert max(claim["restarts"] for claim in claims) >= 1
    assert looked("releases_published_total") == 2
    size = sum(path.stat().st_size for path in place.source.rglob("*.bin"))
    assert looked("copied_bytes_total") == copied + size
    place.ends(place.penstock("audit", "a"))
    looked("audit_findings")

    previous: dict[str, float] = {}
    for text in texts:
        now = prometheus.counters(text)
        assert all(now[name] >= value for name, value in previous.items())
        previous = now
    with prometheus.Server(tmp_path / "prometheus", texts) as server:
        assert [one.partition(":")[0] for one in server.silent()] == ["PenstockFailed"]
        series = f'penstock_copied_bytes_total{{dataset="a",root="{place.target}"}}'
        assert server.values(f"resets({series}[2h])", server.times[-1])[0]["value"][1] == "0"
