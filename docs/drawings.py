"""Makes docs/way.svg and docs/tree.svg: the way of a dataset's bytes, and the folders on the target.

`python docs/drawings.py` (`make docs`). A test fails if a file differs from what this script writes. Colours
follow the reader's preference for light or dark.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
STYLE = """\
text { font: 15px system-ui, sans-serif; fill: #1f2933 }
.small { font-size: 13px; fill: #52606d }
.mono { font: 14px ui-monospace, monospace }
.title { font-weight: 600 }
.box { fill: #ffffff; stroke: #9aa5b1; stroke-width: 1.5 }
.key { fill: #e3f1ff; stroke: #2f7fd1 }
.open { fill: #e5f7ea; stroke: #2f9e5a }
.back { fill: #f7f9fb }
.arrow { stroke: #52606d; stroke-width: 2; fill: none; marker-end: url(#head) }
.dashed { stroke-dasharray: 6 5 }
.line { stroke: #9aa5b1; stroke-width: 1.5 }
#head path { fill: #52606d }
@media (prefers-color-scheme: dark) {
  text { fill: #e4e7eb } .small { fill: #b8c2cc }
  .box { fill: #232a33; stroke: #7b8794 } .key { fill: #17324d; stroke: #62b0f5 }
  .open { fill: #163a26; stroke: #57c785 } .back { fill: #161b21 }
  .arrow { stroke: #b8c2cc } #head path { fill: #b8c2cc } .line { stroke: #7b8794 }
}"""


class Folder(NamedTuple):
    depth: int
    name: str
    meaning: str
    kind: str = ""  # class of its name's box: "open" for what readers open, "key" for what penstock writes


TREE = (
    Folder(0, "/beegfs/datasets/", "the root: target.root"),
    Folder(1, "imagenet/", "a dataset"),
    Folder(2, "current", "a link to the newest release; a training job starts here", "open"),
    Folder(2, "releases/", ""),
    Folder(3, "20261129-81cf9e9c/", "a release: read-only, complete, read back", "open"),
    Folder(4, "data/", "the files", "open"),
    Folder(4, "manifest.parquet", "size, digests and evidence of each file"),
    Folder(4, "release.json", "the seal: what was proven, and how"),
    Folder(
        3, ".20261201-6f3084fb.staging/", "the next release while it is written; no reader opens it", "key"
    ),
    Folder(2, ".penstock/", "runs: listing, plan, journals, receipts, logs", "key"),
)


def way() -> str:
    """The way of the bytes from the source to a training job, with the step that moves or checks them."""
    parts = [
        _box(20, 70, 190, 150, "Source", ["S3, Azure, Google", "web server, FTP", "folder, fsspec"]),
        _box(
            330,
            70,
            250,
            150,
            "Staging folder",
            ["hidden, on BeeGFS or WEKA", "journal of finished files"],
            "key",
        ),
        _box(700, 70, 240, 150, "Release", ["read-only, sealed", "current points to it"], "open"),
        _arrow("M210 125 H322", 266, 112, "copy"),
        _arrow("M580 125 H692", 636, 112, "publish"),
        _text(266, 146, "hashed on", "small"),
        _text(266, 163, "the way", "small"),
        _text(636, 146, "one", "small"),
        _text(636, 163, "rename", "small"),
        _arrow("M380 220 V262 H530 V228", 455, 284, "verify: every byte is read back, past the caches"),
        _arrow("M820 220 V262", 820, 284, "training jobs: penstock path, gate"),
        _text(20, 34, "preflight, list, plan", "title", "start"),
        _text(330, 34, "copy, permissions, verify: SLURM arrays", "title", "start"),
        _text(700, 34, "publish, report", "title", "start"),
    ]
    label = "Bytes go from the source to a hidden staging folder, are read back, and appear by one rename."
    return _picture(960, 310, label, parts)


def tree() -> str:
    """The folders below the target's root."""
    parts, top = [], 20
    for row in TREE:
        left, width = 24 + 34 * row.depth, 18 + round(8.6 * len(row.name))
        if row.depth:
            parts.append(
                f'<path class="line" fill="none" d="M{left - 18} {top - 6} V{top + 14} H{left - 2}"/>'
            )
        parts += [
            f'<rect class="box {row.kind}" x="{left}" y="{top}" width="{width}" height="28" rx="5"/>',
            _text(left + 9, top + 19, row.name, "mono", "start"),
            _text(left + width + 14, top + 19, row.meaning, "small", "start"),
        ]
        top += 38
    label = "A dataset has releases, a link named current, and the hidden folder .penstock."
    return _picture(960, top + 4, label, parts)


def _picture(width: int, height: int, label: str, parts: list[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(label)}">'
    )
    marker = (
        '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
        'orient="auto-start-reverse"><path d="M0 0 L10 5 L0 10 z"/></marker></defs>'
    )
    back = f'<rect class="back" width="{width}" height="{height}" rx="8"/>'
    return "\n".join([head, f"<style>\n{STYLE}\n</style>", marker, back, *parts, "</svg>\n"])


def _box(left: int, top: int, width: int, height: int, title: str, lines: list[str], kind: str = "") -> str:
    middle = left + width // 2
    shape = f'<rect class="box {kind}" x="{left}" y="{top}" width="{width}" height="{height}" rx="8"/>'
    texts = [_text(middle, top + 34, title, "title")]
    texts += [_text(middle, top + 66 + 24 * index, line, "small") for index, line in enumerate(lines)]
    return "\n".join([shape, *texts])


def _arrow(path: str, left: int, top: int, label: str) -> str:
    return f'<path class="arrow" d="{path}"/>\n{_text(left, top, label)}'


def _text(left: int, top: int, text: str, kind: str = "", anchor: str = "middle") -> str:
    return f'<text class="{kind}" x="{left}" y="{top}" text-anchor="{anchor}">{escape(text)}</text>'


PICTURES = {HERE / "way.svg": way, HERE / "tree.svg": tree}

if __name__ == "__main__":
    for file, draw in PICTURES.items():
        file.write_text(draw(), encoding="utf-8")
