"""What publish asks a source of its giants it asks the sources that the run froze."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.support.s3server import S3Server
from tests.support.staging_runs import tree
from tests.support.whole_way import go, records, staging, texts

from penstock.config.settings import SourceConfig

if TYPE_CHECKING:
    from pathlib import Path


def test_publish_asks_the_frozen_sources_whatever_the_configuration_names_by_now(tmp_path: Path) -> None:
    objects = {"one/first": bytes(range(256)) * 500, "two/second": bytes(range(255)) * 600}
    with S3Server(tree(tmp_path / "bucket", objects), options=["--checksums"]) as server:
        options = {"endpoint_url": server.endpoint, "anon": True}
        sources = tuple(SourceConfig(server.url(f"{name}/"), name, options) for name in ("one", "two"))
        with staging(tmp_path, server.url(), sources=sources) as context:
            context.run = str(go(context, upto="verify")["run"])
            asked = len(server.requests())
            # In another order, and where nobody answers.
            nowhere = {"endpoint_url": "http://127.0.0.1:9", "anon": True}
            others = tuple(replace(source, storage_options=nowhere) for source in reversed(sources))
            dataset = replace(context.config.datasets["data"], sources=others)
            context.config = replace(context.config, datasets={"data": dataset})
            assert go(context, after="verify")["published"]
            assert texts(context) == []
            found = records(context)
            assert {path: bool(found[path].parts) for path in found} == dict.fromkeys(objects, True)
            assert {record.source_grade for record in found.values()} == {"full"}
            assert {request.key for request in server.requests()[asked:]} == set(objects)
