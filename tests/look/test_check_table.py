"""The table of checks: plain for pipes and files, as wide as the terminal and coloured on one."""

from __future__ import annotations

import io
import re

import pytest

from penstock.core.run_steps import CheckResult
from penstock.look.views import text_layout

LONG = "a text of many words " * 12


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_row_in_order_is_one_line_and_others_say_what_is_wanted_and_what_to_do() -> None:
    rows = [
        CheckResult("interpreter", "/opt/python 3.11.2", wanted="not shown of what is in order"),
        CheckResult("storage target 104", "Offline", "stop", "Online", "have its server started"),
        CheckResult("account", "root", "warning"),
        CheckResult("host", "x", "note"),
    ]
    assert text_layout.plain_checks("imagenet", rows).splitlines() == [
        "imagenet",
        "  VERDICT  LOOKED AT           FOUND",
        "  ok       interpreter         /opt/python 3.11.2",
        "  stop     storage target 104  Offline",
        "                               wanted: Online",
        "                               to do: have its server started",
        "  warning  account             root",
        "  note     host                x",
        "  1 ok, 1 note, 1 warning, 1 stop",
    ]
    assert text_layout.plain_checks("x", []).splitlines()[-1] == "  nothing was looked at"


def test_it_fits_into_80_columns_and_breaks_no_path() -> None:
    path = "/" + "folder/" * 20
    text = text_layout.plain_checks(
        "d", [CheckResult(LONG, LONG, "note", LONG, LONG), CheckResult("target", f"{path} ext4")]
    )
    lines = text.splitlines()
    assert all(len(line) <= 80 or path in line for line in lines)
    assert any(path in line for line in lines)


def test_names_cannot_steer_a_terminal() -> None:
    text = text_layout.plain_checks(
        "d\x1b[2J", [CheckResult("a\x1b]0;x", "b\u202e", "stop", "c\x07", "d\x9b")]
    )
    assert text.isascii()
    assert "\x1b" not in text


@pytest.mark.parametrize(("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colours_are_for_terminals(
    environment: dict[str, str], coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm", "COLUMNS": "140", **environment}.items():
        monkeypatch.setenv(name, value)
    stream = Terminal()
    text_layout.show_checks(stream, "d", [CheckResult("target", LONG, "warning")])
    text = stream.getvalue()
    assert ("\x1b[33m" in text) == coloured
    bare = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert bare == text_layout.plain_checks("d", [CheckResult("target", LONG, "warning")], 140)
    assert 80 < max(map(len, bare.splitlines())) <= 140


def test_a_pipe_and_a_dumb_terminal_get_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [CheckResult("target", "x", "stop")]
    pipe, dumb = io.StringIO(), Terminal()
    text_layout.show_checks(pipe, "d", rows)
    monkeypatch.setenv("TERM", "dumb")
    text_layout.show_checks(dumb, "d", rows)
    assert pipe.getvalue() == dumb.getvalue() == text_layout.plain_checks("d", rows)
