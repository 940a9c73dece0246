"""What every source must do: run over folders, S3 servers and fsspec's protocols.

A `Store` changes what is stored behind the source's back.
"""

from __future__ import annotations

import base64
import hashlib
import os
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

import pytest

from penstock.core.errors import PenstockError, SourceChangedError
from penstock.core.model import Entry
from penstock.sources.port import Continued

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.core.model import Listed
    from penstock.sources.port import Body, Reader, Source

MIB = 1 << 20


class Store(Protocol):
    """One root that a source shows, changed by other means than the source."""

    odd: tuple[str, ...]
    """Odd names that this store can hold."""

    def put(self, key: str, data: bytes) -> None: ...
    def remove(self, key: str) -> None: ...
    def source(self, key: str = "") -> Source:
        """Of the root, or of the URL of an object or folder below, without a slash at its end."""


# Names that sort differently by folder, by path and by characters, and hostile-looking ones.
ODD = (
    "a-b/x", "a.b", "a/b", "a0", "A/z", "dir/deep/er/file", "-dash", "--help", "$(touch PWNED)",
    "quote'\"<&>", "tab\tname", "%41", "a+b c", "100%", "x" * 255, "ünï/日本", "😀", "~tilde", "star*?[x]",
    "semi;colon,=:@", "back\\slash", "#hash", "?query=1&x=2",
)  # fmt: skip


def content(key: str, size: int) -> bytes:
    seed = hashlib.sha256(os.fsencode(key)).digest()
    return (seed * (size // len(seed) + 1))[:size]


def entry_of(item: Listed) -> Entry:
    return Entry(
        item.key, item.key, item.size, item.token, item.modified_ns,
        version=item.version, checksum=item.checksum, length=item.size,
    )  # fmt: skip


def listing(source: Source) -> dict[str, Listed]:
    return {item.key: item for batch in source.list() for item in batch}


def drain(body: Body, block: int = 65536) -> bytes:
    """Every byte; the body's close is its last check."""
    buffer = memoryview(bytearray(block))
    parts = []
    while count := body.readinto(buffer):
        parts.append(bytes(buffer[:count]))
    assert body.readinto(buffer) == 0
    body.close()
    return b"".join(parts)


def read(reader: Reader, entry: Entry, offset: int = 0, length: int | None = None) -> bytes:
    return drain(reader.open(entry, offset, entry.size if length is None else length))


def sums(data: bytes) -> Mapping[str, str]:
    import awscrt.checksums as crt

    return {
        "crc32": f"{zlib.crc32(data):08x}",
        "crc32c": f"{crt.crc32c(data):08x}",
        "crc64nvme": f"{crt.crc64nvme(data):016x}",
        "md5": hashlib.md5(data).hexdigest(),
        "sha1": hashlib.sha1(data).hexdigest(),
        "sha256": hashlib.sha256(data).hexdigest(),
    }


def composite(algorithm: str, data: bytes, part_bytes: int) -> str:
    raw = b"".join(
        bytes.fromhex(sums(data[at : at + part_bytes])[algorithm]) for at in range(0, len(data), part_bytes)
    )
    return sums(raw)[algorithm]


class SourceContract:
    """Subclasses give the fixture `store`."""

    def test_it_is_reached(self, store: Store) -> None:
        store.put("one", b"1")
        store.source().check()

    def test_lists_everything_once_in_byte_order(self, store: Store) -> None:
        sizes = {key: number for number, key in enumerate(store.odd)}
        for key, size in sizes.items():
            store.put(key, content(key, size))
        found = [item for batch in store.source().list() for item in batch]
        keys = [item.key for item in found]
        assert keys == sorted(sizes, key=os.fsencode)
        assert {item.key: item.size for item in found} == sizes

    def test_reads_every_odd_name(self, store: Store) -> None:
        for key in store.odd:
            store.put(key, content(key, 100))
        source = store.source()
        reader = source.reader()
        for key, item in listing(source).items():
            assert read(reader, entry_of(item)) == content(key, 100)
        reader.close()

    @pytest.mark.parametrize("size", [0, 1, 8191, 65536, 3 * MIB + 17])
    def test_reads_whole(self, store: Store, size: int) -> None:
        store.put("f/x", content("x", size))
        source = store.source()
        reader = source.reader()
        entry = entry_of(listing(source)["f/x"])
        assert entry.size == size
        for block in (1 << 12, 1 << 16, 1 << 20):
            assert read(reader, entry) == content("x", size), block
        reader.close()

    def test_reads_ranges(self, store: Store) -> None:
        data = content("x", MIB)
        store.put("x", data)
        source = store.source()
        reader = source.reader()
        entry = entry_of(listing(source)["x"])
        for offset, length in ((0, 1), (0, 1000), (5000, 70000), (MIB - 1, 1), (MIB // 2, MIB // 2)):
            assert read(reader, entry, offset, length) == data[offset : offset + length]
        reader.close()

    def test_states_nothing_false_of_the_bytes(self, store: Store) -> None:
        data = content("x", 200_000)
        store.put("x", data)
        source = store.source()
        reader = source.reader()
        entry = entry_of(listing(source)["x"])
        body = reader.open(entry, 0, entry.size)
        checksums = [*body.checksums, *source.checksum(entry)]
        assert drain(body) == data
        for checksum in checksums:
            if checksum.kind == "full":
                assert sums(data)[checksum.algorithm] == checksum.value
        reader.close()

    @pytest.mark.parametrize("part", [False, True])
    def test_a_changed_object_is_refused(self, store: Store, part: bool) -> None:
        store.put("x", content("old", 9000))
        source = store.source()
        reader = source.reader()
        entry = entry_of(listing(source)["x"])
        assert read(reader, entry) == content("old", 9000)
        store.put("x", content("new", 9000))
        with pytest.raises(SourceChangedError):
            read(reader, entry, 100 if part else 0, 800 if part else None)
        fresh = entry_of(listing(source)["x"])
        assert fresh.token != entry.token
        assert read(reader, fresh) == content("new", 9000)
        reader.close()

    def test_a_removed_object_is_told(self, store: Store) -> None:
        store.put("x", b"some")
        store.put("y", b"more")
        source = store.source()
        reader = source.reader()
        found = listing(source)
        store.remove("x")
        with pytest.raises(SourceChangedError):
            read(reader, entry_of(found["x"]))
        assert read(reader, entry_of(found["y"])) == b"more"
        reader.close()

    def test_one_object_is_listed_as_all_are(self, store: Store) -> None:
        for key in store.odd:
            store.put(key, content(key, 100))
        source = store.source()
        for key, item in listing(source).items():
            assert source.list_one(key) == item

    def test_many_objects_are_asked_for_as_they_are_listed(self, store: Store) -> None:
        for key in store.odd:
            store.put(key, content(key, 100))
        source = store.source()
        if source.asking is None:
            return  # of these, each is listed by itself
        found = listing(source)
        with source.asking() as ask, ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(ask, found))
            assert ask("missing") is None
        for item, answer in zip(found.values(), answers, strict=True):
            assert answer is not None
            assert answer._replace(modified_ns=0) == item._replace(modified_ns=0)
            assert answer.modified_ns // 10**9 == item.modified_ns // 10**9

    def test_a_listing_can_begin_and_end_at_any_key(self, store: Store) -> None:
        for key in store.odd:
            store.put(key, content(key, 100))
        source = store.source()
        if not isinstance(source, Continued):
            return  # of these, each listing begins anew
        found = list(listing(source).values())
        keys = [os.fsencode(one.key) for one in found]
        for begin in (0, 1, len(found) // 2, len(found)):
            for end in (begin, begin + 3, None):
                after = keys[begin - 1] if begin else b""
                upto = None if end is None or end > len(found) or not end else keys[end - 1]
                if upto is not None and upto <= after:
                    continue
                some = [one for batch in source.list_between(after, upto) for one in batch]
                assert some == found[begin : None if upto is None else end]

    def test_one_object_is_listed_in_its_new_version(self, store: Store) -> None:
        for key in ("d/x", "d/x.y", "d/x0"):
            store.put(key, content(key, 900))
        source = store.source()
        before = listing(source)["d/x"]
        store.put("d/x", content("new", 700))
        found = source.list_one("d/x")
        assert found is not None
        assert (found.size, found.token != before.token) == (700, True)
        assert found == listing(source)["d/x"]
        reader = source.reader()
        assert read(reader, entry_of(found)) == content("new", 700)
        reader.close()

    def test_a_removed_object_is_gone(self, store: Store) -> None:
        for key in ("d/x", "d/x.y", "e/f/z", "y"):
            store.put(key, b"some")
        source = store.source()
        listing(source)
        store.remove("d/x")
        store.remove("e/f/z")
        assert source.list_one("d/x") is None
        assert source.list_one("e/f/z") is None
        assert source.list_one("d/x.y") is not None

    def test_s1_a_url_of_one_object_is_that_object_alone(self, store: Store) -> None:
        for key in ("d/x+y.tar", "d/x+y.tar2", "d/x+y", "d/a"):
            store.put(key, content(key, 9000))
        source = store.source("d/x+y.tar")
        source.check()
        found = listing(source)
        assert {key: item.size for key, item in found.items()} == {"x+y.tar": 9000}
        assert source.list_one("x+y.tar") == found["x+y.tar"]
        reader = store.source("d/x+y.tar").reader()  # as a worker's, which has not listed it
        entry = entry_of(found["x+y.tar"])
        assert read(reader, entry) == content("d/x+y.tar", 9000)
        assert read(reader, entry, 100, 500) == content("d/x+y.tar", 9000)[100:600]
        for checksum in source.checksum(entry):
            assert (
                checksum.kind != "full"
                or sums(content("d/x+y.tar", 9000))[checksum.algorithm] == checksum.value
            )
        store.put("d/x+y.tar", content("new", 9000))
        with pytest.raises(SourceChangedError):
            read(reader, entry)
        reader.close()
        store.remove("d/x+y.tar")
        assert source.list_one("x+y.tar") is None

    def test_s1_a_url_of_a_folder_needs_no_slash(self, store: Store) -> None:
        for key in ("d/e/x", "d/e/f/y", "d/e.x", "d/e0"):
            store.put(key, content(key, 100))
        source = store.source("d/e")
        source.check()
        assert sorted(listing(source)) == ["f/y", "x"]

    def test_an_abandoned_body_harms_nothing(self, store: Store) -> None:
        store.put("x", content("x", 2 * MIB))
        source = store.source()
        reader = source.reader()
        entry = entry_of(listing(source)["x"])
        for count in (0, 1, 3):
            body = reader.open(entry, 0, entry.size)
            buffer = memoryview(bytearray(1000))
            for _ in range(count):
                body.readinto(buffer)
            body.abandon()
            body.abandon()
        assert read(reader, entry) == content("x", 2 * MIB)
        half = reader.open(entry, 0, entry.size)
        half.readinto(memoryview(bytearray(10)))
        half.close()
        assert read(reader, entry, 5, 5) == content("x", 10)[5:]
        reader.close()

    def test_readers_work_side_by_side(self, store: Store) -> None:
        for number in range(12):
            store.put(f"f{number}", content(f"f{number}", 20_000 + number))
        source = store.source()
        entries = [entry_of(item) for item in listing(source).values()]
        wrong: list[object] = []

        def work() -> None:
            reader = source.reader()
            try:
                wrong.extend(e for e in entries if read(reader, e) != content(e.key, e.size))
            except PenstockError as error:
                wrong.append(error)
            finally:
                reader.close()

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert not wrong

    def test_a_listing_may_be_left(self, store: Store) -> None:
        for number in range(5):
            store.put(f"f{number}", b"x")
        batches = iter(store.source().list())
        next(batches)
        batches.close()  # type: ignore[attr-defined]

    def test_nothing_is_listed_of_nothing(self, store: Store) -> None:
        store.put("x", b"x")
        store.remove("x")
        assert listing(store.source()) == {}


def b64(hexadecimal: str) -> str:
    return base64.b64encode(bytes.fromhex(hexadecimal)).decode("ascii")
