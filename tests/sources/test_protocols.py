"""Protocols of fsspec that are not installed, do not exist, or do not answer: what is said of it."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading

import pytest
from fsspec.registry import _registry
from tests.sources.conftest import dataset

from penstock.config.settings import SourceConfig
from penstock.core.errors import ConfigError, PreflightError
from penstock.sources.port import open_source


@pytest.mark.parametrize(
    ("url", "package"),
    [
        ("gs://bucket/x", "gcsfs"),
        ("hf://datasets/x/y", "huggingface_hub"),
        ("sftp://me@host/x", "paramiko"),
        ("smb://host/share", "smbprotocol"),
        ("dropbox://x", "dropboxdrivefs"),
    ],
)
def test_a_package_that_is_missing_is_named(url: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # as where it is not installed
    monkeypatch.delitem(_registry, url.partition(":")[0], raising=False)  # nor opened by an earlier test
    config = SourceConfig(url, storage_options={"reader": "fsspec"})
    with pytest.raises(PreflightError, match="needs a package") as caught:
        open_source(config, dataset(url)).check()
    assert f"pip install {package}" in caught.value.hint
    assert caught.value.exit_code == 3


def test_a_protocol_that_there_is_not() -> None:
    with pytest.raises(ConfigError, match="no such protocol"):
        open_source(SourceConfig("nosuch://x/y"), dataset("x")).check()


def test_what_a_library_logs_stays_off_the_terminal() -> None:
    """paramiko logs a traceback of what it raises, from a thread of its own."""
    code = (
        "import logging\n"
        "from penstock.config.settings import SourceConfig\n"
        "from penstock.sources.generic_opener import Opener\n"
        "Opener(SourceConfig('memory://x'), None).connect()\n"
        "for name in ('paramiko.transport', 'gcsfs', 'fsspec.asyn'):\n"
        "    logging.getLogger(name).error('LOUD')\n"
        "logging.getLogger('somebody').error('HEARD')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "HEARD\n"


def test_a_server_that_hangs_up_is_one_message() -> None:
    """Where paramiko is installed; by FTP, which Python speaks itself, everywhere."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            while True:
                try:
                    sock, _ = listener.accept()
                except OSError:
                    return
                sock.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        url = f"ftp://127.0.0.1:{listener.getsockname()[1]}/x"
        with pytest.raises(PreflightError, match="cannot be listed") as caught:
            open_source(SourceConfig(url), dataset(url)).check()
        assert "storage_options" in caught.value.hint
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
