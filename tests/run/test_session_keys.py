"""Session keys that end while a step works: the step ends by name, and with new keys the same command goes on
and fetches nothing again. Keys that are renewed in time need nobody."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.hostile import Hostile
from tests.support.published import content, data_of, flip, published
from tests.support.staging_runs import tree
from tests.support.whole_way import go, records, staging, texts

from penstock.config.settings import DatasetConfig, PlanConfig, SourceConfig
from penstock.core.errors import ExpiredCredentialsError, FailedError
from penstock.engine import credential_renewal
from penstock.engine.credential_renewal import Credentials
from penstock.engine.pool import Refused
from penstock.keep import audit_step, gate_repair, repair_step
from penstock.run import adopt_step, list_step
from penstock.run.adopt_step import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.hostile import Asked

    from penstock.dataset.context import Context

SMALL = {f"d{i % 3}/f{i:02d}": content(i, 2000 + i) for i in range(60)}
GIANTS = {f"giant{i}": content(i, 120_000 + i) for i in range(3)}
SOON = 30.0
"""Seconds within which a step with keys of the environment ends: much less than the minute of others."""


class Sessions:
    """A store whose sessions end: `after(n, of)` ends the present one, but for the next `n` requests of those
    that `of` picks. The keys are those of the environment, by `new` or `export`."""

    def __init__(self, server: Hostile, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server, self._monkeypatch = server, monkeypatch
        self._left: dict[str, int] = {}
        self._of: Callable[[Asked], bool] = lambda _: True
        self.number = 0
        server.ended = self._ended
        for name in ("AWS_PROFILE", "AWS_SECURITY_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ASIA")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        self.new()

    def new(self) -> str:
        self.number += 1
        token = f"session{self.number}"
        self._monkeypatch.setenv("AWS_SESSION_TOKEN", token)
        return token

    def after(self, count: int, of: Callable[[Asked], bool] = lambda asked: bool(asked.key)) -> None:
        self._of = of
        self._left[f"session{self.number}"] = count

    def _ended(self, asked: Asked) -> str:
        token = asked.headers.get("x-amz-security-token", "")
        if token not in self._left:
            return ""
        if self._of(asked):
            self._left[token] -= 1
        return "ExpiredToken" if self._left[token] < 0 else ""

    def fetched(self) -> Counter[tuple[str, str]]:
        """Key and range of all GETs of objects that were answered."""
        refused = {id(asked) for asked in self.server.refused}
        answered = [one for one in self.server.asked if id(one) not in refused]
        return Counter((one.key, one.range) for one in answered if one.key and one.method == "GET")


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sessions]:
    with Hostile(SMALL | GIANTS, dict.fromkeys(GIANTS, "crc"), page=20) as server:
        yield Sessions(server, monkeypatch)


def options(server: Hostile, **more: Any) -> dict[str, Any]:
    return {"endpoint_url": server.endpoint, "region": "eu-1", **more}


@contextmanager
def staged(tmp_path: Path, server: Hostile, **more: Any) -> Iterator[Context]:
    source = SourceConfig(f"s3://{server.bucket}/", "", options(server, **more))
    with staging(tmp_path, source.url, sources=(source,)) as context:
        yield context


def ends_by_name(step: Callable[[], object], *words: str) -> FailedError:
    began = time.monotonic()
    with pytest.raises(FailedError) as caught:
        step()
    assert time.monotonic() - began < SOON
    for word in (*words, "run the same command"):
        assert word in str(caught.value), str(caught.value)
    assert type(caught.value) is FailedError
    return caught.value


ENDED = ("the session's keys ended", "ExpiredToken", "renew them in the environment")


@pytest.mark.parametrize("pages", [1, 3])
def test_in_list(tmp_path: Path, sessions: Sessions, pages: int) -> None:
    sessions.after(pages, lambda asked: not asked.key)
    with staged(tmp_path, sessions.server) as context:
        ends_by_name(lambda: list_step.run(context, "data"), *ENDED)
        sessions.new()
        assert list_step.run(context, "data")["files"] == len(SMALL | GIANTS)


def test_in_copy_of_small_objects_and_of_parts(tmp_path: Path, sessions: Sessions) -> None:
    with staged(tmp_path, sessions.server) as context:
        go(context, upto="plan")
        sessions.after(30)
        ends_by_name(lambda: go(context, after="plan", upto="copy"), *ENDED)
        assert len(sessions.server.refused) < 40
        first = sessions.fetched()
        sessions.new()
        go(context, after="plan")
        assert texts(context) == []
        assert {path: record.size for path, record in records(context).items()} == {
            key: len(data) for key, data in sessions.server.objects.items()
        }
        # What was under way when the first refusal came may be fetched again, nothing that was recorded.
        again = [place for place, count in sessions.fetched().items() if count > 1]
        assert len(first) >= 10
        assert len(again) <= 8, again


def test_in_publish_where_giants_checksums_are_queried(tmp_path: Path, sessions: Sessions) -> None:
    with staged(tmp_path, sessions.server) as context:
        go(context, upto="verify")
        sessions.after(0)
        before = sessions.fetched()
        ends_by_name(lambda: go(context, after="verify"), *ENDED)
        sessions.new()
        assert go(context, after="verify")["published"]
        assert texts(context) == []
        assert sessions.fetched() == before


def test_in_adopt_that_reads_the_source(
    tmp_path: Path, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    copy = tree(tmp_path / "copy", sessions.server.objects)
    request = Request(copy, read_source=True)
    with staged(tmp_path, sessions.server) as context:
        sessions.after(20)
        ends_by_name(lambda: adopt_step.run(context, "data", request), *ENDED)
        sessions.new()
        result = adopt_step.run(context, "data", request)
        assert result["status"] == "SAME"
        again = [place for place, count in sessions.fetched().items() if count > 1]
        assert len(again) <= 8, again


@pytest.mark.parametrize("by", ["repair", "mend"])
def test_in_repair_and_in_gate_that_mends(tmp_path: Path, sessions: Sessions, by: str) -> None:
    server = sessions.server
    plan = PlanConfig(giant_bytes=100_000, part_bytes=30_000)
    with published(tmp_path, f"s3://{server.bucket}/", options=options(server), plan=plan) as context:
        for key in SMALL:
            flip(data_of(context) / key)
        assert audit_step.run(context, "data")["counts"] == {"changed": len(SMALL)}
        sessions.after(20)

        def step() -> object:
            return repair_step.run(context, "data") if by == "repair" else gate_repair.run(context, "data")

        server.asked.clear()
        ends_by_name(step, *ENDED)
        sessions.new()
        step()
        assert audit_step.run(context, "data")["counts"] == {}
        again = [place for place, count in sessions.fetched().items() if count > 1]
        assert len(again) <= 8, again


def test_keys_that_a_file_has_anew_go_on_without_a_person(tmp_path: Path, sessions: Sessions) -> None:
    """Also the sizes of parts and checksums, which HEAD requests and whose refusals are without a word."""
    keys = tmp_path / "keys"

    def write() -> None:
        temporary = tmp_path / "keys.new"
        token = sessions.new()
        temporary.write_text(f"aws_access_key_id=A\naws_secret_access_key=S\naws_session_token={token}\n")
        temporary.chmod(0o600)
        temporary.rename(keys)

    write()
    with staged(tmp_path, sessions.server, credentials_file=str(keys)) as context:
        go(context, upto="plan")
        answer, lock = sessions.server.ended, threading.Lock()

        def ended(asked: Asked) -> str:
            with lock:
                refusal = answer(asked)
                if refusal and asked.headers["x-amz-security-token"] == f"session{sessions.number}":
                    write()
            return refusal

        sessions.server.ended = ended
        sessions.after(20)
        go(context, after="plan", upto="verify")
        assert sessions.server.refused
        sessions.after(0)
        go(context, after="verify")
        assert sessions.server.refused[-1].method == "GET"  # the HEAD before it was asked again for its cause
        assert texts(context) == []
        assert {record.source_grade for path, record in records(context).items() if path in GIANTS} == {
            "full"
        }


class Held:
    """What `Credentials.tend` needs of the pool."""

    refused_keys: Refused | None = None
    sent: Any = None

    def renew(self, credentials: Any) -> None:
        self.sent = credentials


def test_files_and_helpers_are_asked_for_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the first refusal, and then every RENEW_PAUSE; what failed is said."""
    keys = tmp_path / "keys"
    keys.write_text("aws_access_key_id=A\naws_secret_access_key=S\n")
    keys.chmod(0o600)
    source = SourceConfig("s3://b/", "", {"credentials_file": str(keys)})
    credentials, pool = Credentials(DatasetConfig("data", (source,))), Held()
    now = [1000.0]
    monkeypatch.setattr(credential_renewal.time, "monotonic", lambda: now[0])

    def refuse(seconds: float) -> None:
        now[0] += seconds
        pool.refused_keys = Refused(0, ExpiredCredentialsError("the keys ended", where="s3://b/k", why="400"))
        credentials.tend(pool)  # type: ignore[arg-type]
        if credentials._attempt is not None:
            credentials._attempt.join()
        credentials.tend(pool)  # type: ignore[arg-type]

    refuse(0)
    assert pool.sent == credentials.current
    keys.unlink()
    for _ in range(3):
        refuse(15)
    with pytest.raises(FailedError, match="the credentials file cannot be read") as caught:
        refuse(15)
    assert str(keys) in str(caught.value)
    # Refusals that began long after the last ones are others.
    refuse(600)
    refuse(15)
    refuse(15)
    keys.write_text("aws_access_key_id=A\naws_secret_access_key=S\n")
    keys.chmod(0o600)
    refuse(15)
    with pytest.raises(FailedError, match="the keys ended") as caught:
        refuse(15)
    assert f"renew them in {keys}" in str(caught.value)


def test_checksum_files_are_read_with_keys_that_a_file_has_anew(tmp_path: Path, sessions: Sessions) -> None:
    server, keys = sessions.server, tmp_path / "keys"
    name = min(SMALL)
    server.objects["sums.sha256"] = f"{hashlib.sha256(SMALL[name]).hexdigest()}  {name}\n".encode()

    def write() -> None:
        keys.write_text(f"aws_access_key_id=A\naws_secret_access_key=S\naws_session_token={sessions.new()}\n")
        keys.chmod(0o600)

    write()
    answer = server.ended

    def ended(asked: Asked) -> str:
        refusal = answer(asked)
        if refusal:
            write()
        return refusal

    server.ended = ended
    sessions.after(0)
    with staged(tmp_path, server, credentials_file=str(keys)) as context:
        data = replace(context.config.datasets["data"], checksums=("*.sha256",))
        context.config = replace(context.config, datasets={"data": data})
        assert list_step.run(context, "data")["files"] == len(SMALL | GIANTS) + 1
    assert [one.key for one in server.refused] == ["sums.sha256"]
