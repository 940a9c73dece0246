"""A step that waits for its source says so, by name, before a minute is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.commands import until
from tests.support.hostile import Hostile
from tests.support.silent_server import LISTING, Server, busy, page
from tests.support.whole_way import go, staging, texts

from penstock.config.settings import SourceConfig
from penstock.core.errors import PreflightError
from penstock.core.human import in_quotes
from penstock.dataset import context as wait_messages

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.hostile import Asked

    from penstock.dataset.context import Context


@pytest.mark.parametrize("step", ["list", "publish"])
def test_a_silent_source_is_named_while_it_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    monkeypatch.setattr(wait_messages, "WORD", 0.05)
    giant = bytes(range(256)) * 500
    with Hostile({"giant": giant, "x": b"1"}, {"giant": "crc"}) as server:
        url = f"s3://{server.bucket}/"
        source = SourceConfig(url, "", {"endpoint_url": server.endpoint, "region": "e", "anon": True})
        with staging(tmp_path, url, sources=(source,)) as context:
            if step == "publish":
                go(context, upto="verify")
            before = _said(context)
            assert not [text for text in before if " 0 s" in text]

            def silent(_: Asked) -> str:
                until(lambda: _said(context) != before, "a word")
                server.ended = lambda _: ""
                return ""

            server.ended = silent
            go(context, after="" if step == "list" else "verify", upto=step)
            said = _said(context)[len(before) :]
            assert url in said[0]
            assert "no answer for" in said[0]
            assert (in_quotes("giant") in said[0]) == (step == "publish")


def test_the_pause_that_a_server_asks_for_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait_messages, "WORD", 0.05)
    answers = [busy(2)]
    with Server(lambda _: answers.pop() if answers else page(LISTING, b"application/xml")) as server:
        url, endpoint = "s3://bucket/", f"http://127.0.0.1:{server.port}"
        source = SourceConfig(url, "", {"endpoint_url": endpoint, "region": "e", "anon": True})
        with staging(tmp_path, url, sources=(source,)) as context:
            go(context, upto="list")
            said = _said(context)
            assert said[0].startswith(f"waiting for {url}")
            assert "the server asks for a pause of 2 s (HTTP 429); asked again in " in said[0]
            assert not [text for text in said if "no answer" in text]


def test_a_pause_that_is_too_long_ends_the_listing(tmp_path: Path) -> None:
    with Server(lambda _: busy(3600)) as server:
        url, endpoint = "s3://bucket/", f"http://127.0.0.1:{server.port}"
        source = SourceConfig(url, "", {"endpoint_url": endpoint, "region": "e", "anon": True})
        with staging(tmp_path, url, sources=(source,)) as context:
            with pytest.raises(PreflightError) as caught:
                go(context, upto="list")
            assert "the server asks for a pause of 3,600 s" in str(caught.value)
            assert "start it again after that time" in str(caught.value)


def _said(context: Context) -> list[str]:
    return [text for text in texts(context, "note") if text.startswith("waiting for")]
