"""Worker processes stay light: what reading imports, and what it must not."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("botocore", "boto3", "fsspec", "s3fs", "adlfs", "aiohttp", "pyarrow", "rich", "asyncio")


@pytest.mark.parametrize("url", ["/folder", "s3://bucket/", "https://host/x", "az://container/x"])
def test_reading_imports_nothing_heavy(url: str) -> None:
    code = (
        "import sys\n"
        "from penstock.config.settings import DatasetConfig, SourceConfig\n"
        "from penstock.sources.port import open_source\n"
        "config = SourceConfig(sys.argv[1], storage_options={'anon': True, 'account_name': 'a'})\n"
        "open_source(config, DatasetConfig('d', (config,))).reader().close()\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, url], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
