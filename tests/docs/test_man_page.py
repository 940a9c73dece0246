"""The manual page is what its generator prints, and what man(1) shows without a complaint."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from docs import man_page
from penstock.cli import argument_parser
from penstock.cli.command_table import COMMANDS


def shown(*words: str) -> subprocess.CompletedProcess[str]:
    if shutil.which(words[0]) is None:
        pytest.skip(f"no {words[0]} here; on Debian or Ubuntu: apt-get install man-db mandoc")
    return subprocess.run([*words, man_page.PAGE], capture_output=True, text=True, check=False)


def test_the_page_is_what_the_generator_prints() -> None:
    text, date = man_page.written()
    assert text == man_page.page(date), "docs/penstock.1 is out of date: run `make docs`"


def test_man_shows_it_without_a_warning() -> None:
    done = shown("man", "--warnings", "--encoding=UTF-8", "--local-file")
    assert (done.returncode, done.stderr) == (0, "")
    text = re.sub(".\b", "", done.stdout)
    assert "penstock init [OPTION ...] [SOURCE] [TARGET]" in text
    assert "penstock selftest-peer" not in text


def test_mandoc_finds_nothing_wrong() -> None:
    done = shown("mandoc", "-T", "lint", "-W", "warning")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_each_command_option_and_example_stands_there() -> None:
    page = man_page.page("").replace("\\-", "-").replace("\\&", "").replace("\\(ti", "~")
    built = argument_parser.build()
    for command in COMMANDS:
        assert (f"\\fBpenstock {command.typed}\\fR" in page) == command.of_people
        if command.of_people:
            assert all(f"\n{line}\n" in page for line in command.examples)
            for option in argument_parser.options(argument_parser.of_command(built, command)):
                assert f"\\fB{option}\\fR" in page
