"""What scenarios share: datasets that an ordinary user stages onto the mount, their sources, comparisons."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.beegfs_bed.guest import HOME, MOUNT, UID, USER
from tests.beegfs_bed.servers import PROGRAMS, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

KIB, MIB = 1 << 10, 1 << 20
CHECKOUT = Path(os.environ.get("BED_CHECKOUT", "."))
"""The checkout whose penstock is run."""
WORK = Path("/tmp/work")
ENVIRONMENT = {
    "PATH": f"{CHECKOUT}/.venv/bin:{PROGRAMS}/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL": "C.UTF-8",
}
WITHIN = 300.0
"""Seconds for a command. The guest takes ten times as long as its host."""


class Done(NamedTuple):
    """A command that ended."""

    command: str
    status: int
    out: str  # standard output
    err: str  # standard error
    seconds: float

    @property
    def printed(self) -> str:
        return self.out + self.err

    @property
    def text(self) -> str:
        """What was printed, in small letters and without its lines, which tables wrap."""
        return " ".join(self.printed.split()).lower()


def expect(done: Done, status: int, *words: str) -> Done:
    """Fail unless a command ended with `status` and printed each of `words`, in whatever case and lines."""
    missing = [word for word in words if word.lower() not in done.text]
    if done.status != status or missing:
        raise AssertionError(
            f"`{done.command}` ended with {done.status} after {done.seconds:.0f} s, wanted {status}"
            f"{f' and the words {missing}' if missing else ''}; it printed:\n{done.printed[-6000:]}"
        )
    return done


def run(*words: str | Path, user: bool = True, cwd: Path = Path("/tmp"), within: float = WITHIN) -> Done:
    """Run a command as the ordinary user, or as root; TimeoutError after `within` seconds."""
    started = time.monotonic()
    process = start(*words, user=user, cwd=cwd)
    command = shlex.join(map(str, words))
    try:
        out, err = process.communicate(timeout=within)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise TimeoutError(f"`{command}` did not end within {within:.0f} s") from None
    done = Done(command, process.returncode, _text(out), _text(err), time.monotonic() - started)
    print(f"{done.seconds:5.1f} s, exit {done.status}: {command}", flush=True)
    return done


def start(*words: str | Path, user: bool = True, cwd: Path = Path("/tmp")) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own."""
    return subprocess.Popen(
        [*map(str, words)],
        cwd=cwd,
        env=ENVIRONMENT | {"HOME": str(HOME / (USER if user else "root"))},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        user=UID if user else 0,
        group=UID if user else 0,
        extra_groups=[],
    )


class Dataset:
    """A dataset of the ordinary user: a source on the guest's own disk, a root of its own on the mount."""

    def __init__(self, name: str, files: Mapping[bytes, bytes], **sections: Mapping[str, Any]) -> None:
        self.name = name
        self.work = _owned(WORK / name)
        self.source = _owned(self.work / "source")
        self.root = _owned(MOUNT / name)
        self.write(files)
        self.configure(**sections)

    @property
    def current(self) -> Path:
        """The files of the release that `current` names."""
        return self.root / self.name / "current/data"

    @property
    def release(self) -> Path:
        """The folder of the release that `current` names."""
        return self.current.parent.resolve(strict=True)

    def configure(self, **sections: Mapping[str, Any]) -> None:
        """Write the configuration: JSON is YAML, too."""
        target = {"root": str(self.root), **sections.pop("target", {})}
        readable = {"file_mode": "0444", "dir_mode": "2555"}
        dataset = {"source": str(self.source), "permissions": readable, **sections.pop("dataset", {})}
        text = json.dumps({"target": target, "datasets": {self.name: dataset}, **sections}, indent=1)
        (self.work / "penstock.yaml").write_text(text, encoding="utf-8")

    def write(self, files: Mapping[bytes, bytes]) -> None:
        """Write files into the source."""
        for name, data in files.items():
            path = Path(os.fsdecode(name))
            folder = self.source
            for part in path.parent.parts:
                folder = _owned(folder / part)
            (folder / path.name).write_bytes(data)
            os.chown(folder / path.name, UID, UID)

    def penstock(self, *words: str, within: float = WITHIN) -> Done:
        return run("penstock", "--progress", "lines", *words, cwd=self.work, within=within)

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        return start("penstock", "--progress", "lines", *words, cwd=self.work)

    def receipt(self, *words: str, status: int = 0) -> dict[str, Any]:
        """Run a command, and return the result that it writes."""
        path = self.work / "receipt.json"
        path.unlink(missing_ok=True)
        expect(self.penstock("--receipt", str(path), *words), status)
        result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return result

    def same_as_source(self) -> None:
        """Compare source and `current` by diff(1), and by a digest of names and bytes."""
        diff = run("diff", "-r", "--no-dereference", self.source, f"{self.current}/", user=False)
        expect(diff, 0)
        assert digest_of(self.source) == digest_of(self.current), "diff sees no difference, and a digest does"


def digest_of(tree: Path) -> str:
    """Return a SHA-256 over the names and the bytes of a tree's files."""
    digest = hashlib.sha256()
    top = os.fsencode(tree.resolve(strict=True))
    for path in sorted(_files(top)):
        with open(path, "rb") as file:
            digest.update(os.path.relpath(path, top) + b"\0" + hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def odd_files(count: int = 300) -> dict[bytes, bytes]:
    """Files whose names are legal and seldom seen, of sizes around those of blocks; one of 60 MiB."""
    odd = [
        b"new\nline", b"tab\there", b"blank end ", b" blank begin", b'"double"', b"'single'", b"back\\slash",
        b"$(touch x)", b"`id`", b"*", b"?", b"[a]", b"~", b"-rf", b"--", b"#", b"%41", b"a%2Fb", b"{}",
        b"a;b", b"|", b"&", b"caf\xc3\xa9", b"cafe\xcc\x81", "Größe".encode(), "日本語".encode(),
        "🧬.fa".encode(),
        b"raw\xff\xfe", b"\x01control", b"\x7f", b".hidden", b"..three", b"x" * 255, b"UPPER",
        b"upper", b"a:b", b"con", b"desktop.ini", b"null", b"=1+1", b"\xe2\x80\xaeevil",
    ]  # fmt: skip
    sizes = [0, 1, 4095, 4096, 4097]
    folders = [b"", b"a/", b"a/deep/er/", b"odd \"folder'\n/", "Ordner ä/".encode()]
    names = [folder + name for folder in folders for name in odd]
    names += [b"many/%05d" % number for number in range(count - len(names))]
    files = {name: block(number, sizes[number % len(sizes)]) for number, name in enumerate(names)}
    files |= {b"large/%d" % number: block(number, MIB + 3) for number in range(3)}
    return files | {b"large/giant": block(7, 60 * MIB + 17)}


def small_files(count: int = 40, bytes_each: int = 3000) -> dict[bytes, bytes]:
    """A few ordinary files in two folders."""
    return {b"%d/%04d.bin" % (number % 2, number): block(number, bytes_each) for number in range(count)}


def block(seed: int, size: int) -> bytes:
    """Return bytes that are the same in each run, and others for each seed."""
    return hashlib.shake_128(b"%d" % seed).digest(min(size, MIB)).ljust(size, b"%d" % (seed % 10))


def kill_all_of_user(spared: int = 0) -> None:
    """Kill every process of the ordinary user but one, as the loss of a node does."""

    def alive() -> list[int]:
        return [pid for pid in _processes() if pid != spared and _is_users(pid)]

    def all_gone() -> bool:
        for pid in alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not alive()

    wait_for(all_gone, "the end of the user's processes", 120.0)


def _is_users(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    lines = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return lines["Uid"].split()[0] == str(UID) and not lines["State"].strip().startswith("Z")


def _processes() -> Iterable[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _files(top: bytes) -> Iterator[bytes]:
    for folder, _, names in os.walk(top):
        yield from (os.path.join(folder, name) for name in names)


def _owned(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    os.chown(folder, UID, UID)
    return folder


def _text(data: bytes) -> str:
    return data.decode(errors="replace")
