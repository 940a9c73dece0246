"""Times of sources, in every form that ISO 8601 has, and in those of HTTP and FTP."""

from __future__ import annotations

import datetime as dt
import time

import pytest

from penstock.core.errors import FailedError
from penstock.core.human import local, nanoseconds, of_datetime
from penstock.sources import generic_opener as info
from penstock.sources.http_values import stated_time

DAY = 1_704_067_200 * 10**9
"""2024-01-01, by `date -u -d 2024-01-01 +%s`."""
AT = DAY + (3600 + 2 * 60 + 8) * 10**9


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-01-01T01:02:08Z", AT),
        ("2024-01-01T01:02:08.000Z", AT),
        ("2024-01-01T01:02:08.000+00:00", AT),
        ("2024-01-01T01:02:08-00:00", AT),
        ("2024-01-01T03:32:08+02:30", AT),
        ("2023-12-31T20:02:08-0500", AT),
        ("2024-01-01T02:02:08+01", AT),
        ("2024-01-01t01:02:08z", AT),
        ("2024-01-01 01:02:08", AT),
        ("2024-01-01T01:02:08", AT),
        (" 2024-01-01T01:02:08 Z\n", AT),
        ("20240101T010208Z", AT),
        ("2024-01-01T01:02:08.5Z", AT + 5 * 10**8),
        ("2024-01-01T01:02:08,25+00:00", AT + 25 * 10**7),
        ("2024-01-01T01:02:08.123456789Z", AT + 123456789),
        ("2024-01-01T01:02:08.1234567899999Z", AT + 123456789),
        ("2024-01-01T01:02Z", AT - 8 * 10**9),
        ("2024-01-01", DAY),
        ("2023-12-31T24:00:00Z", DAY),
        ("2023-12-31T23:59:60Z", DAY),
        ("1969-12-31T23:59:59.5Z", -(10**9) // 2),
        ("0001-01-01T00:00:00Z", -62_135_596_800 * 10**9),
    ],
)
def test_what_iso_8601_has(text: str, expected: int) -> None:
    assert nanoseconds(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "", "yesterday", "0", "1706662923", "2024-13-01T00:00:00Z", "2024-02-30T00:00:00Z",
        "2024-01-01T25:00:00Z",
        "2024-01-01T01:60:00Z", "2024-01-01T01:02:61Z", "2024-01-01T01:02:08+24:00", "2024-01-01T01:02:08.Z",
        "2024-01-01T01:02:08Zulu", "2024-0101", "2024-01-01T\u0661\u0662:00:00Z", "2024-01-01T24:00:01Z",
        "2024-02-30T01:02:08.5Z",
    ],
)  # fmt: skip
def test_what_is_no_time_is_no_time_of_1970(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        nanoseconds(text)
    if text:
        with pytest.raises(FailedError, match="cannot be read"):
            stated_time(text, "s3://b/")


def test_dates_of_http_and_ftp() -> None:
    assert stated_time("Mon, 01 Jan 2024 01:02:08 GMT", "") == AT
    assert stated_time("Monday, 01-Jan-24 01:02:08 GMT", "") == AT
    assert stated_time("Mon Jan  1 01:02:08 2024", "") == AT
    assert stated_time("", "") == stated_time(" ", "") == 0
    moment = dt.datetime(2024, 1, 1, 2, 2, 8, 5, tzinfo=dt.timezone(dt.timedelta(hours=1)))
    assert of_datetime(moment) == AT + 5000
    assert of_datetime(dt.datetime(1969, 12, 31, 23, 59, 59, 500_000)) == -(10**9) // 2  # noqa: DTZ001
    for value in ("20240101010208", "20240101010208.000", "2024-01-01T02:02:08+01:00", AT / 10**9):
        assert info.nanoseconds(value) == AT
    assert info.modified({"mtime": "no time", "modify": "20240101010208"}) == AT
    assert info.modified({"mtime": "no time"}) == 0


def test_messages_show_local_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        assert local("2024-01-01T01:02:08Z") == local(AT / 10**9) == "2024-01-01 02:02:08 +0100"
        assert local("2024-07-01T00:00:00.5Z") == "2024-07-01 02:00:00 +0200"
        assert local("once") == "once"
    finally:
        monkeypatch.undo()
        time.tzset()
