"""`python -m tests.support.prepared`: builds and installs, below .cache, the real servers that tests talk to,
so that the first run of the tests does not pay for it. What this machine cannot have is printed with the
reason; its tests then say so themselves. The exit status is 0 in any case."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.support import azurite, croissant_reader, fake_gcs, go_servers, snakedeploy, versity, webserver

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
SERVERS: dict[str, Callable[[], object]] = {
    "versitygw": versity.binary,
    "fake-gcs-server": fake_gcs.binary,
    "webd": lambda: go_servers.built_here(webserver.SOURCE),
    "s3d": lambda: go_servers.built_here(ROOT / "benchmarks/s3d"),
    "temperfs": lambda: go_servers.built_here(ROOT / "tests/filesystems/temperfs"),
    "Azurite": azurite.program,
    "mlcroissant": croissant_reader.python,
    "snakedeploy": snakedeploy.program,
}


def main() -> None:
    for name, build in SERVERS.items():
        try:
            build()
        except go_servers.UnavailableError as error:
            print(f"{name}: cannot be had here: {error}")


if __name__ == "__main__":
    main()
