"""What lets somebody in, in the words of messages."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from penstock.cli import error_report
from penstock.core.errors import FailedError, SourceChangedError
from penstock.core.human import masked, masked_words
from penstock.host import command

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "5ecre7OfTheStore"


@pytest.mark.parametrize(
    "text",
    [
        f"https://b.example.org/x?X-Amz-Signature={SECRET}",
        f"https://b.example.org/x?n=1&X-Amz-Security-Token={SECRET}&m=2",
        f"https://b.example.org/x?X-Goog-Signature={SECRET}#a",
        f"https://a.blob.example.org/c/x?sv=2024&sig={SECRET}",
        f"/x?Expires=1&Signature={SECRET}",
        f"to gopher://h/x?access_token={SECRET}",
        f"ftp://me:{SECRET}@h/x",
        f"ssh://me:{SECRET}@h:22/x",
        "AKIAABCDEFGHIJKLMNOP",
        f"Authorization: Bearer {SECRET}",
        f"eyJhbGciOiJSUzI1NiIsImtpZCI6.{SECRET}",
    ],
)
def test_no_message_has_what_lets_somebody_in(text: str, tmp_path: Path) -> None:
    for error in (FailedError(text), FailedError("x", where=text, why=text, hint=text)):
        again = SourceChangedError("y", why=error.reason)
        for said in (str(error), error.reason, str(again), repr(error)):
            assert SECRET not in said
            assert "IJKLMNOP" not in said
    handlers = error_report.open_log(tmp_path / "log")
    logging.getLogger("penstock").warning("%s", text)
    error_report.close_log(handlers)
    logged = (tmp_path / "log").read_text()
    assert "..." in logged
    assert SECRET not in logged


@pytest.mark.parametrize(
    "text",
    [
        "a line `aws_secret_access_key=` is missing", "s3://bucket/key=1/token/x",
        "sha256:0123456789abcdef0123456789abcdef",
        "ssh://me@host/x", "abfs://container@account/x", "https://h/x?versionId=17&list-type=2",
        "/beegfs/Some/Long/Path/With/MixedCase/And/MoreThan32Letters", "'a?b' is no time: 12:30",
    ],
)  # fmt: skip
def test_everything_else_stays(text: str) -> None:
    assert masked(text) == text


def test_a_commands_words_have_no_value_of_what_it_calls_a_secret() -> None:
    said = command.run(["/bin/sh", "-c", f"echo no login: token={SECRET}, password: {SECRET} >&2; exit 3"])
    assert (said.code, said.words) == (3, "no login: token=..., password: ...")
    for words in ("the key of dataset d is fine", "Load key: invalid format"):
        assert masked_words(words) == words
