"""`verify.linked`: what was read lately is carried over, and what that proves."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.published import flip
from tests.support.staging_runs import tree
from tests.support.whole_way import content, go, records, texts

from penstock.config.settings import LinkedConfig
from penstock.errors import FindingsError
from penstock.formats import ledger_file, ledger_segments
from penstock.retention import removals
from penstock.state import seals
from penstock.steps import audit_step, preflight_step, report_step
from penstock.storage import durable

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.documents.seal import Seal
    from penstock.state.context import Context

DAY = 86_400.0
FILES = {f"d{n % 4}/{n:03}": bytes([n]) * (100 + n) for n in range(100)}


def asked(context: Context, **linked: Any) -> None:
    """`verify.linked` of all runs from now on."""
    wanted = LinkedConfig(**{"within": 30 * DAY, "sample": 0.05, **linked})
    verify = replace(context.config.verify, linked=wanted)
    context.config = replace(context.config, verify=verify)


def later(context: Context, days: float) -> None:
    """So many days from now, by the clock that plan goes by."""
    now = time.time() + days * DAY
    context.clock = lambda: now


def following(context: Context, source: Path, number: int) -> Seal:
    """The seal of the next release, which has one file more."""
    tree(source, {f"new/{number}": b"new %d" % number})
    go(context)
    return current(context)


def current(context: Context) -> Seal:
    layout = context.layout("data")
    return seals.load(layout, os.readlink(layout.current).rpartition("/")[2]).seal


@pytest.fixture
def carrying(context: Context) -> Context:
    """The first release stands."""
    asked(context)
    go(context)
    return context


def test_the_steps_of_a_report_count_what_was_copied_and_read_alone(carrying: Context, source: Path) -> None:
    following(carrying, source, 1)
    told = report_step.run(carrying, "data")
    steps = {step["step"]: (step["files"], step["bytes"]) for step in told["steps"] if "bytes" in step}
    assert steps["copy"] == (1, 5)
    assert steps["verify"] == (told["verified"]["files"], told["verified"]["bytes"])
    assert told["verified"]["files"] < 40 < told["files"]


def test_a_file_that_was_read_lately_is_carried_over_and_counted_as_that(
    carrying: Context, source: Path
) -> None:
    before = records(carrying)
    later(carrying, 1)
    seal = following(carrying, source, 1)
    after = records(carrying)
    carried = {path for path, record in after.items() if record.carried}
    assert seal.linked is not None
    assert 60 < len(carried) == seal.linked.carried.files < 100
    assert seal.linked.files == 100
    assert seal.evidence.storage["carried"].files == len(carried)
    assert seal.evidence.methods is not None
    assert seal.evidence.methods["carried"].files == len(carried)
    assert sum(amount.files for amount in seal.evidence.storage.values()) == 101
    assert durable.read_json(carrying.layout("data").current / "release.json")["format"] == 4
    for path in carried:
        kept = (
            "digest",
            "storage_grade",
            "method",
            "verified_host",
            "attempt",
            "read_at",
            "mtime_ns",
            "inode",
        )
        assert [getattr(after[path], name) for name in kept] == [getattr(before[path], name) for name in kept]
        assert after[path].ctime_ns > before[path].ctime_ns
    read = Counter({why: amount.files for why, amount in seal.linked.read_now.items()})
    assert read.total() + len(carried) == 100
    assert set(read) <= {"due", "sample"}
    assert 0 < read["due"] < 20
    assert not seal.evidence.all_read


def test_all_reads_each_file_and_its_seal_is_of_a_format_that_older_versions_read(
    context: Context, source: Path
) -> None:
    verify = replace(context.config.verify, linked=LinkedConfig(None))
    context.config = replace(context.config, verify=verify)
    go(context)
    seal = following(context, source, 1)
    assert seal.linked is None
    assert durable.read_json(context.layout("data").current / "release.json")["format"] == 1
    assert not any(record.carried for record in records(context).values())


def read_now(seal: Seal) -> Counter[str]:
    """Linked files that were read for this release, by the reason."""
    assert seal.linked is not None
    return Counter({why: amount.files for why, amount in seal.linked.read_now.items()})


def test_what_falls_due_is_spread_over_the_nights_and_all_is_read_in_time(
    carrying: Context, source: Path
) -> None:
    asked(carrying, within=5 * DAY, sample=1e-9)
    first = {path: record.attempt for path, record in records(carrying).items()}
    for night in range(1, 7):
        later(carrying, night - 0.01)
        seal = following(carrying, source, night)
        assert 5 < read_now(seal)["due"] < 45
    after = records(carrying)
    assert not [path for path, attempt in first.items() if after[path].attempt == attempt]


def test_a_file_whose_time_has_run_out_is_read_whatever_the_limit_is(carrying: Context, source: Path) -> None:
    asked(carrying, limit=1, sample=1e-9)
    later(carrying, 1)
    assert read_now(following(carrying, source, 1)) == {}
    later(carrying, 31)
    rot(carrying, "d1/017")
    seal = following(carrying, source, 2)
    assert seal.linked is not None
    assert seal.linked.deviations == 1
    assert any("older than `verify.linked.within`" in text for text in texts(carrying, "note"))
    assert content(carrying.layout("data").current / "data") == content(source)


def test_the_sample_keeps_within_the_limit_too(carrying: Context, source: Path) -> None:
    asked(carrying, sample=0.5, limit=sum(map(len, FILES.values())) // 20)
    later(carrying, 1)
    seal = following(carrying, source, 1)
    assert seal.linked is not None
    assert set(seal.linked.read_now) <= {"sample"}
    assert seal.linked.carried.files > 75
    assert any("and 5.00% of the others" in text for text in texts(carrying, "note"))


def test_preflight_says_what_verify_will_read_when_the_time_of_all_has_run_out(carrying: Context) -> None:
    def notes() -> list[str]:
        return [
            row["found"]
            for row in preflight_step.run(carrying, "data")["results"]
            if row["verdict"] == "note" and "verify.linked.within" in row["found"]
        ]

    later(carrying, 29)
    assert not notes()
    later(carrying, 31)
    (text,) = notes()
    assert "verify reads all that are linked from it, up to 14.6 KiB, about " in text
    asked(carrying, within=None)
    assert not notes()


def rot(context: Context, path: str) -> None:
    """Other bytes at rest, with all that a stat shows as it was, but the ctime: as if penstock had moved
    it."""
    layout = context.layout("data")
    file = layout.current.resolve() / "data" / path
    before = file.stat()
    flip(file)
    moved = ledger_segments.Moves()
    moved.add(before.st_ino, before.st_ctime_ns, file.stat().st_ctime_ns)
    ledger_file.write(layout.ledger, "rot", moved)


def test_a_damaged_linked_file_that_is_read_has_all_linked_files_read(
    carrying: Context, source: Path
) -> None:
    asked(carrying, sample=1 / 3)
    later(carrying, 0.001)
    for path in FILES:
        rot(carrying, path) if path.startswith("d1/") else None
    seal = following(carrying, source, 1)
    assert seal.linked is not None
    assert seal.linked.deviations == 25
    assert seal.linked.carried.files == 0
    assert read_now(seal) == {"all": 75}
    assert content(carrying.layout("data").current / "data") == content(source)
    later(carrying, 0.002)
    assert following(carrying, source, 2).linked.carried.files > 40  # type: ignore[union-attr]


def test_a_file_that_was_touched_is_read_and_is_no_deviation(carrying: Context, source: Path) -> None:
    asked(carrying, sample=1e-9)
    data = carrying.layout("data").current.resolve() / "data"
    for path in ("d0/000", "d0/004", "d1/001"):
        os.chmod(data / path, 0o600)
        os.chmod(data / path, 0o440)
    later(carrying, 0.001)
    seal = following(carrying, source, 1)
    assert seal.linked is not None
    assert (read_now(seal)["unfit"], seal.linked.deviations) == (3, 0)


def test_after_a_kill_and_after_removals_files_are_known_again(carrying: Context, source: Path) -> None:
    """Each night the run is killed after it linked, and the release before last is removed."""
    asked(carrying, sample=1e-9)
    layout = carrying.layout("data")
    for night in range(1, 4):
        later(carrying, night / 1000)
        tree(source, {f"killed/{night}": b"never published"})
        before = os.readlink(layout.current)
        go(carrying, upto="copy")
        (source / f"killed/{night}").unlink()
        seal = following(carrying, source, night)
        assert seal.linked is not None
        assert seal.linked.carried.files > 90
        assert read_now(seal)["unfit"] == 0
        assert not [name for name in os.listdir(layout.releases) if name.startswith(".")]
        release = layout.folder / before
        removed = release.with_name(f".removed-{release.name}")
        release.rename(removed)
        removals.clear(carrying, layout, [removed])
    assert content(layout.current / "data") == content(source)


def test_the_ledger_does_not_grow_with_the_releases(carrying: Context, source: Path) -> None:
    """Each release removes what the manifest of the release before covers."""
    asked(carrying, sample=1e-9)
    held = []
    for night in range(1, 9):
        later(carrying, night / 1000)
        following(carrying, source, night)
        held.append(len(ledger_segments.segments(carrying.layout("data").ledger)))
    assert held[0] > 0
    assert max(held[4:]) <= max(held[:4])


def test_a_damaged_ledger_costs_no_more_than_reading(carrying: Context, source: Path) -> None:
    asked(carrying, sample=1e-9)
    later(carrying, 0.001)
    ledger = carrying.layout("data").ledger
    tree(source, {"new/1": b"new 1"})
    go(carrying, upto="copy")
    for path in ledger_segments.segments(ledger):
        os.truncate(path, 100)
    (ledger / "other.parquet").write_bytes(b"no segment")
    go(carrying, after="copy")
    seal = current(carrying)
    assert seal.linked is not None
    assert (read_now(seal), seal.linked.deviations) == ({"unfit": 100}, 0)
    later(carrying, 0.002)
    assert following(carrying, source, 2).linked.carried.files > 90  # type: ignore[union-attr]


def test_a_manifest_that_was_changed_carries_nothing(carrying: Context, source: Path) -> None:
    later(carrying, 0.001)
    release = carrying.layout("data").current.resolve()
    os.chmod(release, 0o700)
    seal = json.loads((release / "release.json").read_text())
    seal["manifests"]["manifest.parquet"]["sha256"] = "sha256:00"
    os.chmod(release / "release.json", 0o600)
    (release / "release.json").write_text(json.dumps(seal))
    assert following(carrying, source, 1).linked is None


@pytest.mark.parametrize("grade", ["cold", "reread"])
def test_a_grade_that_is_asked_for_by_name_has_all_read(carrying: Context, source: Path, grade: str) -> None:
    verify = replace(carrying.config.verify, minimum_grade=grade)
    carrying.config = replace(carrying.config, verify=verify)
    later(carrying, 0.001)
    assert following(carrying, source, 1).linked is None
    assert any(
        f"all linked files are read back: `verify.minimum_grade` is {grade}" in t
        for t in texts(carrying, "note")
    )


def test_what_was_carried_over_lacks_a_grade_that_is_asked_for_afterwards(
    carrying: Context, source: Path
) -> None:
    later(carrying, 0.001)
    following(carrying, source, 1)
    verify = replace(carrying.config.verify, minimum_grade="reread")
    carrying.config = replace(carrying.config, verify=verify)
    with pytest.raises(FindingsError, match="files of which is known no more than `carried`"):
        go(carrying)


def test_an_audit_passes_over_a_release_with_carried_files(carrying: Context, source: Path) -> None:
    later(carrying, 0.001)
    following(carrying, source, 1)
    assert not audit_step.run(carrying, "data")["counts"]
