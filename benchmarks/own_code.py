"""What own code saves against the library in its place: the figures of docs/decisions.

`python benchmarks/own_code.py [signature http objects listing pages walk start digest]`: each way is run
several times, in alternation, and its median is printed. CPU is that of this process and of those that it
started and that ended. `walk` on a file system that waits:
`gcc -O2 -shared -fPIC -o slow.so benchmarks/slow.c -ldl`, then
`SLOW_BELOW=/tmp SLOW_MICROSECONDS=500 LD_PRELOAD=./slow.so python benchmarks/own_code.py walk`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from tests.support.s3server import S3Server  # noqa: E402

from penstock.config.settings import DatasetConfig, Reach, SourceConfig  # noqa: E402
from penstock.core.model import Entry  # noqa: E402
from penstock.fs import path_walk, tree  # noqa: E402
from penstock.sources.http_connection import Connection  # noqa: E402
from penstock.sources.http_endpoint import endpoint  # noqa: E402
from penstock.sources.port import open_source  # noqa: E402
from penstock.sources.s3_credentials import EMPTY_SHA256, Keys, Signer  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.sources.s3_listing import PageText

ROUNDS = 5


def compare(title: str, unit: float, each: str, ways: Mapping[str, Callable[[], object]]) -> None:
    """Prints the median of each way, wall and CPU, for one of `unit` things."""
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            wall, cpu = time.perf_counter(), _cpu()
            way()
            seen[name].append((time.perf_counter() - wall, _cpu() - cpu))
    for name, times in seen.items():
        wall, cpu = (statistics.median(column) / unit * 1e6 for column in zip(*times, strict=True))
        print(f"{title:10} {name:34} {wall:12,.1f} us wall {cpu:12,.1f} us CPU  {each}", flush=True)


def _cpu() -> float:
    """Seconds of this process, exact, and of children that ended."""
    return time.process_time() + sum(os.times()[2:4])


def signature() -> None:
    import botocore.auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    signer, count = Signer(Keys("AKIA", "secret"), "us-east-1"), 2000

    def ours() -> None:
        fixed = [("host", "h"), ("x-amz-content-sha256", EMPTY_SHA256), ("x-amz-date", signer.stamp())]
        rest, start = signer.prepare(fixed)
        for number in range(count):
            _ = start + signer.sign(f"GET\n/bucket/{number}\n\n{rest}")

    theirs = botocore.auth.S3SigV4Auth(Credentials("AKIA", "secret"), "s3", "us-east-1")

    def botocores() -> None:
        for number in range(count):
            theirs.add_auth(AWSRequest("GET", f"http://h/bucket/{number}"))

    compare("signature", count, "a request", {"penstock": ours, "botocore": botocores})


def http() -> None:
    import h11
    import urllib3

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "o").write_bytes(os.urandom(4096))
        with S3Server(Path(folder)) as server:
            head = f"GET /bucket/o HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode()
            count = 500
            connection = Connection(endpoint(server.endpoint, Reach()))
            room = memoryview(bytearray(1 << 16))

            def ours() -> None:
                for _ in range(count):
                    connection.request(head, room=room)
                    body = connection.take() or connection.read_all(1 << 20)
                    assert len(body) == 4096
                    connection.finish()

            pool = urllib3.HTTPConnectionPool("127.0.0.1", server.port)

            def urllib3s() -> None:
                for _ in range(count):
                    assert len(pool.request("GET", "/bucket/o").data) == 4096

            def h11s() -> None:
                import socket

                with socket.create_connection(("127.0.0.1", server.port)) as sock:
                    for _ in range(count):
                        client = h11.Connection(h11.CLIENT)
                        sock.sendall(
                            client.send(
                                h11.Request(method="GET", target="/bucket/o", headers=[("Host", "h")])
                            )
                            or b""
                        )
                        got = 0
                        while type(event := client.next_event()) is not h11.EndOfMessage:
                            if event is h11.NEED_DATA:
                                client.receive_data(sock.recv(1 << 16))
                            elif isinstance(event, h11.Data):
                                got += len(event.data)
                        assert got == 4096

            compare("http", count, "an object of 4 KiB", {"penstock": ours, "urllib3": urllib3s, "h11": h11s})
            connection.close()


def objects() -> None:
    """Objects of S3 read by one thread: small ones, each whole, and large ones by pieces of 1 MiB, by every
    client that is installed."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        (Path(folder) / "small").write_bytes(os.urandom(4096))
        (Path(folder) / "large").write_bytes(os.urandom(64 << 20))
        with S3Server(Path(folder)) as server:
            for name, size, count in (("small", 4096, 2000), ("large", 64 << 20, 8)):
                ways = {}
                for maker in (_ours, _urllib3, _httpx, _obstore, _s3fs):
                    with contextlib.suppress(ImportError):
                        ways[maker.__name__.strip("_")] = partial(
                            _many, maker(server, name, size), size, count
                        )
                unit, each = (count, "an object of 4 KiB") if name == "small" else (count * 64, "a MiB of 64")
                compare("objects", unit, each, ways)


def _many(read: Callable[[], int], size: int, count: int) -> None:
    for _ in range(count):
        assert read() == size


def _ours(server: S3Server, name: str, size: int) -> Callable[[], int]:
    config = SourceConfig("s3://bucket/", storage_options={"endpoint_url": server.endpoint, "anon": True})
    source: Any = open_source(config, DatasetConfig("d", (config,)))
    (listed,) = [one for batch in source.list() for one in batch if one.key == name]
    entry = Entry(name, name, size, listed.token, 0, length=size)
    reader, room = source.reader(), memoryview(bytearray(1 << 20))

    def read() -> int:
        if size < len(room):
            return len(reader.whole(entry, room)[0])
        body, got = reader.open(entry, 0, size), 0
        while more := body.readinto(room):
            got += more
        body.close()
        return got

    return read


def _urllib3(server: S3Server, name: str, size: int) -> Callable[[], int]:
    import urllib3

    pool = urllib3.HTTPConnectionPool("127.0.0.1", server.port)

    def read() -> int:
        answer = pool.request("GET", f"/bucket/{name}", preload_content=size < 1 << 20)
        return len(answer.data) if size < 1 << 20 else sum(map(len, answer.stream(1 << 20)))

    return read


def _httpx(server: S3Server, name: str, size: int) -> Callable[[], int]:
    import httpx  # type: ignore[import-not-found,unused-ignore]

    client = httpx.Client()

    def read() -> int:
        with client.stream("GET", f"{server.endpoint}/bucket/{name}") as answer:
            return sum(map(len, answer.iter_raw(min(size, 1 << 20))))

    return read


def _obstore(server: S3Server, name: str, size: int) -> Callable[[], int]:  # noqa: ARG001 (it is as the others)
    from obstore.store import S3Store  # type: ignore[import-not-found,unused-ignore]

    store = S3Store(
        "bucket", endpoint=server.endpoint, client_options={"allow_http": True}, skip_signature=True
    )
    return lambda: sum(map(len, store.get(name).stream(1 << 20)))


def _s3fs(server: S3Server, name: str, size: int) -> Callable[[], int]:
    import s3fs

    system: Any = s3fs.S3FileSystem(anon=True, endpoint_url=server.endpoint, skip_instance_cache=True)

    def read() -> int:
        if size < 1 << 20:
            return len(system.cat_file(f"bucket/{name}"))
        with system.open(f"bucket/{name}", "rb", block_size=8 << 20, cache_type="readahead") as file:
            return sum(map(len, iter(lambda: file.read(1 << 20), b"")))

    return read


def listing() -> None:
    import s3fs

    files = 20000
    with tempfile.TemporaryDirectory() as folder:
        for number in range(files):
            path = Path(folder) / f"{number % 40:03}" / f"{number:06}"
            path.parent.mkdir(exist_ok=True)
            path.touch()
        with S3Server(Path(folder), processes=2) as server:
            config = SourceConfig(
                "s3://bucket/", storage_options={"endpoint_url": server.endpoint, "anon": True}
            )

            def ours() -> None:
                source = open_source(config, DatasetConfig("d", (config,)))
                assert sum(len(batch) for batch in source.list()) == files

            def s3fss() -> None:
                system: Any = s3fs.S3FileSystem(
                    anon=True,
                    endpoint_url=server.endpoint,
                    skip_instance_cache=True,
                    use_listings_cache=False,
                )
                assert len(system.find("bucket")) == files

            ours()
            compare("listing", files, "an object", {"penstock": ours, "s3fs": s3fss})


def pages() -> None:
    """200 pages of a store in memory, each of which takes 30 ms: by one stream, and by several."""
    from tests.sources.test_ranges import Store

    keys = [f"{number:06}" for number in range(20000)]

    def streams(most: int) -> Callable[[], None]:
        def run() -> None:
            store = Store(keys, 100)
            fetch = store.fetch

            def slow(token: str, after: str) -> PageText:
                time.sleep(0.03)
                return fetch(token, after)

            ranges = store.ranges
            ranges._fetch, ranges._most = slow, most  # noqa: SLF001
            assert len(store.listed()) == len(keys)
            asked.append(len(store.asked))

        return run

    asked: list[int] = []
    compare("pages", 1, "a listing", {"one stream": streams(1), "up to 16": streams(16)})
    print(f"pages      requests: {asked[0]} and {asked[1]}")


def walk() -> None:
    files = 50000
    with tempfile.TemporaryDirectory() as folder:
        for number in range(files):
            path = Path(folder) / f"{number % 500:03}" / f"{number:06}"
            path.parent.mkdir(exist_ok=True)
            path.touch()

        def ours() -> None:
            assert sum(one.kind == "file" for one in path_walk.walk(Path(folder))) == files

        def alone() -> None:
            large, tree.LARGE = tree.LARGE, 1 << 60
            try:
                ours()
            finally:
                tree.LARGE = large

        def library() -> None:
            """The same order and figures."""
            found = []
            for above, _, names in os.walk(folder):
                for name in names:
                    path = os.path.join(above, name)
                    found.append((os.fsencode(path), os.lstat(path)))
            found.sort(key=lambda one: one[0])
            assert len(found) == files

        compare(
            "walk", files, "a file", {"penstock": ours, "penstock, no readahead": alone, "os.walk": library}
        )


def start() -> None:
    """`snakemake --version`: its imports, and its end."""

    def run(*words: str) -> Callable[[], object]:
        return lambda: subprocess.run(
            [sys.executable, *words, "--version"], check=True, stdout=subprocess.DEVNULL
        )

    compare(
        "start",
        1,
        "a start",
        {"penstock": run("-m", "penstock.cli.snakemake_start"), "snakemake": run("-m", "snakemake")},
    )


def digest() -> None:
    import xxhash

    data = os.urandom(64 << 20)
    ways: dict[str, Callable[[], object]] = {"xxh3_128": lambda: xxhash.xxh3_128(data).digest()}
    for name in ("sha256", "blake2b", "md5"):
        ways[name] = lambda name=name: hashlib.new(name, data, usedforsecurity=False).digest()
    compare("digest", 64, "a MiB", ways)


if __name__ == "__main__":
    known = {one.__name__: one for one in (signature, http, objects, listing, pages, walk, start, digest)}
    for chosen in sys.argv[1:] or known:
        known[chosen]()
