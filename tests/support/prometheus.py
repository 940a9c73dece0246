"""Prometheus itself, over series that penstock wrote: promtool checks the text, and a server on loopback
answers the expressions of the alerts and of the dashboard."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from tests.cluster.processes import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MONITORING = Path(__file__).resolve().parents[2] / "docs/monitoring"
STEP = 60
"""Seconds between two snapshots, as Prometheus is given them."""


def need() -> None:
    for program in ("prometheus", "promtool"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")


def promtool(*words: str, given: str = "") -> None:
    """It must find nothing to say against it."""
    done = subprocess.run(["promtool", *words], input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def samples(text: str) -> dict[str, float]:
    """`name{labels}`, as Prometheus writes a series, to its value; promtool finds the text clean."""
    promtool("check", "metrics", given=text)
    return dict(_samples(text))


def _samples(text: str) -> Iterator[tuple[str, float]]:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert sample.timestamp is None, "node_exporter refuses a file with times"
            labels = ",".join(f"{name}={json.dumps(value)}" for name, value in sorted(sample.labels.items()))
            yield f"{sample.name}{{{labels}}}", sample.value


def counters(text: str) -> dict[str, float]:
    return {name: value for name, value in samples(text).items() if "_total{" in name}


def rules() -> dict[str, str]:
    """The expression of each alert."""
    (group,) = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]
    return {rule["alert"]: rule["expr"] for rule in group["rules"]}


def panels() -> list[tuple[str, str]]:
    """Title and expression of each of the dashboard's queries, for all roots and datasets."""
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    return [
        (panel["title"], re.sub(r"\$(root|dataset)\b", ".*", target["expr"]))
        for panel in dashboard["panels"]
        for target in panel["targets"]
    ]


class Server:
    """A Prometheus on loopback that has these snapshots, STEP seconds apart, the last of them now."""

    def __init__(self, folder: Path, snapshots: Sequence[str]) -> None:
        self._folder = folder
        last = int(time.time())
        self.times = [last - STEP * back for back in reversed(range(len(snapshots)))]
        lines = [
            f"{series} {value!r} {moment}\n"
            for text, moment in zip(snapshots, self.times, strict=True)
            for series, value in samples(text).items()
        ]
        folder.mkdir()
        (folder / "series").write_text("".join([*lines, "# EOF\n"]))
        blocks = ("tsdb", "create-blocks-from", "openmetrics", "--quiet")
        promtool(*blocks, str(folder / "series"), str(folder / "data"))

    def __enter__(self) -> Self:
        (self._folder / "none.yaml").write_text("{}\n")
        (port,) = free_ports(1)
        self._url = f"http://127.0.0.1:{port}"
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    "prometheus", f"--config.file={self._folder / 'none.yaml'}",
                    f"--storage.tsdb.path={self._folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}",
                ],
                stdout=log, stderr=log,
            )  # fmt: skip
        try:
            self._until_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _until_ready(self) -> None:
        for _ in range(600):
            assert self._process.poll() is None, (self._folder / "log").read_text()
            with suppress(OSError), urllib.request.urlopen(f"{self._url}/-/ready", timeout=5):
                return
            time.sleep(0.1)  # its port is not open yet
        raise AssertionError("Prometheus does not answer")

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(30)

    def values(self, expression: str, at: float) -> list[dict[str, Any]]:
        """The answer to an instant query."""
        words = urllib.parse.urlencode({"query": expression, "time": at})
        with urllib.request.urlopen(f"{self._url}/api/v1/query?{words}", timeout=30) as answer:
            values: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return values

    def silent(self) -> list[str]:
        """Alerts, without what they compare with, and panels that have no value at any snapshot."""
        asked = [(name, re.sub(r"(==|[<>]) *[\d. *]+", "", text)) for name, text in rules().items()]
        asked += panels()
        return [
            f"{name}: {text}" for name, text in asked if not any(self.values(text, at) for at in self.times)
        ]
