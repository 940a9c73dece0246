"""list and preflight against object stores: what cannot be staged is told, and leaves no trace."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.hostile import Hostile
from tests.support.s3server import S3Server
from tests.support.staging_runs import context_for, events_of, tree

from penstock.config.settings import SourceConfig
from penstock.core.errors import PenstockError, PreflightError
from penstock.core.human import in_quotes
from penstock.doctor import preflight_step
from penstock.run import list_step
from penstock.sources.s3 import S3Source
from penstock.tables.run_tables import read_listing

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.dataset.context import Context

ODD = [
    "p/a b",
    "p/line\nfeed",
    "p/%41",
    "p/-rf",
    "p/$(touch x)",
    "p/quo'te\"s",
    "p/" + "x" * 255,
    "p/d/日本",
    "p/é+é",
]


def context(tmp_path: Path, endpoint: str, url: str = "s3://bucket/p/", **options: Any) -> Context:
    options = {"endpoint_url": endpoint, "anon": True, **options}
    return context_for(tmp_path, url, sources=(SourceConfig(url, "", options),))


def test_odd_keys_are_listed_as_they_are(tmp_path: Path) -> None:
    with Hostile(dict.fromkeys(ODD, b"content"), page=2) as server:
        made = context(tmp_path, server.endpoint)
        receipt = list_step.run(made, "data")
        assert list_step.run(made, "data") == receipt
    found = [e for batch in read_listing(made.layout("data").run(receipt["run"]).listing) for e in batch]
    assert [entry.path for entry in found] == sorted((key[2:] for key in ODD), key=os.fsencode)
    assert {entry.size for entry in found} == {7}


def test_hostile_keys_are_all_named_and_leave_no_trace(tmp_path: Path) -> None:
    bad = ["../x", "/abs", "a//b", "a/b", "b/../c", "x" * 256, "y/", ".p.0123456789abcdef"]
    keys = {f"p/{key}": b"1" for key in [*bad, "a", "a-between", "fine"]}
    with Hostile({**keys, "p/": b"", "p/folder/": b""}) as server, pytest.raises(PreflightError) as caught:
        list_step.run(context(tmp_path, server.endpoint), "data")
    assert caught.value.exit_code == 3
    assert "8 keys" in str(caught.value)
    for key in bad:
        assert in_quotes(key) in str(caught.value)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("mode", ["unlike", "repeated", "tokenless", "html", "outside"])
def test_a_store_that_lists_wrongly_is_refused(tmp_path: Path, mode: str) -> None:
    objects = {f"p/{n}": b"1" for n in range(6)}
    with Hostile(objects, listing=mode, page=3) as server, pytest.raises(PenstockError):
        list_step.run(context(tmp_path, server.endpoint), "data")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("page", [3, 1000])
@pytest.mark.parametrize("mode", ["unsorted", "shuffled", "late"])
def test_s3_a_store_that_lists_in_no_order_is_sorted(tmp_path: Path, mode: str, page: int) -> None:
    objects = dict.fromkeys([*ODD, *(f"p/{n:03d}" for n in range(50))], b"content")
    digests = []
    for listing in ("honest", mode):
        (tmp_path / listing).mkdir()
        with Hostile(objects, listing=listing, page=page) as server:
            made = context(tmp_path / listing, server.endpoint)
            receipt = list_step.run(made, "data")
        digests.append(receipt["listing_digest"])
        said = [event.data["text"] for event in events_of(made) if event.kind == "note"]
        assert any("in no order" in str(text) for text in said) == (listing != "honest")
        listed = [e for batch in read_listing(made.layout("data").run(receipt["run"]).listing) for e in batch]
        assert [entry.path for entry in listed] == sorted((key[2:] for key in objects), key=os.fsencode)
    assert digests[0] == digests[1]
    assert not list(made.layout("data").runs.glob(".new-*"))


def test_s3_of_several_sources_only_the_one_in_no_order_is_sorted(tmp_path: Path) -> None:
    objects = {f"p/{n}": b"1" for n in range(9)}
    with Hostile(objects) as tidy, Hostile(objects, listing="shuffled", page=4) as untidy:
        sources = [
            SourceConfig("s3://bucket/p/", into, {"endpoint_url": server.endpoint, "anon": True})
            for into, server in (("a", tidy), ("b", untidy), ("c", tidy))
        ]
        made = context_for(tmp_path, "s3://bucket/p/", sources=tuple(sources))
        assert list_step.run(made, "data")["files"] == 27
    (said,) = [event.data["text"] for event in events_of(made) if event.kind == "note"]
    assert "in no order" in str(said)


def test_s3_a_key_that_an_unordered_listing_has_again_and_alike_is_counted(tmp_path: Path) -> None:
    with Hostile({f"p/{n}": b"1" for n in range(9)}, listing="shuffled", page=4) as server:
        page_of = server.page_of

        def twice(shown: Any, *more: Any) -> str:
            return page_of([*shown, "p/3"] if "p/3" not in shown else shown, *more)

        server.page_of = twice  # type: ignore[method-assign]
        server.sizes["p/3"] = 1
        receipt = list_step.run(context(tmp_path, server.endpoint), "data")
    assert (receipt["files"], receipt["ignored"]["named twice"]) == (9, 2)


@pytest.mark.parametrize("key", ["p/1", "p/10", "p/100"])
def test_s3_one_object_of_an_unordered_store_is_listed_by_its_name(key: str) -> None:
    with Hostile(dict.fromkeys(["p/1", "p/10", "p/100"], b"1"), listing="unsorted") as server:
        config = SourceConfig("s3://bucket/p/", "", {"endpoint_url": server.endpoint, "anon": True})
        listed = S3Source(config).list_one(key[2:])
    assert listed is not None
    assert listed.key == key[2:]


@pytest.mark.parametrize("step", [preflight_step.run, list_step.run])
def test_an_endpoint_that_nobody_serves_is_named(tmp_path: Path, step: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(PreflightError) as caught:
        step(context(tmp_path, f"http://127.0.0.1:{port}"), "data")
    assert f"127.0.0.1:{port}" in str(caught.value)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("step", [preflight_step.run, list_step.run])
def test_a_missing_bucket_wrong_keys_and_an_empty_prefix_are_told(tmp_path: Path, step: Any) -> None:
    target = tmp_path / "work"
    target.mkdir()
    wrong = tmp_path / "wrong"
    wrong.write_text("[default]\naws_access_key_id = right\naws_secret_access_key = wrong\n")
    wrong.chmod(0o600)
    source = tree(tmp_path / "source", {"p/a": b"1"})
    with S3Server(source, access_key="right", secret_key="right") as server:
        signed: dict[str, Any] = {"anon": False, "credentials_file": str(wrong)}
        with pytest.raises(PreflightError) as caught:
            step(context(target, server.endpoint, **signed), "data")
        assert "s3://bucket/p/" in str(caught.value)
        with pytest.raises(PreflightError):
            step(context(target, server.endpoint), "data")
        wrong.write_text("[default]\naws_access_key_id = right\naws_secret_access_key = right\n")
        with pytest.raises(PreflightError) as caught:
            step(context(target, server.endpoint, "s3://no-such-bucket/p/", **signed), "data")
        assert "no-such-bucket" in str(caught.value)
        if step is list_step.run:
            with pytest.raises(PreflightError, match="has 0 objects"):
                step(context(target, server.endpoint, "s3://bucket/nothing/", **signed), "data")
        assert os.listdir(target) == []
        assert step(context(target, server.endpoint, **signed), "data")["dataset"] == "data"
