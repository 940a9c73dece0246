"""POSIX ACLs by our own encoder: entries as setfacl reads them, lists as the kernel has them after it."""

from __future__ import annotations

import itertools
import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.target.conftest import need

from penstock.config.annotations import keys_of
from penstock.config.settings import PermissionsConfig
from penstock.core import posix_acl
from penstock.core.posix_acl import GROUP, USER, NamedEntry

if TYPE_CHECKING:
    from pathlib import Path

MODES = (0o440, 0o640, 0o600, 0o755, 0o400, 0o770)
ENTRIES = (
    ("group:4242:r-X",),
    ("user:4243:rwX", "group:4242:r--", "group:4241:r-x"),
    ("g:4242:---",),
    ("u:4243:-w-", "u:4241:rwx"),
)


def our_list(entries: tuple[str, ...], mode: int, *, folder: bool) -> posix_acl.Acl:
    found = [posix_acl.parse(text) for text in entries]
    return posix_acl.made(mode, {(one.tag, int(one.who)): one.bits(mode, folder=folder) for one in found})


@pytest.mark.parametrize("entries", ENTRIES)
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_list_is_the_one_that_setfacl_makes(tmp_path: Path, entries: tuple[str, ...], kind: str) -> None:
    """Byte for byte, mask and `X` included, and the mode that lstat shows."""
    setfacl = need("setfacl")
    for mode in MODES:
        path = tmp_path / f"{kind}{mode:o}"
        path.mkdir() if kind == "folder" else path.touch()
        path.chmod(mode)
        subprocess.run([setfacl, "-m", ",".join(entries), path], check=True)
        raw = os.getxattr(path, "system.posix_acl_access")
        ours = our_list(entries, mode, folder=kind == "folder")
        assert posix_acl.encode(ours) == raw
        assert posix_acl.decode(raw) == ours
        assert posix_acl.shown_mode(mode, ours) == path.stat().st_mode & 0o7777
        os.setxattr(path, "system.posix_acl_access", posix_acl.encode(ours))
        assert os.getxattr(path, "system.posix_acl_access") == raw
        assert len(raw) == posix_acl.size(len(entries))


def test_getfacl_reads_what_we_set(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch(0o640)
    ours = our_list(("user:4243:rwX", "group:4242:r-X"), 0o640, folder=False)
    os.setxattr(path, "system.posix_acl_access", posix_acl.encode(ours))
    told = subprocess.run(
        [need("getfacl"), "-cn", path], check=True, capture_output=True, text=True
    ).stdout.split()
    assert told == ["user::rw-", "user:4243:rw-", "group::r--", "group:4242:r--", "mask::rw-", "other::---"]
    assert posix_acl.in_words(ours) == "user:4243:rw-,group:4242:r--"


def test_lists_are_compared_by_what_they_allow(tmp_path: Path) -> None:
    """A file that inherits `r-x` under the mask of its mode allows what one that was set to `r--` does."""
    inherited = our_list(("group:4242:r-x",), 0o450, folder=False)
    masked = tuple(one._replace(bits=4) if one.tag == posix_acl.MASK else one for one in inherited)
    assert posix_acl.effective(masked) == posix_acl.effective(
        our_list(("group:4242:r--",), 0o440, folder=False)
    )
    assert posix_acl.effective(masked) != posix_acl.effective(inherited)


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("group:genomics:r-X", NamedEntry(GROUP, "genomics", "rX")),
        ("g:genomics:rX", NamedEntry(GROUP, "genomics", "rX")),
        ("user:ann:rw-", NamedEntry(USER, "ann", "rw")),
        ("u:1001:---", NamedEntry(USER, "1001", "")),
        ("group:a.b@site-1:x", NamedEntry(GROUP, "a.b@site-1", "x")),
        ("group:domain users:r", NamedEntry(GROUP, "domain users", "r")),
        ("group:-x:r", NamedEntry(GROUP, "-x", "r")),
    ],
)
def test_entries_are_written_as_for_setfacl(text: str, entry: NamedEntry) -> None:
    assert posix_acl.parse(text) == entry
    assert posix_acl.parse(str(entry)) == entry


@pytest.mark.parametrize(
    "text",
    [
        "group::r-x", "user::rwx", "mask::r-x", "other::---", "default:group:genomics:r-X", "group:genomics:",
        "group:genomics", "genomics:r-x", "group:genomics:rwxx", "group:genomics:5", "",
        "A:g:genomics@site:rx", "group:genomics:r-X\n",
    ],
)  # fmt: skip
def test_what_is_no_entry_of_a_named_user_or_group_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no entry"):
        posix_acl.parse(text)


def test_the_configuration_takes_the_entries_that_are_read() -> None:
    entry = keys_of(PermissionsConfig)["acl"].each
    assert entry is not None
    letters = ["".join(some) for count in range(5) for some in itertools.product("rwxX-", repeat=count)]
    for text in [f"group:genomics:{one}" for one in letters] + ["user::r", "g:a:r", "A::b@c:r"]:
        try:
            posix_acl.parse(text)
        except ValueError:
            assert not entry.kind.allows(text), text
        else:
            assert entry.kind.allows(text), text


def test_a_list_of_another_version_is_no_list() -> None:
    with pytest.raises(ValueError, match="version 3, not 2"):
        posix_acl.decode((3).to_bytes(4, "little"))
    with pytest.raises(ValueError, match="ends early"):
        posix_acl.decode((2).to_bytes(4, "little") + b"1")
