"""What each way to a store costs: `python benchmarks/readers.py [--rounds N] [--small N] [--large N]`.

The same objects by penstock itself and through fsspec's library (s3fs, adlfs, gcsfs), copied by one
engine run with its start (`penstock_copy.py`) from servers on loopback: versitygw, Azurite, fake-gcs-server.
2,000 objects of 64 KiB, and 4 of 256 MiB. The ways alternate, after one run of each that is not counted; the
target is in memory, and empty before each run. Prints seconds: medians, with the least and the most.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.sources.conftest import NO_GRPC, AdlfsStore, GcsfsStore, GcsStore, S3fsStore
from tests.support.azurite import Azurite
from tests.support.fake_gcs import FakeGcs
from tests.support.versity import ACCESS, SECRET, Versity

from penstock.target import tree_removal

if TYPE_CHECKING:
    from penstock.config.settings import SourceConfig

COPY = Path(__file__).with_name("penstock_copy.py")
SMALL, LARGE = 64 << 10, 256 << 20


class Way(NamedTuple):
    store: str
    reader: str
    config: SourceConfig
    environment: dict[str, str]


def ways(stack: ExitStack, folder: Path, small: int, large: int) -> list[Way]:
    """Servers with the objects in them, and both ways to each."""
    (folder / "s3").mkdir()
    s3 = S3fsStore(stack.enter_context(Versity(folder / "s3")), "bench", folder)
    azure = AdlfsStore(stack.enter_context(Azurite()), folder, "bench")
    gcs = GcsfsStore(stack.enter_context(FakeGcs()), "bench")
    stack.callback(s3.close)
    stack.callback(azure.close)
    for name, count, size in (("small", small, SMALL), ("large", large, LARGE)):
        for number in range(count):
            data = os.urandom(size)
            for store in (s3, azure, gcs):
                store.put(f"{name}/{number:05d}", data)
    found = [
        Way("S3", "s3fs", s3.config(), {}),
        Way("Azure", "adlfs", azure.config(), {}),
        Way("Google", "gcsfs", gcs.config(), dict([NO_GRPC])),
        Way("Google", "penstock", GcsStore.config(gcs), {}),
    ]
    keys = {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET}
    own = type(found[0].config)(found[0].config.url, storage_options={"endpoint_url": s3.server.endpoint})
    found.append(Way("S3", "penstock", own, keys))
    own = type(own)(azure.url, storage_options={**azure.options, "credentials_file": str(azure.secrets)})
    found.append(Way("Azure", "penstock", own, {}))
    return sorted(found, key=lambda way: (way.store, way.reader))


def seconds(way: Way, kind: str, folder: Path) -> float:
    """Of one run, start and listing included."""
    url = f"{way.config.url}/{kind}/"
    options = json.dumps(dict(way.config.storage_options))
    with tempfile.TemporaryDirectory(dir=folder) as place:
        target = Path(place) / "target"
        target.mkdir()
        command = [sys.executable, str(COPY), "--source", url, "--options", options]
        command += ["--target", str(target), "--state", str(Path(place) / "state")]
        began = time.perf_counter()
        done = subprocess.run(
            command, env=os.environ | way.environment, capture_output=True, text=True, check=False
        )
        took = time.perf_counter() - began
        assert done.returncode == 0, done.stdout + done.stderr
        assert json.loads(done.stdout)["failures"] == 0, done.stdout
        tree_removal.remove_tree(target)
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--small", type=int, default=2000, help="objects of 64 KiB")
    parser.add_argument("--large", type=int, default=4, help="objects of 256 MiB")
    asked = parser.parse_args()
    took: dict[tuple[str, str, str], list[float]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm")))
        every = ways(stack, folder, asked.small, asked.large)
        for turn in range(asked.rounds + 1):
            for kind in ("small", "large") if turn else ("small",):
                for way in every if turn % 2 else reversed(every):
                    one = seconds(way, kind, folder)
                    print(f"{turn} {way.store} {way.reader} {kind} {one:.1f}", file=sys.stderr, flush=True)
                    if turn:
                        took.setdefault((way.store, way.reader, kind), []).append(one)
    print(f"| store | by | {asked.small:,} of 64 KiB, s | {asked.large} of 256 MiB, s |\n|---|---|---|---|")
    for way in every:
        cells = [took[way.store, way.reader, kind] for kind in ("small", "large")]
        shown = (f"{statistics.median(cell):.1f} ({min(cell):.1f} to {max(cell):.1f})" for cell in cells)
        print(f"| {way.store} | {way.reader} | {' | '.join(shown)} |")


if __name__ == "__main__":
    main()
