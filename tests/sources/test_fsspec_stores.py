"""S3, Azure, Google by `reader: fsspec`: never bytes of two versions, and errors that say what is meant."""

from __future__ import annotations

import io
import itertools
import uuid
from typing import TYPE_CHECKING, Any, ClassVar

import fsspec
import pytest
from fsspec.registry import _registry
from tests.contracts.source_contract import content, drain, entry_of, listing, read
from tests.sources.conftest import AdlfsStore, GcsfsStore, GcsStore, S3fsStore, dataset
from tests.support.hostile import Hostile
from tests.support.keyed import KeyedFileSystem

from penstock.config.settings import SourceConfig
from penstock.core.errors import (
    ConfigError,
    ObjectError,
    OverloadedError,
    PenstockError,
    PreflightError,
    SourceChangedError,
    TransientError,
)
from penstock.sources.generic_opener import FsspecCredentials, Opener
from penstock.sources.port import REQUEST, open_source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.support.fake_gcs import FakeGcs

    from penstock.sources.port import Source

DATA = content("x", 100_000)
WHOLE, PART = (0, len(DATA)), (1000, 50_000)


@pytest.fixture(params=["s3fs", "adlfs", "gcsfs"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    name = f"b{uuid.uuid4().hex}"
    if request.param == "gcsfs":
        yield GcsfsStore(request.getfixturevalue("fake_gcs"), name)
    elif request.param == "s3fs":
        yield S3fsStore(request.getfixturevalue("versity"), name, tmp_path)
    else:
        made = AdlfsStore(request.getfixturevalue("azurite"), tmp_path, name)
        yield made
        made.close()


def opened(url: str, **options: Any) -> Source:
    config = SourceConfig(url, storage_options={"reader": "fsspec", **options})
    return open_source(config, dataset(url))


def test_an_object_that_is_overwritten_during_its_read_counts_as_changed(store: Any) -> None:
    """Its bytes come by several requests, the later ones of them from the new version."""
    size = REQUEST + 70_000
    store.put("x", content("old", size))
    source = store.source()
    reader = source.reader()
    entry = entry_of(listing(source)["x"])
    body = reader.open(entry, 0, size)
    assert body.readinto(memoryview(bytearray(1000))) == 1000
    store.put("x", content("new", size))
    with pytest.raises(SourceChangedError, match="changed since it was listed"):
        drain(body)
    with pytest.raises(SourceChangedError):
        read(reader, entry, 5, 10)
    assert read(reader, entry_of(listing(source)["x"])) == content("new", size)
    reader.close()


class Rewritten(KeyedFileSystem):
    """Every object is written again between any two looks at it, in the end with what it held before."""

    protocol = "rewritten"
    times: ClassVar[Iterator[int]] = itertools.count(1)

    def _described(self, key: str) -> dict[str, Any]:
        return {**super()._described(key), "mtime": next(self.times)}


def test_an_object_that_was_another_one_meanwhile_counts_as_changed() -> None:
    fsspec.register_implementation("rewritten", Rewritten, clobber=True)
    Rewritten.objects = {"bucket/x": DATA}
    source = open_source(SourceConfig("rewritten://bucket"), dataset("rewritten"))
    with pytest.raises(SourceChangedError, match="changed since it was listed"):
        read(source.reader(), entry_of(listing(source)["x"]))
    _registry.pop("rewritten")


class Understated(KeyedFileSystem):
    """Every object has more bytes than is stated of it."""

    protocol = "understated"
    stated: ClassVar[int] = 0

    def _described(self, key: str) -> dict[str, Any]:
        return {**super()._described(key), "size": self.stated}

    def open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        return io.BytesIO(self.objects[self._strip_protocol(path)])


class UnderstatedRanges(Understated):
    """The same, by ranged requests."""

    async_impl = True
    loop = property(lambda _: fsspec.asyn.get_loop())

    async def _info(self, path: str) -> Mapping[str, Any]:
        return self.info(path)

    async def _cat_file(self, path: str, start: Any = None, end: Any = None) -> bytes:
        return self.cat_file(path, start, end)


@pytest.mark.parametrize("stated", [0, 5, REQUEST])
@pytest.mark.parametrize("kind", [Understated, UnderstatedRanges])
def test_an_object_that_is_longer_than_is_stated_of_it_is_refused(
    kind: type[Understated], stated: int
) -> None:
    fsspec.register_implementation("understated", kind, clobber=True)
    kind.stated = stated
    kind.objects = {"bucket/x": content("x", stated + 7)}
    source = open_source(SourceConfig("understated://bucket"), dataset("understated"))
    entry = entry_of(listing(source)["x"])
    assert entry.size == stated
    reader = source.reader()
    with pytest.raises(ObjectError, match="longer than its source states"):
        read(reader, entry)
    kind.objects = {"bucket/x": content("x", stated)}
    assert read(reader, entry) == content("x", stated)
    reader.close()
    _registry.pop("understated")


@pytest.mark.parametrize("kind", [GcsfsStore, GcsStore])
def test_s1_a_url_that_names_an_object_and_a_folder_is_refused_and_told_how_to_write_each(
    fake_gcs: FakeGcs, kind: type[GcsStore]
) -> None:
    store = kind(fake_gcs, f"b{uuid.uuid4().hex}")
    store.put("a", b"1")
    store.put("a/b", b"22")
    with pytest.raises(PreflightError, match="the URL names an object and a folder") as caught:
        listing(store.source("a"))
    assert f"write gs://{store.bucket}/pre fix/a/ for the folder" in caught.value.hint
    assert f"gs://{store.bucket}/pre fix/ with `include: ['/a', '!/a/**']`" in caught.value.hint
    assert {key: item.size for key, item in listing(store.source("a/")).items()} == {"b": 2}


@pytest.mark.parametrize("kind", [GcsfsStore, GcsStore])
def test_s1_an_object_of_no_bytes_beside_a_folder_of_its_name_is_the_folders_marker(
    fake_gcs: FakeGcs, kind: type[GcsStore]
) -> None:
    store = kind(fake_gcs, f"b{uuid.uuid4().hex}")
    store.put("a", b"")
    store.put("a/b", b"22")
    source = store.source("a")
    assert list(listing(source)) == ["b"]
    assert source.ignored == {"markers": 1}


@pytest.mark.parametrize(
    ("mode", "kind", "span"),
    [
        ("cut", TransientError, WHOLE),
        ("reset", TransientError, PART),
        ("error500", TransientError, WHOLE),
        ("slowdown", OverloadedError, WHOLE),
        ("denied", ObjectError, WHOLE),
        ("404", SourceChangedError, PART),
        ("rangeignored", ObjectError, PART),
    ],
)
def test_answers_through_s3fs(mode: str, kind: type[PenstockError], span: tuple[int, int]) -> None:
    with Hostile({"p/x": DATA, "p/y": DATA}, {"p/x": mode}) as server:
        options = {
            "endpoint_url": server.endpoint,
            "anon": True,
            "config_kwargs": {"retries": {"max_attempts": 0}},
        }
        source = opened(f"s3://{server.bucket}/p/", **options)
        found = {key: entry_of(item) for key, item in listing(source).items()}
        reader = source.reader()
        with pytest.raises(PenstockError) as caught:
            read(reader, found["x"], *span)
        assert type(caught.value) is kind
        assert read(reader, found["y"], *span) == DATA[span[0] : span[0] + span[1]]
        reader.close()


@pytest.mark.parametrize(
    ("url", "options", "meant"),
    [
        ("s3://b/x", {"endpont_url": "http://h:1"}, "endpoint_url"),
        ("az://cont/x", {"acount_name": "abc"}, "account_name"),
        ("gs://b/x", {"endpoint": "http://h:1"}, "endpoint_url"),
        ("ftp://h/x", {"usrname": "u"}, "username"),
    ],
)
def test_an_option_that_is_nearly_one_of_the_library_is_told(
    url: str, options: Mapping[str, object], meant: str
) -> None:
    with pytest.raises(ConfigError, match=f"did you mean `{meant}`"):
        opened(url, **options).check()


def test_secrets_and_signatures_of_shared_access_are_not_shown() -> None:
    config = SourceConfig("az://c/x", storage_options={"reader": "fsspec"})
    opener = Opener(config, FsspecCredentials({"account_key": "TOPSECRET"}))
    error = OSError("TOPSECRET cannot connect to https://a/c/x?sv=2021&sig=c2VjcmV0%3D&se=2030")
    raised = opener.failure(error, "c/x")
    assert raised.why == "... cannot connect to https://a/c/x?sv=2021&sig=...&se=2030"
