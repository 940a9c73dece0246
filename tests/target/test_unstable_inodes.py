"""File systems whose inode numbers change from one look to the next (FUSE without `use_ino`), by a library
that is loaded before libc and numbers whatever lies below the target anew each time."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.support.commands import ROOT
from tests.support.staging_runs import tree
from tests.support.whole_way import content
from tests.target.conftest import need

if TYPE_CHECKING:
    from pathlib import Path

LIBRARY = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
static unsigned long next = 1000;
static int below(int fd, const char *path) {
    char link[64], found[4096] = "";
    const char *root = getenv("UNSTABLE");
    if (path && path[0] == '/') return !strncmp(path, root, strlen(root));
    if (fd == AT_FDCWD) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    long n = readlink(link, found, sizeof found - 1);
    return n > 0 && !strncmp(found, root, strlen(root));
}
#define REAL(name) static int (*real)(); if (!real) real = (int (*)())dlsym(RTLD_NEXT, name)
static int made(int result, int mine, struct stat64 *s) {
    if (!result && mine) s->st_ino = __sync_add_and_fetch(&next, 1);
    return result;
}
int stat64(const char *p, struct stat64 *s) {
    REAL("stat64"); return made(real(p, s), below(AT_FDCWD, p), s);
}
int lstat64(const char *p, struct stat64 *s) {
    REAL("lstat64"); return made(real(p, s), below(AT_FDCWD, p), s);
}
int fstat64(int f, struct stat64 *s) { REAL("fstat64"); return made(real(f, s), below(f, 0), s); }
int fstatat64(int f, const char *p, struct stat64 *s, int g) {
    REAL("fstatat64"); return made(real(f, p, s, g), below(f, p), s);
}
"""

PROGRAM = """
import os, sys
first, second = os.stat(sys.argv[2]).st_ino, os.stat(sys.argv[2]).st_ino
assert first != second, "the library is not loaded"
from penstock.cli.main import main
steps = ("list", "plan", "copy", "permissions", "verify", "publish")
for words in (["preflight"], *(["step", step] for step in steps)):
    code = main(["--config", sys.argv[1], *words, "data"])
    if code:
        sys.exit(code)
"""


@pytest.fixture
def unstable(tmp_path: Path) -> dict[str, str]:
    """The environment in which inode numbers below the target are unstable."""
    code, library = tmp_path / "unstable.c", tmp_path / "unstable.so"
    code.write_text(LIBRARY)
    subprocess.run([need("cc"), "-w", "-shared", "-fPIC", "-o", library, code, "-ldl"], check=True)
    return {**os.environ, "LD_PRELOAD": str(library), "UNSTABLE": str(tmp_path / "target")}


def test_a_dataset_is_staged_where_inode_numbers_change(tmp_path: Path, unstable: dict[str, str]) -> None:
    """The lock was refused to its own holder, with 7 and for ever (F8)."""
    source = tree(tmp_path / "source", {"a": b"a", "d/b": b"b" * 3_000_000, "c": b""})
    target = tmp_path / "target"
    target.mkdir(mode=0o755)
    config = tmp_path / "config.yaml"
    config.write_text(f"target: {{root: {target}, keep_free: 0}}\ndatasets: {{data: {{source: {source}}}}}\n")
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(config), str(target)],
            env=unstable, cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert content(target / "data" / "current" / "data") == content(source)
