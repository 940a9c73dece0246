"""Names out of a source on the screen and in logs: they steer nothing and cut nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import yaml
from tests.support.commands import penstock

from penstock.cli.error_report import close_log, open_log
from penstock.core.errors import ObjectError
from penstock.core.human import printable, printable_lines

if TYPE_CHECKING:
    from pathlib import Path

TITLE = "evil\x1b]0;PWNED\x07\u202e\r"


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """Two datasets, each with a broken checksum file whose name would set the terminal's title."""
    for name in ("d", "e"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "a").write_bytes(b"a")
        (folder / f"{TITLE}.sha256").write_bytes(b"no checksum at all\n")
    datasets = {name: {"source": name, "checksums": ["*.sha256"]} for name in ("d", "e")}
    document = {"target": {"root": "target", "keep_free": "1MiB"}, "datasets": datasets}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(document))
    return tmp_path


def test_a_message_with_two_datasets_is_escaped(two: Path) -> None:
    """R24."""
    log = two / "list.log"
    done = penstock("step", "list", "d", "e", "--log", str(log), cwd=two)
    assert done.returncode != 0
    assert "\\x1b]0;PWNED\\x07" in done.stderr
    for shown in (done.stderr, done.stdout, log.read_text()):
        assert not {"\x1b", "\x07", "\u202e"} & set(shown)


def test_a_log_file_is_escaped(tmp_path: Path) -> None:
    """F5: `less -R copy.log`, `cat copy.log`."""
    import logging

    path = tmp_path / "x.log"
    handler = open_log(path)
    try:
        log = logging.getLogger("penstock")
        log.warning("d copy %s", TITLE + "\x7f" + os.fsdecode(b"\xff"))
        log.error("%s", ObjectError("refused", where="a\nb", hint="do this"))
    finally:
        close_log(handler)
    text = path.read_text()
    assert printable_lines(text) == text
    assert "\\x1b]0;PWNED\\x07\\u202e\\r\\x7f\\xff\n" in text
    assert text.endswith(" ERROR refused [a\\nb]\n  do this\n")


def test_a_line_feed_in_a_key_does_not_cut_its_message() -> None:
    """F5."""
    error = ObjectError("refused", where="a\nb", why="gone")
    assert str(error).partition("\n")[0] == "refused [a\\nb]: gone"


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_an_element_says_a_name_that_its_locale_cannot(encoding: str) -> None:
    """R22: a name that is not UTF-8 ended the element with "a bug in penstock"."""
    say = r"say(os.fsdecode(b'\xff\xe9') + '\u263a')"
    code = f"import os; from penstock.jobs.element import say; {say}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONIOENCODING": f"{encoding}:strict"},
        capture_output=True, check=True,
    )  # fmt: skip
    assert done.stdout.startswith(b"penstock: \\xff\\xe9")
    assert done.stdout.count(b"\n") == 1


def test_printable_is_one_line() -> None:
    assert printable("a\nb") == "a\\nb"
    assert printable_lines("a\nb\x1b") == "a\nb\\x1b"
