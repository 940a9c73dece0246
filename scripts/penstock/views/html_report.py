"""The report: one HTML page that carries everything and asks for nothing.

Guarantee: self-contained, without scripts, and its policy forbids any request; every text out of
a source or a cluster is escaped, also where it would deceive the eye; the result itself is in the
page as JSON, safely. The file appears whole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.core.model import SOURCE_GRADES, STORAGE_GRADES
from penstock.storage import durable
from penstock.views import human, plots, summary
from penstock.views.plots import escaped
from penstock.views.stylesheet import CSS

if TYPE_CHECKING:
    from pathlib import Path

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
MEANINGS = {
    "full": "a checksum of the whole object, stated by the source, held",
    "composite": "the source's checksum over its parts' checksums held",
    "etag-md5": "the etag was the MD5 of the bytes",
    "size": "the source states nothing: size and version alone",
    "cold-other-node": "read back past the caches, on a node that did not write it",
    "cold": "read back past the caches of the node that wrote it",
    "reread": "read back; caches could not be ruled out",
    "written": "written durably, not read back",
    "direct": "by direct I/O, past the page cache",
    "dropped": "after the page cache was seen to be empty of it",
    "cached": "through the page cache",
    "unread": "not at all",
}
SHOWN_FAILURES = 500
SHOWN_REASONS = 4
MOVING = ("copy", "verify", "audit", "repair")
"""The steps that read or write the data itself: their rate means something."""


def write(path: Path, data: Mapping[str, Any]) -> None:
    """Render `data` (views/keys.py) to `path`, durably; a link that stands there is replaced, not followed.
    Raises OSError; an older page stays then."""
    durable.write_file(path, render(data).encode(), mode=0o644)


def render(data: Mapping[str, Any]) -> str:
    """The page."""
    name = escaped(data.get("dataset", ""))
    sections = [_header(data), _figures(data), _plots(data), _evidence(data), _steps(data), _lanes(data)]
    sections += [_failures(data), _warnings(data), _details(data)]
    version = escaped(data.get("version", ""))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="referrer" content="no-referrer"><title>{name} - penstock</title>'
        f"<style>{CSS}</style></head>\n<body><main>\n"
        + "\n".join(filter(None, sections))
        + f"\n<footer>penstock {version}</footer>\n</main>\n"
        + f'<script type="application/json" id="result">{embedded(data)}</script>\n</body></html>\n'
    )


def embedded(data: Mapping[str, Any]) -> str:
    """JSON that cannot end its script element, whatever the names in it."""
    text = json.dumps(data, sort_keys=True, default=str)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """`rows` are HTML already; columns in `numbers` are aligned right."""

    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f'<{tag} class="n">{cell}</{tag}>' if index in numbers else f"<{tag}>{cell}</{tag}>"
            for index, cell in enumerate(row)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><thead><tr>{cells('th', head)}</tr></thead><tbody>{body}</tbody></table>"


def _header(data: Mapping[str, Any]) -> str:
    passed = data.get("status") == "PASSED"
    badge = (
        f'<span class="badge {"good" if passed else "bad"}">{escaped(data.get("status", "FAILED"))}</span>'
    )
    release = f'<span class="soft">{escaped(data["release"])}</span>' if data.get("release") else ""
    why = f'<div class="why">{escaped(data["why"])}</div>' if data.get("why") else ""
    path = f'<div class="why"><code>{escaped(data["path"])}</code></div>' if data.get("path") else ""
    return f"<header><h1>{escaped(data.get('dataset', ''))}</h1>{badge}{release}{why}{path}</header>"


def _figures(data: Mapping[str, Any]) -> str:
    copied = data.get("copied") or {}
    figures: list[tuple[str, str]] = []
    if data.get("files") is not None:
        figures.append((human.count(data["files"]), "files in the release"))
    if data.get("bytes") is not None:
        figures.append((human.size(data["bytes"]), "in the release"))
    if data.get("seconds") is not None:
        figures.append((human.duration(data["seconds"]), "total time"))
    if copied.get("seconds") and copied.get("bytes"):
        figures.append((human.speed(copied["bytes"], copied["seconds"]), "copied"))
    labels = {
        "unchanged": "unchanged, linked",
        "taken": "taken over from a run that did not end",
        "copied": "copied",
        "verified": "verified",
    }
    for key, label in labels.items():
        value = data.get(key)
        always = key in ("copied", "verified")
        if isinstance(value, Mapping) and (value.get("files") or (always and "files" in value)):
            figures.append((human.count(value["files"]), f"files {label}"))
    if data.get("giants"):
        figures.append((human.count(data["giants"]), "giants, split in parts"))
    if data.get("failed") is not None:
        figures.append((human.count(data["failed"]), "files failed"))
    cells = "".join(f"<div><b>{escaped(value)}</b><span>{label}</span></div>" for value, label in figures)
    return f'<section class="figures">{cells}</section>' if cells else ""


def _plots(data: Mapping[str, Any]) -> str:
    shown = []
    curve = plots.throughput(data.get("throughput") or ())
    if curve:
        shown.append(f"<section><h2>Throughput of the copy</h2>{curve}</section>")
    bars = plots.histogram(data.get("histogram") or ())
    if bars:
        legend = '<span><i class="a"></i>share of files</span><span><i class="b"></i>share of bytes</span>'
        shown.append(f'<section><h2>Sizes</h2>{bars}<div class="legend">{legend}</div></section>')
    if len(shown) == 2:
        return f'<div class="pair">{"".join(shown)}</div>'
    return "".join(shown)


def _evidence(data: Mapping[str, Any]) -> str:
    evidence = data.get("evidence")
    if not isinstance(evidence, Mapping):
        return ""
    rows = []
    for title, key, order in (
        ("Source's checksum", "source", SOURCE_GRADES),
        ("Stored bytes", "storage", STORAGE_GRADES),
        ("Read back", "methods", ()),
    ):
        for grade, files, size in summary.graded(evidence.get(key), order):
            meaning = MEANINGS.get(grade, "")
            rows.append(
                [title, f"<b>{escaped(grade)}</b>", escaped(meaning), human.count(files), human.size(size)]
            )
    if not rows:
        return ""
    head = ("Evidence", "Grade", "What it means", "Files", "Bytes")
    return f"<section><h2>How strongly it is proven</h2>{table(head, rows, (3, 4))}</section>"


def _steps(data: Mapping[str, Any]) -> str:
    rows = []
    for step in data.get("steps") or ():
        seconds = step.get("seconds")
        size = step.get("bytes")
        rows.append(
            [
                f"<b>{escaped(step.get('step', ''))}</b>",
                escaped(step.get("status", "")),
                human.duration(seconds) if seconds is not None else "",
                human.count(step["files"]) if step.get("files") is not None else "",
                human.size(size) if size is not None else "",
                human.speed(size, seconds) if size and seconds and step.get("step") in MOVING else "",
                human.count(step["elements"]) if step.get("elements") else "",
                escaped(step.get("why", "")),
            ]
        )
    if not rows:
        return ""
    head = ("Step", "", "Time", "Files", "Bytes", "Rate", "Elements", "")
    return f"<section><h2>Steps</h2>{table(head, rows, (2, 3, 4, 5, 6))}</section>"


def _lanes(data: Mapping[str, Any]) -> str:
    elements = data.get("elements") or ()
    drawing = plots.lanes(elements)
    if not drawing:
        return ""
    steps = dict.fromkeys(str(element.get("step")) for element in elements)
    legend = "".join(
        f'<span><i class="{plots.STEP_CLASSES.get(step, "d")}"></i>{escaped(step)}</span>' for step in steps
    )
    if '<rect class="f"' in drawing:
        legend += '<span><i class="f"></i>failed or lost</span>'
    return f'<section><h2>Elements by node</h2>{drawing}<div class="legend">{legend}</div></section>'


def _failures(data: Mapping[str, Any]) -> str:
    failures = list(data.get("failures") or ())
    if not failures:
        return ""
    rows = [
        [f'<span class="path">{escaped(item.get("path", ""))}</span>', escaped(item.get("why", ""))]
        for item in failures[:SHOWN_FAILURES]
    ]
    total = max(int(data.get("failed") or 0), len(failures))
    shown = (
        f' <span class="soft">first {len(rows)} of {human.count(total)}</span>' if total > len(rows) else ""
    )
    return f'<section><h2 class="bad">Failures{shown}</h2>{table(("Path", "Why"), rows)}</section>'


def _warnings(data: Mapping[str, Any]) -> str:
    items = "".join(f"<div>{escaped(text)}</div>" for text in data.get("warnings") or ())
    return f'<section><h2 class="warn">Warnings</h2>{items}</section>' if items else ""


def _details(data: Mapping[str, Any]) -> str:
    rows: list[tuple[str, str]] = [("Source", url) for url in data.get("sources") or ()]
    for label, key in (
        ("Target", "target"),
        ("File system", "file_system"),
        ("Durability", "durability"),
        ("Pointer", "current"),
        ("Run", "run"),
        ("Seal", "seal"),
        ("Listing", "listing_digest"),
        ("Started", "started"),
        ("Ended", "ended"),
    ):
        if data.get(key):
            rows.append((label, str(data[key])))
    for label, key, noun in (("Scanned", "scanned", "object"), ("Resumed", "resumed", "file")):
        text = summary.amount(data.get(key), noun)
        if text:
            rows.append((label, text))
    rows += [
        ("Left out", f"{human.count(number)} {why}")
        for why, number in (data.get("ignored") or {}).items()
        if number
    ]
    if links := summary.hard_links(data.get("hard_links")):
        rows.append(("Hard links", links))
    if moved := summary.moving(data.get("amended")):
        rows.append(("Moving source", moved))
    for label, key in (("Read from source", "bytes_in"), ("Written", "bytes_out")):
        if data.get(key) is not None:
            rows.append((label, human.size(data[key])))
    if data.get("retries"):
        rows.append(("Retries", human.count(data["retries"])))
    if data.get("node_hours"):
        rows.append(("Node hours", f"{data['node_hours']:.2f}"))
    reasons = dict.fromkeys(element.get("why") for element in data.get("elements") or ())
    rows += [("Engine", str(why)) for why in list(reasons)[:SHOWN_REASONS] if why]
    items = "".join(f"<dt>{escaped(label)}</dt><dd>{escaped(value)}</dd>" for label, value in rows)
    return f"<section><h2>Details</h2><dl>{items}</dl></section>" if items else ""
