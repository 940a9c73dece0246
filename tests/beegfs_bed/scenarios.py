"""The scenarios: `python -m tests.beegfs_bed.scenarios NAME`, as root in the guest.

Each begins with servers that are up, and leaves them so. penstock and readers run as an ordinary user; root
damages disks, stops servers, sets quotas and asks the vendor's commands. A scenario fails by its assertion.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import re
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow.parquet
from tests.beegfs_bed import disks, servers
from tests.beegfs_bed.guest import USER
from tests.beegfs_bed.servers import VERSION, wait_for
from tests.beegfs_bed.staging import (
    CHECKOUT,
    KIB,
    MIB,
    Dataset,
    block,
    digest_of,
    expect,
    kill_all_of_user,
    odd_files,
    run,
    small_files,
    start,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

READER_SECONDS = float(os.environ.get("BED_MINUTES", "2")) * 60
BED = Path(__file__).resolve().parents[2]
BLOCK = 4096
FIEMAP = 0xC020660B
KILLS = 10
NOTE = "note: "
"""Begins a line of a scenario's output that the table shows."""
LOCAL = "tests/fs/test_mount_checks.py::test_a_local_file_system_has_nothing_to_say"
"""A test whose temporary folder is on a local file system."""
SAYS_WITHIN = 60.0
"""Seconds until penstock says that a server is away."""
# What `penstock selftest` finds out of the mount, in both versions.
ABILITIES = {
    "acl": "yes",
    "acl_inherited": "yes",
    "direct_alignment": "512",
    "exclusive_create": "yes",
    "fallocate": "no EOPNOTSUPP",
    "flock": "yes",
    "fsync_file": "yes",
    "fsync_folder": "yes",
    "holes": "no",
    "inode_stable": "yes",
    "link": "yes",
    "link_between_folders": "yes",
    "name_bytes": "255",
    "name_not_utf8": "yes",
    "open_unlink": "yes",
    "reflink": "no EOPNOTSUPP",
    "rename_between_folders": "yes",
    "rename_exchange": "no EINVAL",
    "rename_noreplace": "no EINVAL",
    "rename_open_between_folders": "no EBUSY",
    "rename_over_empty_folder": "no EEXIST",
    "rename_over_file": "yes",
    "syncfs": "yes",
    "tmpfile": "no EOPNOTSUPP",
    "xattr_bytes": "4000",
}


class Scenario(NamedTuple):
    """A scenario: what it shows, and on which versions it can run."""

    play: Callable[[], None]
    versions: str = "78"
    minutes: float = 15.0  # at most


def selftest() -> None:
    """the mount's abilities are those that were recorded, and nothing contradicts"""
    dataset = Dataset("selftest", {})
    done = dataset.penstock("selftest", "--json", str(dataset.root))
    abilities = json.loads(done.out)["probe"]["abilities"]
    found = {name: _answer(abilities.get(name, {})) for name in ABILITIES}
    assert found == ABILITIES, {name: found[name] for name in ABILITIES if found[name] != ABILITIES[name]}
    expect(done, 0)


def preflight() -> None:
    """preflight takes the mount, and knows servers and targets"""
    dataset = Dataset("preflight", small_files(3))
    done = expect(dataset.penstock("preflight"), 0)
    assert "management service is down" not in done.text, done.printed


def staging() -> None:
    """odd names and sizes: the same tree by diff and SHA-256, inode numbers as stat has them"""
    dataset = Dataset("staging", odd_files())
    _run(dataset)
    dataset.same_as_source()
    rows = pyarrow.parquet.read_table(dataset.release / "manifest.parquet").to_pylist()
    inodes = {row["path"]: row["inode"] for row in rows}
    top = os.fsencode(dataset.current.resolve())
    wrong = [path for path, inode in inodes.items() if os.stat(os.path.join(top, path)).st_ino != inode]
    assert not wrong, f"{len(wrong)} of {len(rows)} inode numbers differ: {wrong[:5]}"
    assert any(inode >= 1 << 63 for inode in inodes.values()), (
        "no inode number of 2^63 and more was among them"
    )


def releases() -> None:
    """a second release links what did not change; rollback, gc and the repair of a damaged file"""
    dataset = Dataset("releases", small_files(60))
    _run(dataset)
    first, first_files = dataset.release, _inodes(dataset)
    before = digest_of(dataset.current)
    dataset.write({b"0/0000.bin": b"changed", b"1/0001.bin": b"", b"2/new": b"new"})
    (dataset.source / "0/0002.bin").unlink()
    _run(dataset)
    dataset.same_as_source()
    second_files = _inodes(dataset)
    second = dataset.release
    same = {path for path, inode in second_files.items() if first_files.get(path) == inode}
    assert len(same) == 57, f"{len(same)} of 57 files are linked"
    expect(dataset.penstock("rollback"), 0)
    assert (dataset.release, digest_of(dataset.current)) == (first, before)
    expect(dataset.penstock("rollback", dataset.name, second.name), 0)
    dataset.same_as_source()
    dataset.configure(dataset={"retention": {"last": 1}}, gc={"grace": "1s"})
    expect(dataset.penstock("gc"), 0)
    kept = [path for path in second.parent.iterdir() if not path.name.startswith(".")]
    assert kept == [second], kept
    dataset.same_as_source()
    _damage_through_mount(dataset.current / "0/0004.bin")
    expect(dataset.penstock("audit"), 4, "0/0004.bin")
    expect(dataset.penstock("repair"), 0)
    expect(dataset.penstock("audit"), 0, "PASSED")
    dataset.same_as_source()


def flipped_on_disk() -> None:
    """a byte that was flipped on a target's disk, below the server's page cache, is named and repaired"""
    marker = b"this block is looked for on the disks".ljust(64, b".")
    data = bytearray(block(1, MIB + 3))
    data[8 * BLOCK : 8 * BLOCK + len(marker)] = marker
    dataset = Dataset("flipped", {b"marked": bytes(data), **small_files(10)})
    _run(dataset)
    chunk, offset = _chunk_with(marker)
    _flip_below_cache(chunk, offset, marker)
    assert _read_direct(chunk, offset)[: len(marker)] != marker, "the disk does not hold the damage"
    with open(chunk, "rb") as file:
        plain = os.pread(file.fileno(), len(marker), offset)
    assert plain == marker, "the server's page cache does not hide the damage"
    dataset.configure(verify={"direct": "always"})
    expect(dataset.penstock("audit"), 4, "marked")
    expect(dataset.penstock("repair"), 0)
    expect(dataset.penstock("audit"), 0, "PASSED")
    dataset.same_as_source()


def killed() -> None:
    """kill -9 at ten moments of a run, resumed: the same tree; a reader under `current` sees whole trees"""
    dataset = Dataset("killed", small_files(120))
    started = time.monotonic()
    _run(dataset)
    length = time.monotonic() - started
    whole = [digest_of(dataset.current)]
    dataset.write({b"%d/%04d.bin" % (n % 2, n): block(n + 1000, 5000) for n in range(0, 120, 2)})
    dataset.write({b"large": block(5, 8 * MIB)})
    whole.append(digest_of(dataset.source))
    kills = 0
    with _reader(dataset, whole) as reader:
        for moment in range(1, KILLS + 1):
            process = dataset.start("run")
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=length * moment / KILLS)
            kills += process.returncode is None
            if process.returncode is None:
                kill_all_of_user(reader.pid)
                process.communicate()
        _run(dataset)
    print(f"{NOTE}{kills} runs killed before they ended")
    assert kills >= KILLS / 2
    dataset.same_as_source()


def striping() -> None:
    """striping as asked (auto; targets and chunk), an administrator's pool, by the vendor's command"""
    with servers.secret_for_user():
        dataset = Dataset("striping", small_files(8), target={"striping": "auto"})
        _run(dataset)
        assert len(_entry(dataset.current / "0/0000.bin").targets) == 1
        dataset = Dataset("striped", small_files(8), target={"striping": "targets=2, chunk=1MiB"})
        _run(dataset)
    pattern = _entry(dataset.current / "0/0000.bin")
    assert (len(pattern.targets), pattern.chunk) == (2, MIB), pattern
    if VERSION == "7":  # version 8 has pools with a licence alone
        expect(run("beegfs-ctl", "--addstoragepool", "--desc=fast", "--targets=203", user=False), 0)
        pooled = Dataset("pooled", small_files(8))
        words = ("beegfs-ctl", "--setpattern", "--storagepoolid=2", "--numtargets=1", pooled.root)
        expect(run(*words, user=False), 0)
        _run(pooled)
        assert _entry(pooled.current / "0/0000.bin").targets == (203,)


def quota() -> None:
    """a kernel quota of the user on the targets runs out in mid-copy: named, status 6; more room: resumed"""
    dataset = Dataset("quota", {b"%d" % number: block(number, 4 * MIB) for number in range(12)})
    targets = [disk for disk in disks.STORAGE if "xfs" in disk.mount]
    try:
        for disk in targets:
            _limit(disk, "2m")
        expect(dataset.penstock("run"), 6, "quota")
    finally:
        for disk in targets:
            _limit(disk, "0")
    _run(dataset)
    dataset.same_as_source()


def full_target() -> None:
    """a target without room: status 6, named where the commands answer; room again: resumed"""
    dataset = Dataset("full", {b"%d" % number: block(number, 4 * MIB) for number in range(12)})
    _stripe_over(dataset.root, len(disks.STORAGE))
    full = disks.STORAGE[-1]
    filler = full.folder / "filler"
    try:
        _fill(filler, room=3 * MIB)
        # Version 8's commands answer root alone, as shipped: there the copy meets ENOSPC.
        expect(dataset.penstock("run"), 6, str(full.target) if VERSION == "7" else "no space")
    finally:
        filler.unlink()
    wait_for(lambda: dataset.penstock("run").status == 0, "a run, once there is room", 600.0)
    dataset.same_as_source()


def server_lost() -> None:
    """a storage server is killed in mid-copy, and started again after 30 s: the run goes on, the same tree"""
    files = {b"%d" % number: block(number, 2 * MIB) for number in range(12)}
    dataset = Dataset("lost", files, engine={"limit": "1MiB/s"})
    process = dataset.start("run")
    wait_for(lambda: process.poll() is not None or _bytes_below(dataset.root) > 3 * MIB, "3 MiB copied", 120)
    assert process.poll() is None, process.communicate()[1].decode()
    servers.stop("storage2", signal.SIGKILL)
    stopped = time.monotonic()
    wait_for(lambda: time.monotonic() - stopped > 30, "30 s", 60)
    servers.start("storage2")
    _, err = process.communicate(timeout=600)
    assert process.returncode == 0, err.decode()
    dataset.same_as_source()


def server_away() -> None:
    """a storage server is away before the start: named within a minute; SIGTERM ends a run that waits"""
    dataset = Dataset("away", small_files(8))
    servers.stop("storage2")
    try:
        name = "stor2" if VERSION == "7" else "storage_2"
        expect(dataset.penstock("preflight", within=SAYS_WITHIN), 3, name)
        process = dataset.start("run")
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=SAYS_WITHIN / 3)
        if process.returncode is None:
            process.terminate()
            _, err = process.communicate(timeout=SAYS_WITHIN)
            assert process.returncode == 143, (process.returncode, err.decode())
    finally:
        servers.start("storage2")
        wait_for(servers.all_online, "each target online", servers.STARTS_WITHIN)
        kill_all_of_user()
    _run(dataset)
    dataset.same_as_source()


def kept_name() -> None:
    """a name that BeeGFS keeps for itself is refused before the copy, and left out by `exclude`"""
    dataset = Dataset("kept", {b"#fSiDs#": b"1", b"fine": b"2"})
    expect(dataset.penstock("run"), 3, "#fSiDs#")
    dataset.configure(dataset={"exclude": ["\\#fSiDs#"]})
    _run(dataset)
    assert [path.name for path in dataset.current.iterdir()] == ["fine"]


def readers_with_server_away() -> None:
    """a storage server is away: commands that read say so within a minute, also once the client
    has forgotten its address"""
    dataset = Dataset("readers", small_files(40))
    _run(dataset)
    name = "stor2" if VERSION == "7" else "storage_2"
    commands = (("status",), ("gate",), ("releases",), ("show",), ("path",), ("metrics",), ("history",))
    servers.stop("storage2")
    try:
        for words in commands:
            expect(dataset.penstock(*words, within=SAYS_WITHIN), 3, name)
        # A call that waits for the server: after it the client shows no connection to it.
        waiting = start("cat", *(dataset.current / f"0/{number:04d}.bin" for number in range(0, 40, 2)))
        # Of version 8 the commands, which name it then, are root's; a mount answers some calls from memory.
        for words in commands[: 3 if VERSION == "7" else 1]:
            expect(dataset.penstock(*words, within=SAYS_WITHIN), 3)
        waiting.kill()
    finally:
        servers.start("storage2")
        wait_for(servers.all_online, "each target online", servers.STARTS_WITHIN)
        kill_all_of_user()
    expect(dataset.penstock("gate"), 0)


def management_away() -> None:
    """the management service is away: said within a minute, in words that name it"""
    dataset = Dataset("management", small_files(8))
    servers.stop("management")
    try:
        with servers.secret_for_user():
            done = dataset.penstock("preflight", within=SAYS_WITHIN)
        expect(done, 3 if VERSION == "7" else 0, "management ser")
    finally:
        servers.start("management")
    wait_for(lambda: dataset.penstock("preflight").status == 0, "a preflight that passes again", 300.0)


def reader_beside_audit() -> None:
    """a job reads 73 small files over and over beside audits of them: no error"""
    dataset = Dataset("reader", small_files(73, 3001))
    _run(dataset)
    with _reader(dataset, [digest_of(dataset.source)], READER_SECONDS) as reader:
        audits = 0
        while reader.poll() is None:
            expect(dataset.penstock("audit"), 0)
            audits += 1
    print(f"{NOTE}{audits} audits")
    assert audits


def suite() -> None:
    """the project's tests of file systems, and the conformance suite of storage, on the mount"""
    temporary = Dataset("suite", {}).root
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--basetemp",
        f"{temporary}/base",
    ]
    words += [
        "-o",
        "timeout=1200",
        "--deselect",
        LOCAL,
        "tests/fs",
        "tests/target/test_contract.py::TestHere",
    ]
    done = run("env", f"TMPDIR={temporary}", *words, cwd=CHECKOUT, within=2400)
    print(f"{NOTE}{done.out.splitlines()[-1]}; those skipped want root")
    expect(done, 0)


def secret() -> None:
    """the secret of the management service, which the account may not read, then may: said, then used"""
    dataset = Dataset("secret", small_files(8))
    done = expect(dataset.penstock("preflight"), 0)
    assert "is down" not in done.text, done.printed
    expect(done, 0, str(servers.AUTH))
    with servers.secret_for_user():
        done = expect(
            dataset.penstock("preflight"), 0, f"{len(disks.STORAGE)} storage targets", "all in order"
        )
    assert str(servers.AUTH) not in done.text, done.printed


# In order of worth.
SCENARIOS = {
    "selftest": Scenario(selftest),
    "preflight": Scenario(preflight),
    "staging": Scenario(staging),
    "kept_name": Scenario(kept_name),
    "releases": Scenario(releases),
    "flipped_on_disk": Scenario(flipped_on_disk),
    "killed": Scenario(killed, minutes=25),
    "quota": Scenario(quota),
    "full_target": Scenario(full_target, minutes=25),
    "server_lost": Scenario(server_lost),
    "server_away": Scenario(server_away),
    "readers_with_server_away": Scenario(readers_with_server_away),
    "reader_beside_audit": Scenario(reader_beside_audit, minutes=10 + READER_SECONDS / 60),
    "secret": Scenario(secret, "8"),
    "suite": Scenario(suite, minutes=45),
    # After those that want each target in the default pool.
    "striping": Scenario(striping),
    # Last: version 7's management service takes every target for nearly full after it was started again.
    "management_away": Scenario(management_away),
}


class Pattern(NamedTuple):
    """How a file is striped, as the vendor's command states it."""

    targets: tuple[int, ...]
    chunk: int  # bytes


def _answer(ability: dict[str, Any]) -> str:
    answer = ability.get("answer", "not looked at")
    words = [str(ability["value"])] if answer == "value" else [answer]
    return " ".join([*words, *([ability["error"]] if ability.get("error") else [])])


def _run(dataset: Dataset) -> None:
    expect(dataset.penstock("run"), 0, "PASSED")


def _inodes(dataset: Dataset) -> dict[str, int]:
    top = dataset.current.resolve(strict=True)
    return {str(path.relative_to(top)): path.stat().st_ino for path in top.rglob("*") if path.is_file()}


def _damage_through_mount(path: Path) -> None:
    """Change a byte as root, and put the times back."""
    times = path.stat()
    with path.open("r+b") as file:
        first = file.read(1)
        file.seek(0)
        file.write(bytes([first[0] ^ 1]))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def _chunk_with(marker: bytes) -> tuple[Path, int]:
    """Return the chunk file that holds a marker, and where."""
    for disk in disks.STORAGE:
        for path in (disk.store / "chunks").rglob("*"):
            if path.is_file() and (offset := path.read_bytes().find(marker)) >= 0:
                return path, offset
    raise AssertionError("no chunk file holds the marker")


def _flip_below_cache(chunk: Path, offset: int, marker: bytes) -> None:
    """Change a byte on the disk that the chunk file lies on. The file's pages in the server's memory stay as
    they are: the disk is written as a block device, past all caches."""
    disk = next(disk for disk in disks.STORAGE if chunk.is_relative_to(disk.folder))
    with open(chunk, "rb") as file:
        os.fsync(file.fileno())
        place = _on_disk(file.fileno(), offset // BLOCK * BLOCK)
    with mmap.mmap(-1, BLOCK) as page:
        device = os.open(disk.device, os.O_RDWR | os.O_DIRECT | os.O_SYNC)
        try:
            os.preadv(device, [page], place)
            at = offset % BLOCK
            assert page[at : at + len(marker)] == marker, "the block on the disk is another one"
            page[at] ^= 1
            os.pwritev(device, [page], place)
        finally:
            os.close(device)


def _on_disk(fd: int, offset: int) -> int:
    """Return where a block of a file lies on its disk (FIEMAP)."""
    request = struct.pack("=QQLLLL", offset, BLOCK, 1, 0, 1, 0) + bytes(56)
    answer = fcntl.ioctl(fd, FIEMAP, request)
    logical, physical = struct.unpack_from("=QQ", answer, 32)
    return int(physical + offset - logical)


def _read_direct(path: Path, offset: int) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        with mmap.mmap(-1, BLOCK) as page:
            os.preadv(fd, [page], offset // BLOCK * BLOCK)
            return bytes(page[offset % BLOCK :])
    finally:
        os.close(fd)


@contextlib.contextmanager
def _reader(
    dataset: Dataset, digests: list[str], seconds: float = 3600.0
) -> Iterator[subprocess.Popen[bytes]]:
    """A job that reads `current` meanwhile; fails where a read fails, or a tree has none of the digests."""
    module = (sys.executable, "-m", "tests.beegfs_bed.reader")
    process = start(*module, dataset.current, str(seconds), *digests, cwd=BED)
    try:
        yield process
    finally:
        process.terminate()
        out, err = process.communicate(timeout=300)
    print(f"{NOTE}{out.decode().strip()}")
    assert process.returncode == 0, (out + err).decode()
    assert json.loads(out)["rounds"] > 0, out


def _entry(path: Path) -> Pattern:
    """Ask the vendor's command, as root, how a file is striped."""
    path = path.resolve(strict=True)
    if VERSION == "7":
        out = expect(run("beegfs-ctl", "--getentryinfo", path, user=False), 0).out
        size = re.search(r"Chunksize: (\d+)([KM])", out)
        assert size, out
        targets = re.findall(r"(?m)^\s*\+?\s*(\d+) @ ", out)
        return Pattern(tuple(map(int, targets)), int(size[1]) * {"K": KIB, "M": MIB}[size[2]])
    # Without the licence library the command ends with 1 after its work.
    out = run("beegfs", "entry", "info", "--output", "ndjson", "--raw", path, user=False).out
    row = json.loads(out.splitlines()[0])
    targets = [target.split(":")[1] for target in row["storage_targets"].split(",")]
    return Pattern(tuple(map(int, targets)), int(row["stripe_pattern"].rstrip(")").split("x")[1]))


def _stripe_over(folder: Path, targets: int) -> None:
    if VERSION == "7":
        words = ["beegfs-ctl", "--setpattern", f"--numtargets={targets}", "--chunksize=512k"]
    else:
        words = ["beegfs", "entry", "set", "--num-targets", str(targets)]
    done = run(*words, folder, user=False)
    # A version 8 that was built without the vendor's licence library ends with 1 after its work is done.
    expect(done, done.status if "licens" in done.err else 0)


def _limit(disk: disks.Disk, size: str) -> None:
    words = ("xfs_quota", "-x", "-c", f"limit -u bhard={size} {USER}", disk.folder)
    expect(run(*words, user=False), 0)


def _fill(path: Path, room: int) -> None:
    """Write until the disk is full, as root, whom reserved blocks are given; then free so many bytes."""
    with path.open("wb", buffering=0) as file:
        with contextlib.suppress(OSError):
            while file.write(bytes(MIB)):
                pass
        file.truncate(file.tell() - room)
        os.fsync(file.fileno())


def _bytes_below(folder: Path) -> int:
    """The bytes of the files below a folder in which others work: files that vanish count as none."""
    total = 0
    for top, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += os.lstat(os.path.join(top, name)).st_size
    return total


if __name__ == "__main__":
    kill_all_of_user()
    wait_for(servers.all_online, "each target online", servers.STARTS_WITHIN)
    SCENARIOS[sys.argv[1]].play()
