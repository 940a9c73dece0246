"""What training jobs see of `current` while releases come."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.support.staging_runs import tree
from tests.support.whole_way import go, staging

if TYPE_CHECKING:
    from pathlib import Path

WIDTH = 6

# Reads by its own means, in a process of its own, until it is told to stop. Every file of a
# generation holds that generation's number; a generation has as many files as its number says.
READER = """
import json, os, select, sys
folder, width = sys.argv[1], int(sys.argv[2])
seen, wrong, loops, last = set(), [], 0, -1
print("reading", flush=True)
while not select.select([sys.stdin], [], [], 0.002)[0]:
    loops += 1
    try:
        release = os.readlink(os.path.join(folder, "current"))
    except FileNotFoundError:
        if last >= 0:
            wrong.append("current is gone")
        continue
    data = os.path.join(folder, release, "data")
    told = {}
    try:
        for name in os.listdir(data):
            with open(os.path.join(data, name)) as stream:
                told[name] = int(stream.read())
        for name in ("release.json", "manifest.parquet", "manifest.xxh128"):
            os.stat(os.path.join(folder, release, name))
    except OSError as error:
        wrong.append(repr(error))
        continue
    numbers = set(told.values())
    if len(numbers) != 1 or len(told) != width + max(numbers) % 3:
        wrong.append(f"{release}: {told}")
        continue
    number = numbers.pop()
    if number < last:
        wrong.append(f"back from {last} to {number}")
    last = number
    seen.add(release)
print(json.dumps({"seen": len(seen), "wrong": wrong[:5], "loops": loops}))
"""


@pytest.mark.parametrize("publications", [12, pytest.param(50, marks=pytest.mark.thorough)])
def test_readers_never_see_a_missing_partial_or_mixed_tree(tmp_path: Path, publications: int) -> None:
    source = tmp_path / "source"
    with staging(tmp_path, source) as context:
        folder = context.layout("data").folder
        with subprocess.Popen(
            [sys.executable, "-c", READER, str(folder), str(WIDTH)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as reader:
            try:
                assert reader.stdout is not None
                assert reader.stdout.readline() == "reading\n"
                releases = set()
                for number in range(publications):
                    for old in source.glob("*"):
                        old.unlink()
                    names = [f"f{i}" for i in range(WIDTH + number % 3)]
                    tree(source, dict.fromkeys(names, b"%d" % number))
                    releases.add(go(context)["release"])
                told = json.loads(reader.communicate("stop\n", timeout=60)[0])
            finally:
                reader.kill()
        assert len(releases) == publications
        assert told["wrong"] == []
        assert told["seen"] > publications // 2
        assert len(os.listdir(context.layout("data").releases)) == publications
