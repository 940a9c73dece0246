"""What `plan --assume` takes, and how it refuses the rest."""

from __future__ import annotations

import pytest

from penstock.config.quantities import Assumption, read_assumption


def test_all_that_can_be_assumed() -> None:
    text = "20PB, 200M files, nodes=16, link=70Gbit/s,nic=100Gbit/s, metadata=5000/s"
    given = read_assumption(f"{text}, egress=0.05/GB, get=0.4/M")
    assert (given.bytes, given.files, given.nodes) == (20 * 10**15, 200_000_000, 16)
    assert given.rates == {"link": 70e9 / 8, "nic": 100e9 / 8, "metadata": 5000.0}
    assert given.prices == pytest.approx({"egress": 0.05e-9, "get": 0.4e-6})
    assert read_assumption("1.5k files") == Assumption(files=1500)
    assert read_assumption("20 PB, 200 M files, link = 70 Gbit/s") == Assumption(
        20 * 10**15, 200_000_000, rates={"link": 70e9 / 8}
    )
    assert read_assumption("") == Assumption()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("20", "20: must be a size with its unit"),
        ("20 P", "20 P: must be a size with its unit"),
        ("link=0Gbit/s", "link=0Gbit/s: must be more than nothing"),
        ("link=fast", "link=fast: must be a rate with its unit"),
        ("metadata=0/s", "metadata=0/s: must be operations a second, more than none"),
        ("nodes=0", "nodes=0: must be a number of nodes, at least 1"),
        ("wire=1GB/s", "wire=1GB/s: there are nodes, link, source, writes, nic, cpu, metadata, egress"),
        ("1TB, 2TB", "2TB: bytes is given twice"),
        ("egress=cheap", "egress=cheap: must be a price such as 0.05/GB"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why.replace(".", r"\.")):
        read_assumption(text)
