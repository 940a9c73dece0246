"""Three walks through penstock, counted as it runs: `python benchmarks/walks.py [--python PYTHON] [--list]`.

How much a person has to read to follow something through the code. PYTHON runs the penstock of its own
checkout, so an older checkout is counted by the same rules:

key      an object of S3, from the listing to the manifest of its release: the modules with a function that
         gets the key, or a row with the key, as an argument or returns it; and the functions that return it
         in a form (a type of row, columns, bytes) in which they did not get it
setting  `verify.linked`, from the configuration file to the element that skips a file: likewise, by the
         value; a module that hands on the whole configuration, or the run's document, does not count
gc       `penstock gc` of one release of six files: the modules of which a function is called, and the calls
         from one module into another; of these, those that go back into a module that is waiting

All processes of a command are traced, elements and their workers too (`walk_tracer.py`). What runs while a
module is imported does not count. Needs no more than the checkout's environment; takes a minute.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from benchmarks.server import BUCKET, Server  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Sequence

KEY = "gamma-ray.dat"
LINKED, LINKED_SECONDS = "1000001s", 1000001.0
WHOLE = frozenset({"VerifyConfig", "RunInfo"})
"""Types that hold the setting beside many others."""
CONFIG = """\
target: {{root: {root}, keep_free: 1MiB}}
verify: {{linked: {linked}}}
gc: {{grace: 1s}}
datasets:
  walk:
    source: s3://{bucket}/walk/
    storage_options: {{endpoint_url: "{endpoint}"}}
    retention: {{last: 1}}
"""


class Walk(NamedTuple):
    """What one walk met."""

    name: str
    modules: list[str]
    remark: str
    besides: Sequence[str] = ()

    @property
    def rooms(self) -> list[str]:
        return sorted({module.partition(".")[0] for module in self.modules})


class Traced:
    """An environment whose interpreters trace themselves, and the commands that are run in it."""

    def __init__(self, python: str, scratch: Path, endpoint: str) -> None:
        ask = "import pathlib, penstock, site; print(pathlib.Path(penstock.__file__).parent); "
        ask += "print(*site.getsitepackages(), sep='\\n')"
        answer = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True, cwd="/")
        package, *libraries = answer.stdout.splitlines()
        self._scratch, self._package = scratch, f"{package}/"
        environment = scratch / "environment"
        venv.create(environment, symlinks=True, with_pip=False)
        self._python = environment / "bin/python"
        self._site = next(environment.glob("lib/python3*/site-packages"))
        shutil.copy(HERE / "walk_tracer.py", self._site / "penstock_walk_tracer.py")
        self._libraries = "".join(f"import site; site.addsitedir({folder!r})\n" for folder in libraries)
        self.root = scratch / "root"
        self.root.mkdir()
        self._config = scratch / "walk.yaml"
        self._config.write_text(
            CONFIG.format(root=self.root, linked=LINKED, bucket=BUCKET, endpoint=endpoint)
        )

    def run(self, *words: str, values: Sequence[str | float] = (), within: str = "") -> list[list[str]]:
        """The notes of a command's processes, each without its doubles where `values` are looked for."""
        notes = self._scratch / "notes"
        notes.unlink(missing_ok=True)
        traced = bool(values or within)
        order = {"package": self._package, "values": values, "within": within, "notes": str(notes)}
        (self._site / "walk.json").write_text(json.dumps(order))
        (self._site / "walk.pth").write_text(self._libraries + "import penstock_walk_tracer\n" * traced)
        command = [self._python, "-m", "penstock", "--config", self._config, "--progress", "off", *words]
        keys = {"AWS_ACCESS_KEY_ID": "walk", "AWS_SECRET_ACCESS_KEY": "walk", "AWS_REGION": "us-east-1"}
        done = subprocess.run(
            command, cwd=self._scratch, env={**os.environ, **keys, "PENSTOCK_AS_ROOT": "1"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(
                f"penstock {' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}"
            )
        lines = notes.read_text().splitlines() if traced else []
        return [line.split("\t") for line in (lines if within else sorted(set(lines)))]


def way(name: str, notes: Sequence[Sequence[str]]) -> Walk:
    """The walk of a value by the notes of its processes."""
    alone = [(module, form) for kind, module, form, *_ in notes if kind == "HAS" and form not in WHOLE]
    turns = [words[1:] for words in notes if words[0] == "TURNS" and not WHOLE & set(words[2:])]
    forms = ", ".join(sorted({form for _, form in alone}))
    turned = [f"{function}: {given} -> {returned}" for function, given, returned in turns]
    remark = f"{len(turns)} functions turn it from one form into another, among {forms}"
    return Walk(name, sorted({module for module, _ in alone}), remark, turned)


def walk_of_gc(traced: Traced) -> Walk:
    calls = traced.run("gc", "walk", within=".retention_steps.gc")
    modules = {module for _, *ends in calls for module in ends if module}
    back = Counter((caller, callee) for kind, caller, callee in calls if kind == "BACK")
    ways = [f"{caller} -> {callee}: {count}" for (caller, callee), count in sorted(back.items())]
    remark = f"{len(calls):,} calls from module to module, {back.total()} of them back, by {len(back)} ways"
    return Walk("gc", sorted(modules), remark, ways)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the checkout to count")
    parser.add_argument("--list", action="store_true", help="name the modules, too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        source = scratch / "source/walk"
        source.mkdir(parents=True)
        for name in (KEY, *(f"file-{number}" for number in range(5))):
            (source / name).write_text(name)
        with Server(scratch / "source", scratch, tls=False, go="") as server:
            traced = Traced(options.python, scratch, server.endpoint)
            walks = [way("key", traced.run("run", "walk", values=[KEY]))]
            # Other objects, so that the next run makes a release, and links the files that did not change.
            (source / "file-5").write_text("changed")
            walks.append(way("setting", traced.run("run", "walk", values=[LINKED, LINKED_SECONDS])))
            walks.append(walk_of_gc(traced))
    for walk in walks:
        print(f"{walk.name:8} {len(walk.modules):3} modules in {len(walk.rooms):2} rooms; {walk.remark}")
        if options.list:
            print(*walk.modules, "", *walk.besides, "", sep="\n         ")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
