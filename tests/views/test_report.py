"""The report: self-contained, whole, and deaf to what the names in it say."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from importlib import resources
from typing import TYPE_CHECKING, Any

import pytest

from penstock.views import html_report, plots

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
            {"step": name, "index": name, "node": name, "started": 100.0, "ended": 160.0, "state": name},
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
    folder = resources.files("penstock.views") / "templates"
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
    assert plots.rates([[0, 0], [1, 10], [2, 30]]) == [(0.0, 10.0), (1.0, 10.0), (2.0, 20.0)]
    assert plots.rates([[0, 0]]) == []
    assert plots.rates([[0, 0], [0, 5], [float("nan"), 1]]) == []
    many = plots.rates([[second, second * 100] for second in range(10000)])
    assert len(many) <= plots.BUCKETS + 2
    assert all(rate == pytest.approx(100) for _, rate in many)


@pytest.mark.parametrize("most", [1, 7, 1023, 1025, 3e6, 1.6e9, 9.99e11])
def test_scales_cover_and_are_few(most: float) -> None:
    top, step = plots.scale(most)
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
    drawing = plots.lanes(elements)
    assert drawing is not None
    assert [bar.style for bar in drawing.bars] == ["a"] * 4
    assert len({bar.y for bar in drawing.bars}) == 3


def test_a_planted_link_is_replaced_not_followed(tmp_path: Path) -> None:
    """In a folder that others may write in: neither the page's own name nor a temporary one is trusted."""
    victim, page = tmp_path / "victim", tmp_path / "shared" / "r.html"
    victim.write_text("precious")
    page.parent.mkdir()
    for name in ("r.html", ".r.html.new"):
        (page.parent / name).symlink_to(victim)
    html_report.write(page, result("x"))
    assert victim.read_text() == "precious"
    assert not page.is_symlink()
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert page.stat().st_mode & 0o777 == 0o644
