"""One engine run for the benchmark, as its own process: the shard that `penstock_copy.py` copied is read
back, compared with its journal and its records written. Prints JSON."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from penstock.config.settings import EngineConfig, VerifyConfig
from penstock.core.run_documents import ShardInfo
from penstock.engine.reread_shard import reread_shard
from penstock.engine.tasks import RereadTask


def main(data: Path, state: Path) -> int:
    task = RereadTask(
        shard=ShardInfo(**json.loads((state / "shard.json").read_text())),
        rows=state / "00000.parquet",
        journals=state / "journal",
        data=data,
        records=state / "records.parquet",
        engine=EngineConfig(),
        verify=VerifyConfig(),
        run="0" * 16,
        attempt="bench",
        host=os.uname().nodename,
    )
    outcome = reread_shard(task, lambda *_: None, lambda: None)
    print(json.dumps(asdict(outcome) | {"failures": len(outcome.failures)}))
    return outcome.exit_code


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), Path(sys.argv[2])))
