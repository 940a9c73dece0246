"""The demo server as clients see it: raw HTTP, botocore, TLS, signatures, its own end."""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import botocore.exceptions
import botocore.session
import pytest
from tests.support.s3server import CHECKOUT, DEADLINE, S3Server

ODD = [
    "plain.bin",
    "with space",
    "line\nfeed",
    "%41",
    "a+b",
    "é/ü",
    "q?x=1#y",
    "'\"$(x)&<>",
    "-dash",
    "d/e/f",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("objects")
    for key in ODD:
        path = root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(key.encode())
    (root / "big").write_bytes(bytes(range(256)) * 4096)
    (root / "empty").touch()
    (root / "link").symlink_to("/etc/hostname")
    (Path(os.fsdecode(os.fsencode(root) + b"/not-utf8-\xff"))).write_bytes(b"x")
    os.mkfifo(root / "fifo")
    return root


@pytest.fixture(scope="module")
def server(folder: Path) -> Any:
    with S3Server(folder, processes=2) as started:
        yield started


def ask(
    server: S3Server, method: str, target: str, headers: dict[str, str] | None = None
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=DEADLINE)
    try:
        connection.request(method, target, headers=headers or {})
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


def client(server: S3Server, access_key: str = "a", secret_key: str = "b") -> Any:
    return botocore.session.Session().create_client(
        "s3",
        endpoint_url=server.endpoint,
        region_name="us-east-1",
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        verify=str(server.ca) if server.ca else None,
    )


def listed(body: bytes) -> list[str]:
    return [unquote(key) for key in re.findall(r"<Key>(.*?)</Key>", body.decode())]


def test_every_legal_name_lists_in_byte_order_and_reads_back(server: S3Server) -> None:
    s3 = client(server)
    found = s3.list_objects_v2(Bucket=server.bucket)["Contents"]
    keys = [item["Key"] for item in found]
    assert keys == sorted([*ODD, "big", "empty"], key=lambda key: key.encode())
    for item in found:
        answer = s3.get_object(Bucket=server.bucket, Key=item["Key"], IfMatch=item["ETag"])
        with answer["Body"] as body:
            assert body.read() == (server.root / item["Key"]).read_bytes()
        assert answer["ETag"] == item["ETag"]


@pytest.mark.parametrize("most", [1, 2, 5, 11, 12, 13])
def test_pages_join_to_the_whole(server: S3Server, most: int) -> None:
    keys: list[str] = []
    token = ""
    while True:
        target = f"/bucket?list-type=2&encoding-type=url&max-keys={most}"
        _, body = ask(server, "GET", target + (f"&continuation-token={quote(token)}" if token else ""))
        page = listed(body)
        assert len(page) <= most
        keys += page
        following = re.search(rb"<NextContinuationToken>(.*?)<", body)
        assert (b"<IsTruncated>true" in body) == bool(following)
        if not following:
            break
        token = following[1].decode()
    assert keys == sorted([*ODD, "big", "empty"], key=lambda key: key.encode())


def test_prefix_start_after_and_delimiter(server: S3Server) -> None:
    _, body = ask(server, "GET", "/bucket?list-type=2&encoding-type=url&prefix=d/")
    assert listed(body) == ["d/e/f"]
    _, body = ask(server, "GET", "/bucket?list-type=2&encoding-type=url&start-after=plain.bin")
    assert listed(body) == ["q?x=1#y", "with space", "é/ü"]
    _, body = ask(server, "GET", "/bucket?list-type=2&delimiter=/&prefix=d")
    assert b"<CommonPrefixes><Prefix>d/</Prefix></CommonPrefixes>" in body
    assert listed(body) == []
    assert ask(server, "GET", "/bucket?list-type=2&max-keys=x")[0].status == 400
    assert ask(server, "GET", "/bucket?list-type=2&continuation-token=%C3")[0].status == 400


def test_a_changed_folder_lists_anew(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with S3Server(tmp_path) as server:
        for count in range(2, 6):
            (tmp_path / f"a{count}").touch()
            _, body = ask(server, "GET", "/bucket?list-type=2")
            assert len(listed(body)) == count
        (tmp_path / "a").unlink()
        assert "a" not in listed(ask(server, "GET", "/bucket?list-type=2")[1])


@pytest.mark.parametrize(
    ("asked", "status", "start", "length"),
    [
        ("bytes=0-9", 206, 0, 10),
        ("bytes=1048570-", 206, 1048570, 6),
        ("bytes=-7", 206, 1048569, 7),
        ("bytes=1000000-9999999", 206, 1000000, 48576),
        ("bytes=1-600000", 206, 1, 600000),
        ("bytes=5-2", 200, 0, 1048576),
        ("bytes=0-1,3-4", 200, 0, 1048576),
        ("", 200, 0, 1048576),
    ],
)
def test_ranges(server: S3Server, asked: str, status: int, start: int, length: int) -> None:
    answer, body = ask(server, "GET", "/bucket/big", {"Range": asked})
    whole = (server.root / "big").read_bytes()
    assert (answer.status, body == whole[start : start + length]) == (status, True)
    if status == 206:
        assert answer.headers["Content-Range"] == f"bytes {start}-{start + length - 1}/{len(whole)}"


@pytest.mark.parametrize(
    ("method", "target", "headers", "status", "code"),
    [
        ("GET", "/bucket/nothing", {}, 404, "NoSuchKey"),
        ("GET", "/elsewhere/big", {}, 404, "NoSuchBucket"),
        ("GET", "/bucket/d", {}, 404, "NoSuchKey"),
        ("GET", "/bucket/fifo", {}, 404, "NoSuchKey"),
        ("GET", "/bucket/link", {}, 404, "NoSuchKey"),
        ("GET", "/bucket/../../etc/hostname", {}, 404, "NoSuchKey"),
        ("GET", "/bucket/%2e%2e/%2e%2e/etc/hostname", {}, 404, "NoSuchKey"),
        ("GET", "/bucket//etc/hostname", {}, 404, "NoSuchKey"),
        ("GET", "/bucket/a%00b", {}, 404, "NoSuchKey"),
        ("GET", "/bucket/not-utf8-%FF", {}, 404, "NoSuchKey"),
        ("GET", "/bucket/big", {"Range": "bytes=2000000-"}, 416, "InvalidRange"),
        ("GET", "/bucket/big", {"If-Match": '"other"'}, 412, "PreconditionFailed"),
        ("GET", "/bucket?acl", {}, 501, "NotImplemented"),
        ("PUT", "/bucket/new", {"Content-Length": "0"}, 405, "MethodNotAllowed"),
        ("DELETE", "/bucket/big", {}, 405, "MethodNotAllowed"),
    ],
)
def test_refusals(
    server: S3Server, method: str, target: str, headers: dict[str, str], status: int, code: str
) -> None:
    answer, body = ask(server, method, target, headers)
    assert answer.status == status
    assert f"<Code>{code}</Code>".encode() in body


def test_if_none_match_and_head(server: S3Server) -> None:
    answer, body = ask(server, "HEAD", "/bucket/big")
    assert (answer.status, answer.headers["Content-Length"], body) == (200, "1048576", b"")
    etag = answer.headers["ETag"]
    assert not re.fullmatch(r'"[0-9a-f]{32}(-\d+)?"', etag)
    assert ask(server, "GET", "/bucket/big", {"If-None-Match": etag})[0].status == 304
    assert ask(server, "GET", "/bucket/big", {"If-Match": f'"x", {etag}'})[0].status == 200


def test_keep_alive_pipelining_and_garbage(server: S3Server) -> None:
    import socket

    with socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE) as sock:
        request = b"GET /bucket/plain.bin HTTP/1.1\r\nHost: x\r\n"
        sock.sendall(request + b"\r\n" + request + b"Connection: close\r\n\r\n")
        answer = b"".join(iter(lambda: sock.recv(65536), b""))
        assert answer.count(b"HTTP/1.1 200 OK") == 2
    with socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE) as sock:
        sock.sendall(b"nonsense\r\n\r\n")
        assert sock.recv(100) == b""


def test_the_log_names_key_range_status_and_bytes(folder: Path) -> None:
    with S3Server(folder) as server:
        ask(server, "GET", "/bucket/line%0Afeed", {"Range": "bytes=1-3"})
        ask(server, "GET", "/bucket/none")
        first, second = server.requests()
    assert first[:2] + first[3:] == ("GET", "line\nfeed", "bytes=1-3", 206, 3)
    assert (second.key, second.status) == ("none", 404)


def test_tls_signatures_and_checksums(folder: Path) -> None:
    options = ["--checksums", "--md5-etags"]
    with S3Server(folder, tls=True, access_key="AKIDX", secret_key="s3cr/et+", options=options) as server:
        s3 = client(server, "AKIDX", "s3cr/et+")
        assert s3.list_objects_v2(Bucket="bucket", Prefix="line\n")["KeyCount"] == 1
        answer = s3.get_object(Bucket="bucket", Key="big", ChecksumMode="ENABLED")
        with answer["Body"] as body:  # botocore itself checks the CRC64NVME here
            whole = body.read()
        assert answer["ChecksumType"] == "FULL_OBJECT"
        assert answer["ChecksumCRC64NVME"]
        assert answer["ETag"] == f'"{hashlib.md5(whole).hexdigest()}"'
        for pair, code in (
            (("AKIDX", "wrong"), "SignatureDoesNotMatch"),
            (("no", "x"), "InvalidAccessKeyId"),
        ):
            with pytest.raises(botocore.exceptions.ClientError, match=code):
                client(server, *pair).list_objects_v2(Bucket="bucket")


def test_it_ends_with_its_parent(folder: Path, tmp_path: Path) -> None:
    script = (
        "import subprocess, sys, time\n"
        "p = subprocess.Popen([sys.executable, '-m', 'tests.demo.server', '--root', sys.argv[1],"
        " '--bucket', 'b', '--port-file', sys.argv[2], '--with-parent', '--processes', '2'])\n"
        "print(p.pid, flush=True)\n"
        "p.wait()\n"
    )
    port_file = tmp_path / "port"
    command = [sys.executable, "-c", script, str(folder), str(port_file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=CHECKOUT) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        until(port_file.exists)
        handle = os.pidfd_open(pid)
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        assert len(children) == 2
        parent.send_signal(signal.SIGKILL)
    try:
        import select

        assert select.select([handle], [], [], DEADLINE)[0]
    finally:
        os.close(handle)
    until(lambda: not any(running(int(child)) for child in children))


def test_stopping_it_ends_every_process(folder: Path) -> None:
    server = S3Server(folder, processes=3).start()
    process = server._process
    assert process is not None
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 3
    server.stop()
    assert process.returncode == 0
    assert not any(running(int(child)) for child in children)


@pytest.mark.parametrize(
    "options",
    [["--host", "0.0.0.0"], ["--host", "example.org"], ["--root", "/dev/null/none"], ["--tls-cert", "x"]],
)
def test_bad_options_are_usage_errors(folder: Path, options: list[str]) -> None:
    command = [sys.executable, "-m", "tests.demo.server", "--root", str(folder), "--bucket", "b", *options]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=DEADLINE, check=False, cwd=CHECKOUT
    )
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr


def running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def until(condition: Any) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
