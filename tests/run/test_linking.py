"""What is linked from the current release: nothing of it is believed that this run did not see."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.whole_way import content, go, records, texts

from penstock.config.settings import PlanConfig
from penstock.core.errors import FailedError
from penstock.host import kernel_facts
from penstock.host.kernel_facts import JobEnvironment

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.dataset.context import Context

FILES = {"bad.bin": b"b" * 3000, "good.bin": b"g" * 70_000, "x/3.bin": b"3" * 9000}
PLAN = PlanConfig()


def rot(path: Path) -> None:
    """One bit, and nothing that a listing shows."""
    seen = path.stat()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)
    path.chmod(seen.st_mode & 0o7777)
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))


def with_sums(context: Context, source: Path, sums: dict[str, bytes]) -> None:
    lines = [f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in sums.items()]
    (source / "SHA256SUMS").write_text("".join(lines))
    data = context.config.datasets["data"]
    context.config = replace(context.config, datasets={"data": replace(data, checksums=("SHA256SUMS",))})


def test_a_checksum_that_is_stated_later_is_compared_with_linked_files(
    context: Context, source: Path
) -> None:
    go(context)
    before = records(context)
    with_sums(context, source, FILES)
    assert go(context, upto="copy")["linked"] == len(FILES)
    go(context, after="copy")
    after = records(context)
    for name, data in FILES.items():
        assert after[name].source_proof == f"sha256:full:{hashlib.sha256(data).hexdigest()}"
        assert (before[name].source_grade, after[name].source_grade) == ("size", "full")
        assert after[name].digest == before[name].digest
    # A third release finds the proof in the second.
    (source / "new").write_bytes(b"new")
    assert go(context, upto="copy")["linked"] == len(FILES) + 1
    go(context, after="copy")
    assert records(context)["good.bin"].source_proof == after["good.bin"].source_proof


def test_a_linked_file_that_contradicts_its_checksum_is_not_published(context: Context, source: Path) -> None:
    first = go(context)["release"]
    with_sums(context, source, {**FILES, "bad.bin": b"something else"})
    with pytest.raises(FailedError, match="did not finish") as told:
        go(context)
    assert '"bad.bin": ' in str(told.value)
    assert "contradict the source's own sha256" in str(told.value)
    assert os.readlink(context.layout("data").current) == f"releases/{first}"
    # The line is corrected: its bytes are read and held against it, and the release stands.
    with_sums(context, source, FILES)
    go(context)
    assert records(context)["bad.bin"].source_grade == "full"


def test_a_rotten_file_of_the_release_before_is_copied_anew_and_named(context: Context, source: Path) -> None:
    layout = context.layout("data")
    base = go(context)["release"]
    rotten = layout.release(base) / "data/x/3.bin"
    rot(rotten)
    (source / "new").write_bytes(b"new")
    receipt = go(context)
    assert receipt["current"] != base
    assert content(layout.current / "data") == content(source)
    assert rotten.read_bytes() != FILES["x/3.bin"]
    (said,) = [text for text in texts(context) if base in text]
    assert "1 file" in said
    assert "x/3.bin" in said
    assert f"penstock audit data --release {base}" in said
    assert f"penstock repair data --release {base}" in said


def test_the_writer_of_a_linked_file_is_who_wrote_it(context: Context, source: Path) -> None:
    kernel_facts.enter_job(JobEnvironment(node="node-a"))
    go(context)
    (source / "new").write_bytes(b"new")
    kernel_facts.enter_job(JobEnvironment(node="node-b"))
    go(context, upto="permissions")
    kernel_facts.enter_job(JobEnvironment(node="node-a"))
    go(context, after="permissions")
    found = records(context)
    assert {name: record.written_host for name, record in found.items()} == {
        **dict.fromkeys(FILES, "node-a"),
        "new": "node-b",
    }
    assert {record.verified_host for record in found.values()} == {"node-a"}
    grades = {name: record.storage_grade for name, record in found.items()}
    assert "cold-other-node" not in {grades[name] for name in FILES}
