"""Hosts whose clock is wrong: a library, loaded before libc, that moves what a process takes for the time.
The times of files stay the kernel's, as those of a file server do."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

LIBRARY = r"""
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static long ahead(void) { return atol(getenv("CLOCK_AHEAD")); }
int clock_gettime(clockid_t id, struct timespec *t) {
    int result = syscall(SYS_clock_gettime, id, t);
    if (!result && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) t->tv_sec += ahead();
    return result;
}
int gettimeofday(struct timeval *restrict t, void *restrict zone) {
    int result = syscall(SYS_gettimeofday, t, zone);
    if (!result && t) t->tv_sec += ahead();
    return result;
}
time_t time(time_t *t) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (t) *t = now.tv_sec;
    return now.tv_sec;
}
"""


def ahead(folder: Path, seconds: int) -> dict[str, str]:
    """The environment of a process whose host's clock is so many seconds ahead; negative: behind."""
    if shutil.which("cc") is None:
        pytest.skip("cc is not installed")
    code, library = folder / "clock.c", folder / "clock.so"
    if not library.exists():
        code.write_text(LIBRARY)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, code], check=True)
    return {**os.environ, "LD_PRELOAD": str(library), "CLOCK_AHEAD": str(seconds)}
