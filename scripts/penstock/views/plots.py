"""The report's plots, as inline SVG: throughput over time, sizes, elements by node.

Each returns "" when there is nothing to plot. All text is escaped; nothing refers outside.
"""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING, Any

from penstock.views import human

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WIDTH, HEIGHT = 480, 230
LEFT, RIGHT, TOP, BOTTOM = 74, 10, 12, 30
BUCKETS = 120
MAX_LANES = 64
MAX_BARS = 4000
STEP_CLASSES = {"copy": "a", "verify": "b", "permissions": "c", "publish": "d", "audit": "c", "repair": "d"}


def escaped(text: object) -> str:
    """For HTML text and attributes; what could deceive the eye is shown as an escape."""
    return html.escape(human.printable(str(text)), quote=True)


def throughput(samples: Sequence[Sequence[float]]) -> str:
    """Rate over time, out of cumulative [seconds, bytes, ...] samples."""
    points = rates(samples)
    if len(points) < 2:
        return ""
    end, most = points[-1][0], max(rate for _, rate in points)
    top, step = scale(most)
    if not top or end <= 0:
        return ""
    plot_width, plot_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def place(at: float, rate: float) -> tuple[float, float]:
        return LEFT + at / end * plot_width, TOP + (1 - rate / top) * plot_height

    parts = [_opening(HEIGHT, "Throughput over time")]
    for index in range(round(top / step) + 1):
        y = place(0, index * step)[1]
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        label = human.rate(index * step) if index else "0"
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    curve = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in points))
    base = TOP + plot_height
    parts.append(f'<polygon class="area" points="{LEFT},{base} {curve} {WIDTH - RIGHT},{base}"/>')
    parts.append(f'<polyline class="curve" points="{curve}"/>')
    for share, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
        x, label = LEFT + share * plot_width, human.duration(share * end) if share else "0"
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - 8}" text-anchor="{anchor}">{label}</text>')
    return "".join(parts) + "</svg>"


def rates(samples: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    """[(seconds, bytes a second)] of at most BUCKETS + 1 points; steps backwards are dropped."""
    clean: list[tuple[float, float]] = []
    for sample in samples:
        at, count = float(sample[0]), float(sample[1])
        if not (math.isfinite(at) and math.isfinite(count)):
            continue
        if not clean or (at > clean[-1][0] and count >= clean[-1][1]):
            clean.append((at, count))
    if len(clean) < 2:
        return []
    begin, end = clean[0][0], clean[-1][0]
    width = (end - begin) / min(BUCKETS, len(clean) - 1)
    points: list[tuple[float, float]] = []
    last = clean[0]
    for at, count in clean[1:]:
        if at - last[0] >= width * 0.999 or at == end:
            rate = (count - last[1]) / (at - last[0])
            if not points:
                points.append((0.0, rate))
            points.append((at - begin, rate))
            last = (at, count)
    return points


def scale(most: float) -> tuple[float, float]:
    """(top, step) of an axis of three to five round steps in binary units."""
    if most <= 0 or not math.isfinite(most):
        return 0.0, 0.0
    unit = 1024.0 ** max(0, math.floor(math.log(most, 1024)))
    for step in (0.25, 0.5, 1, 2, 2.5, 5, 10, 20, 25, 50, 100, 200, 250):
        if most <= step * unit * 5:
            return math.ceil(most / (step * unit)) * step * unit, step * unit
    return math.ceil(most / unit / 256) * 256 * unit, 256 * unit


def histogram(rows: Sequence[Sequence[int]]) -> str:
    """Files, and beside them bytes, by size; each as a share of its own total."""
    used = [index for index, row in enumerate(rows) if row[1]]
    if not used:
        return ""
    rows = rows[used[0] : used[-1] + 1]
    files, total = sum(row[1] for row in rows), max(sum(row[2] for row in rows), 1)
    most = max(max(row[1] / files, row[2] / total) for row in rows)
    plot_height = HEIGHT - TOP - BOTTOM - 8
    left = 10
    slot = (WIDTH - left - RIGHT) / len(rows)
    bar = min(slot * 0.36, 34)
    base = TOP + 8 + plot_height
    parts = [_opening(HEIGHT, "Sizes of the files")]
    parts.append(f'<line class="grid" x1="{left}" x2="{WIDTH - RIGHT}" y1="{base}" y2="{base}"/>')
    for index, (upper, number, size) in enumerate(rows):
        middle = left + (index + 0.5) * slot
        bound = human.size(upper).replace(".00 ", " ").replace(".0 ", " ")
        for share, x, kind, text in (
            (number / files, middle - bar - 1, "a", human.counted(number, "file")),
            (size / total, middle + 1, "b", human.size(size)),
        ):
            height = max(share / most * plot_height, 1.5 if share else 0)
            parts.append(
                f'<rect class="{kind}" x="{x:.1f}" y="{base - height:.1f}" width="{bar:.1f}" '
                f'height="{height:.1f}" rx="2"><title>up to {bound}: {text} ({share:.1%})</title></rect>'
            )
        label = bound.replace(" ", "").replace("iB", "")
        parts.append(f'<text x="{middle:.1f}" y="{HEIGHT - 10}" text-anchor="middle">{label}</text>')
    return "".join(parts) + "</svg>"


def lanes(elements: Sequence[Mapping[str, Any]]) -> str:
    """One lane a node (more where its elements overlapped), one bar an attempt of an element."""
    timed = [
        element
        for element in elements
        if element.get("started") and float(element.get("ended") or 0) >= float(element["started"])
    ][:MAX_BARS]
    if not timed:
        return ""
    begin = min(float(element["started"]) for element in timed)
    end = max(float(element["ended"]) for element in timed)
    rows = _rows(timed)
    more = len(rows) - MAX_LANES
    rows = rows[:MAX_LANES]
    width, left, lane = 1000, 150, 22
    height = TOP + len(rows) * lane + BOTTOM
    span = max(end - begin, 1e-3)
    parts = [_opening(height, "Elements by node", width)]
    previous = ""
    for index, (node, found) in enumerate(rows):
        y = TOP + index * lane
        if node != previous:
            parts.append(f'<text x="0" y="{y + 15}">{escaped(node[:22])}</text>')
        previous = node
        for element in found:
            x = left + (float(element["started"]) - begin) / span * (width - left - RIGHT)
            long = (float(element["ended"]) - float(element["started"])) / span * (width - left - RIGHT)
            good = str(element.get("state", "done")) in ("done", "running")
            kind = STEP_CLASSES.get(str(element.get("step")), "d") if good else "f"
            shape = f'x="{x:.1f}" y="{y + 2}" width="{max(long, 2):.1f}" height="{lane - 5}" rx="3"'
            parts.append(f'<rect class="{kind}" {shape}><title>{_about(element)}</title></rect>')
    y = height - 8
    parts.append(f'<text x="{left}" y="{y}">0</text>')
    parts.append(f'<text x="{width - RIGHT}" y="{y}" text-anchor="end">{human.duration(span)}</text>')
    if more > 0:
        parts.append(f'<text x="0" y="{y}">and {human.counted(more, "more lane")}</text>')
    return "".join(parts) + "</svg>"


def _rows(elements: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[Mapping[str, Any]]]]:
    """Elements in lanes, sorted by node: each goes to the first lane of its node that is free."""
    by_node: dict[str, list[list[Mapping[str, Any]]]] = {}
    for element in sorted(elements, key=lambda element: float(element["started"])):
        free = by_node.setdefault(str(element.get("node") or "this host"), [])
        for row in free:
            if float(row[-1]["ended"]) <= float(element["started"]):
                row.append(element)
                break
        else:
            free.append([element])
    return [(node, row) for node in sorted(by_node) for row in by_node[node]]


def _about(element: Mapping[str, Any]) -> str:
    seconds = float(element["ended"]) - float(element["started"])
    text = f"{element.get('step', '')} {element.get('index', '')}"
    if element.get("attempt"):
        text += f", attempt {element['attempt']}"
    text += f": {element.get('state', 'done')}, {human.duration(seconds)}"
    if element.get("bytes"):
        text += f", {human.size(element['bytes'])}, {human.speed(element['bytes'], seconds)}"
    return escaped(text)


def _opening(height: int, title: str, width: int = WIDTH) -> str:
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escaped(title)}">'
