"""The Kerberos ticket (S20): klist's words, as MIT's 1.20.1 printed them for caches made for it, and what
follows from them."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from penstock.config.settings import ClusterConfig, JobOptions
from penstock.core.documents.node_answer import MountSeen, TicketSeen
from penstock.steps.preflight import ticket as row
from penstock.vendors import kerberos

if TYPE_CHECKING:
    from pathlib import Path

RENEWABLE = """Ticket cache: FILE:/tmp/krb5cc_1000
Default principal: anna@EXAMPLE.ORG

Valid starting     Expires            Service principal
11/23/26 04:00:00  11/23/26 14:00:00  krbtgt/EXAMPLE.ORG@EXAMPLE.ORG
\trenew until 11/30/26 04:00:00, Flags: FRI
11/23/26 04:01:00  11/23/26 14:00:00  nfs/filer.example.org@EXAMPLE.ORG
\trenew until 11/30/26 04:00:00, Flags: FRA
"""
PLAIN = """Ticket cache: FILE:/tmp/krb5cc_1000
Default principal: anna@EXAMPLE.ORG

Valid starting     Expires            Service principal
11/23/26 04:00:00  11/23/26 14:00:00  krbtgt/EXAMPLE.ORG@EXAMPLE.ORG
\tFlags: FI
"""
HEIMDAL = """Credentials cache: FILE:/tmp/krb5cc_1000
        Principal: anna@EXAMPLE.ORG

  Issued                Expires               Principal
Nov 23 04:00:00 2026  Nov 23 14:00:00 2026  krbtgt/EXAMPLE.ORG@EXAMPLE.ORG
"""


def at(day: int, hour: int) -> int:
    return int(datetime(2026, 11, day, hour, tzinfo=UTC).timestamp())


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        (RENEWABLE, TicketSeen(True, "anna@EXAMPLE.ORG", at(23, 14), at(30, 4))),
        (PLAIN, TicketSeen(True, "anna@EXAMPLE.ORG", at(23, 14))),
        (
            PLAIN.replace("krbtgt/EXAMPLE.ORG@", "nfs/filer@"),
            TicketSeen(False, "anna@EXAMPLE.ORG", error="klist shows no ticket of its realm"),
        ),
        (
            PLAIN.replace("11/23/26", "23.11.26"),
            TicketSeen(None, "anna@EXAMPLE.ORG", error="klist shows no ticket of its realm"),
        ),
        (HEIMDAL, TicketSeen(None, error="klist's output is not of MIT's form")),
        ("", TicketSeen(None, error="klist's output is not of MIT's form")),
    ],
    ids=["renewable", "not renewable", "another service", "other dates", "Heimdal", "empty"],
)
def test_s20_what_klist_prints(text: str, seen: TicketSeen) -> None:
    """S20."""
    assert kerberos.parse(text) == seen


STAND_IN = """#!/bin/sh
# A stand-in of MIT's klist: it knows -f, and prints times in the zone and the locale that it is given.
[ "$*" = -f ] && [ "$LC_ALL" = C ] && [ "$TZ" = UTC ] || { echo "klist: usage" >&2; exit 2; }
none="No credentials cache found (filename: $KRB5CCNAME)"
[ "$KRB5CCNAME" = FILE:here ] || { echo "klist: $none" >&2; exit 1; }
cat <<'END'
"""


def klist(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    folder.mkdir()
    (folder / "klist").write_text(f"{STAND_IN}{text}END\n")
    (folder / "klist").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


NFS = MountSeen("/source", "nfs", "rw,vers=4.2,sec=krb5p,hard")


def test_s20_klist_is_called_only_where_a_mount_wants_a_ticket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S20."""
    klist(tmp_path / "bin", monkeypatch, RENEWABLE)
    monkeypatch.setenv("KRB5CCNAME", "FILE:here")
    assert row.held([MountSeen("/t", "nfs", "rw,vers=4.2,sec=sys"), MountSeen("/u", "ext4", "rw")]) is None
    assert row.held([MountSeen("/t", "ext4"), NFS]) == kerberos.parse(RENEWABLE)
    monkeypatch.setenv("KRB5CCNAME", "FILE:gone")
    assert row.held([NFS]) == TicketSeen(
        False, error="klist: No credentials cache found (filename: FILE:gone)"
    )
    monkeypatch.setenv("PATH", str(tmp_path))
    assert row.held([NFS]) == TicketSeen(None, error="klist: not there: No such file or directory")


HOUR = 3600
NOW = at(23, 10)


@pytest.mark.parametrize(
    ("seen", "needed", "verdict", "words"),
    [
        (TicketSeen(None, error="klist: not there"), HOUR, "note", "not known (klist: not there)"),
        (TicketSeen(False), HOUR, "warning", "no ticket"),
        (TicketSeen(True, "a@X", at(23, 9)), HOUR, "warning", "it has ended"),
        (TicketSeen(True, "a@X", at(23, 9), at(23, 9)), None, "warning", "it has ended"),
        (TicketSeen(True, "a@X", at(23, 14)), 5 * HOUR, "warning", "lasts until 2026-11-23 14:00 UTC"),
        (
            TicketSeen(True, "a@X", at(23, 14), at(24, 4)),
            24 * HOUR,
            "warning",
            "with renewals until 2026-11-24",
        ),
        (
            TicketSeen(True, "a@X", at(23, 14), at(30, 4)),
            24 * HOUR,
            "note",
            "without renewals it ends in 4 h",
        ),
        (TicketSeen(True, "a@X", at(23, 14), at(30, 4)), HOUR, "ok", "until 2026-11-30 04:00 UTC"),
        (TicketSeen(True, "a@X", at(23, 14)), HOUR, "ok", "until 2026-11-23 14:00 UTC"),
        (TicketSeen(True, "a@X", at(23, 14)), None, "note", "no `cluster.time`"),
    ],
)
def test_s20_the_ticket_beside_the_run(
    seen: TicketSeen, needed: int | None, verdict: str, words: str
) -> None:
    """S20: the rows of `ticket.judged`."""
    (found,) = row.judged("ticket on n1", seen, needed, NOW)
    assert (found.about, found.verdict) == ("ticket on n1", verdict)
    assert words in found.found
    assert found.verdict == "ok" or found.mend or "cluster.time" in found.found


def test_s20_the_run_is_as_long_as_its_steps_may_be() -> None:
    assert row.needed(ClusterConfig()) is None
    day = JobOptions(time=24 * HOUR)
    assert row.needed(ClusterConfig(options=day)) == 2 * 24 * HOUR
    assert row.needed(ClusterConfig(options=day, steps={"verify": JobOptions(time=HOUR)})) == 25 * HOUR
    assert row.needed(ClusterConfig(options=day, steps={"verify": JobOptions()})) is None
