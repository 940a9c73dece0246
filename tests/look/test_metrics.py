"""`penstock metrics`: what Prometheus makes of it; counters that never fall; damage, waiting, and datasets of
other accounts; the file that a run leaves."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from tests.support import clocks, prometheus
from tests.support.commands import penstock, run
from tests.support.forked import NOBODY, forked
from tests.support.published import STEPS, content, damage, data_of, publish
from tests.support.staging_runs import context_for, tree

from penstock.cli.commands.stagings import at_end_of_run
from penstock.config.settings import PermissionsConfig, TargetConfig
from penstock.core.errors import PreflightError
from penstock.core.layout import DatasetLayout
from penstock.dataset import run_store, staging_notice
from penstock.dataset.submitted_arrays import ArrayBook
from penstock.host import kernel_facts
from penstock.host.kernel_facts import JobEnvironment
from penstock.keep import audit_step, retention_steps
from penstock.look import metrics

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.dataset.context import Context

FOR_ALL = PermissionsConfig(file_mode=0o444, dir_mode=0o555)


def text_of(context: Context) -> str:
    target = context.config.target
    return metrics.text(target, [context.layout("data")], target.owners).decode()


def values(text: str) -> dict[str, Any]:
    """The samples by their names alone; of the state its label."""
    found: dict[str, Any] = {}
    for series, value in prometheus.samples(text).items():
        name, _, labels = series.partition("{")
        found[name.removeprefix("penstock_")] = value
        if name == "penstock_state":
            found["state"] = labels.partition('state="')[2].rstrip('"}')
    return found


class Story(dict[str, str]):
    """What one dataset's metrics were, moment by moment."""

    context: Context


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """Real runs of one dataset, with what was written after each event."""
    prometheus.need()
    top = tmp_path_factory.mktemp("metrics")
    source = tree(top / "source", {f"file {n}": content(n, 4000) for n in range(40)})
    told = Story()
    told.context = context = context_for(top, source, permissions=FOR_ALL)
    for step in STEPS[:3]:
        step(context, "data")
    told["copied"] = text_of(context)
    reading = run_store.open_run(context.layout("data")).folder.progress("verify", 0)
    reading.parent.mkdir(parents=True)
    reading.write_text(json.dumps({"files": 10, "bytes": 40_000}))
    told["read back"] = text_of(context)
    for step in STEPS[3:]:
        step(context, "data")
    told["published"] = text_of(context)
    tree(source, {"file 7": content(70, 5000), "new": content(71, 600)})
    publish(context)
    told["again"] = text_of(context)
    audit_step.run(context, "data")
    told["audited"] = text_of(context)
    retention_steps.rollback(context, "data", None)
    told["rolled back"] = text_of(context)
    publish(context)
    told["unchanged"] = text_of(context)
    (new,) = {p.name for p in context.layout("data").releases.iterdir()} - {current(context)}
    retention_steps.remove(context, "data", [new], dry_run=False, now=True)
    told["removed"] = text_of(context)
    given = {
        "target": {"root": str(context.config.target.root), "keep_free": "0B"},
        "datasets": {"data": {"source": str(source)}},
    }
    (top / "penstock.yaml").write_text(json.dumps(given))
    source.rename(top / "away")
    assert penstock("step", "list", "data", cwd=top).returncode == 3
    told["failed"] = text_of(context)
    damage(data_of(context) / "file 3", lambda path: path.write_bytes(content(33, 4000)))
    audit_step.run(context, "data")
    told["damaged"] = text_of(context)
    yield told
    context.cluster.close()


def current(context: Context) -> str:
    return os.readlink(context.layout("data").current).rpartition("/")[2]


def test_z6_promtool_finds_each_text_clean_and_no_counter_ever_falls(story: Story) -> None:
    """Z6"""
    before: dict[str, float] = {}
    for moment, text in story.items():
        now = prometheus.counters(text)
        assert before.keys() <= now.keys(), moment
        assert all(now[name] >= value for name, value in before.items()), moment
        before = now
    assert sorted(before.values()) == [0, 0, 2, 42, 40 * 4000 + 5600]


def test_z6_a_run_under_way_shows_how_far_it_is_and_a_published_one_does_not(story: Story) -> None:
    """Z6"""
    under_way, over = values(story["copied"]), values(story["published"])
    assert under_way["state"] == "stopped"
    assert (under_way["run_bytes"], under_way["run_copied_bytes"]) == (160_000, 160_000)
    assert under_way["run_verified_bytes"] == 0
    assert values(story["read back"])["run_verified_bytes"] == 40_000
    assert "current_bytes" not in under_way
    assert "last_success_timestamp_seconds" not in under_way
    assert over["state"] == "published"
    assert (over["current_files"], over["current_bytes"]) == (40, 160_000)
    assert "run_bytes" not in over
    assert abs(over["last_success_timestamp_seconds"] - time.time()) < 3600
    assert (over["dataset_readable"], over["audit_findings"], over["holds"], over["waiting_seconds"]) == (
        1, 0, 0, 0,
    )  # fmt: skip


def test_z6_an_audit_and_what_it_found(story: Story) -> None:
    """Z6"""
    assert "last_audit_timestamp_seconds" not in values(story["again"])
    assert values(story["audited"])["last_audit_timestamp_seconds"] > 1e9
    found = values(story["damaged"])
    assert (found["state"], found["audit_findings"]) == ("damaged", 1)


def success(context: Context) -> float | None:
    found: float | None = values(text_of(context)).get("last_success_timestamp_seconds")
    return found


def test_z6_a_run_that_finds_its_source_unchanged_is_a_success(tmp_path: Path) -> None:
    """Z6"""
    prometheus.need()
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"1"}))
    publish(context)
    layout = context.layout("data")
    os.utime(layout.succeeded, (1e9, 1e9))
    assert success(context) == 1e9
    publish(context)
    assert layout.history.read_text().count("publish") == 1
    assert success(context) == pytest.approx(time.time(), abs=3600)


def test_z6_a_success_is_a_run_that_ends_with_0(tmp_path: Path) -> None:
    """Z6: not one whose gate is closed, by HOLD or findings, before the first success and after it."""
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"1"}))
    layout = context.layout("data")
    layout.root.mkdir()
    hold = layout.root / "HOLD"
    hold.write_text("data ticket 4711\n")
    hold.chmod(0o644)
    publish(context)
    publish(context)
    assert success(context) is None
    hold.unlink()
    publish(context)
    assert success(context) == pytest.approx(time.time(), abs=3600)
    os.utime(layout.succeeded, (1e9, 1e9))
    damage(data_of(context) / "a", lambda path: path.write_bytes(b"2"))
    audit_step.run(context, "data")
    publish(context)
    assert success(context) == 1e9


def test_z6_a_state_of_before_goes_by_its_history(tmp_path: Path) -> None:
    """Z6"""
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"1"}))
    publish(context)
    layout = context.layout("data")
    layout.succeeded.unlink()
    lines = layout.history.read_text()
    year = f"{time.gmtime().tm_year}-"
    layout.history.write_text(lines.replace(f'"at": "{year}', f'"at": "{int(year[:4]) - 1}-'))
    old = success(context)
    assert old is not None
    assert old < time.time() - 300 * 86400
    tree(tmp_path / "source", {"b": b"2"})
    layout.ended_room.touch()
    for step in STEPS[:3]:
        step(context, "data")
    assert success(context) == old


@pytest.mark.parametrize("days", [400, -400])
def test_z6_no_hosts_clock_moves_a_success(days: int, tmp_path: Path) -> None:
    """Z6: an alert is not silent for a year because one run had a wrong clock."""
    tree(tmp_path / "source", {"a": b"1"})
    given = {"target": {"root": "data"}, "datasets": {"d": {"source": "source"}}}
    (tmp_path / "penstock.yaml").write_text(json.dumps(given))
    wrong = clocks.ahead(tmp_path, days * 86400)
    for _ in range(2):
        done = run(sys.executable, "-m", "penstock", "run", "d", cwd=tmp_path, env=wrong)
        assert done.returncode == 0, done.stderr
    shown = penstock("metrics", cwd=tmp_path).stdout
    series = {name.partition("{")[0]: value for name, value in prometheus.samples(shown).items()}
    assert series["penstock_last_success_timestamp_seconds"] == pytest.approx(time.time(), abs=3600)
    assert series["penstock_current_published_timestamp_seconds"] <= time.time()
    state = tmp_path / "data/d/.penstock"
    os.utime(state / "succeeded", (time.time() + 4e7,) * 2)
    assert "penstock_last_success_timestamp_seconds{" not in penstock("metrics", cwd=tmp_path).stdout


def test_z6_elements_that_show_no_sign_of_life_wait(tmp_path: Path) -> None:
    """Z6: from the notes on the target alone, whether they were never started or are queued again."""
    prometheus.need()
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"1"}))
    for step in STEPS[:2]:
        step(context, "data")
    (run,) = context.layout("data").runs.iterdir()
    book = ArrayBook(run / "arrays.jsonl")
    book.intend("data-copy-1", "copy", "slurm", [0], workers=1, call="c")
    book.submitted("data-copy-1", "4711")
    assert values(text_of(context))["waiting_seconds"] == 0
    lines = [json.loads(line) for line in book._path.read_text().splitlines()]
    book._path.write_text("".join(json.dumps(line | {"at": line["at"] - 9000}) + "\n" for line in lines))
    found = values(text_of(context))
    assert found["state"] == "waiting"
    assert 9000 <= found["waiting_seconds"] < 9300
    progress = run / "progress" / "copy" / "00000.json"
    progress.parent.mkdir(parents=True, exist_ok=True)
    progress.write_text("{}")
    assert values(text_of(context))["waiting_seconds"] == 0
    os.utime(progress, (time.time() - 4000,) * 2)
    assert 4000 <= values(text_of(context))["waiting_seconds"] < 4300
    book.ended("data-copy-1")
    assert values(text_of(context))["waiting_seconds"] == 0


def test_z6_a_submitted_run_that_has_not_begun_waits_and_every_account_sees_it(
    story: Story, tmp_path: Path
) -> None:
    """Z6"""
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"1"}))
    publish(context)
    layout = context.layout("data")
    big: Any = SimpleNamespace(name=lambda: "big")
    staging_notice.submitted(layout, "4711", big)
    notice = json.loads(layout.under_way.read_text())
    layout.under_way.write_text(json.dumps(notice | {"since": "2026-01-01T00:00:00Z"}))
    found = values(text_of(context))
    assert found["state"] == "waiting"
    assert found["waiting_seconds"] > 86400


@pytest.mark.parametrize("name", ["history.jsonl", "claims", "runs", "lock", "ended.json"])
@pytest.mark.timeout(60)
def test_z6_what_another_account_put_in_the_place_of_a_file_stops_nothing(name: str, tmp_path: Path) -> None:
    """Z6"""
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"1"}))
    publish(context)
    state = context.layout("data").state
    if os.path.lexists(state / name):
        (state / name).rename(state / "away")
    os.mkfifo(state / name)
    found = values(text_of(context))
    assert found["current_files"] == 1
    assert found["root_free_bytes"] > 0


def test_z6_a_run_in_a_job_leaves_no_file_on_its_node(tmp_path: Path) -> None:
    """Z6"""
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"1"}))
    publish(context)
    config = replace(context.config, metrics=tmp_path / "x.prom")
    before = kernel_facts.current_job()
    try:
        kernel_facts.enter_job(JobEnvironment(job="4711", proven=True))
        assert at_end_of_run(config) == ""
        assert not (tmp_path / "x.prom").exists()
    finally:
        kernel_facts.enter_job(before)
    assert at_end_of_run(config) == ""
    assert "penstock_state" in (tmp_path / "x.prom").read_text()


def test_z6_other_accounts_get_what_every_reader_sees(story: Story, tmp_path: Path) -> None:
    """Z6"""
    if os.geteuid() != 0:
        pytest.skip("needs root: looks as another account")
    context = story.context
    root = context.config.target.root
    opened = [one for one in root.parents if not one.stat().st_mode & 0o001]
    for one in opened:
        one.chmod(one.stat().st_mode | 0o011)
    text = forked(
        lambda: metrics.text(TargetConfig(root), [DatasetLayout(root, "data")], None).decode(), uid=NOBODY
    )
    found = values(text)
    assert (found["dataset_readable"], found["state"], found["current_files"]) == (0, "damaged", 40)
    assert not any(name.endswith("_total") for name in found)


def test_z6_an_administrator_s_files_and_a_root_with_odd_characters(tmp_path: Path) -> None:
    """Z6"""
    prometheus.need()
    odd = tmp_path / 'a "quoted" \\ root \udcff\nline'
    odd.mkdir()
    context = context_for(odd, tree(tmp_path / "source", {"a": b"1"}))
    publish(context)
    assert values(text_of(context))["root_paused"] == 0
    root = context.config.target.root
    (root / "PAUSE").write_text("update")
    (root / "HOLD").write_text("data lost bytes\nother no matter\n")
    found = values(text_of(context))
    assert (found["root_paused"], found["holds"], found["state"]) == (1, 1, "held")


def test_z6_alerts_fire_when_they_should_on_series_of_real_runs(story: Story, tmp_path: Path) -> None:
    """Z6: `promtool test rules`. Times are moved so that the file was made at 0, as promtool counts them."""
    cases = [
        ("published", "PenstockNoSuccess", "6d", "8d"), ("audited", "PenstockNoAudit", "29d", "31d"),
        ("published", "PenstockNoAudit", "29d", "31d"), ("published", "PenstockMetricsOld", "1h", "2h"),
        ("published", "PenstockDamaged", "8d", ""), ("damaged", "PenstockDamaged", "", "1h"),
        ("published", "PenstockFailed", "8d", ""), ("failed", "PenstockFailed", "", "1h"),
        ("published", "PenstockWaiting", "8d", ""),
    ]  # fmt: skip
    tests = []
    for moment, alert, quiet, fires in cases:
        text = story[moment]
        made = values(text)["metrics_generated_timestamp_seconds"]
        series = [
            {"series": name, "values": f"{value - made * ('_timestamp_' in name)!r}+0x800"}
            for name, value in prometheus.samples(text).items()
        ]
        expected = {
            at: {"expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})', "eval_time": at}
            | {"exp_samples": [{"labels": "{}", "value": 1}] if at == fires else []}
            for at in (quiet, fires)
            if at
        }
        tests.append({"interval": "1h", "input_series": series, "promql_expr_test": list(expected.values())})
    rules = str(prometheus.MONITORING / "alerts.yaml")
    prometheus.promtool("check", "rules", rules)
    (tmp_path / "tests.yaml").write_text(
        yaml.safe_dump({"rule_files": [rules], "evaluation_interval": "1h", "tests": tests})
    )
    prometheus.promtool("test", "rules", str(tmp_path / "tests.yaml"))


def test_z6_each_alert_and_panel_has_series_in_a_real_prometheus(story: Story, tmp_path: Path) -> None:
    """Z6"""
    with prometheus.Server(tmp_path / "prometheus", list(story.values())) as server:
        assert len(prometheus.panels()) >= 14
        assert server.silent() == []
        assert server.values("increase(penstock_copied_bytes_total[7m])", server.times[-1])


def test_z6_a_run_leaves_the_file_and_one_that_cannot_be_written_fails_no_run(tmp_path: Path) -> None:
    """Z6"""
    tree(tmp_path / "source", {"a": b"1"})
    file = tmp_path / "prom" / "penstock.prom"
    given = {
        "target": {"root": str(tmp_path / "target"), "keep_free": "0B"},
        "datasets": {
            "data": {"source": str(tmp_path / "source")},
            "other": {"source": str(tmp_path / "none")},
        },
        "metrics": "prom/penstock.prom",
    }
    (tmp_path / "penstock.yaml").write_text(json.dumps(given))
    done = penstock("run", "data", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"! the metrics cannot be written [{file}]: No such file or directory\n" in done.stdout
    assert "STATUS        PASSED" in done.stdout
    file.parent.mkdir()
    file.touch(0o600)
    done = penstock("run", cwd=tmp_path)
    assert done.returncode == 3
    assert "metrics" not in done.stdout
    assert file.stat().st_mode & 0o777 == 0o644
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    states = [series for series in prometheus.samples(file.read_text()) if "penstock_state" in series]
    assert [series.partition('state="')[2] for series in states] == ['published"}', 'failed"}']


def test_z6_the_command_prints_or_writes_and_says_what_it_cannot(story: Story, tmp_path: Path) -> None:
    """Z6"""
    root = str(story.context.config.target.root)
    printed = penstock("metrics", "--root", root, cwd=tmp_path)
    assert (printed.returncode, printed.stderr) == (0, "")
    assert values(printed.stdout)["state"] == "damaged"
    assert penstock("metrics", "--root", root, "--out", "x.prom", cwd=tmp_path).returncode == 0
    assert (
        prometheus.samples((tmp_path / "x.prom").read_text()).keys()
        == prometheus.samples(printed.stdout).keys()
    )
    for words, code, why in (
        (("--root", root, "--out", "none/x.prom"), 1, "No such file or directory"),
        (("--root", root, "--out", "/dev/full"), 6, "No space left on device"),
        (("--root", root, "--out", str(tmp_path)), 1, "Is a directory"),
        (("--root", "nothing"), PreflightError.exit_code, "there is no such target"),
        (("--root", root, "nobody"), 2, 'no dataset is named "nobody"'),
    ):
        done = penstock("metrics", *words, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        assert why in done.stderr
        assert "Traceback" not in done.stderr


class Broken(DatasetLayout):
    """A dataset that nobody foresaw."""

    @property
    def state(self) -> Path:
        raise RuntimeError("nobody foresaw this")


def test_whatever_one_dataset_raises_the_series_of_the_others_are_there(tmp_path: Path) -> None:
    layouts = [Broken(tmp_path, "broken"), DatasetLayout(tmp_path, "well")]
    text = metrics.text(TargetConfig(tmp_path), layouts, None).decode()
    assert f'penstock_state{{dataset="broken",root="{tmp_path}",state="unreadable"}} 1.0' in text
    assert f'penstock_dataset_readable{{dataset="broken",root="{tmp_path}"}} 0.0' in text
    assert f'penstock_state{{dataset="well",root="{tmp_path}",state="nothing published"}} 1.0' in text
