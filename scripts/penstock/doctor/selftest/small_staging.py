"""Part of a selftest: every step of penstock stages a small local folder, and audits it."""

from __future__ import annotations

import json
import os
import random
import subprocess
from typing import TYPE_CHECKING

from penstock.config.loader import TESTED
from penstock.core import human, step_table
from penstock.core.events import CheckResult
from penstock.core.layout import DATA, DatasetLayout
from penstock.dataset import rights, seals
from penstock.host import interpreter
from penstock.target import dataset_folders

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.doctor.selftest.budget import Budget

DATASET = "selftest"
# of the files, in bytes; the last is copied in parts
SIZES = (*[0] * 2, *[100] * 8, *[4096] * 16, *[70_000] * 12, *[1 << 20] * 8, *[5 << 20] * 2, 24 << 20)
SETTINGS = {"plan.giant_bytes": "16MiB", "plan.part_bytes": "8MiB", "engine.workers": 1}
COMMANDS = ("preflight", "audit", "gate")  # others are below `penstock step`
STEPS = (*(name for name in step_table.OF_RUN if name != "report"), "audit", "gate")
# A file's on the target, over all steps: 57 by the test bed's file system, without lookups, reads and writes.
OPERATIONS = 60


def staged(folder: Path, place: Path, budget: Budget) -> Iterator[CheckResult]:
    """Stage a source below `folder`, and compare what is published with it. The source is made in `place`,
    which must be missing; the caller removes it. Root stages nothing unless told to."""
    if os.geteuid() == 0 and not rights.as_root():
        yield CheckResult(
            "a small staging",
            "not tried: root (uid 0) stages nothing",
            "note",
            mend="give the folder to the account that will stage, and run the selftest as that account; or "
            "`penstock --as-root selftest`",
        )
        return
    place.mkdir(0o700)
    source = place / "source"
    _make(source)
    configuration = place / "selftest.yaml"
    configuration.write_text(
        json.dumps(
            {
                "target": {"root": str(folder), "keep_free": "1MiB"},
                "datasets": {DATASET: {"source": str(source)}},
            }
        )
    )
    spent = budget.seconds
    for step in STEPS:
        budget.spend(len(SIZES) * OPERATIONS // len(STEPS), size=sum(SIZES) // len(STEPS), files=10)
        problem = _step(step, configuration, budget)
        if problem:
            yield CheckResult("a small staging", f"{step}: {problem}", "stop", "a release", "see the message")
            return
    took = human.duration(budget.seconds - spent)
    budget.spend(0)
    layout = DatasetLayout(folder, DATASET)
    published = layout.current / DATA
    wrong = [path.name for path in sorted(source.iterdir()) if not _same(path, published / path.name)]
    if wrong:
        yield CheckResult("a small staging", f"other bytes in {', '.join(wrong[:3])}", "stop", "the same")
        return
    amount = f"{human.counted(len(SIZES), 'file')}, {human.size(sum(SIZES))}"
    yield CheckResult("a small staging", f"{amount} staged, audited and the same, in {took}")
    yield CheckResult("what verify proved", _grades(layout))


def _make(source: Path) -> None:
    source.mkdir()
    made = random.Random(0)  # noqa: S311 (any bytes)
    for number, size in enumerate(SIZES):
        (source / f"{number:03d}.bin").write_bytes(made.randbytes(size))


def _step(step: str, configuration: Path, budget: Budget) -> str:
    """Run one command; return "", or its message when it failed."""
    words = [*interpreter.command("penstock"), "--config", str(configuration), "--backend", "local"]
    command = [step] if step in COMMANDS else ["step", step]
    try:
        done = subprocess.run(
            [*words, "--progress", "off", *command],
            env=os.environ | {TESTED: json.dumps(SETTINGS)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            cwd=configuration.parent,
            timeout=max(1.0, budget.left),
        )
    except subprocess.TimeoutExpired:
        return "the time of the selftest was over"
    if done.returncode == 0:
        return ""
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return f"exit status {done.returncode}: {' '.join(lines[-3:])}"


def _same(original: Path, published: Path) -> bool:
    try:
        return (
            os.path.getsize(original) == os.path.getsize(published)
            and original.read_bytes() == published.read_bytes()
        )
    except OSError:
        return False


def _grades(layout: DatasetLayout) -> str:
    """Return how files were read back, by the seal."""
    release = dataset_folders.current(layout)
    grades = seals.load(layout, release or "").seal.evidence.storage
    return ", ".join(
        f"{name}: {human.counted(grade.files, 'file')}" for name, grade in sorted(grades.items())
    )
