"""A step that waits for its source says so, by name, before a minute is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.commands import until
from tests.support.hostile import Hostile
from tests.support.whole_way import go, staging, texts

from penstock.config.settings import SourceConfig
from penstock.core.text import in_quotes
from penstock.dataset import wait_messages

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.hostile import Asked


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
            assert not [text for text in texts(context, "note") if text.startswith("waiting")]

            def silent(_: Asked) -> str:
                until(
                    lambda: any(text.startswith("waiting for") for text in texts(context, "note")), "a word"
                )
                server.ended = lambda _: ""
                return ""

            server.ended = silent
            go(context, after="" if step == "list" else "verify", upto=step)
            said = [text for text in texts(context, "note") if text.startswith("waiting for")]
            assert url in said[0]
            assert "no answer for" in said[0]
            assert (in_quotes("giant") in said[0]) == (step == "publish")
