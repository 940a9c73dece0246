"""One engine run for the benchmark, as its own process: list, one shard, copy. Prints JSON.

Nothing is left out: every byte is hashed, checksums that the source states are checked, the
journal is written and the data made durable by the mode that is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.config.settings import DatasetConfig, EngineConfig, SourceConfig, VerifyConfig
from penstock.core.layout import DatasetLayout
from penstock.host import kernel_facts
from penstock.sources.port import open_source

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from penstock.sources.port import Source


def main() -> int:
    kernel_facts.collect_garbage_rarely()
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--source", required=True)
    parser.add_argument("--endpoint", default="")
    parser.add_argument("--ca", default="")
    parser.add_argument("--options", type=json.loads, default={}, help="storage_options, as JSON")
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--list-only", action="store_true")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--streams", type=int)
    parser.add_argument("--limit", type=int, help="bytes per second")
    options = parser.parse_args()
    choices: dict[str, Any] = dict(options.options)
    if options.endpoint:
        choices["endpoint_url"] = options.endpoint
    if options.ca:
        choices["ca_bundle"] = options.ca
    config = SourceConfig(options.source, storage_options=choices)
    dataset = DatasetConfig("bench", (config,))
    begin = time.perf_counter()
    source = open_source(config, dataset)
    source.check()
    options.state.mkdir(parents=True, exist_ok=True)
    if options.list_only:
        return _list(source, options.state / "listing.parquet")
    engine = EngineConfig(workers=options.workers, streams=options.streams, limit=options.limit)
    return _copy(source, dataset, engine, options.target, options.state, begin)


def _list(source: Source, path: Path) -> int:
    from penstock.tables.run_tables import ListingWriter

    with ListingWriter(path) as writer:
        for batch in source.list():
            writer.add(batch)
        _, count, size = writer.close()
    print(json.dumps({"files": count, "bytes": size}))
    return 0


def _rows(source: Source) -> Iterator[pa.RecordBatch]:
    """What plan makes of a listing where each file is a row."""
    import pyarrow as pa

    from penstock.core.model import Listed
    from penstock.tables.run_tables import LISTING_FORM, whole_files
    from penstock.tables.tables import texts

    for batch in source.list():
        listed = dict(zip(Listed._fields, zip(*batch, strict=True), strict=True))
        listed |= {"path": listed["key"], "source": (0,) * len(batch)}
        columns = [
            texts(values) if isinstance(values[0], str) else pa.array(values)
            for values in map(listed.__getitem__, LISTING_FORM.schema.names)
        ]
        yield whole_files(pa.record_batch(columns, names=LISTING_FORM.schema.names))


def _copy(
    source: Source, dataset: DatasetConfig, engine: EngineConfig, root: Path, state: Path, begin: float
) -> int:
    from penstock.engine.copy_shard import copy_shard
    from penstock.engine.tasks import CopyTask
    from penstock.tables.run_tables import ShardWriter
    from penstock.target import dataset_folders

    with ShardWriter(state / "00000.parquet", 0) as writer:
        for batch in _rows(source):
            writer.add_columns(batch)
        shard = writer.close()
    listed = time.perf_counter() - begin
    layout = DatasetLayout(root, dataset.name)
    dataset_folders.prepare(layout)
    data = dataset_folders.open_staging(layout, "bench", dataset.permissions.dir_mode, None)
    task = CopyTask(
        shard=shard,
        rows=state / "00000.parquet",
        journals=state / "journal",
        data=data,
        dataset=dataset,
        engine=engine,
        verify=VerifyConfig(),
        run="0" * 16,
        attempt="bench",
        host=os.uname().nodename,
    )
    outcome = copy_shard(task, lambda *_: None, lambda: None)
    told = asdict(outcome) | {"listed_seconds": round(listed, 3), "failures": len(outcome.failures)}
    print(json.dumps(told))
    return outcome.exit_code


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    # As `penstock` itself ends (`penstock.cli.main.program`).
    os._exit(status)
