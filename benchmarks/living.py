"""A living bucket at full size: `python benchmarks/living.py [--objects N] [--seconds S] [--changes N]`.

20,000 objects on a real S3 server, an unversioned bucket; `engine.limit` makes the copy last a minute. While
it copies, objects change and leave that were listed and not yet read, by the server's log.

- `follow`: one `penstock run` ends published, every file is whole and of one version, no object is read
  twice, and a rerun has nothing to do.
- `refuse`: the run ends with 5; the rerun reads what changed and what was missing, and nothing else.

Prints the figures as JSON; exit status 0 when all of that holds.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.living import Bucket, Place, run_while_it_changes, whole
from tests.support.versity import Versity


def follow(place: Place, changes: int, gone: int) -> dict[str, Any]:
    bucket, began = place.bucket, time.monotonic()
    status, said, changed, left, read = run_while_it_changes(place, changes, gone)
    took = time.monotonic() - began
    assert status == 0, said
    keys = [key for key in bucket.keys if key not in left]
    whole(bucket, place, keys)
    twice = {key: count for key, count in read.items() if count != 1}
    assert not twice, twice
    assert set(read) == set(keys)
    since, again = len(bucket.log()), time.monotonic()
    status, said = place.run()
    assert status == 0, said
    assert not bucket.fetched(since), "a rerun at rest reads nothing"
    assert len(place.releases()) == 1
    return {
        "seconds": round(took, 1), "files": len(keys), "changed": len(changed), "gone": len(left),
        "read twice": len(twice), "rerun seconds": round(time.monotonic() - again, 1), "rerun read": 0,
    }  # fmt: skip


def refuse(place: Place, changes: int) -> dict[str, Any]:
    bucket, began = place.bucket, time.monotonic()
    before = set(bucket.keys)
    status, said, changed, _, read = run_while_it_changes(place, changes, 0)
    took = time.monotonic() - began
    assert status == 5, f"exit status {status}: {said}"
    since, again = len(bucket.log()), time.monotonic()
    status, said = place.run()
    assert status == 0, said
    anew = bucket.fetched(since)
    missing = before - set(read)
    whole(bucket, place, bucket.keys)
    assert set(anew) == missing, f"{len(anew)} read anew, {len(missing)} were missing"
    return {
        "seconds": round(took, 1), "read": len(read), "changed": len(changed), "missing": len(missing),
        "rerun seconds": round(time.monotonic() - again, 1), "rerun read": sum(anew.values()),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=20_000)
    parser.add_argument("--size", type=int, default=3200, help="bytes of an object")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the copy is made to last")
    parser.add_argument("--changes", type=int, default=20)
    parser.add_argument("--gone", type=int, default=3)
    parser.add_argument("--only", choices=("follow", "refuse"))
    given = parser.parse_args()
    figures: dict[str, Any] = {"objects": given.objects, "limit seconds": given.seconds}
    with tempfile.TemporaryDirectory(prefix="living-", dir="/var/tmp") as name:
        folder = Path(name)
        (folder / "root").mkdir()
        with Versity(folder / "root", log=folder / "log") as server:
            if given.only != "refuse":
                bucket = Bucket(server, "followed", given.objects, given.size)
                place = Place(folder / "follow", bucket, "follow", given.seconds)
                figures["follow"] = follow(place, given.changes, given.gone)
            if given.only != "follow":
                bucket = Bucket(server, "refused", given.objects, given.size)
                place = Place(folder / "refuse", bucket, "refuse", given.seconds)
                figures["refuse"] = refuse(place, given.changes)
    print(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
