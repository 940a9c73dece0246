"""S3 objects that are asked for ahead of time: whoever is given bytes is given the right ones."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import pytest
from tests.contracts.source_contract import content, entry_of, listing
from tests.sources.conftest import DemoStore
from tests.sources.test_hostile import S3_FAULTS, s3
from tests.support.commands import until
from tests.support.hostile import GATHERED, Hostile

from penstock.core.errors import ObjectError, PenstockError, SourceChangedError, TransientError
from penstock.core.model import SourceChecksum
from penstock.sources.s3 import S3Reader
from penstock.sources.s3_credentials import Keys, S3Credentials

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.support.s3server import S3Server

    from penstock.core.model import Entry
    from penstock.sources.port import Source

BLOCK = 1 << 20
ROOM = BLOCK + 4096
OBJECTS = {f"{n:02d}": content(str(n), 1000 * n) for n in range(GATHERED)}


class Reading:
    """A reader of a store's objects, and room for one."""

    def __init__(self, server: Hostile, timeout: float = 20.0) -> None:
        self.server = server
        self.source = s3(server, timeout=timeout)
        self.entries = {key: entry_of(item) for key, item in listing(self.source).items()}
        self.reader = self.source.reader()
        self.room = memoryview(bytearray(ROOM))

    def ahead(self, *keys: str) -> None:
        for key in keys:
            self.reader.ahead(self.entries[key])

    def whole(self, key: str) -> bytes:
        return bytes(self.reader.whole(self.entries[key], self.room)[0])


@pytest.fixture
def server() -> Iterator[Hostile]:
    with Hostile(OBJECTS) as server:
        yield server


@pytest.fixture
def reading(server: Hostile) -> Iterator[Reading]:
    reading = Reading(server)
    yield reading
    reading.reader.close()


def until_kept(server: Hostile, count: int) -> None:
    """Wait until the server has so many connections."""
    until(lambda: server.kept() == count, f"{count} connections")


@pytest.mark.parametrize("together", [1, 2, 8, GATHERED])
def test_all_come_in_order_and_once(reading: Reading, together: int) -> None:
    keys = list(OBJECTS)
    for _ in range(3):
        asked = 0
        for n, key in enumerate(keys):
            more = keys[asked : n + together]
            reading.ahead(*more)
            asked += len(more)
            assert reading.whole(key) == OBJECTS[key]
    assert [reading.server.count(key) for key in keys] == [3] * len(keys)
    # As many connections as were on their way at once, and the listing's.
    assert len({one.port for one in reading.server.asked if one.key}) == together


def test_they_are_on_their_way_together() -> None:
    keys = list(OBJECTS)[:GATHERED]
    with Hostile(OBJECTS, dict.fromkeys(keys, "gathered")) as server:
        reading = Reading(server)
        reading.ahead(*keys)
        assert [reading.whole(key) for key in keys] == [OBJECTS[key] for key in keys]
        reading.reader.close()


def test_what_was_not_asked_ahead_comes_between(reading: Reading) -> None:
    reading.ahead("03", "04")
    assert reading.whole("09") == OBJECTS["09"]
    assert reading.whole("03") == OBJECTS["03"]
    assert reading.whole("10") == OBJECTS["10"]
    assert reading.whole("04") == OBJECTS["04"]
    assert [reading.server.count(key) for key in ("03", "04", "09", "10")] == [1, 1, 1, 1]


def test_what_is_passed_over_is_dropped(reading: Reading) -> None:
    reading.ahead("05", "06", "07")
    assert reading.whole("07") == OBJECTS["07"]
    until_kept(reading.server, 1)  # of three: the answers that nobody read are not there to be read
    reading.ahead("08", "09", "10")
    for key in ("08", "09", "10", "05", "06"):
        assert reading.whole(key) == OBJECTS[key]
    assert [reading.server.count(key) for key in ("05", "07", "08")] == [2, 1, 1]


def test_what_is_passed_over_for_an_error_is_dropped_too(server: Hostile) -> None:
    server.modes["07"] = "denied"
    reading = Reading(server)
    reading.ahead("05", "06", "07", "08")
    with pytest.raises(ObjectError, match="refuses"):
        reading.whole("07")
    assert [reading.whole(key) for key in ("08", "06", "05")] == [OBJECTS[key] for key in ("08", "06", "05")]
    assert [server.count(key) for key in ("05", "06", "07", "08")] == [2, 2, 1, 1]
    reading.reader.close()


def test_an_object_larger_than_the_buffers_room_behind_its_head() -> None:
    objects = {f"{n}": content(f"{n}", BLOCK - n) for n in range(4)}
    with Hostile(objects) as server:
        reading = Reading(server)
        reading.room = memoryview(bytearray(BLOCK + 10))
        reading.ahead(*objects)
        for key, data in objects.items():
            assert reading.whole(key) == data
        reading.reader.close()


@pytest.mark.parametrize("ahead", [True, False], ids=["ahead", "asked"])
@pytest.mark.parametrize(("mode", "kind"), S3_FAULTS)
def test_a_fault_after_good_answers(mode: str, kind: type[PenstockError], ahead: bool) -> None:
    """In the middle of what is on its way; the others come as if nothing had been."""
    keys = ["01", "02", "03", "05", "08", "11"]
    with Hostile(OBJECTS, {"05": f"{mode}*20"}) as server:
        reading = Reading(server, timeout=1.0 if mode in ("drip", "silent") else 20.0)
        for key in ("09", "10"):
            assert reading.whole(key) == OBJECTS[key]
        if ahead:
            reading.ahead(*keys)
        for key in keys:
            if key == "05":
                with pytest.raises(kind) as caught:
                    reading.whole(key)
                assert type(caught.value) is kind
            else:
                assert reading.whole(key) == OBJECTS[key]
        assert [server.count(key) for key in keys if key != "05"] == [1] * 5
        if not mode.startswith("redirect"):
            assert server.count("05") == 1
        reading.reader.close()


@pytest.mark.parametrize("mode", ["slowdown", "error500", "cut", "reset", "nolen", "badchunk"])
def test_a_retry_asks_anew(mode: str) -> None:
    with Hostile(OBJECTS, {"03": f"{mode}*2"}) as server:
        reading = Reading(server)
        reading.ahead("02", "03", "04")
        assert reading.whole("02") == OBJECTS["02"]
        for _ in range(2):
            with pytest.raises(TransientError) as caught:
                reading.whole("03")
            assert caught.value.after == (0.0 if mode == "slowdown" else None)
        assert reading.whole("03") == OBJECTS["03"]
        assert reading.whole("04") == OBJECTS["04"]
        assert [server.count(key) for key in ("02", "03", "04")] == [1, 3, 1]
        reading.reader.close()


def test_a_redirect_within_the_store_is_followed() -> None:
    with Hostile(OBJECTS, {"03": "redirect*2"}) as server:
        reading = Reading(server)
        for _ in range(2):
            reading.ahead("02", "03", "04")
            assert [reading.whole(key) for key in ("02", "03", "04")] == [
                OBJECTS[key] for key in ("02", "03", "04")
            ]
        assert server.count("03") == 4
        reading.reader.close()


def test_an_object_that_changed_since_it_was_listed(reading: Reading) -> None:
    reading.ahead("03")
    assert reading.whole("03") == OBJECTS["03"]
    reading.server.objects["03"] = bytes(3000)
    reading.server.objects["04"] = b"of another size"
    reading.ahead("03", "04", "05")
    for key in ("03", "04"):
        with pytest.raises(SourceChangedError):
            reading.whole(key)
    assert reading.whole("05") == OBJECTS["05"]


def test_an_object_that_changes_between_its_tries() -> None:
    with Hostile(OBJECTS, {"03": "slowdown*1"}) as server:
        reading = Reading(server)
        reading.ahead("03")
        with pytest.raises(TransientError):
            reading.whole("03")
        server.objects["03"] = bytes(3000)
        with pytest.raises(SourceChangedError):
            reading.whole("03")
        reading.reader.close()


def test_an_object_that_changes_while_it_is_on_its_way() -> None:
    keys = list(OBJECTS)[:GATHERED]
    with Hostile(OBJECTS, dict.fromkeys(keys, "gathered")) as server:
        reading = Reading(server)
        reading.ahead(*keys[:-1])
        # Nothing is answered before the last one is asked for.
        server.objects["03"] = bytes(3000)
        reading.ahead(keys[-1])
        for key in keys:
            if key == "03":
                with pytest.raises(SourceChangedError):
                    reading.whole(key)
            else:
                assert reading.whole(key) == OBJECTS[key]
        reading.reader.close()


def test_close_drops_everything(server: Hostile) -> None:
    reading = Reading(server)
    reading.whole("01")
    reading.ahead("02", "03", "04", "05")
    reading.whole("03")
    until_kept(server, 4)
    reading.reader.close()
    until_kept(server, 0)


def test_connections_that_the_store_ended_meanwhile(reading: Reading) -> None:
    keys = ["01", "02", "03", "04"]
    for _ in range(3):
        reading.ahead(*keys)
        assert [reading.whole(key) for key in keys] == [OBJECTS[key] for key in keys]
        reading.server.hang_up()
        until_kept(reading.server, 0)
    assert [reading.server.count(key) for key in keys] == [3] * 4


def test_what_is_asked_again_is_signed_again(reading: Reading) -> None:
    """The store ended the connection between: by then the keys, or the time, may be others."""
    at = reading.server.endpoint
    reading.source.renew(S3Credentials(Keys("OLD", "s"), "us-east-1", at))
    reading.ahead("01")
    reading.whole("01")
    reading.server.hang_up()
    until_kept(reading.server, 0)
    reading.ahead("02")
    reading.source.renew(S3Credentials(Keys("NEW", "s"), "us-east-1", at))
    assert reading.whole("02") == OBJECTS["02"]
    asked = [one.headers["authorization"] for one in reading.server.asked if one.key in ("01", "02")]
    assert ["OLD/" in asked[0], "NEW/" in asked[-1]] == [True, True]


def test_what_answers_instead_is_told_the_same_each_time() -> None:
    with Hostile(OBJECTS, {"02": "errhtml200"}) as server:
        reading = Reading(server)
        reading.whole("01")
        whys = []
        for _ in range(3):
            with pytest.raises(ObjectError) as told:
                reading.whole("02")
            whys.append(told.value.why)
        reading.reader.close()
    assert whys[0].endswith("text/html")
    assert whys == whys[:1] * 3


def test_answers_that_a_store_ended_before_they_were_read(reading: Reading) -> None:
    """What has come is there; what has not is asked for once more."""
    keys = ["01", "02", "03", "04"]
    reading.ahead(*keys)
    until_kept(reading.server, 4)
    reading.server.hang_up()
    until_kept(reading.server, 0)
    assert [reading.whole(key) for key in keys] == [OBJECTS[key] for key in keys]
    assert {reading.server.count(key) for key in keys} <= {1, 2}


def test_a_store_that_is_gone_is_told_by_whole() -> None:
    with Hostile(OBJECTS) as server:
        reading = Reading(server)
        assert reading.whole("01") == OBJECTS["01"]
    reading.ahead("02", "03")
    for key in ("02", "03"):
        with pytest.raises(TransientError):
            reading.whole(key)
    reading.reader.close()


@pytest.mark.parametrize("mode", ["flip", "flipcrc", "falsecrc", "crc", "composite"])
def test_checksums_are_those_of_each_answer(mode: str) -> None:
    """Also where some objects state a checksum and others do not."""
    with Hostile(OBJECTS, {"03": mode, "05": mode}) as server:
        reading = Reading(server)
        for _ in range(2):
            reading.ahead(*OBJECTS)
            for key, data in OBJECTS.items():
                _, checksums = reading.reader.whole(reading.entries[key], reading.room)
                value = f"{zlib.crc32(data) ^ (mode == 'falsecrc'):08x}"
                if key not in ("03", "05") or mode == "flip":
                    assert not checksums
                elif mode == "composite":
                    assert checksums == [SourceChecksum("crc32", "composite", value, 3, 0)]
                else:
                    assert checksums == [SourceChecksum("crc32", "full", value)]
        reading.reader.close()


KEYS = Keys("AKIDEMO", "demo-secret-demo")


def stored(server: S3Server, objects: Mapping[str, bytes]) -> tuple[Source, dict[str, Entry], S3Reader]:
    """Objects in a store: their source, their entries and a reader."""
    store = DemoStore(server.root, server)
    for key, data in objects.items():
        store.put(key, data)
    source = store.source()
    found = {key: entry_of(item) for key, item in listing(source).items() if key in objects}
    reader = source.reader()
    assert isinstance(reader, S3Reader)
    return source, found, reader


def test_signed_requests_with_checksums_as_open_gives_them(demo: S3Server) -> None:
    objects = {f"ahead/{n:02d} +%ä": content(f"{n}", n * 3001) for n in range(10)}
    source, found, reader = stored(demo, objects)
    room = memoryview(bytearray(ROOM))
    asked = len(demo.requests())
    opened = {}
    for key, entry in found.items():
        body = reader.open(entry, 0, entry.size)
        opened[key] = body.checksums
        body.abandon()
    assert len(opened) == len(objects)
    for _ in range(2):
        order: list[Entry] = list(found.values())
        for entry in order:
            reader.ahead(entry)
        # Other keys for what is asked from now on: what is on its way is none of their concern.
        source.renew(S3Credentials(KEYS, "us-east-1", demo.endpoint))
        for entry in order:
            found_bytes, checksums = reader.whole(entry, room)
            assert bytes(found_bytes) == objects[entry.key]
            assert checksums == opened[entry.key]
            assert checksums
    gets = [one.key for one in demo.requests()[asked:] if one.method == "GET"]
    assert sorted(gets) == sorted(3 * list(found))
    reader.close()


def test_over_tls(demo_tls: S3Server) -> None:
    objects = {f"ahead/{n:02d}": content(f"{n}", n * 20_001) for n in range(9)}
    _, found, reader = stored(demo_tls, objects)
    room = memoryview(bytearray(ROOM))
    for _ in range(3):
        for entry in found.values():
            reader.ahead(entry)
        reader.ahead(found["ahead/00"])
        for entry in found.values():
            assert bytes(reader.whole(entry, room)[0]) == objects[entry.key]
    reader.close()
