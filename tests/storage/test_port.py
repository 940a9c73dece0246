"""The POSIX tree answers every call of the storage port, and opens no more of itself than is called."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock.storage import port, posix
from penstock.storage.registry import open_storage
from penstock.storage.staging_writer import StagingWriter


def calls(protocol: type) -> set[str]:
    return {name for name in vars(protocol) if not name.startswith("_")}


def test_every_call_of_the_port_has_a_function() -> None:
    storage = open_storage()
    for name in calls(port.Storage):
        assert callable(getattr(storage, name)), name
    assert set(posix.__all__) == set(posix._FUNCTIONS) == calls(port.Storage)
    with pytest.raises(AttributeError, match='no "erase"'):
        getattr(storage, "erase")  # noqa: B009 (mypy knows that there is none)


def test_the_writer_and_the_mender_have_all_calls(tmp_path_factory: pytest.TempPathFactory) -> None:
    data = tmp_path_factory.mktemp("data")
    options = port.WriterOptions(
        file_mode=0o440, dir_mode=0o550, gid=None, durability="fsync", attempt="1", keep_mtime=True
    )
    with open_storage().writer(data, **options) as writer:
        assert isinstance(writer, StagingWriter)
        assert all(callable(getattr(writer, name)) for name in calls(port.Writer))
    with open_storage().mender(data, file_mode=0o440, dir_mode=0o550, gid=None) as mender:
        assert all(callable(getattr(mender, name)) for name in calls(port.Mender))


def test_a_command_imports_what_it_calls_alone() -> None:
    code = (
        "import sys; from penstock.storage.registry import open_storage; open_storage().make_dirs; "
        "print(*(m for m in sys.modules if m.startswith('penstock.storage.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.rpartition(".")[2] for name in done.stdout.split()}
    assert loaded == {"registry", "posix", "durable"}
