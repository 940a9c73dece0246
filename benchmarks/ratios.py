"""What was asked of penstock, beside what this run showed: `peer / penstock`, larger is better."""

from __future__ import annotations

import statistics
from typing import Any, NamedTuple

NET = ("s5cmd", "rclone")


class Floor(NamedTuple):
    """One row: a load, the peers that count (the fastest of them), the least ratio, the goal."""

    work: str
    source: str
    peers: tuple[str, ...]
    least: float
    goal: float = 0.0


FLOORS = (
    Floor("S", "http", NET, 2.5),
    Floor("S", "https", NET, 2.0, 2.5),
    Floor("M", "http", NET, 1.3),
    Floor("M", "https", NET, 1.3),
    Floor("L", "http", NET, 0.9, 1.1),
    Floor("L", "https", NET, 0.9, 1.1),
    Floor("S", "folder", ("rsync",), 3.5),
    Floor("S", "folder", ("cp",), 1.5),
    Floor("S", "folder", ("fpsync",), 6.0),
    Floor("S", "folder", ("dcp",), 1.3),
    Floor("T", "folder", ("rsync",), 2.5, 4.0),
    Floor("T", "folder", ("cp",), 1.4, 2.0),
    Floor("T", "folder", ("fpsync",), 8.0, 12.0),
    Floor("T", "folder", ("dcp",), 1.1, 1.5),
    Floor("L", "folder", ("rsync",), 4.0),
    Floor("L", "folder", ("cp",), 1.5),
    Floor("L", "folder", ("dcp",), 0.9, 1.1),
    Floor("L", "folder", ("bare",), 0.9),
)
EXTRAS = (
    ("limited-one", ("s5cmd", "rclone"), 3.0),
    ("limited-several", ("s5cmd", "rclone"), 1.0),
    ("listing", ("s5cmd ls",), 3.0),
    ("latency", ("rsync -a",), 20.0),
    ("whole", ("rclone copy, rclone check --download",), 2.5),
    ("whole-disk", ("rclone copy, rclone check --download",), 2.5),
    ("audit", ("xxhsum -c manifest.xxh128",), 2.0),
    # At most 1.15 times what only reads.
    *((f"verify-{name}", ("plain cold read, nothing hashed",), 0.87) for name in "TSL"),
)


def _wall(row: dict[str, Any]) -> float:
    return float(row["wall"])


def rows(results: dict[str, Any]) -> list[tuple[str, str, float, float | None, float, float]]:
    """(load, peer, ratio, ratio of the copy alone, least, goal) of what was measured, to tmpfs
    where that was a target, else to disk."""
    seen = {(row["work"], row["source"], row["target"], row["contender"]): row for row in results["rows"]}
    target = "tmpfs" if any(key[2] == "tmpfs" for key in seen) else "disk"
    found: list[tuple[str, str, float, float | None, float, float]] = []
    for floor in FLOORS:
        own = seen.get((floor.work, floor.source, target, "penstock"))
        peers = [
            seen[key] for name in floor.peers if (key := (floor.work, floor.source, target, name)) in seen
        ]
        if own and peers:
            best = min(peers, key=lambda row: float(row["wall"]))
            load = f"{own['text']}, {floor.source}"
            alone = best["wall"] / own["engine"] if own.get("engine") else None
            found.append(
                (load, best["contender"], best["wall"] / own["wall"], alone, floor.least, floor.goal)
            )
    for name, begins, least in EXTRAS:
        measured = [row for row in results.get(name) or () if "wall" in row]
        peer = min((row for row in measured if row["what"].startswith(begins)), key=_wall, default=None)
        if measured and peer:
            own = measured[0]
            alone = peer["wall"] / own["engine"] if own.get("engine") else None
            found.append((name, peer["what"], peer["wall"] / own["wall"], alone, least, 0.0))
    return found


def markdown(results: dict[str, Any]) -> list[str]:
    found = rows(results)
    if not found:
        return []
    lines = ["", "## Ratios: the best peer's wall time by penstock's", ""]
    lines.append(
        "Copy alone: without start and listing, as a planned copy runs; the peer's time is all of its."
    )
    lines += ["", "| load | peer | ratio | copy alone | asked | goal | |", "|---|---|--:|--:|--:|--:|---|"]
    for load, peer, ratio, alone, least, goal in found:
        verdict = "goal" if goal and ratio >= goal else "yes" if ratio >= least else "**no**"
        lines.append(
            f"| {load} | {peer} | {ratio:.2f} | {f'{alone:.2f}' if alone else ''} | {least} "
            f"| {goal or ''} | {verdict} |"
        )
    return [*lines, "", *limits(results), *large(results)]


def large(results: dict[str, Any]) -> list[str]:
    """Large objects: what of penstock's time its copy is, by the engine's own outcome (the `seconds` of an
    element's receipt), and each peer's whole time by both. Ratios are made round by round, since load
    comes and goes: median (least to most). CPU seconds, the server's not among them, depend on load least."""
    loads: dict[str, list[dict[str, Any]]] = {
        name: [row | {"contender": row["what"]} for row in results.get(name) or ()]
        for name in ("limited-one", "limited-several")
    }
    for row in results["rows"]:
        if row["work"] == "L" and row["source"] != "folder":
            loads.setdefault(f"{row['text']}, {row['source']} to {row['target']}", []).append(row)
    lines = [
        f"| {load} | {own['wall']:.2f} | {own['engine']:.2f} | {own['wall'] - own['engine']:.2f} "
        f"| {peer['contender']} | {peer['wall']:.2f} | {_by_round(peer['walls'], own['walls'])} "
        f"| {_by_round(peer['walls'], own['engines'])} "
        f"| {own['cpu']:.2f} | {own['engine_cpu']:.2f} | {peer['cpu']:.2f} |"
        for load, rows in loads.items()
        for own in rows
        if own.get("engines")
        for peer in rows
        if peer is not own and peer["rounds"] == own["rounds"]
    ]
    head = "| load | penstock s | its copy s | start, listing s | peer | s | ratio | copy alone |"
    head += " CPU s | of its copy | of the peer |"
    rule = "|---|--:|--:|--:|---|" + "--:|" * 6
    title = "## Large objects: the whole command, and its copy alone"
    return ["", title, "", head, rule, *lines] if lines else []


def _by_round(peer: list[float], own: list[float]) -> str:
    ratios = [theirs / ours for theirs, ours in zip(peer, own, strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def limits(results: dict[str, Any]) -> list[str]:
    """Memory of the workers, and CPU on large objects beside the leanest peer."""
    own = [row for row in results["rows"] if row["contender"] == "penstock"]
    if not own:
        return []
    peak = max(row["peak_child"] for row in own)
    lines = ["", f"Largest worker process of penstock: {peak / 2**20:.0f} MiB (asked: below 64)."]
    for row in own:
        if row["work"] != "L":
            continue
        peers = [
            other
            for other in results["rows"]
            if (other["work"], other["source"], other["target"]) == ("L", row["source"], row["target"])
            and other["contender"] not in ("penstock", "bare")
        ]
        if peers:
            leanest = min(peers, key=lambda other: float(other["cpu_per_gb"]))
            times = row["cpu_per_gb"] / leanest["cpu_per_gb"]
            lines.append(
                f"CPU on {row['text']}, {row['source']} to {row['target']}: {row['cpu_per_gb']:.2f} s/GB, "
                f"{times:.2f} times {leanest['contender']} (asked: at most 1.2)."
            )
    return ["\n\n".join(lines[1:])] if len(lines) > 1 else []
