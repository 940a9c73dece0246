"""Ten million objects: a part of `python benchmarks/run.py` (`--extras many`), or alone: `python
benchmarks/many.py --sizes 100000 1000000 --staged 100000`.

The server makes its objects up, so nothing but the clients is measured. Each command is a process of its own.
What is published for the rerun and for `diff` is a release that was not copied, made of the listing.

| row | what it is |
|---|---|
| list | `penstock step list`, beside `s5cmd ls` of the same bucket in turn |
| plan | `penstock step plan` of the first release |
| rerun | `penstock step list` where the release stands and nothing changed |
| diff | `penstock diff` of the release and its source, of which one object in a thousand changed |
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from benchmarks import measure, peers  # noqa: E402
from benchmarks.server import BUCKET, Server, find_go  # noqa: E402

SIZES = {"quick": (100_000,), "middle": (100_000, 1_000_000), "full": (100_000, 1_000_000, 10_000_000)}
STAGED = {"quick": 20_000, "middle": 100_000, "full": 1_000_000}
CHANGED = 1000
"""One object in so many changes."""
MOST = 1 << 30
"""Bytes of memory that list, plan, rerun and diff may take."""
MOST_CONTROLLER = 500 << 20
UNPACED = '{"target.ops": 1000000000}'
"""gc is measured as fast as it can be."""
LEAST_RATIO = 2.0
"""`s5cmd ls` by `penstock step list`."""
FIRST, SECOND = "run", "run, 0.1 % changed"
MOST_DELTA, MOST_ADDED = 0.1, 40
"""CPU of the second release by the first one's, and bytes of state and manifests that it adds a file."""
COLORS = {"list": "#1668b8", "plan": "#2f9e6b", "rerun": "#b8741a", "diff": "#8a4fb8", "s5cmd ls": "#8a949e"}
CONFIG = """\
target: {{root: {root}, keep_free: 0B}}
gc: {{grace: 1s}}
verify: {{linked: 30d}}
datasets:
  many:
    source: "s3://{bucket}/"
    storage_options: {{endpoint_url: "{endpoint}", anon: true}}
    retention: {{last: 1}}
"""


class Place(NamedTuple):
    """Where one run of the benchmark works."""

    scratch: Path
    go: str
    path: str
    """PATH with the peers first."""

    @property
    def target(self) -> Path:
        return self.scratch / "target"

    def configured(self, server: Server) -> list[str]:
        """The arguments that name the configuration."""
        file = self.scratch / "many.yaml"
        file.write_text(CONFIG.format(root=self.target, bucket=BUCKET, endpoint=server.endpoint))
        return ["--config", str(file), "--progress", "off"]

    def penstock(self, command: str, server: Server, *further: str) -> measure.Cost:
        place = self.configured(server)
        argv = [sys.executable, "-m", "penstock", *place, *command.split(), "many", *further]
        return self.run(argv, settings=UNPACED if command == "gc" else "{}")

    def run(self, argv: list[str], allowed: tuple[int, ...] = (0,), settings: str = "{}") -> measure.Cost:
        environment = {
            **os.environ,
            "PENSTOCK_TEST_SETTINGS": settings,
            "PATH": self.path,
            "PENSTOCK_AS_ROOT": "1",  # benchmarks often run as root
            "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b",
        }
        logs = self.scratch / "logs"
        logs.mkdir(exist_ok=True)
        cost = measure.run(argv, environment, logs, self.scratch)
        if cost.status not in allowed:
            raise SystemExit(f"{' '.join(argv)}: exit {cost.status}\n{cost.errors[-3000:]}")
        return cost

    def clear(self) -> None:
        subprocess.run(["chmod", "-R", "u+rwx", str(self.target)], check=False, capture_output=True)
        shutil.rmtree(self.target, ignore_errors=True)


def measured(place: Place, objects: int, rounds: int) -> list[dict[str, Any]]:
    """The rows of one number of objects."""
    costs: dict[str, list[measure.Cost]] = {}
    served: dict[str, list[float]] = {}
    before = 0.0

    def note(what: str, cost: measure.Cost, server: Server) -> None:
        nonlocal before
        used = server.cpu()
        served.setdefault(what, []).append(used - before)
        before = used
        costs.setdefault(what, []).append(cost)
        told = f"{cost.wall:8.1f} s {cost.cpu:8.1f} s CPU {cost.peak_process / 2**20:6.0f} MiB"
        print(f"  {objects:>10,} {what:10} {told}", flush=True)

    with Server(place.scratch, place.scratch, tls=False, go=place.go, made=objects) as server:
        for _ in range(rounds):
            if shutil.which("s5cmd", path=place.path):
                listing = ["s5cmd", "--endpoint-url", server.endpoint, "ls", f"s3://{BUCKET}/*"]
                cost = place.run(listing)
                assert cost.output.count("\n") == objects
                note("s5cmd ls", cost, server)
            place.clear()
            note("list", place.penstock("step list", server), server)
        note("plan", place.penstock("step plan", server), server)
        publish(place.target)
        note("rerun", place.penstock("step list", server), server)
    with Server(
        place.scratch, place.scratch, tls=False, go=place.go, made=objects, changed=CHANGED
    ) as server:
        cost = place.penstock("diff", server, "--json")
        changed = json.loads(cost.output.splitlines()[-1])["counts"]["changed"]["files"]
        assert changed == math.ceil(objects / CHANGED), changed
        before = 0.0
        note("diff", cost, server)
    place.clear()
    return [
        {
            "what": what, "objects": objects, "rounds": len(some),
            "wall": statistics.median(one.wall for one in some),
            "cpu": statistics.median(one.cpu for one in some),
            "server": statistics.median(served[what]),
            "peak": max(one.peak_process for one in some),
        }
        for what, some in costs.items()
    ]  # fmt: skip


def in_no_order(place: Place, objects: int) -> tuple[measure.Cost, measure.Cost]:
    """`penstock step list` of so many objects, of a server that lists in order and of one that does not;
    prints both, side by side."""
    costs = []
    for mixed in (False, True):
        place.clear()
        with Server(
            place.scratch, place.scratch, tls=False, go=place.go, made=objects, mixed=mixed
        ) as server:
            cost = place.penstock("step list", server)
        told = f"{cost.wall:8.2f} s {cost.cpu:8.2f} s CPU {cost.peak_process / 2**20:6.0f} MiB"
        print(f"  {objects:>10,} {'in no order' if mixed else 'in order':11} {told}", flush=True)
        costs.append(cost)
    place.clear()
    print(f"  speed in no order by that in order: {costs[0].wall / costs[1].wall:.2f}", flush=True)
    return costs[0], costs[1]


def publish(root: Path) -> None:
    """Publish what was listed, without its bytes: a release is made of the listing, with the package's own
    writers, and its run forgets its plan."""
    import pyarrow as pa

    from penstock.core.layout import MANIFEST, SEAL, DatasetLayout
    from penstock.core.seal import (
        RELEASE_SEAL,
        Amount,
        Seal,
        SealedEvidence,
        SealedManifest,
        SealedPermissions,
        SealedRecords,
        SealedSource,
    )
    from penstock.dataset import run_store
    from penstock.tables.manifest import FORM, Files, ManifestWriter
    from penstock.tables.run_tables import read_listing_columns

    layout = DatasetLayout(root, "many")
    run = run_store.open_run(layout)
    folder = layout.release(run.release)
    (folder / "data").mkdir(parents=True)
    constant = {
        "source_grade": "full", "source_proof": "", "storage_grade": "cold", "method": "direct",
        "written_host": "n1", "verified_host": "n1", "attempt": "a", "mtime_ns": 1, "ctime_ns": 1,
        "parts": b"", "digests": "", "inode": 1, "read_at": 1, "carried": 0, "shared": 0,
    }  # fmt: skip
    count = 0
    with ManifestWriter(folder / MANIFEST) as writer:
        for batch in read_listing_columns(run.folder.listing):
            listed = dict(zip(batch.schema.names, batch.columns, strict=True))
            rows = range(count, count + batch.num_rows)
            listed["digest"] = pa.array([f"xxh3_128:{number:032x}" for number in rows])
            arrays = [
                listed[field.name]
                if field.name in listed
                else pa.array([constant[field.name]] * batch.num_rows, field.type)
                for field in FORM.schema
            ]
            writer.add(Files(pa.record_batch(arrays, names=FORM.schema.names)))
            count += batch.num_rows
        digest = writer.finish()
    info = run.info
    amount = Amount(info.files, info.bytes)
    evidence = SealedEvidence({"full": amount}, {"cold": amount}, {"direct": amount}, "cold", "any checksum")
    seal = Seal(
        dataset="many", release=run.release, run=run.id, sealed="2026-01-01T00:00:00Z", penstock="1.0.0",
        files=info.files, bytes=info.bytes, giants=0, part_bytes=None,
        sources=[SealedSource(url) for url in info.sources], listing=info.listing_digest,
        include=["**"], exclude=[], scanned=info.files, ignored={}, hard_links={}, base=None, unchanged=0,
        permissions=SealedPermissions(0o440, 0o2550, os.getegid(), os.geteuid()),
        records=SealedRecords("", count, ()),
        manifests={MANIFEST: SealedManifest(sha256=digest, records=count)}, evidence=evidence,
    )  # fmt: skip
    (folder / SEAL).write_text(json.dumps(RELEASE_SEAL.to_json(seal)))
    layout.current.symlink_to(f"releases/{run.release}")
    run.folder.plan.unlink()


def staged(place: Place, objects: int) -> list[dict[str, Any]]:
    """So many small files all the way: staged, verified and published, audited by sample; staged again after
    one in a thousand changed, and the first release removed."""
    rows: list[dict[str, Any]] = []
    place.clear()

    def note(what: str, server: Server, *command: str) -> None:
        name, *further = command
        before = server.cpu()
        cost = place.penstock(name, server, *further)
        rows.append(
            {
                "what": what, "objects": objects, "rounds": 1, "wall": cost.wall, "cpu": cost.cpu,
                "server": server.cpu() - before, "peak": cost.peak_process,
                "kept": kept(place.target),
            }
        )  # fmt: skip
        told = f"{cost.wall:8.1f} s {cost.cpu:8.1f} s CPU {cost.peak_process / 2**20:6.0f} MiB"
        print(f"  {objects:>10,} {what:20} {told}", flush=True)

    with Server(place.scratch, place.scratch, tls=False, go=place.go, made=objects) as server:
        note(FIRST, server, "run")
        note("run, no change", server, "run")
        note("audit of 1 %", server, "audit", "--sample", "1%")
    with Server(
        place.scratch, place.scratch, tls=False, go=place.go, made=objects, changed=CHANGED
    ) as server:
        note(SECOND, server, "run")
        # Times of the history are in seconds: the grace is over when two have passed.
        while time.time() < os.lstat(place.target / "many/current").st_mtime + 2:
            time.sleep(0.1)
        note("gc", server, "gc")
    releases = [one for one in os.listdir(place.target / "many/releases") if not one.startswith(".")]
    assert len(releases) == 1, releases
    place.clear()
    return rows


def kept(root: Path) -> int:
    """Bytes of the state, the manifests and the seals of all releases."""
    size = 0
    for above, folders, files in os.walk(root):
        folders[:] = [one for one in folders if one != "data"]
        size += sum(os.lstat(os.path.join(above, name)).st_size for name in files)
    return size


class Delta(NamedTuple):
    """What the second release of a million files cost, of which one in a thousand changed."""

    objects: int
    ratio: float
    """Its CPU by the first one's."""
    added: float
    """Bytes of state, manifest and seal for each file."""

    def __str__(self) -> str:
        return (
            f"The second release of {self.objects:,} files, of which one in a thousand changed, took "
            f"{self.ratio:.2f} of the first one's CPU, and {self.added:.1f} bytes of state and manifests each"
        )


def delta(whole: list[dict[str, Any]]) -> Delta | None:
    found = {row["what"]: row for row in whole}
    if SECOND not in found:
        return None
    first, before, second = found[FIRST], found["audit of 1 %"], found[SECOND]
    added = (second["kept"] - before["kept"]) / second["objects"]
    return Delta(second["objects"], second["cpu"] / first["cpu"], added)


def judge(rows: list[dict[str, Any]], whole: list[dict[str, Any]]) -> list[str]:
    """What is not as it should be."""
    wrong = [
        f"{row['what']} of {row['objects']:,} objects took {row['peak'] / 2**20:,.0f} MiB"
        for row in rows
        if row["peak"] >= MOST and row["what"] != "s5cmd ls"
    ]
    wrong += [
        f"{row['what']} of {row['objects']:,} files took {row['peak'] / 2**20:,.0f} MiB"
        for row in whole
        if row["peak"] >= MOST_CONTROLLER
    ]
    if (second := delta(whole)) and (second.ratio > MOST_DELTA or second.added > MOST_ADDED):
        wrong.append(str(second))
    wrong += [
        f"listing {size:,} objects is {ratio:.1f} times as fast as `s5cmd ls`"
        for size, ratio in listings(rows)
        if ratio < LEAST_RATIO
    ]
    return wrong


def listings(rows: list[dict[str, Any]]) -> list[tuple[int, float]]:
    """For each number of objects the seconds of `s5cmd ls` by those of `penstock step list`."""
    walls = {(row["objects"], row["what"]): row["wall"] for row in rows}
    return [
        (size, wall / walls[size, "list"])
        for (size, what), wall in sorted(walls.items())
        if what == "s5cmd ls"
    ]


def markdown(rows: list[dict[str, Any]], whole: list[dict[str, Any]]) -> list[str]:
    """Lines of a table."""
    lines = ["", "## Many objects, from a server that makes them up", ""]
    lines += [
        "| | objects | runs | s | CPU s | CPU us an object | server CPU s | peak MiB a process |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {row['what']} | {row['objects']:,} | {row['rounds']} | {row['wall']:.1f} | {row['cpu']:.1f} "
        f"| {row['cpu'] / row['objects'] * 1e6:.1f} | {row['server']:.1f} | {row['peak'] / 2**20:,.0f} |"
        for row in [*rows, *whole]
    ]
    second = delta(whole)
    lines += [
        "",
        *(
            f"`s5cmd ls` of {size:,} objects by `penstock step list`: {ratio:.1f}."
            for size, ratio in listings(rows)
        ),
    ]
    lines += ["", f"{second}."] if second else []
    return [*lines, "", *(f"Not as it should be: {one}." for one in judge(rows, whole))]


def plot(rows: list[dict[str, Any]]) -> str:
    """Seconds against objects, both logarithmic; the dashed lines are proportion from the fewest on."""
    wide, high, left, base = 640, 400, 60, 350
    sizes = sorted({row["objects"] for row in rows})
    span = math.log10(sizes[-1] / sizes[0]) or 1.0
    low, top = min(row["wall"] for row in rows) / 2, max(row["wall"] for row in rows) * 2

    def x(objects: float) -> float:
        return left + (wide - left - 110) * math.log10(objects / sizes[0]) / span

    def y(seconds: float) -> float:
        return base - (base - 30) * math.log10(max(seconds, low) / low) / math.log10(top / low)

    parts = [f'<text x="{left}" y="16">seconds against objects; dashed: in proportion to the fewest</text>']
    labels: list[tuple[float, str, str]] = []
    for what, color in COLORS.items():
        some = [row for row in rows if row["what"] == what]
        if not some:
            continue
        line = " ".join(f"{x(row['objects']):.1f},{y(row['wall']):.1f}" for row in some)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>')
        ends = [(size, some[0]["wall"] * size / some[0]["objects"]) for size in (sizes[0], sizes[-1])]
        line = " ".join(f"{x(size):.1f},{y(seconds):.1f}" for size, seconds in ends)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-dasharray="3 5"/>')
        last = some[-1]
        labels.append((y(last["wall"]) + 4, color, f"{what} {last['wall']:.0f} s"))
    above = -math.inf
    for place, color, text in sorted(labels):
        above = max(place, above + 14)
        parts.append(f'<text x="{x(sizes[-1]) + 6:.1f}" y="{above:.1f}" style="fill:{color}">{text}</text>')
    parts += [
        f'<text x="{x(size):.1f}" y="{base + 20}" text-anchor="middle">{size:,}</text>' for size in sizes
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}">'
    )
    style = "<style>text{font:12px system-ui,sans-serif;fill:#445}</style>"
    return f'{head}{style}<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n'


def run(place: Place, sizes: tuple[int, ...], files: int) -> dict[str, Any]:
    """All rows: `many`, and `many-staged`."""
    if not place.go:
        raise SystemExit("the server that makes up its objects needs a Go toolchain")
    place.scratch.mkdir(parents=True, exist_ok=True)
    rows = [row for size in sizes for row in measured(place, size, 3 if size <= 100_000 else 1)]
    return {"many": rows, "many-staged": staged(place, files) if files else []}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cache", type=Path, default=HERE.parent / ".cache/bench")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES["full"]))
    parser.add_argument(
        "--staged", type=int, default=STAGED["full"], help="files of the way to the end; 0: none"
    )
    parser.add_argument("--no-install", action="store_true", help="take the peers that are there")
    parser.add_argument(
        "--in-no-order", type=int, default=0, help="only list so many objects, in order and in none"
    )
    options = parser.parse_args()
    cache = options.cache.absolute()
    if not options.no_install:
        peers.install(cache)
    place = Place(cache / "many", find_go(cache / "peers"), peers.path(cache))
    if options.in_no_order:
        place.scratch.mkdir(parents=True, exist_ok=True)
        ordered, mixed = in_no_order(place, options.in_no_order)
        return 1 if mixed.wall > 2 * ordered.wall or mixed.peak_process >= MOST else 0
    results = run(place, tuple(options.sizes), options.staged)
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "many.json").write_text(json.dumps(results, indent=1) + "\n")
    text = "\n".join(markdown(results["many"], results["many-staged"]))
    (options.results / "many.md").write_text(text + "\n")
    (options.results / "many.svg").write_text(plot(results["many"]))
    print(text)
    return 1 if judge(results["many"], results["many-staged"]) else 0


if __name__ == "__main__":
    raise SystemExit(main())
