"""What a release must have proven before it is published, and what it says of itself."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.published import STEPS, content, publish
from tests.support.staging_runs import context_for, tree

from penstock.cluster.local import LocalCluster
from penstock.config.model import VerifyConfig
from penstock.core.layout import SEAL
from penstock.errors import FindingsError
from penstock.storage import durable, target
from penstock.storage.facts import facts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.steps.context import Context

FILES = {f"f{i}": content(i, 4000) for i in range(4)}
SUMS = "".join(f"{hashlib.sha256(FILES[name]).hexdigest()}  {name}\n" for name in ("f0", "f1"))


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Context]:
    """Of four files, a checksum file proves two."""
    source = tree(tmp_path / "source", {**FILES, "empty": b"", "SHA256SUMS": SUMS.encode()})
    made = context_for(tmp_path, source, checksums=("SHA256SUMS",), exclude=("SHA256SUMS",))
    yield made
    assert isinstance(made.cluster, LocalCluster)
    made.cluster.close()


def with_verify(context: Context, **verify: Any) -> Context:
    return replace(context, config=replace(context.config, verify=VerifyConfig(**verify)))


def evidence(context: Context) -> dict[str, Any]:
    layout = context.layout("data")
    release = target.current(layout)
    assert release is not None
    told: dict[str, Any] = durable.read_json(layout.release(release) / SEAL)["evidence"]
    return told


def refused(context: Context) -> str:
    """Everything up to publish works; publish names what is too weak, and reveals nothing."""
    for step in STEPS[:-1]:
        step(context, "data")
    with pytest.raises(FindingsError) as caught:
        STEPS[-1](context, "data")
    assert caught.value.exit_code == 4
    assert target.releases(context.layout("data")) == []
    return str(caught.value)


def test_a_required_source_checksum_names_the_files_without_one(context: Context) -> None:
    text = refused(with_verify(context, source_checksum="require"))
    assert "2 files are proven too weakly" in text
    assert "'f2': source grade size, required is full" in text
    assert "'f3'" in text
    assert "'f0'" not in text
    assert "'empty'" not in text
    assert "verify.source_checksum" in text
    # With less asked for, the same run goes on to its end.
    publish(context)
    assert evidence(context)["source"]["full"]["files"] == 2


def test_a_required_grade_that_this_host_cannot_give(context: Context) -> None:
    text = refused(with_verify(context, minimum_grade="cold-other-node"))
    assert "4 files are proven too weakly" in text
    assert "required is cold-other-node" in text
    assert "verify on another node" in text


def test_only_what_no_source_checksum_proved_is_read_back(context: Context) -> None:
    publish(with_verify(context, reread="unproven"))
    told = evidence(context)
    assert told["methods"]["unread"]["files"] == 2
    assert told["weakest_storage"]["grade"] == "written"
    assert told["storage"]["written"]["files"] == 2


def test_a_sample_says_so(context: Context) -> None:
    publish(with_verify(context, reread="sample", sample=1e-12))
    told = evidence(context)
    assert told["methods"] == {"unread": {"files": 5, "bytes": 16_000}}
    assert told["required_storage"] == "written"


def test_everything_is_read_back_cold_where_that_can_be(context: Context) -> None:
    publish(context)
    told = evidence(context)
    direct = facts(context.config.target.root).direct
    assert told["weakest_storage"]["grade"] == ("cold" if direct else "reread")
    assert told["weakest_source"] == {"grade": "size", "files": 3, "bytes": 8000}
