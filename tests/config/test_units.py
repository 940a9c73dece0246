from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.config import quantities


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [
        ("1B", 1), ("256MiB", 256 << 20), ("1TiB", 1 << 40), ("1.5GiB", 3 << 29), ("500GB", 500 * 10**9),
        ("2kB", 2000), ("2PiB", 2 << 50), (0, 0), ("0B", 0),
    ],
)  # fmt: skip
def test_sizes(text: object, bytes_: int) -> None:
    assert quantities.read_size(text) == bytes_


@pytest.mark.parametrize(
    "text",
    [12, -1, 1.5, True, None, "", "12", "12 MiB", "MiB", "1mib", "1MiB/s", "1 TiB", "1e3B", "-1B", "0.3B",
     "\u0663MiB", "1,5GiB", "99999999999999999999B", "1MiB\n", "1Mbit"],
)  # fmt: skip
def test_what_is_no_size(text: object) -> None:
    with pytest.raises(ValueError, match="must"):
        quantities.read_size(text)


@pytest.mark.parametrize(
    ("text", "rate"),
    [("1GiB/s", 1 << 30), ("20Gbit/s", 2_500_000_000), ("8bit/s", 1), ("100MB/s", 100_000_000)],
)
def test_rates(text: str, rate: int) -> None:
    assert quantities.read_rate(text) == rate


@pytest.mark.parametrize("text", ["20Gbit", "1GiB", "0B/s", 5, "1GiB/min", "1bit/s", "20Gib/s"])
def test_what_is_no_rate(text: object) -> None:
    with pytest.raises(ValueError, match="must"):
        quantities.read_rate(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30.0), ("30min", 1800.0), ("4h", 14400.0), ("2d", 172800.0), ("250ms", 0.25)],
)
def test_durations(text: str, seconds: float) -> None:
    assert quantities.read_duration(text) == seconds


@pytest.mark.parametrize("text", ["4", 4, "4 h", "0s", "4m", "1:00:00", "1h30min", "-1s"])
def test_what_is_no_duration(text: object) -> None:
    with pytest.raises(ValueError, match="must"):
        quantities.read_duration(text)


@pytest.mark.parametrize(
    ("text", "folder", "bits"),
    [
        ("0440", False, 0o440),
        ("440", False, 0o440),
        ("0640", False, 0o640),
        ("2550", True, 0o2550),
        ("0755", True, 0o755),
    ],
)
def test_modes(text: str, folder: bool, bits: int) -> None:
    assert quantities.read_mode(text, folder=folder) == bits


@pytest.mark.parametrize(
    ("text", "folder", "why"),
    [
        (440, False, "in quotes"), ("0o440", False, "octal"), ("rw-", False, "octal"),
        ("0888", False, "octal"),
        ("0446", False, "everybody"), ("2777", True, "everybody"), ("4440", False, "setuid"),
        ("4550", True, "setuid"), ("2440", False, "setgid"), ("1550", True, "sticky"),
        ("0040", False, "owner"),
        ("0440", True, "owner"),
    ],
)  # fmt: skip
def test_refused_modes(text: object, folder: bool, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        quantities.read_mode(text, folder=folder)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**15), st.sampled_from(["B", "KiB", "MiB", "GiB", "kB", "MB"]))
def test_whole_sizes_are_exact(count: int, unit: str) -> None:
    assert quantities.read_size(f"{count}{unit}") == count * quantities.read_size(f"1{unit}")


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=20))
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (quantities.read_size, quantities.read_rate, quantities.read_duration):
        try:
            assert parse(text) >= 0
        except ValueError as error:
            assert str(error)  # noqa: PT017
