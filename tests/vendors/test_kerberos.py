"""The Kerberos ticket (S20): klist's words, as MIT's 1.20.1 printed them for caches made for it, and what
follows from them."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from tests.support.staging_runs import context_for, events_of, tree

from penstock.config.settings import ClusterConfig, JobOptions
from penstock.core.documents.node_answer import MountSeen, TicketSeen
from penstock.planning import ticket_life
from penstock.runtime.mounts import Mount
from penstock.steps import list_step, plan_step
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
    assert row.needed(ClusterConfig(options=day, steps={"verify": JobOptions(time=None)})) is None


COPYING = "copy takes about 5 h 00 min"


@pytest.mark.parametrize(
    ("seen", "hours", "words"),
    [
        (None, 5, ""),
        (TicketSeen(None, error="klist: not there"), 5, ""),
        (TicketSeen(False), 5, ""),
        (TicketSeen(True, "a@X", at(23, 9)), 0, ""),
        (TicketSeen(True, "a@X", at(23, 15)), 5, ""),
        (TicketSeen(True, "a@X", at(23, 12), at(30, 4)), 5, ""),
        (TicketSeen(True, "a@X", at(23, 14)), 5, "lasts until 2026-11-23 14:00 UTC, before the copy can end"),
        (TicketSeen(True, "a@X", at(23, 12), at(23, 14)), 5, "lasts with renewals until 2026-11-23 14:00"),
        (TicketSeen(True, "a@X", at(23, 9)), 5, COPYING),
    ],
)
def test_s20_the_ticket_beside_the_copy_as_plan_forecasts_it(
    seen: TicketSeen | None, hours: int, words: str
) -> None:
    """S20: the rows of `ticket_life.outlasted`."""
    results = ticket_life.outlasted(seen, hours * HOUR, COPYING, NOW)
    assert [(one.about, one.verdict) for one in results] == ([("ticket", "warning")] if words else [])
    assert words in " ".join(one.found for one in results)
    assert all("kinit -r" in one.mend for one in results)


def test_s20_plan_looks_at_mounts_on_the_way_to_its_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S20: by the mount table; no call is made on such a mount."""
    klist(tmp_path / "bin", monkeypatch, RENEWABLE)
    monkeypatch.setenv("KRB5CCNAME", "FILE:here")
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mountinfo").write_text(
        "22 1 254:0 / / rw - ext4 /dev/vda rw\n"
        f"30 22 0:30 / {tmp_path}/secure rw - nfs4 filer:/x rw,vers=4.2,sec=krb5i\n"
        f"31 22 0:31 / {tmp_path}/plain rw - nfs4 filer:/y rw,vers=4.2,sec=sys\n"
    )
    assert ticket_life.of_folders([tmp_path, tmp_path / "plain/a"], tmp_path) is None
    assert ticket_life.of_folders([tmp_path, tmp_path / "secure/a"], tmp_path) == kerberos.parse(RENEWABLE)
    urls = [f"file://{tmp_path}/a", "s3://bucket/b", str(tmp_path / "c")]
    assert ticket_life.source_folders(urls) == [tmp_path / "a", tmp_path / "c"]


@pytest.mark.parametrize(("lives", "warns"), [(timedelta(seconds=-1), True), (timedelta(days=2), False)])
def test_s20_plan_warns_of_a_ticket_that_ends_before_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lives: timedelta, warns: bool
) -> None:
    """S20: the plan says so, too."""
    form = "%m/%d/%y %H:%M:%S"
    end = f"{datetime.fromtimestamp(time.time(), UTC) + lives:{form}}"
    text = RENEWABLE.replace("11/30/26 04:00:00", end).replace("11/23/26 14:00:00", end)
    klist(tmp_path / "bin", monkeypatch, text)
    monkeypatch.setenv("KRB5CCNAME", "FILE:here")
    monkeypatch.setattr(
        ticket_life, "network_mount", lambda *_: Mount("0:1", "/x", "nfs4", "rw,sec=krb5", "s:/x")
    )
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"1"}))
    list_step.run(context, "data")
    why = plan_step.run(context, "data")["why"]
    warned = [one.data["text"] for one in events_of(context) if one.kind == "warning"]
    for texts in (why, warned):
        said = [text for text in texts if text.startswith("ticket: of anna@EXAMPLE.ORG, lasts until")]
        assert len(said) == warns
        for text in said:
            assert "before the copy can end: copy takes about 1.0 s with 1 element" in text
            assert "assumed: nothing measured yet" in text
            assert "kinit -r 7d" in text
