"""The report: self-contained, whole, and deaf to what the names in it say."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from importlib import resources
from typing import TYPE_CHECKING, Any

import pytest

from penstock.core.element_documents import StepUse, Usage, Worst
from penstock.core.errors import ConfigError
from penstock.look.views import html_report, run_summary

if TYPE_CHECKING:
    from pathlib import Path


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>&amp;\"'\x1b[31m\u202e\udcff"


def result(name: str = "imagenet") -> dict[str, Any]:
    return {
        "dataset": name,
        "status": "FAILED",
        "why": name,
        "path": name,
        "release": name,
        "sources": [name],
        "target": name,
        "files": 10,
        "bytes": 1 << 30,
        "seconds": 12.0,
        "copied": {"files": 10, "bytes": 1 << 30, "seconds": 6.0},
        "failed": 1,
        "ignored": {name: 3},
        "hard_links": {"files": 3, "of": 2, "bytes": 500},
        "evidence": {"source": {name: {"files": 3, "bytes": 5}}, "storage": {"cold": {"files": 10}}},
        "steps": [{"step": name, "status": name, "seconds": 3.0, "why": name, "files": 4}],
        "elements": [
            {"step": name, "index": name, "node": name, "started": 100.0, "ended": 160.0},
            {"step": "copy", "index": 1, "node": "n1", "started": 100.0, "ended": 130.0, "bytes": 7},
        ],
        "failures": [{"path": name, "why": name}],
        "warnings": [name],
        "histogram": [[4096, 3, 3000], [16384, 0, 0], [65536, 7, 400000]],
        "throughput": [[0, 0, 0], [1, 100, 1], [2, 300, 2], [2, 300, 2], [3, 1000, 4]],
        "version": name,
    }


class Page(HTMLParser):
    """Tags as a browser would see them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "script":
            self.scripts += data

    @property
    def left(self) -> list[str]:
        return self._open


@pytest.mark.parametrize("name", ["imagenet", HOSTILE])
def test_the_page_is_whole_and_asks_for_nothing(tmp_path: Path, name: str) -> None:
    path = tmp_path / "report.html"
    html_report.write(path, result(name))
    text = path.read_text()
    page = Page(text)
    assert page.left == []
    names = [tag for tag, _ in page.tags]
    assert names.count("script") == 1
    assert names.count("svg") == 3
    assert not {"img", "link", "iframe", "object", "form", "a", "image", "use"} & set(names)
    for _, attributes in page.tags:
        assert not any(key.startswith("on") or key in ("src", "href") for key in attributes)
    policy = next(a["content"] for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'")
    assert "http" not in re.sub(r"http-equiv", "", text)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert json.loads(page.scripts) == result(name)
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]


def test_the_same_result_gives_the_same_page() -> None:
    assert html_report.render(result(HOSTILE)) == html_report.render(result(HOSTILE))


def test_no_template_turns_escaping_off() -> None:
    folder = resources.files("penstock.look.views") / "templates"
    names = {path.name: path.read_text() for path in folder.iterdir()}
    assert set(names) == {"plots.svg.j2", "report.css", "report.html.j2"}
    for text in names.values():
        assert not re.search(r"\|\s*safe|autoescape|Markup", text)


def test_nothing_known_is_a_page_too() -> None:
    page = Page(html_report.render({}))
    assert page.left == []
    assert "svg" not in [tag for tag, _ in page.tags]


def test_a_failed_write_leaves_the_old_page(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    with pytest.raises(TypeError):
        html_report.write(path, {"seconds": "not a number"})
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_rates_are_of_the_samples() -> None:
    assert html_report.rates([[0, 0], [1, 10], [2, 30]]) == [(0.0, 10.0), (1.0, 10.0), (2.0, 20.0)]
    assert html_report.rates([[0, 0]]) == []
    assert html_report.rates([[0, 0], [0, 5], [float("nan"), 1]]) == []
    many = html_report.rates([[second, second * 100] for second in range(10000)])
    assert len(many) <= html_report.BUCKETS + 2
    assert all(rate == pytest.approx(100) for _, rate in many)


@pytest.mark.parametrize("most", [1, 7, 1023, 1025, 3e6, 1.6e9, 9.99e11])
def test_scales_cover_and_are_few(most: float) -> None:
    top, step = html_report.scale(most)
    assert top >= most
    assert 1 <= round(top / step) <= 5


def test_overlapping_elements_of_a_node_get_lanes_of_their_own() -> None:
    elements = [
        {"step": "copy", "node": "n1", "started": 0.5, "ended": 9.0},
        {"step": "copy", "node": "n1", "started": 5.0, "ended": 9.0},
        {"step": "copy", "node": "n1", "started": 9.0, "ended": 12.0},
        {"step": "copy", "node": "n2", "started": 1.0, "ended": 1.0},
        {"step": "copy", "node": "n3", "started": 0, "ended": 1.0},
    ]
    drawing = html_report.element_lanes(elements)
    assert drawing is not None
    assert [bar.style for bar in drawing.bars] == ["a"] * 4
    assert len({bar.y for bar in drawing.bars}) == 3


def test_a_planted_link_is_neither_followed_nor_replaced(tmp_path: Path) -> None:
    """In a folder that others may write in: neither the page's own name nor a temporary one is trusted. What
    a link leads to may be read by its name, so the name stays as it is, too."""
    victim, page = tmp_path / "victim", tmp_path / "shared" / "r.html"
    victim.write_text("precious")
    page.parent.mkdir()
    for name in ("r.html", ".r.html.new"):
        (page.parent / name).symlink_to(victim)
    with pytest.raises(ConfigError, match="did not write stays as it is"):
        html_report.write(page, result("x"))
    assert (victim.read_text(), page.readlink()) == ("precious", victim)
    page.unlink()
    html_report.write(page, result("x"))
    assert victim.read_text() == "precious"
    assert not page.is_symlink()
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert page.stat().st_mode & 0o777 == 0o644


def spans(waits: list[float]) -> list[tuple[float, float, float]]:
    return [(100.0, 100.0 + wait, 200.0 + wait) for wait in waits]


def test_the_queue_is_drawn_where_an_element_waited() -> None:
    plot = html_report.queue(spans([0.0, 100.0]))
    assert plot is not None
    ends = [mark.text for mark in plot.marks if isinstance(mark, html_report.Label)]
    assert ends == ["2", "0", "0", "3 min 20 s"]
    # One at work and one in the queue in the first half, then one at work.
    first, last = plot.bars[0], plot.bars[-1]
    assert first.title == "1.0 at work, 1.0 in the queue"
    assert last.title == "1.0 at work, 0.0 in the queue"
    assert [bar.style for bar in plot.bars].count("a") == html_report.BUCKETS
    assert [bar.style for bar in plot.bars].count("d") == html_report.BUCKETS // 2
    assert all(bar.y >= html_report.TOP - 1e-6 and bar.y + bar.height <= plot.height for bar in plot.bars)


def test_a_queue_in_which_nobody_waited_is_not_drawn() -> None:
    assert html_report.queue(spans([0.0, 0.5])) is None
    assert html_report.queue(spans([50.0])) is None
    assert html_report.queue([]) is None


USAGE = Usage(
    [
        StepUse("copy", 12, 1.52, 9.13, None, 0.634, 400 << 20, 12.0, 3725.0, 250.0, 540.0),
        StepUse("verify", 12, core_hours=0.0123),
        StepUse("", 24, 1.52, 1234.5),
    ],
    [
        Worst("queue_wait", "copy", 7, "n4", 3725.0),
        Worst("cpu_efficiency", "copy", 3, "", 0.021),
        Worst("of a later version", "copy", 3, "", 1.0),
    ],
    {"queue_wait": {"controller": 20, "slurmdbd": 4}, "hours": {"element": 24}},
    ["2 starts left no figures"],
)


def test_what_elements_used_is_a_table_with_its_sources() -> None:
    copy, verify, both = run_summary.rows(USAGE)
    assert copy == (
        "copy",
        "12",
        "1.52",
        "9.13",
        "63%",
        "400 MiB",
        "12 s, 1 h 02 min",
        "4 min 10 s, 9 min 00 s",
    )
    assert verify == ("verify", "12", "", "0.012", "", "", "", "")
    assert (both.step, both.core_hours) == ("all", "1,234")
    assert run_summary.worst(USAGE) == [
        ("Longest in the queue", "copy 7 on n4: 1 h 02 min"),
        ("Used its CPUs least", "copy 3: 2% of them"),
    ]
    starts, hours, memory, missing = run_summary.sources(USAGE)
    assert starts == "Queue wait: by SLURM's accounting (4), the start times that the controller saw (20)."
    assert hours == "Run time and hours: by the elements themselves."
    assert "sum of its processes' own peaks" in memory
    assert missing == "2 starts left no figures."
    assert run_summary.rows(Usage()) == run_summary.worst(Usage()) == run_summary.sources(Usage()) == []


def test_node_hours_are_a_column_where_elements_have_nodes() -> None:
    whole: Any = result() | {"usage": USAGE}
    assert ">Node-hours<" in html_report.render(whole)
    local: Any = result() | {"usage": Usage([StepUse("copy", 1, core_hours=1.0)])}
    assert ">Core-hours<" in html_report.render(local)
    assert ">Node-hours<" not in html_report.render(local)


def test_hostile_names_in_the_table_are_escaped() -> None:
    worst = [USAGE.worst[0]._replace(node="n4<img>")]
    data = result() | {"usage": USAGE._replace(worst=worst, notes=[f"2 starts {HOSTILE[:1]} no figures"])}
    page = Page(html_report.render(data))  # type: ignore[arg-type]
    assert page.left == []
    assert "img" not in [tag for tag, _ in page.tags]


def test_hours_are_short() -> None:
    shown = [run_summary.hours(value) for value in (None, 0.0042, 0.52, 99.9, 1234.5)]
    assert shown == [
        "", "0.004", "0.52", "99.90", "1,234",
    ]  # fmt: skip
