"""What a release must have proven before it is published, and what it says of itself."""

from __future__ import annotations

import hashlib
import mmap
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.hostile import Hostile
from tests.support.published import STEPS, content, publish
from tests.support.staging_runs import context_for, events_of, tree
from tests.target.conftest import need_cold_reads

from penstock.config.settings import PlanConfig, SourceConfig, VerifyConfig
from penstock.core import run_steps
from penstock.core.errors import FindingsError, PreflightError
from penstock.core.layout import SEAL
from penstock.doctor import preflight_step
from penstock.fs import small_files
from penstock.fs.capabilities import facts
from penstock.target import dataset_folders

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.dataset.context import Context

FILES = {f"f{i}": content(i, 4000) for i in range(4)}
SUMS = "".join(f"{hashlib.sha256(FILES[name]).hexdigest()}  {name}\n" for name in ("f0", "f1"))


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Context]:
    """Of four files, a checksum file proves two."""
    source = tree(tmp_path / "source", {**FILES, "empty": b"", "SHA256SUMS": SUMS.encode()})
    made = context_for(tmp_path, source, checksums=("SHA256SUMS",), exclude=("SHA256SUMS",))
    yield made
    made.cluster.close()


def with_verify(context: Context, **verify: Any) -> Context:
    return replace(context, config=replace(context.config, verify=VerifyConfig(**verify)))


def evidence(context: Context) -> dict[str, Any]:
    layout = context.layout("data")
    release = dataset_folders.current(layout)
    assert release is not None
    told: dict[str, Any] = small_files.read_json(layout.release(release) / SEAL)["evidence"]
    return told


def refused(context: Context) -> str:
    """Everything up to publish works; publish names what is too weak, and reveals nothing."""
    for step in STEPS[:-1]:
        step(context, "data")
    with pytest.raises(FindingsError) as caught:
        STEPS[-1](context, "data")
    assert caught.value.exit_code == 4
    assert dataset_folders.releases(context.layout("data")) == []
    return str(caught.value)


def test_files_that_nothing_can_prove_are_named_before_a_byte_moves(context: Context) -> None:
    asking = with_verify(context, source_checksum="require")
    STEPS[0](asking, "data")
    with pytest.raises(PreflightError) as caught:
        STEPS[1](asking, "data")
    text = str(caught.value)
    assert "2 files can never be proven" in text
    assert "f2: nothing states a checksum of it" in text
    assert "f3: " in text
    assert "f0" not in text
    assert "empty" not in text
    assert not (context.layout("data").releases / "data").exists()
    # With less asked for, the same run goes on to its end.
    publish(context)
    assert evidence(context)["source"]["full"]["files"] == 2
    # A release that stands with less than is asked for now is no quiet success.
    for asked, lacking in (
        ({"source_checksum": "require"}, "no checksum of the source proved"),
        ({"minimum_grade": "cold-other-node"}, "no more than `"),
    ):
        with pytest.raises(FindingsError, match=lacking):
            STEPS[0](with_verify(context, **asked), "data")
    # Proven or not is a release's own: files that lack a proof are read again once they can have one.
    source = Path(context.config.datasets["data"].sources[0].url)
    with (source / "SHA256SUMS").open("a") as sums:
        sums.writelines(f"{hashlib.sha256(FILES[name]).hexdigest()}  {name}\n" for name in ("f2", "f3"))
    publish(asking)
    told = evidence(context)
    assert told["source"]["full"] == {"files": 4, "bytes": 16_000}
    assert told["required_source"] == "any checksum"


def test_a_release_that_cannot_be_proven_stops_before_anything_begins(tmp_path: Path) -> None:
    need_cold_reads(tmp_path)
    source = tree(tmp_path / "source", FILES)
    made = context_for(tmp_path, source)
    try:
        for verify, why in (
            ({"source_checksum": "require"}, "never states a checksum"),
            ({"minimum_grade": "cold-other-node"}, "the same machine"),
        ):
            with pytest.raises(PreflightError, match=why):
                preflight_step.run(with_verify(made, **verify), "data")
        preflight_step.run(with_verify(made, minimum_grade="reread"), "data")
    finally:
        made.cluster.close()


@pytest.mark.parametrize("giant", [False, True], ids=["whole", "in parts"])
def test_a_file_without_a_checksum_is_refused_as_it_is_opened(tmp_path: Path, giant: bool) -> None:
    """A store may state a checksum of each object, and does not of all: none of its bytes are taken."""
    (source := tmp_path / "source").mkdir()
    good = content(1, 300_000)
    plan = PlanConfig(giant_bytes=200_000, part_bytes=100_000) if giant else PlanConfig()
    modes = {"proven": "crc"}
    with Hostile({"bare": good, "proven": good}, modes=modes) as server:
        options = {"endpoint_url": server.endpoint, "anon": True}
        sources = (SourceConfig(f"s3://{server.bucket}/", "", options),)
        made = context_for(tmp_path, source, sources=sources, plan=plan)
        asking = with_verify(made, source_checksum="require")
        try:
            for step in STEPS[:2]:
                step(asking, "data")
            with pytest.raises(FindingsError) as caught:
                STEPS[2](asking, "data")
            text = str(caught.value)
            assert '"bare": no checksum of the source proves the object' in text
            assert '"proven"' not in text
            found = {p.name for p in made.layout("data").releases.rglob("data/*")}
            assert "proven" in found
            assert "bare" not in found
        finally:
            made.cluster.close()


def test_a_required_grade_that_this_host_cannot_give(context: Context) -> None:
    text = refused(with_verify(context, minimum_grade="cold-other-node"))
    assert "4 files are proven too weakly" in text
    assert "required is cold-other-node" in text
    assert "verify on another node" in text


def test_everything_is_read_back_cold_where_that_can_be(context: Context) -> None:
    publish(context)
    told = evidence(context)
    direct = facts(context.config.target.root).direct
    assert told["weakest_storage"]["grade"] == ("cold" if direct else "reread")
    assert told["weakest_source"] == {"grade": "size", "files": 3, "bytes": 8000}


def test_a_linked_file_that_a_job_maps_is_published_as_reread_and_refused_where_cold_is_asked_for(
    context: Context,
) -> None:
    """The pages of a mapped file leave the memory for nobody: a training job on the node that verifies
    would keep every further release from being published."""
    need_cold_reads(context.layout("data").root)
    first = Path(publish(context)["path"])
    assert evidence(context)["storage"] == {"cold": {"files": 5, "bytes": 16000}}
    source = Path(context.config.datasets["data"].sources[0].url)
    tree(source, {"more": b"m" * 3000})
    with (first / "f1").open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert mapped[:] == FILES["f1"]
        asking = with_verify(context, minimum_grade="cold")
        for step in STEPS[:-1]:
            step(asking, "data")
        with pytest.raises(FindingsError, match=r'"f1": reread \(cached\), required is cold'):
            STEPS[-1](asking, "data")
        second = Path(publish(with_verify(context, linked=None))["path"])
        assert mapped[:] == (second / "f1").read_bytes()
    assert (second / "f1").stat().st_ino == (first / "f1").stat().st_ino
    told = evidence(context)
    assert told["storage"]["reread"] == {"files": 1, "bytes": 4000}
    assert told["storage"]["cold"]["files"] == 5
    warned = [e.text for e in events_of(context) if isinstance(e, run_steps.Warned)]
    assert any("1 linked files were in memory at each reading" in text for text in warned)
