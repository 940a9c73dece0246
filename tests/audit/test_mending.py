"""`gate --mend`: what a purge or rot took is fetched anew right before a job, and nothing else is touched."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.commands import penstock
from tests.support.published import content, data_of, flip, pinned_by_another, publish, published, writable
from tests.support.s3server import S3Server
from tests.support.seals import PLAIN
from tests.support.staging_runs import tree

from penstock.config.settings import VerifyConfig
from penstock.core.errors import FindingsError, LockedError
from penstock.core.findings import AuditSelection
from penstock.dataset import gate, pins, release_records
from penstock.jobs.audits_and_adoptions import drawn
from penstock.jobs.dataset_state import lock_of
from penstock.keep import audit_step, gate_repair
from penstock.target import notices

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.core.step_results import MendResult
    from penstock.dataset.context import Context

COUNT = int(os.environ.get("PENSTOCK_TEST_MENDED", "2000"))
WHOLE = gate_repair.Wish(choice=AuditSelection())


@pytest.fixture
def fetched(tmp_path: Path) -> Iterator[tuple[Context, S3Server]]:
    source = tree(tmp_path / "source", {f"d{i % 7}/f{i:03d}": content(i, 2000 + i) for i in range(60)})
    with (
        S3Server(source) as server,
        published(tmp_path, server.url(), options={"endpoint_url": server.endpoint, "anon": True}) as context,
    ):
        yield context, server


def gone(data: Path, *paths: str) -> None:
    """As a purge by its owner or by root takes files: folders stay, their modes too."""
    for path in paths:
        with writable((data / path).parent):
            (data / path).unlink()


def shown(data: Path) -> dict[str, Any]:
    """What every file below `data` is, by bytes, mode and modification time."""
    files = (one for one in sorted(data.rglob("*")) if one.is_file())
    return {
        str(one.relative_to(data)): (one.read_bytes(), one.stat().st_mode, one.stat().st_mtime_ns)
        for one in files
    }


def gets(server: S3Server, since: int) -> list[str]:
    return sorted(one.key for one in server.requests()[since:] if one.method == "GET")


def test_what_a_purge_took_is_fetched_alone_and_the_gate_opens(fetched: tuple[Context, S3Server]) -> None:
    context, server = fetched
    data = data_of(context)
    before = shown(data)
    inodes = {path: (data / path).stat().st_ino for path in before}
    times = {path: (data / path).stat().st_ctime_ns for path in before}
    lost = ["d0/f007", "d1/f001", "d6/f006"]
    gone(data, *lost)
    flip(data / "d2/f002", 100)
    since = len(server.requests())
    result = gate_repair.run(context, "data", WHOLE)
    assert gets(server, since) == [*lost[:2], "d2/f002", lost[2]]
    assert (result["status"], result["repaired"], result["files"]) == ("REPAIRED", 4, 60)
    assert shown(data) == before
    kept = [path for path in before if path not in {*lost, "d2/f002"}]
    assert {path: (data / path).stat().st_ino for path in kept} == {path: inodes[path] for path in kept}
    assert {path: (data / path).stat().st_ctime_ns for path in kept} == {path: times[path] for path in kept}
    gate.passed(context.layout("data"))
    # What was repaired is not looked at by the next repair.
    flip(data / "d3/f003", 100)
    since = len(server.requests())
    assert gate_repair.run(context, "data", WHOLE)["repaired"] == 1
    assert gets(server, since) == ["d3/f003"]
    assert release_records.history_lines(context.layout("data")).__next__().event == "repair"


def test_a_whole_release_costs_a_look_and_leaves_no_audit(fetched: tuple[Context, S3Server]) -> None:
    context, server = fetched
    layout = context.layout("data")
    since = len(server.requests())
    result = gate_repair.run(context, "data")
    assert (result["status"], result["read"], result["promise"]) == (
        "WHOLE", 60, "one damaged file is found with a probability of 100.00%, 1 or more with at least 95%"
    )  # fmt: skip
    assert not server.requests()[since:]
    assert list(layout.audits.iterdir()) == []
    assert release_records.read_verdict(layout, result["release"]) is not None


def test_the_sample_states_what_it_can_miss(fetched: tuple[Context, S3Server]) -> None:
    context, _ = fetched
    result = gate_repair.run(context, "data", gate_repair.Wish(choice=AuditSelection("sample", 0.2, "seed")))
    assert result["read"] < 60
    assert result["promise"].startswith("one damaged file is found with a probability of 20.00%")


@pytest.mark.parametrize(
    ("files", "size", "share"),
    [(10, 1000, 1.0), (100_000, 1 << 30, 0.01), (1000, 400 << 30, 0.01), (0, 0, 1.0)],
)
def test_the_default_sample_is_as_large_as_is_read_in_seconds(files: int, size: int, share: float) -> None:
    assert gate_repair.sample_fraction(PLAIN._replace(files=files, bytes=size)) == pytest.approx(share)


def test_a_file_of_another_time_is_read_and_never_touched(fetched: tuple[Context, S3Server]) -> None:
    """One has the published bytes, one has others of the same size."""
    context, server = fetched
    data = data_of(context)
    nothing = gate_repair.Wish(choice=AuditSelection("sample", 1e-9, "seed"))
    os.utime(data / "d3/f003", ns=(5, 5))
    result = gate_repair.run(context, "data", nothing)
    assert (result["status"], result["touched"], result["read"]) == ("WHOLE", 1, 1)
    assert (data / "d3/f003").stat().st_mtime_ns == 5
    before = (data / "d4/f004").read_bytes()
    flip(data / "d4/f004", 100)
    os.utime(data / "d4/f004", ns=(6, 6))
    since = len(server.requests())
    result = gate_repair.run(context, "data", nothing)
    assert (result["status"], result["touched"], result["repaired"]) == ("REPAIRED", 2, 1)
    assert gets(server, since) == ["d4/f004"]
    assert (data / "d4/f004").read_bytes() == before
    assert (data / "d3/f003").stat().st_mtime_ns == 5


def test_more_touched_files_than_a_look_reads_keep_the_gate_closed(
    fetched: tuple[Context, S3Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    context, _ = fetched
    monkeypatch.setattr(audit_step, "TOUCHED_FILES", 1)
    for path in ("d3/f003", "d4/f004"):
        os.utime(data_of(context) / path, ns=(5, 5))
    with pytest.raises(FindingsError, match=r"2 files of 3\.91 KiB have other modification times"):
        gate_repair.run(context, "data")


def test_what_changed_at_the_source_is_refused_and_the_gate_stays_closed(
    fetched: tuple[Context, S3Server], tmp_path: Path
) -> None:
    context, _ = fetched
    data = data_of(context)
    before = shown(data)
    gone(data, "d0/f000", "d1/f001")
    (tmp_path / "source/d0/f000").write_bytes(b"another version")
    with pytest.raises(FindingsError, match="could not be repaired") as error:
        gate_repair.run(context, "data", WHOLE)
    assert "d0/f000" in error.value.why
    assert "changed" in error.value.why
    del before["d0/f000"]
    assert shown(data) == before
    with pytest.raises(FindingsError):
        gate.passed(context.layout("data"))


def test_findings_of_an_earlier_audit_are_repaired_too(fetched: tuple[Context, S3Server]) -> None:
    context, _ = fetched
    flip(data_of(context) / "d5/f005", 100)
    assert audit_step.run(context, "data")["status"] == "FINDINGS"
    # This look reads nothing, and finds nothing.
    result = gate_repair.run(context, "data", gate_repair.Wish(choice=AuditSelection("sample", 1e-9, "seed")))
    assert (result["status"], result["repaired"]) == ("REPAIRED", 1)
    assert audit_step.run(context, "data")["status"] == "PASSED"


def test_nothing_is_repaired_under_a_reader_that_pinned_the_release(
    fetched: tuple[Context, S3Server],
) -> None:
    context, server = fetched
    layout, data = context.layout("data"), data_of(context)
    pin = pinned_by_another(context, lambda: gate.passed(layout))
    gone(data, "d0/f000")
    since = len(server.requests())
    with pytest.raises(FindingsError, match="not repaired while others read it") as error:
        gate_repair.run(context, "data", WHOLE)
    assert pin.name in error.value.why
    assert not gets(server, since)
    notices.withdraw(layout.pins, pin.name)
    assert gate_repair.run(context, "data", WHOLE)["status"] == "REPAIRED"


def test_the_pin_of_this_very_reader_is_no_obstacle(fetched: tuple[Context, S3Server]) -> None:
    context, _ = fetched
    layout = context.layout("data")
    pins.pinned(layout, lambda: gate.passed(layout))
    gone(data_of(context), "d0/f000")
    assert gate_repair.run(context, "data", WHOLE)["status"] == "REPAIRED"


def test_one_look_at_a_time_and_others_wait_for_it(fetched: tuple[Context, S3Server]) -> None:
    context, server = fetched
    layout = context.layout("data")
    release = data_of(context).parent.name
    gone(data_of(context), "d0/f000")
    since = len(server.requests())
    results: list[MendResult] = []
    with lock_of(context, layout, release, "gate", "gate.lock"):
        with pytest.raises(LockedError):
            gate_repair.run(context, "data", replace(WHOLE, patience=0.0))
        waiting = threading.Thread(target=lambda: results.append(gate_repair.run(context, "data", WHOLE)))
        waiting.start()
        while not any("waiting" in str(one) for one in list(_events(context))):
            assert waiting.is_alive()
            time.sleep(0.01)
    waiting.join()
    assert results[0]["status"] == "REPAIRED"
    assert gets(server, since) == ["d0/f000"]


def _events(context: Context) -> list[Any]:
    seen: list[Any] = getattr(context.sink, "__self__")  # noqa: B009 (a bound list.append)
    return seen


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes its account")
def test_another_account_gets_4_and_the_owners_command(
    fetched: tuple[Context, S3Server], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """L9 of readers: the look of a stranger, who may read the release."""
    context, server = fetched
    data = data_of(context)
    os.chown(context.layout("data").folder, 12345, -1)
    target = replace(context.config.target, owners=("0", "12345"))
    context.config = replace(context.config, target=target)
    assert gate_repair.run(context, "data")["promise"].startswith("no file was read")
    gone(data, "d0/f000")
    since = len(server.requests())
    with pytest.raises(FindingsError, match=r"not as it was published|not whole") as error:
        gate_repair.run(context, "data")
    assert "runs `penstock gate data --mend`" in error.value.hint
    assert not (data / "d0/f000").exists()
    assert not server.requests()[since:]


def test_the_command(fetched: tuple[Context, S3Server], tmp_path: Path) -> None:
    context, server = fetched
    config = tmp_path / "config.yaml"
    options = f"{{endpoint_url: '{server.endpoint}', anon: true}}"
    config.write_text(
        f"target: {{root: {context.config.target.root}, keep_free: 0}}\n"
        f"datasets: {{data: {{source: '{server.url()}', storage_options: {options}}}}}\n"
    )
    gone(data_of(context), "d0/f000")
    assert penstock("--config", str(config), "gate", "data").returncode in (0, 4)
    receipt = tmp_path / "receipt.json"
    done = penstock("--config", str(config), "gate", "data", "--mend", "--receipt", str(receipt))
    assert done.returncode == 0, done.stderr
    assert "repaired: 1 file, 2 kB fetched" in done.stdout or "repaired: 1 file" in done.stdout
    assert "is found with a probability of 100.00%" in done.stdout
    assert json.loads(receipt.read_text())["status"] == "REPAIRED"
    done = penstock("--config", str(config), "gate", "data", "--sample", "1%")
    assert done.returncode == 2


def test_a_twentieth_of_the_files_and_three_sampled_bytes(tmp_path: Path) -> None:
    """Show 5, at 2,000 files, or as many as PENSTOCK_TEST_MENDED says: 5 % removed, 3 bytes flipped in files
    that the look draws. All is fetched again, nothing else is."""
    names = [f"d{i % 50:02d}/f{i:06d}" for i in range(COUNT)]
    source = tree(tmp_path / "source", {name: content(i, 4000 + i % 97) for i, name in enumerate(names)})
    with published(tmp_path, source) as context:
        data = data_of(context)
        choice = AuditSelection("sample", min(1.0, 1000 / COUNT), "seed")
        sampled = [names[i] for i in drawn(choice, list(map(os.fsencode, names)), [])]
        dice = random.Random(5)
        flipped = dice.sample(sampled, 3)
        lost = dice.sample(sorted(set(names) - set(flipped)), COUNT // 20)
        for name in lost:
            gone(data, name)
        for name in flipped:
            flip(data / name, dice.randrange(4000))
        result = gate_repair.run(context, "data", gate_repair.Wish(choice=choice))
        assert (result["status"], result["repaired"]) == ("REPAIRED", len(lost) + 3)
        sizes = {name: 4000 + i % 97 for i, name in enumerate(names)}
        assert result["fetched_bytes"] == sum(sizes[name] for name in [*lost, *flipped])
        seconds = f"look {result['look_seconds']} s, repair {result['repair_seconds']} s"
        print(f"{COUNT} files, {len(lost)} lost: {seconds}")
        assert audit_step.run(context, "data")["status"] == "PASSED"


def test_text_manifests_that_a_purge_took_are_made_again(tmp_path: Path) -> None:
    source = tree(tmp_path / "source", {"a": b"a", "b": b"b", "odd\\name": b"c"})
    with published(tmp_path, source, verify=VerifyConfig(digests=("xxh3_128", "sha256"))) as context:
        folder = data_of(context).parent
        names = ("manifest.xxh128", "manifest.sha256")
        before = {name: ((folder / name).read_bytes(), (folder / name).stat().st_mode) for name in names}
        mode = folder.stat().st_mode
        with writable(folder):
            for name in names:
                (folder / name).unlink()
        result = gate_repair.run(context, "data")
        assert (result["status"], result["repaired"], result["fetched_bytes"]) == ("REPAIRED", 2, 0)
        assert {n: ((folder / n).read_bytes(), (folder / n).stat().st_mode) for n in names} == before
        assert folder.stat().st_mode == mode
        # By a manifest.parquet that is not the sealed one nothing is made.
        with writable(folder):
            (folder / names[0]).unlink()
            (folder / "manifest.parquet").chmod(0o600)
            (folder / "manifest.parquet").write_bytes(b"PAR1PAR1")
        with pytest.raises(FindingsError, match=r"manifest or the seal is damaged|no finished audit"):
            gate_repair.run(context, "data")
        assert not (folder / names[0]).exists()


def test_publishing_meanwhile_is_no_obstacle(tmp_path: Path) -> None:
    source = tree(tmp_path / "source", {"a": b"a", "b": b"b"})
    with published(tmp_path, source) as context:
        first = gate_repair.run(context, "data")["release"]
        tree(source, {"c": b"c"})
        publish(context)
        assert gate_repair.run(context, "data")["release"] != first
