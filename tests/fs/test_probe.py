"""The probe on real file systems: each ability as expected there, and nothing left behind."""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import re
import shutil
import struct
import time
from pathlib import Path

import pytest
from tests.filesystems.bed import Bed
from tests.filesystems.sets import SETS
from tests.support.forked import NOBODY, forked, killed_at_line
from tests.support.images import file_system

from penstock.core import run_documents
from penstock.core.errors import NewerFormatError
from penstock.core.layout import PROBE
from penstock.core.run_documents import ABILITIES, ProbeReport, TrialOutcome
from penstock.fs import probe as trials
from penstock.fs.capabilities import facts
from penstock.fs.probe import TRIALS, probe, seen_error
from penstock.fs.probe_judgement import differences

EVERYWHERE = dict.fromkeys(ABILITIES, "yes") | {"name_bytes": "255", "time_resolution": "1"}
"""What the file systems of one machine have in common."""
KERNEL = tuple(map(int, platform.release().split(".")[:2]))
EXPECTED = {
    "ext4": {"direct_alignment": "512", "xattr_bytes": "4000", "reflink": "no (EOPNOTSUPP)"},
    "xfs": {"direct_alignment": "512", "xattr_bytes": "65536"},
    "btrfs": {"direct_alignment": "1", "xattr_bytes": "16000"},
    # Since Linux 6.6 tmpfs takes O_DIRECT, and reads memory.
    "tmpfs": {
        "direct_alignment": "1" if KERNEL >= (6, 6) else "no (EINVAL)",
        "xattr_bytes": "65536",
        "reflink": "no (EOPNOTSUPP)",
    },
}
"""The rows in which each differs from that."""


_OF_BED = {
    "direct_alignment": "1", "tmpfile": "no (EOPNOTSUPP)", "acl": "no (EOPNOTSUPP)",
    "acl_inherited": "no (EOPNOTSUPP)", "reflink": "no (EOPNOTSUPP)",
    "holes": "no (its data are said to begin at byte 0)",
}  # fmt: skip
"""What the test bed's program and FUSE do not do, under every set of tempers."""
_NO_FLAGS = {"rename_noreplace": "no (EINVAL)", "rename_exchange": "no (EINVAL)"}
_NO_XATTRS = {"xattr_bytes": "no (EOPNOTSUPP)"}
_BEEGFS = _OF_BED | _NO_FLAGS | _NO_XATTRS | {
    "rename_over_empty_folder": "no (EEXIST)", "rename_open_between_folders": "no (EBUSY)",
    "fallocate": "no (EOPNOTSUPP)", "time_resolution": "1000000000",
    "direct_alignment": "512",
}  # fmt: skip
_SILLY = {"open_unlink": "no (the file got another name: .nfs)"}
EXPECTED_SETS = {
    "beegfs7": {**_BEEGFS, "link_between_folders": "no (EPERM)", "link_between_trees": "no (EPERM)"},
    "beegfs8": _BEEGFS,
    "weka-writecache": {**_OF_BED, "xattr_bytes": "1000"},
    "weka-forcedirect": {**_OF_BED, "xattr_bytes": "1000"},
    "lustre": {**_OF_BED, **_NO_FLAGS, "xattr_bytes": "65536", "time_resolution": "1000000000"},
    "nfs3": {**_OF_BED, **_NO_FLAGS, **_NO_XATTRS, **_SILLY, "fallocate": "no (EOPNOTSUPP)"},
    "nfs4": {**_OF_BED, **_NO_FLAGS, **_SILLY, "xattr_bytes": "65536"},
}
"""The rows in which the named sets of the test bed differ: the tempers that one node can see."""


def answers(report: ProbeReport) -> dict[str, str]:
    return {name: str(report[name]) for name in ABILITIES}


@pytest.fixture(params=[kind for kind in EXPECTED if kind == "tmpfs" or shutil.which(f"mkfs.{kind}")])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_each_ability_is_as_expected_on_each_file_system(tmp_path: Path, kind: str) -> None:
    with file_system(tmp_path, kind) as point:
        (point / "set/releases").mkdir(parents=True)
        report = probe(point / "set", point / "set/releases")
        assert answers(report) == EVERYWHERE | EXPECTED[kind]
        assert (report.kind, report.folder) == (kind, str(point / "set"))
        assert os.listdir(point / "set") == ["releases"]
        assert not os.listdir(point / "set/releases")
        assert not [one for one in differences(facts(point), report) if one.verdict != "note"]


@pytest.mark.parametrize("named", EXPECTED_SETS)
def test_each_ability_is_as_expected_on_each_named_set(named: str) -> None:
    with Bed(named=named) as bed:
        place = bed.nodes[0]
        (place / "releases").mkdir()
        report = probe(place, place / "releases")
        seen = {name: re.sub(r"\.nfs\w+", ".nfs", one) for name, one in answers(report).items()}
        assert seen == EVERYWHERE | EXPECTED_SETS[named]
        assert os.listdir(place) == ["releases"]
        warned = [one.about for one in differences(facts(place), report) if one.verdict != "note"]
        assert warned == ([ABILITIES["link_between_folders"]] if named == "beegfs7" else [])


@pytest.mark.parametrize(
    ("errnos", "answer"),
    [
        ((), "1"),
        ((errno.EINVAL,), "512"),
        ((errno.EREMOTEIO, errno.EREMOTEIO), "4096"),
        ((errno.EIO, errno.EOPNOTSUPP, errno.EINVAL), "65536"),
        ((errno.EINVAL,) * 4, "no (EINVAL)"),
        ((errno.EREMOTEIO,) * 4, "error (EREMOTEIO, Remote I/O error)"),
        ((errno.EREMOTEIO, errno.EINVAL, errno.EINVAL, errno.EOPNOTSUPP), "no (EOPNOTSUPP)"),
    ],
)
def test_a_larger_alignment_is_tried_after_any_error(
    tmp_path: Path, errnos: tuple[int, ...], answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`errnos`: of the reads at 1, 512, 4,096 and 65,536 bytes; the others succeed."""
    refused = dict(zip((1, 512, 4096, 65536), errnos, strict=False))

    def preadv(fd: int, buffers: list[memoryview], offset: int) -> int:
        if number := refused.get(len(buffers[0])):
            raise OSError(number, os.strerror(number))
        buffers[0][:] = os.pread(fd, len(buffers[0]), offset)
        return len(buffers[0])

    plain = os.open
    monkeypatch.setattr(os, "preadv", preadv)
    # The file system of the tests may take no O_DIRECT.
    monkeypatch.setattr(
        os, "open", lambda path, flags, *rest, **at: plain(path, flags & ~os.O_DIRECT, *rest, **at)
    )
    assert str(trials._tried(TRIALS["direct_alignment"], "direct", [tmp_path], "/proc")) == answer


def test_every_named_set_has_its_table() -> None:
    assert EXPECTED_SETS.keys() == SETS.keys()


def test_it_is_quick_and_small(tmp_path: Path) -> None:
    began = time.monotonic()
    report = probe(tmp_path)
    assert time.monotonic() - began < 1 + 5  # other tests run beside
    assert report["link_between_trees"].answer == "not tried"
    assert answers(report)["link"] == "yes"


def test_folders_of_two_project_quotas_refuse_links_and_renames(tmp_path: Path) -> None:
    """S15: XFS by project ids, as WEKA between quota trees."""
    with file_system(tmp_path, "xfs") as point:
        for name, project in (("one", 5), ("two", 6)):
            (point / name).mkdir()
            give_project(point / name, project)
        report = probe(point / "one", point / "two")
        assert str(report["link_between_trees"]) == str(report["rename_between_trees"]) == "no (EXDEV)"
        assert report["link_between_folders"].answer == report["rename_between_folders"].answer == "yes"
        warned = [one.about for one in differences(facts(point), report) if one.verdict == "warning"]
        assert sorted(warned) == sorted([ABILITIES["link_between_trees"], ABILITIES["rename_between_trees"]])


def give_project(folder: Path, project: int) -> None:
    """FS_IOC_FSGETXATTR and FS_IOC_FSSETXATTR, with the flag by which what is made below inherits it."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        raw = bytearray(fcntl.ioctl(fd, 0x801C581F, bytes(28)))
        flags, *_ = struct.unpack_from("<I", raw)
        struct.pack_into("<I", raw, 0, flags | 0x200)
        struct.pack_into("<I", raw, 12, project)
        fcntl.ioctl(fd, 0x401C5820, bytes(raw))
    finally:
        os.close(fd)


@pytest.mark.parametrize("line", [15, 40, 80, 120, 160, 200, 260])
def test_what_a_killed_probe_left_is_gone_after_the_next(tmp_path: Path, line: int) -> None:
    beside = tmp_path / "beside"
    beside.mkdir()
    files = ("fs/probe.py", "fs/probe_trials.py")
    assert killed_at_line(lambda: probe(tmp_path, beside), files, line)
    assert os.path.lexists(tmp_path / PROBE) or line == 15
    probe(tmp_path, beside)
    assert os.listdir(tmp_path) == ["beside"]
    assert not os.listdir(beside)


def test_a_read_only_file_system_ends_in_words(tmp_path: Path) -> None:
    with file_system(tmp_path, "tmpfs", "ro") as point:
        refused(probe(point), "EROFS", "this account cannot make a folder there: Read-only file system")


def test_a_full_file_system_ends_in_words(tmp_path: Path) -> None:
    with file_system(tmp_path, "tmpfs", "nr_inodes=1") as point:
        refused(probe(point), "ENOSPC", "no space or no inodes left")
    (tmp_path / "more").mkdir()
    with file_system(tmp_path / "more", "tmpfs", "nr_inodes=8") as point:
        report = probe(point)
        assert str(report["rename_over_file"]) == "yes"
        assert str(report["xattr_bytes"]) == "not tried: no space or no inodes left"
        assert not os.listdir(point)


def test_a_folder_of_another_account_ends_in_words(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can be another account")
    with file_system(tmp_path, "tmpfs", "mode=0755") as point:
        tmp_path.chmod(0o755)
        for above in tmp_path.parents[:3]:
            if above.stat().st_mode & 0o055 != 0o055:
                above.chmod(above.stat().st_mode | 0o055)
        report = forked(lambda: probe(point), uid=NOBODY)
        refused(report, "EACCES", "this account cannot make a folder there: Permission denied")


def refused(report: ProbeReport, error: str, why: str) -> None:
    assert {report[name] for name in ABILITIES} == {TrialOutcome(error=error, why=why)}
    (result,) = differences(facts(Path("/")), report)
    assert (result.verdict, result.found) == ("note", f"not tried: {why}")


@pytest.mark.parametrize(
    ("number", "answer", "error"),
    [
        (errno.ENOSPC, "not tried", "ENOSPC"),
        (errno.EDQUOT, "not tried", "EDQUOT"),
        (errno.EOPNOTSUPP, "no", "EOPNOTSUPP"),
        (errno.EXDEV, "no", "EXDEV"),
        (errno.EIO, "error", "EIO"),
        (errno.ESTALE, "error", "ESTALE"),
        (errno.EACCES, "error", "EACCES"),
        (9999, "error", "errno 9999"),
    ],
)
def test_every_errno_is_an_answer(number: int, answer: str, error: str) -> None:
    seen = seen_error(OSError(number, "x"))
    assert (seen.answer, seen.error) == (answer, error)


def test_an_error_of_one_trial_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(_: object) -> TrialOutcome:
        raise OSError(errno.EREMOTEIO, "x")

    monkeypatch.setattr(trials, "TRIALS", TRIALS | {"link": dies})
    report = probe(tmp_path)
    assert str(report["link"]) == "error (EREMOTEIO, Remote I/O error)"
    assert report["link_between_folders"].answer == "yes"


def test_each_ability_has_one_trial() -> None:
    assert list(TRIALS) == list(ABILITIES)


def test_the_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    import json

    report = probe(tmp_path)
    raw = run_documents.PROBE_REPORT.to_json(report)
    assert run_documents.PROBE_REPORT.from_json(json.dumps(raw).encode(), "probe.json") == report
    with pytest.raises(NewerFormatError):
        run_documents.PROBE_REPORT.from_json(b'{"format": 99}', "probe.json")
    with pytest.raises(ValueError, match="abilities"):
        run_documents.PROBE_REPORT.from_json(
            b'{"format": 1, "abilities": {"link": {"answer": 3}}}', "probe.json"
        )
