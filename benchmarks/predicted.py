"""What `penstock plan` says of a copy, and what the copy takes: `python benchmarks/predicted.py [--go GO]`.

Three shapes of source and target whose rates are fixed, so that what binds each is known beforehand:

link      a folder of large files, over a link that is capped at 20 MB/s (`bandwidth.link`)
requests  small objects of a store that takes 150 requests a second (`bandwidth.requests`)
source    large objects of a store that sends 40 MiB/s; a person gives the source's rate by `--assume`, since
          nothing has measured it

Prints for each what the plan says binds it, its seconds, those of the copy (from its receipt), and their
ratio. Then `penstock rehearse --sweep` looks for the number of streams that is enough, where it is known:
four connections of 2 MiB/s fill a link of 7 MiB/s. Needs Go for the store's server. Takes four minutes; what
else the machine does at the same time hardly counts, as the rates leave it idle.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from benchmarks.server import BUCKET, Server  # noqa: E402

MIB = 1 << 20
RATE = 40 * MIB


class Shape(NamedTuple):
    """One of the three."""

    name: str
    files: int
    size: int
    """Bytes of each file."""
    binds: str
    """The ceiling that is known to bind it."""
    keys: dict[str, Any]
    """Of the configuration."""
    assumed: str = ""


def shapes(folder: Path) -> list[Shape]:
    """Whose bandwidth folder lies below `folder`."""
    cap = {"folder": str(folder / "cap")}
    return [
        Shape("link", 60, 8 * 10**6, "network link", {"bandwidth": {**cap, "link": "20MB/s"}}),
        Shape("requests", 2500, 1000, "requests to sources", {"bandwidth": {**cap, "requests": 150}}),
        Shape("source", 20, 48 * MIB, "source", {}, f"source={RATE}B/s"),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--go", default=shutil.which("go") or "", help="the Go compiler")
    go = parser.parse_args().go
    if not go:
        parser.error("there is no Go: name the compiler by --go")
    with tempfile.TemporaryDirectory(prefix="penstock-predicted-") as scratch:
        folder = Path(scratch)
        (folder / "cap").mkdir()
        objects = folder / "objects"
        for shape in shapes(folder):
            place = (folder if shape.name == "link" else objects) / shape.name
            fill(place, shape.files, shape.size)
        fill(objects / "knee", 2000, MIB // 8)
        with Server(objects, folder, tls=False, go=go, rate=RATE, shared=True) as server:
            print("shape     planned  binds                 copied  ratio")
            wrong = max([measured(folder, shape, server.endpoint) for shape in shapes(folder)])
        with Server(objects, folder, tls=False, go=go, rate=2 * MIB) as server:
            return max(wrong, knee(folder, server.endpoint))


def fill(folder: Path, files: int, size: int) -> None:
    """Make files of so many bytes."""
    folder.mkdir(parents=True)
    for index in range(files):
        (folder / f"{index:06d}").write_bytes(os.urandom(size))


def measured(folder: Path, shape: Shape, endpoint: str) -> int:
    """Plan and stage one shape, and print its line. Returns 1 where another ceiling was named, or the ratio
    is beyond a fifth."""
    dataset: dict[str, Any] = {"source": str(folder / shape.name)}
    if shape.name != "link":
        dataset = {
            "source": f"s3://{BUCKET}/{shape.name}/",
            "storage_options": {"endpoint_url": endpoint, "anon": True},
        }
    target = {
        "root": str(folder / f"{shape.name}.target"),
        "keep_free": "1MiB",
        **shape.keys.get("target", {}),
    }
    config = {**shape.keys, "target": target, "datasets": {"d": dataset}}
    Path(target["root"]).mkdir()
    file = folder / f"{shape.name}.yaml"
    file.write_text(json.dumps(config))
    words = ["--assume", shape.assumed] if shape.assumed else []
    plan = json.loads(penstock(folder, file, "plan", "--explain", "d", "--json", *words))
    binding = plan["forecast"]["ceilings"][0]["name"]
    penstock(folder, file, "run", "d")
    (receipt,) = Path(target["root"]).glob("d/.penstock/runs/*/receipts/copy.json")
    taken, planned = json.loads(receipt.read_text())["moved_seconds"], plan["forecast"]["seconds"]
    print(
        f"{shape.name:<10}{planned:5.1f} s  {binding:<20}{taken:6.1f} s  {taken / planned:5.2f}", flush=True
    )
    return int(binding != shape.binds or not 1 / 1.2 <= taken / planned <= 1.2)


def knee(folder: Path, endpoint: str) -> int:
    """Rehearse with several numbers of streams, and print what they reach. Returns 1 where not four are named
    as enough."""
    source = {"source": f"s3://{BUCKET}/knee/", "storage_options": {"endpoint_url": endpoint, "anon": True}}
    (folder / "knee.target").mkdir()
    target = {"root": str(folder / "knee.target"), "keep_free": "1MiB"}
    link = {"folder": str(folder / "cap"), "link": f"{7 * MIB}B/s"}
    file = folder / "knee.yaml"
    file.write_text(json.dumps({"target": target, "bandwidth": link, "datasets": {"d": source}}))
    said = penstock(folder, file, "rehearse", "d", "--time", "2min", "--sweep", "1,2,4,8,16")
    print(said, end="", flush=True)
    return int("knee      4 streams" not in said)


def penstock(folder: Path, config: Path, *words: str) -> str:
    """The standard output of a command, which must succeed."""
    command = [sys.executable, "-m", "penstock", "--progress", "off", "--config", str(config), *words]
    environment = {**os.environ, "PENSTOCK_AS_ROOT": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
