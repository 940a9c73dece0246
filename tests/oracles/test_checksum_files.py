"""Checksum files against `sha256sum -c` and `openssl dgst`: what these take and write, and its names."""

from __future__ import annotations

import hashlib
import os
import random
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from penstock.core.errors import ObjectError
from penstock.core.model import SourceChecksum
from penstock.sources import stated_checksums

if TYPE_CHECKING:
    from pathlib import Path

SUM = hashlib.sha256(b"x").hexdigest()
_TOLD = re.compile(rb"(\\?)(.*): FAILED open or read")

LINES = [
    f"{SUM}  two blanks",
    f"{SUM} *binary",
    f"{SUM} one",
    f"{SUM}\ttab",
    f"{SUM}\t tab and blank",
    f"{SUM} \tblank and tab",
    f"{SUM} *",
    f"{SUM}  *star",
    f"{SUM}   three blanks",
    f"{SUM}  trailing ",
    f"{SUM.upper()}  UPPER",
    f"  {SUM}  leading blanks",
    f"\t{SUM}  leading tab",
    f"\\{SUM}  line\\nfeed",
    f"\\{SUM} back\\\\slash",
    f"\\{SUM}  not\\qescaped",
    f"\\{SUM}  ends in\\",
    f"{SUM}  plain\\nbackslash",
    f"SHA256 (bsd) = {SUM}",
    f"SHA256(openssl)= {SUM}",
    f"SHA256 (tight)={SUM}",
    f"SHA256 (wide) \t=  {SUM}",
    f"SHA256 (a (1)) = {SUM.upper()}",
    f"\\SHA256 (line\\nfeed) = {SUM}",
    f"  SHA256 (leading) = {SUM}",
    f"SHA256 (no end = {SUM}",
    f"SHA256 (long) = {SUM}0",
    f"SHA256  (two blanks) = {SUM}",
    f"{SUM}no blank",
    f"{SUM[:-1]}  short",
    "no line of one",
]


def gnu(text: str, folder: Path) -> tuple[list[str], int]:
    """The names that `sha256sum -c` looks for, in order, and how many lines it does not take."""
    sums = folder / "SUMS"
    sums.write_bytes(os.fsencode(text))
    answer = subprocess.run(
        ["sha256sum", "-c", "-w", sums],
        check=False,
        capture_output=True,
        cwd=folder / "empty",
        env={"LC_ALL": "C", "PATH": os.environ["PATH"]},
    )
    names = []
    for line in answer.stdout.splitlines():
        match = _TOLD.fullmatch(line)
        assert match, line
        name = os.fsdecode(match[2])
        names.append(stated_checksums.unescape(name) if match[1] else name)
    return names, answer.stderr.count(b"improperly formatted SHA256")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "empty").mkdir()
    return tmp_path


def same(text: str, folder: Path) -> None:
    names, refused = gnu(text, folder)
    if refused:
        with pytest.raises(ObjectError):
            stated_checksums.parse(text, "SUMS")
    else:
        assert names
        assert stated_checksums.parse(text, "SUMS") == {
            name: SourceChecksum("sha256", "full", SUM) for name in names
        }


@pytest.mark.parametrize("line", LINES)
def test_a_line_is_taken_as_sha256sum_takes_it(line: str, folder: Path) -> None:
    """f3."""
    same(f"{line}\n", folder)
    same(line, folder)


def test_lines_that_windows_ended_are_taken(folder: Path) -> None:
    """f3; coreutils from 9.2 on takes them, the one of Debian 12 (9.1) does not."""
    for line in LINES:
        names, refused = gnu(f"{line}\n", folder)
        if not refused:
            assert list(stated_checksums.parse(f"{line}\r\n", "SUMS")) == names, line


def test_the_first_line_says_whether_one_blank_or_two_stand_before_the_names(folder: Path) -> None:
    """f3. Of a file with both, the second form is refused, or is a name that begins with the blank: as
    sha256sum has it, so that nobody gets another's sum by a blank in a name."""
    generator = random.Random(3)
    for _ in range(60):
        lines = generator.sample(LINES[:24], generator.randint(2, 5))
        same("".join(f"{line}\n" for line in lines), folder)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl")
@pytest.mark.parametrize("options", [[], ["-r"]])
@pytest.mark.parametrize("algorithm", ["md5", "sha1", "sha256", "sha512"])
def test_what_openssl_writes_is_taken(algorithm: str, options: list[str], tmp_path: Path) -> None:
    """f3."""
    names = ["a", "b (2)", "c = d", "e  f"]
    for name in names:
        (tmp_path / name).write_bytes(b"x")
    command = ["openssl", "dgst", f"-{algorithm}", *options, *names]
    text = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path).stdout
    digest = hashlib.new(algorithm, b"x").hexdigest()
    assert stated_checksums.parse(text, "SUMS") == {
        name: SourceChecksum(algorithm, "full", digest) for name in names
    }


@pytest.mark.parametrize(
    ("line", "algorithm"),
    [
        ("SHA2-256(x)= ", "sha256"),
        ("SHA2-512(x)= ", "sha512"),
        ("SHA-256 (x) = ", "sha256"),
        ("MD5(x)= ", "md5"),
    ],
)
def test_the_labels_of_every_openssl_are_known(line: str, algorithm: str) -> None:
    """f3. OpenSSL 1 writes SHA256, 3 writes SHA2-256."""
    digest = hashlib.new(algorithm, b"x").hexdigest()
    assert stated_checksums.parse(line + digest, "SUMS") == {"x": SourceChecksum(algorithm, "full", digest)}


@pytest.mark.parametrize("label", ["HMAC-SHA256", "SHA2-512/256", "SHA3-256", "RSA-SHA256", "BLAKE2s256"])
def test_labels_of_other_algorithms_are_refused_by_name(label: str) -> None:
    with pytest.raises(ObjectError, match="of a kind that is not known") as caught:
        stated_checksums.parse(f"{label}(x)= {SUM}\n", "SUMS")
    assert label in str(caught.value)
