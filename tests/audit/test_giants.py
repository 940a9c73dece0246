"""An object in 12 parts, copied by three elements: proven by whatever its source states of it; one flipped
byte is named by its part, and mended by one ranged GET of that part.

`PENSTOCK_TEST_GIANT_BYTES=3221225472` asks for the full size: 3 GiB in parts of 256 MiB. It needs 7 GB below
/var/tmp.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.go_servers import UnavailableError
from tests.support.published import content, data_of, flip, published
from tests.support.relay import Asked, Relay
from tests.support.versity import ACCESS, SECRET, Versity

from penstock.config.settings import EngineConfig, PlanConfig, VerifyConfig
from penstock.dataset import run_store
from penstock.dataset.documents import read_plan
from penstock.engine import journal
from penstock.keep import audit_step, repair_step
from penstock.tables.manifest import read_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.dataset.context import Context

PARTS = 6
LEAST = 5 << 20
"""S3 takes no smaller parts."""
SIZE = int(os.environ.get("PENSTOCK_TEST_GIANT_BYTES") or PARTS * LEAST)
PART = SIZE // PARTS
DAMAGED = 4


@pytest.fixture(scope="module")
def bucket() -> Iterator[tuple[Relay, Any, Path]]:
    """A relay before a real server, a client that fills it, and the folder of its bucket."""
    import botocore.config
    import botocore.session

    with tempfile.TemporaryDirectory(prefix="giants-", dir="/var/tmp") as name:
        server = Versity(Path(name))
        try:
            server.start()
        except UnavailableError as error:
            pytest.skip(f"no real S3 server: {error}")
        client: Any = botocore.session.Session().create_client(
            "s3",
            "us-east-1",
            endpoint_url=server.endpoint,
            aws_access_key_id=ACCESS,
            aws_secret_access_key=SECRET,
            config=botocore.config.Config(request_checksum_calculation="when_required"),
        )
        client.create_bucket(Bucket="bucket")
        with Relay(int(server.endpoint.rpartition(":")[2])) as relay:
            yield relay, client, Path(name) / "bucket"
        client.close()
        server.stop()


def upload(client: Any, folder: Path, kind: str) -> None:
    """`giant` in PARTS parts, with a checksum of this kind, or with nothing but its etag."""
    algorithm, _, extent = kind.partition(" ")
    place = {"Bucket": "bucket", "Key": f"{kind}/giant"}
    asked = {"ChecksumAlgorithm": algorithm} if extent else {}
    name = f"Checksum{algorithm}"
    started = client.create_multipart_upload(**place, **asked, **({"ChecksumType": extent} if extent else {}))
    at = {**place, "UploadId": started["UploadId"]}
    parts = []
    for number in range(1, PARTS + 1):
        done = client.upload_part(**at, PartNumber=number, Body=content(number, PART), **asked)
        parts.append({"PartNumber": number, "ETag": done["ETag"]} | ({name: done[name]} if extent else {}))
    more = {"ChecksumType": extent} if extent else {}
    client.complete_multipart_upload(**at, MultipartUpload={"Parts": parts}, **more)
    if not extent:
        # The server makes a CRC64NVME of its own where none is asked for.
        path = folder / kind / "giant"
        for attribute in os.listxattr(path):
            if "checksum" in attribute:
                os.removexattr(path, attribute)


def writers(context: Context) -> set[str]:
    """The attempts that copied the giant's parts, of a run that is not published yet."""
    run = run_store.open_run(context.layout("data")).folder
    plan = read_plan(run)
    made = {
        index: {row.copy_attempt for row in journal.replay(run.journals(index), shard.digest).values()}
        for index, shard in plan.by_index().items()
    }
    assert [shard.rows for shard in plan.shards] == [PARTS // 3] * 3
    return set().union(*made.values())


@pytest.mark.parametrize(
    ("kind", "grade", "proof"),
    [
        ("CRC64NVME FULL_OBJECT", "full", "crc64nvme:full:"),
        ("CRC32C FULL_OBJECT", "full", "crc32c:full:"),
        ("CRC32C COMPOSITE", "composite", "crc32c:composite:"),
        ("etag", "composite", "md5:composite:"),
    ],
)
def test_a_giant_is_proven_and_mended_by_its_parts(
    bucket: tuple[Relay, Any, Path], kind: str, grade: str, proof: str
) -> None:
    relay, client, folder = bucket
    upload(client, folder, kind)
    with tempfile.TemporaryDirectory(prefix="giants-", dir="/var/tmp") as name:
        secret = Path(name) / "credentials"
        secret.write_text(f"[default]\naws_access_key_id = {ACCESS}\naws_secret_access_key = {SECRET}\n")
        secret.chmod(0o600)
        options = {"endpoint_url": relay.endpoint, "credentials_file": str(secret)}
        plan = PlanConfig(giant_bytes=PART + 1, part_bytes=PART, shard_bytes=SIZE // 3)
        verify = VerifyConfig(source_checksum="require")
        url = f"s3://bucket/{kind}/"
        # Small parts are not worth a second worker, which takes longer to begin than to copy them.
        engine = EngineConfig(workers=1 if SIZE < 1 << 30 else None)
        copied: list[set[str]] = []

        def look(context: Context) -> None:
            copied.append(writers(context))

        with published(
            Path(name), url, options=options, plan=plan, verify=verify, engine=engine, verified=look
        ) as context:
            assert [len(one) for one in copied] == [3]
            data = data_of(context)
            (record,) = (r for batch in read_manifest(data.parent / "manifest.parquet") for r in batch)
            assert (record.source_grade, len(record.parts)) == (grade, PARTS * 16)
            assert record.source_proof.startswith(proof)

            before = (data / "giant").stat()
            flip(data / "giant", DAMAGED * PART + 1234)
            assert (data / "giant").stat().st_mtime_ns == before.st_mtime_ns
            result = audit_step.run(context, "data")
            assert [(f.kind, f.path, f.parts) for f in result["findings"]] == [
                ("changed", "giant", (DAMAGED,))
            ]
            asked = len(relay.asked)
            done = repair_step.run(context, "data")
            assert (done["status"], done["fetched_bytes"]) == ("REPAIRED", PART)
            key = f"/bucket/{kind.replace(' ', '%20')}/giant"
            ends = f"bytes={DAMAGED * PART}-{(DAMAGED + 1) * PART - 1}"
            assert relay.asked[asked:] == [Asked("GET", key, ends)]
            with (data / "giant").open("rb") as stream:
                assert all(stream.read(PART) == content(n, PART) for n in range(1, PARTS + 1))
            print(f"{kind}: audit {result['seconds']} s, repair {done['seconds']} s")
    (folder / kind / "giant").unlink()
