"""The results as Markdown tables and as one plot."""

from __future__ import annotations

import html
import math
from typing import Any

from benchmarks import ratios

from penstock.core import human

BAR, GAP, LABEL, WIDE = 16, 34, 110, 760
SOURCES = {"folder": "from a folder", "http": "from S3", "https": "from S3 over TLS"}


def groups(results: dict[str, Any]) -> dict[tuple[str, str, str], list[dict[str, Any]]]:
    """Rows by (work, source, target), the fastest first."""
    found: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in results["rows"]:
        found.setdefault((row["work"], row["source"], row["target"]), []).append(row)
    return {key: sorted(rows, key=lambda row: float(row["wall"])) for key, rows in found.items()}


def title(row: dict[str, Any]) -> str:
    return f"{row['text']} {SOURCES[row['source']]} to {row['target']}"


def markdown(results: dict[str, Any]) -> str:
    machine = results["machine"]
    lines = ["# Benchmark", ""]
    lines.append(
        f"{machine['cpus']} x {machine['cpu']}, {human.size(machine['memory'])}, Linux {machine['kernel']}, "
        f"Python {machine['python']}, {machine['at']}. Medians; the S3 server ({results['server']}) runs on "
        "the same CPUs and its share is stated."
    )
    if results["missing"]:
        lines.append(f"Not found here, so not measured: {', '.join(results['missing'])}.")
    lines += ratios.markdown(results)
    for rows in groups(results).values():
        lines += ["", f"## {title(rows[0])}", ""]
        lines.append(
            "| | wall s | n | files/s | MB/s | penstock is | CPU s/GB | CPU us/file | server CPU s "
            "| peak MiB a process | peak MiB in all | checked on the way | durable |"
        )
        lines.append("|---|" + "--:|" * 10 + "---|---|")
        own = next((row["wall"] for row in rows if row["contender"] == "penstock"), None)
        for row in rows:
            name = row["contender"]
            ratio = f"{row['wall'] / own:.2f} x" if own and name != "penstock" else ""
            lines.append(
                f"| {f'**{name}**' if name == 'penstock' else name} | {row['wall']:.2f} | {row['rounds']} "
                f"| {row['files_per_second']:,.0f} | {row['bytes_per_second'] / 1e6:,.0f} | {ratio} "
                f"| {row['cpu_per_gb']:.2f} | {row['cpu_us_per_file']:,.0f} | {row['server_cpu']:.2f} "
                f"| {row['peak_process'] / 2**20:.0f} | {row['peak_sum'] / 2**20:.0f} | {row['checks']} "
                f"| {row['durable']} |"
            )
        lines += [f"\npenstock: {row['why']}" for row in rows if row.get("why")]
    for name, heading in (
        ("limited-one", "A store that gives each connection 50 MiB/s, to tmpfs: one large object"),
        ("limited-several", "The same: several large objects"),
        ("listing", "Listing"),
        ("latency", "Half a millisecond on each metadata call, from a folder to a folder"),
        ("latency2", "Two milliseconds on each metadata call, from a folder to a folder"),
        ("whole", "To the published, verified state, from S3 over HTTP to tmpfs"),
        ("whole-disk", "The same to disk, durable; penstock reads back cold, rclone from the page cache"),
        ("audit", "Audit of a published release of 4 KB files, cold, from the disk"),
        *((f"verify-{name}", f"Verify of {name}, cold, from the disk") for name in "TSL"),
    ):
        lines += _short(heading, results.get(name))
    lines += _killed(results.get("limited-killed"))
    lines += _growth(results.get("growth"))
    return "\n".join(lines) + "\n"


def _short(heading: str, rows: list[dict[str, Any]] | None) -> list[str]:
    if not rows:
        return []
    lines = [
        "",
        f"## {heading}",
        "",
        "| | wall s | n | CPU s | a second | penstock is |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    own = rows[0].get("wall")
    for row in rows:
        if "wall" not in row:
            lines.append(f"| {row['what']} | | | | | |")
            continue
        pace = row.get("keys_per_second") or row.get("files_per_second")
        lines.append(
            f"| {row['what']} | {row['wall']:.2f} | {row['rounds']} | {row['cpu']:.2f} "
            f"| {f'{pace:,.0f}' if pace else ''} | {row['wall'] / own:.2f} x |"
        )
    return lines


def _killed(rows: list[dict[str, Any]] | None) -> list[str]:
    """What a copy that was killed costs again."""
    lines = []
    for row in rows or []:
        told = f"{row['what']}: {row['again']:.0f}, {row['most']:.0f}; n {row['rounds']}"
        lines += ["", f"{told}; the next attempt took {row['wall']:.1f} s."]
    return lines


def _growth(rows: list[dict[str, Any]] | None) -> list[str]:
    if not rows:
        return []
    lines = ["", "## Growth: 4 KB files from a folder to tmpfs", ""]
    lines += [
        "| files | wall s | copy alone s | `named` s | of `named` | CPU us a file | peak MiB a process |",
        "|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        lines.append(
            f"| {row['files']:,} | {row['wall']:.2f} | {row['engine']:.2f} "
            f"| {row['least']:.2f} | {row['wall'] / row['least']:.2f} x "
            f"| {row['cpu'] / row['files'] * 1e6:.0f} | {row['peak'] / 2**20:.0f} |"
        )
    return lines


def growth_plot(rows: list[dict[str, Any]]) -> str:
    """Seconds against files, both logarithmic; the line is proportion from the largest back."""
    wide, high, left, base = 560, 360, 60, 320
    last = rows[-1]

    def x(files: float) -> float:
        span = math.log10(last["files"] / rows[0]["files"]) or 1.0
        return left + (wide - left - 30) * math.log10(files / rows[0]["files"]) / span

    low, top = min(row["engine"] for row in rows) / 3, max(row["wall"] for row in rows) * 2

    def y(seconds: float) -> float:
        return base - (base - 30) * math.log10(max(seconds, low) / low) / math.log10(top / low)

    ends = [(files, last["wall"] * files / last["files"]) for files in (rows[0]["files"], last["files"])]
    line = " ".join(f"{x(files):.1f},{y(seconds):.1f}" for files, seconds in ends)
    parts = [f'<polyline points="{line}" fill="none" stroke="#b9c4cf" stroke-dasharray="4 4"/>']
    for key, color in (("least", "#8a949e"), ("wall", "#1668b8"), ("engine", "#6aa7dd")):
        line = " ".join(f"{x(row['files']):.1f},{y(row[key]):.1f}" for row in rows)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>')
    for row in rows:
        at = f'x="{x(row["files"]):.1f}"'
        parts.append(f'<text {at} y="{base + 18}" text-anchor="middle">{row["files"]:,}</text>')
        parts.append(
            f'<text {at} y="{y(row["wall"]) - 8:.1f}" text-anchor="middle">{row["wall"]:.2f} s</text>'
        )
    parts.append(
        f'<text x="{left}" y="16">files of 4 KB: whole (dark), copy alone (light), `named` (grey), '
        "proportion (dashed)</text>"
    )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}">'
    )
    style = "<style>text{font:12px system-ui,sans-serif;fill:#445}</style>"
    return f'{head}{style}<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n'


def plot(results: dict[str, Any]) -> str:
    """Horizontal bars of throughput, one group a load; wider is faster."""
    parts: list[str] = []
    y = 20
    for rows in groups(results).values():
        by_files = rows[0]["bytes"] / rows[0]["files"] < 1e6
        unit, key, scale = (
            ("files/s", "files_per_second", 1.0) if by_files else ("MB/s", "bytes_per_second", 1e6)
        )
        most = max(row[key] for row in rows)
        parts.append(f'<text x="0" y="{y}" class="t">{html.escape(title(rows[0]))}, {unit}</text>')
        y += 8
        for row in rows:
            wide = row[key] / most * (WIDE - LABEL - 90)
            kind = "own" if row["contender"] == "penstock" else "peer"
            parts.append(f'<text x="{LABEL - 8}" y="{y + 12}" text-anchor="end">{row["contender"]}</text>')
            parts.append(
                f'<rect class="{kind}" x="{LABEL}" y="{y}" width="{wide:.1f}" height="{BAR - 3}" rx="2"/>'
            )
            parts.append(f'<text x="{LABEL + wide + 6:.1f}" y="{y + 11}">{row[key] / scale:,.0f}</text>')
            y += BAR
        y += GAP
    style = (
        "text{font:12px system-ui,sans-serif;fill:#445}.t{font-weight:600;fill:#16202b}"
        ".own{fill:#1668b8}.peer{fill:#b9c4cf}"
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {y}" width="{WIDE}" height="{y}">'
    return (
        f'{head}<style>{style}</style><rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n'
    )
