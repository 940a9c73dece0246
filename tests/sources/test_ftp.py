"""FTP servers with and without MLSD, MLST, SIZE and MDTM (row f1): what is listed is what the server holds,
or is refused by name."""

from __future__ import annotations

import contextlib
import ftplib
import gc
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.contracts.source_contract import ODD, SourceContract, content, entry_of, listing, read
from tests.sources.conftest import FolderStore
from tests.support.commands import until
from tests.support.ftp_servers import Endless, Pyftpd, Vsftpd
from tests.support.go_servers import UnavailableError
from tests.support.s3server import make_certificates
from tests.support.staging_runs import tree
from tests.support.whole_way import content as content_of
from tests.support.whole_way import go, staging

from penstock.config.settings import EngineConfig, PlanConfig, SourceConfig
from penstock.core.errors import (
    ConfigError,
    CrowdedError,
    ObjectError,
    PenstockError,
    PreflightError,
    TransientError,
)
from penstock.sources.ftp import (
    FILE,
    FOLDER,
    LINK,
    FtpEntry,
    listed_entry,
    stated_cut,
    stated_entry,
)
from penstock.sources.generic_opener import failure
from penstock.sources.port import open_source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from penstock.sources.port import Source

HAVE_MLSD = ()
MLST_ALONE = ("MLSD",)
LIST_ALONE = ("MLSD", "MLST")
KINDS = {"mlsd": HAVE_MLSD, "mlst alone": MLST_ALONE, "ls -l": LIST_ALONE}
WHEN = 1_700_000_000
SECOND = 10**9
FILES = {
    "a b": b"blank",
    " lead": b"leading blank",
    "trail ": b"trailing blank",
    "x -> y": b"an arrow",
    ".hidden/.more": b"dots",
    "-a": b"an option?",
    "a[1]*": b"a pattern?",
    "deep/er/f": b"d" * 70_000,
    "empty": b"",
    "giant": bytes(range(256)) * 900,
    "ünï": b"not ASCII",
}


def source(
    url: str, *, keep: Any = None, links: str = "refuse", timeout: float = 60.0, **options: Any
) -> Source:
    from tests.sources.conftest import dataset

    config = SourceConfig(url, storage_options=options, timeout=timeout)
    return open_source(config, dataset(url, links=links), keep=keep)


def filled(folder: Path) -> Path:
    """FILES, each with a time of its own, in whole seconds."""
    tree(folder, FILES)
    for number, name in enumerate(FILES):
        os.utime(folder / name, (WHEN, WHEN + number))
    return folder


def dos_lines(folder: Path, names: Sequence[str]) -> Iterator[str]:
    """As IIS writes a folder."""
    for name in names:
        path = folder / name
        date = time.strftime("%m-%d-%y  %I:%M%p", time.gmtime(path.stat().st_mtime))
        what = "<DIR>         " if path.is_dir() else f"{path.stat().st_size:>14}"
        yield f"{date}       {what} {name}"


@pytest.fixture
def held(tmp_path: Path) -> Path:
    return filled(tmp_path / "held")


@pytest.fixture
def vsftpd(request: pytest.FixtureRequest) -> Iterator[Vsftpd]:
    try:
        server = Vsftpd(**getattr(request, "param", {}))
    except UnavailableError as error:
        pytest.skip(f"no vsftpd: {error}")
    with server:
        yield server


class FtpStore(FolderStore):
    """A folder behind an FTP server. Times have whole seconds there: each version gets a later one."""

    odd = ODD

    def __init__(self, root: Path, url: str) -> None:
        super().__init__(root, url)
        self._versions = 0

    def put(self, key: str, data: bytes) -> None:
        super().put(key, data)
        self._versions += 1
        (self.root / key).chmod(0o644)
        os.utime(self.root / key, (WHEN, WHEN + self._versions))


class TestByMlsd(SourceContract):
    without = HAVE_MLSD

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[FtpStore]:
        root = tmp_path / "root"
        root.mkdir()
        with Pyftpd(root, without=self.without) as server:
            yield FtpStore(root, server.url)


class TestByList(TestByMlsd):
    without = LIST_ALONE


class TestVsftpd(SourceContract):
    @pytest.fixture
    def store(self, vsftpd: Vsftpd) -> FtpStore:
        return FtpStore(vsftpd.folder, vsftpd.url)


def staged(tmp_path: Path, url: str, **changes: Any) -> tuple[dict[bytes, Any], dict[str, int]]:
    """By all steps: path to bytes, and to time, of what was published."""
    with staging(tmp_path, url, **changes) as context:
        go(context)
        data = context.layout("data").current / "data"
        return content_of(data), {name: (data / name).stat().st_mtime_ns for name in FILES}


@pytest.mark.parametrize("without", KINDS.values(), ids=KINDS)
def test_f1_what_is_published_is_what_the_server_holds(
    held: Path, tmp_path: Path, without: Sequence[str]
) -> None:
    with Pyftpd(held, without=without) as server:
        published, times = staged(tmp_path, server.url)
    assert published == content_of(held)
    assert times == {name: (held / name).stat().st_mtime_ns for name in FILES}


def test_f1_what_vsftpd_holds_is_published_hidden_names_too(vsftpd: Vsftpd, tmp_path: Path) -> None:
    filled(vsftpd.folder)
    published, times = staged(tmp_path, vsftpd.url)
    assert published == content_of(vsftpd.folder)
    assert times == {name: (vsftpd.folder / name).stat().st_mtime_ns for name in FILES}


@pytest.mark.parametrize("without", [LIST_ALONE, (*LIST_ALONE, "SIZE")], ids=["SIZE", "no SIZE"])
def test_f1_dos_lines_are_read(tmp_path: Path, without: Sequence[str]) -> None:
    held = tree(tmp_path / "held", {"a b": b"blank", "d e/f": b"deep", "empty": b""})
    with Pyftpd(held, without=without, lines=dos_lines) as server:
        files = source(server.url)
        found = listing(files)
        reader = files.reader()
        assert {key: read(reader, entry_of(item)) for key, item in found.items()} == {
            "a b": b"blank",
            "d e/f": b"deep",
            "empty": b"",
        }
        reader.close()
    assert {item.modified_ns // SECOND for item in found.values()} == {
        int((held / "a b").stat().st_mtime),
    }


@pytest.mark.parametrize("without", ["MDTM", "MDTM SIZE"])
def test_f1_without_mdtm_a_file_has_no_time_and_all_its_bytes(
    held: Path, tmp_path: Path, without: str
) -> None:
    with Pyftpd(held, without=[*LIST_ALONE, *without.split()]) as server:
        published, times = staged(tmp_path, server.url)
    assert published == content_of(held)
    assert set(times.values()) == {0}


@pytest.mark.parametrize("vsftpd", [{"cmds_denied": "SIZE,MDTM"}], indirect=True)
def test_f1_a_server_that_refuses_size_and_mdtm_is_read_by_list(vsftpd: Vsftpd) -> None:
    filled(vsftpd.folder)
    files = source(vsftpd.url)
    found = listing(files)
    assert {key: item.size for key, item in found.items()} == {k: len(v) for k, v in FILES.items()}
    assert not any(item.modified_ns for item in found.values())
    reader = files.reader()
    assert {key: read(reader, entry_of(item)) for key, item in found.items()} == FILES
    reader.close()


def test_f1_a_large_file_without_a_time_is_read_by_one_request(tmp_path: Path) -> None:
    held = tree(tmp_path / "held", {"large": content("large", (9 << 20) + 5)})
    with Pyftpd(held, without=[*LIST_ALONE, "MDTM"]) as server:
        with staging(tmp_path, server.url) as context:
            go(context)
            assert content_of(context.layout("data").current / "data") == content_of(held)
        assert [line for line in server.commands if line.startswith("RETR")] == ["RETR /large"]


@pytest.mark.parametrize(
    "line",
    [
        "Access denied.",
        "",
        "total 12 files",
        "d [R----F--] supervisor            512       Jan 16 18:53    login",
        "+i8388621.48594,m825718503,r,s280,\tdjb.html",
        "FILE.TXT;1    2/4   26-NOV-2026 12:05:11  [GROUP,OWNER]  (RWED,RE,,)",
        "-rw-r--r--   1 owner    group    5 26. Nov 12:05 german",
        "-rw-r--r--   1 owner    group    -2147483648 Nov 26 12:05 overflown",
        "-rw-r--r--   1 owner    group    5 Nov 26 12:05 elsewhere/file",
        "lrwxrwxrwx   1 owner    group    5 Nov 26 12:05 a -> b -> c",
        "02-10-26  01:45PM       <JUNCTION>     j [C:\\x]",
    ],
)
def test_f1_a_line_that_cannot_be_read_is_named_with_its_folder(tmp_path: Path, line: str) -> None:
    held = tree(tmp_path / "held", {"d/known": b"k"})

    def lines(folder: Path, names: Sequence[str]) -> Iterator[str]:
        for name in names:
            path = folder / name
            yield f"{'drwxr-xr-x' if path.is_dir() else '-rw-r--r--'} 1 o g 1 Nov 26 12:05 {name}"
        if folder.name == "d":
            yield line

    with Pyftpd(held, without=LIST_ALONE, lines=lines) as server:
        with pytest.raises(PreflightError, match="cannot be staged") as caught:
            listing(source(server.url))
        said = "the server's listing of this folder has a line that cannot be read: "
        assert f'"d/": {said}' in str(caught.value)
        assert line.replace("\t", "\\t") in str(caught.value)
        # Where the whole folder is left out, so is whatever the line says.
        assert listing(source(server.url, keep=lambda key: not key.startswith("d/"))).keys() == {"d/known"}


@pytest.mark.parametrize("without", [HAVE_MLSD, LIST_ALONE], ids=["mlsd", "ls -l"])
def test_f1_a_name_with_a_line_break_is_refused_where_it_lies(tmp_path: Path, without: Sequence[str]) -> None:
    held = tree(tmp_path / "held", {"whole": b"w", "two\nlines": b"b"})
    with Pyftpd(held, without=without) as server, pytest.raises(PreflightError) as caught:
        listing(source(server.url, keep=lambda key: key == "whole"))
    assert "a line that cannot be read: lines" in str(caught.value)


def test_f1_a_name_that_is_listed_twice_is_refused(tmp_path: Path) -> None:
    held = tree(tmp_path / "held", {"a": b"k"})
    line = "-rw-r--r-- 1 o g 1 Nov 26 12:05 a"
    server = Pyftpd(held, without=LIST_ALONE, lines=lambda *_: [line, line])
    with server, pytest.raises(PreflightError, match="cannot be staged"):
        listing(source(server.url))


def test_a_urls_path_is_percent_decoded_and_a_key_is_not(tmp_path: Path) -> None:
    held = tree(tmp_path / "held", {"my data%/a%20b": b"deep", "100%/x": b"x"})
    with Pyftpd(held) as server:
        for path, keys in {
            "my%20data%25/": ["a%20b"],
            "my data%25/": ["a%20b"],
            "my%20data%25/a%2520b": ["a%20b"],
            "100%/": ["x"],
        }.items():
            files = source(server.url + path)
            files.check()
            listed = listing(files)
            assert list(listed) == keys
            reader = files.reader()
            assert read(reader, entry_of(listed[keys[0]])) in (b"deep", b"x")
            reader.close()


@pytest.mark.parametrize("without", KINDS.values(), ids=KINDS)
def test_a_listing_that_its_server_cuts_short_is_refused_with_the_number(
    tmp_path: Path, without: Sequence[str]
) -> None:
    held = tree(tmp_path / "held", {"a": b"a", "deep/x": b"x", "deep/y": b"yy"})
    with Pyftpd(held, without=without, closing="226 Output truncated to 2 matches") as server:
        with pytest.raises(PreflightError) as caught:
            listing(source(server.url))
        for folder in (".", "deep/"):
            words = "the server's listing is not whole (2 names came): 226 Output truncated to 2 matches"
            assert f'"{folder}": {words}' in str(caught.value)
        assert "list_from" in caught.value.hint
        assert source(server.url).list_one("deep/y") is not None, "a list of keys needs no listing"
        server.closing = '226 Successfully transferred "/truncated to 2 matches"'
        assert sorted(listing(source(server.url))) == ["a", "deep/x", "deep/y"]


@pytest.mark.parametrize("pause", [0.0, 0.1])
@pytest.mark.parametrize("greeting", [b"220-more\r\n", b"220 a line"])
def test_a_greeting_without_an_end_ends(greeting: bytes, pause: float) -> None:
    with (
        Endless(greeting=greeting, pause=pause) as server,
        pytest.raises(PreflightError, match="the server's answer has no end"),
    ):
        source(server.url, timeout=1).check()


def test_a_listing_that_drips_ends() -> None:
    with (
        Endless(listing=b"type=file;size=1; x\r\n", pause=0.1) as server,
        pytest.raises(PreflightError, match="bytes came within the timeout"),
    ):
        listing(source(server.url, timeout=1))


def test_a_listing_without_an_end_is_refused_with_the_limit() -> None:
    with (
        Endless(listing=b"type=file;size=1; x\r\n") as server,
        pytest.raises(PreflightError, match=r"not whole .*: it has more than 64 MiB") as caught,
    ):
        listing(source(server.url))
    assert "list_from" in caught.value.hint


def test_words_of_an_answer_that_say_that_names_are_missing() -> None:
    for said, line in {
        "226 Transfer complete.": "",
        "226-Options: -a -l \n226 150 matches total": "",
        "226-Options: -a -l \n226 Output truncated to 100 matches": "226 Output truncated to 100 matches",
        "226 Sortie tronquee a 100 elements": "226 Sortie tronquee a 100 elements",
        "226 Anzeige auf 100 Eintr\xc3\xa4ge beschr\xc3\xa4nkt.": None,
        "226 Transfer done (but failed to open directory).": None,
        "226 Directory send OK. Only the first 1000 entries.": None,
        "226 The listing is incomplete": None,
        '226 Successfully transferred "/incomplete/truncated"': "",
        "226 Sent /data/failed/x": "",
        "226-Maximum disk quota limited to 512000 kBytes\n226 Transfer complete.": "",
    }.items():
        assert stated_cut(said) == (said if line is None else line)


class TestLinks:
    """As in a folder: refused by name, skipped and counted, or followed to a file."""

    @pytest.fixture(params=["pyftpdlib", "vsftpd"])
    def server(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
        if request.param == "vsftpd":
            server = request.getfixturevalue("vsftpd")
            tree(server.folder, {"file": b"of the file", "d/deep": b"x"})
            yield server
            return
        held = tree(tmp_path / "held", {"file": b"of the file", "d/deep": b"x"})
        with Pyftpd(held, without=LIST_ALONE) as server:
            yield server

    def test_f1_a_link_is_refused_by_name(self, server: Any) -> None:
        (server.folder / "latest").symlink_to("file")
        with pytest.raises(PreflightError, match='"latest": symbolic link'):
            listing(source(server.url))

    def test_f1_links_are_skipped_and_counted(self, server: Any) -> None:
        (server.folder / "latest").symlink_to("file")
        files = source(server.url, links="skip")
        assert listing(files).keys() == {"file", "d/deep"}
        assert files.ignored == {"links": 1}

    def test_f1_a_link_to_a_file_is_followed(self, server: Any) -> None:
        (server.folder / "latest").symlink_to("file")
        files = source(server.url, links="follow")
        found = listing(files)
        assert found["latest"]._replace(key="file") == found["file"]
        reader = files.reader()
        assert read(reader, entry_of(found["latest"])) == b"of the file"
        reader.close()

    @pytest.mark.parametrize("target", ["d", "nowhere"])
    def test_f1_a_link_to_no_file_is_refused(self, server: Any, target: str) -> None:
        (server.folder / "latest").symlink_to(target)
        with pytest.raises(PreflightError, match='"latest": link to something that is not a regular file'):
            listing(source(server.url, links="follow"))


def test_f1_a_folder_within_itself_is_no_endless_listing(tmp_path: Path) -> None:
    """By MLSD pyftpdlib and ProFTPD show what a link leads to."""
    held = tree(tmp_path / "held", {"d/file": b"x"})
    (held / "d/loop").symlink_to(".")
    with Pyftpd(held) as server:
        with pytest.raises(PreflightError, match='"d/loop": symbolic link'):
            listing(source(server.url))
        assert listing(source(server.url, links="skip")).keys() == {"d/file"}


def test_f1_a_folder_that_is_not_shown_is_named_and_may_be_left_out(vsftpd: Vsftpd) -> None:
    tree(vsftpd.folder, {"shut/file": b"x", "open/file": b"y"})
    (vsftpd.folder / "shut").chmod(0o700)
    with pytest.raises(PreflightError, match='"shut/": folder cannot be listed'):
        listing(source(vsftpd.url))
    assert listing(source(vsftpd.url, keep=lambda key: key != "shut/")).keys() == {"open/file"}


def test_f1_a_url_may_be_one_file(held: Path) -> None:
    with Pyftpd(held, without=LIST_ALONE) as server:
        files = source(f"{server.url}deep/er/f")
        found = listing(files)
        assert found.keys() == {"f"}
        reader = files.reader()
        assert read(reader, entry_of(found["f"])) == FILES["deep/er/f"]
        reader.close()
        with pytest.raises(PreflightError, match="cannot be listed"):
            source(f"{server.url}nowhere").check()


@pytest.mark.parametrize("without", KINDS.values(), ids=KINDS)
def test_f1_opening_a_file_lists_no_folder(tmp_path: Path, without: Sequence[str]) -> None:
    held = tree(tmp_path / "held", {f"d/{number:03}": b"%d" % number for number in range(50)})
    with Pyftpd(held, without=without) as server:
        files = source(server.url)
        entries = [entry_of(item) for item in listing(files).values()]
        server.commands.clear()
        reader = files.reader()
        for number, entry in enumerate(entries):
            assert read(reader, entry) == b"%d" % number
        reader.close()
        asked = [line.partition(" ")[0] for line in server.commands]
    assert {"LIST", "MLSD", "NLST"}.isdisjoint(asked)
    assert asked.count("USER") == 1


def test_listing_single_keys_logs_in_once_for_each_thread(tmp_path: Path) -> None:
    held = tree(tmp_path / "held", {f"d/{number:03}": b"%d" % number for number in range(50)})
    with Pyftpd(held) as server:
        files = source(server.url)
        entries = [entry_of(item) for item in listing(files).values()]
        server.commands.clear()
        with ThreadPoolExecutor(3) as threads:
            found = list(threads.map(files.list_one, [entry.key for entry in entries]))
        for entry in entries:
            files.checksum(entry)
        assert [item.size for item in found if item] == [entry.size for entry in entries]
        assert files.list_one("d/none") is None
        assert sum(line.startswith("USER") for line in server.commands) <= 4


def test_a_single_key_is_listed_over_a_new_connection_after_one_that_broke(tmp_path: Path) -> None:
    held = tree(tmp_path / "held", {"a": b"a", "b": b"bb"})
    with Pyftpd(held) as server:
        files = source(server.url)
        assert files.list_one("a") is not None
        for connection in list(server.connections):
            connection.close_when_done()
        until(lambda: server.held == 0, "the connection is ended")
        with contextlib.suppress(TransientError):
            files.list_one("a")
        found = files.list_one("b")
        assert found is not None
        assert found.size == 2


def test_f1_a_reader_that_is_closed_holds_no_connection(held: Path) -> None:
    with Pyftpd(held) as server:
        files = source(server.url)
        found = listing(files)
        reader = files.reader()
        gc.disable()
        try:
            assert read(reader, entry_of(found["a b"])) == b"blank"
            reader.close()
            until(lambda: server.held == 0, "the last connection is ended")
        finally:
            gc.enable()


@pytest.mark.parametrize(
    ("fate", "error"),
    [
        ("lost", TransientError),  # half of the bytes, and "226 Transfer complete"
        ("cut", TransientError),
        ("unsaid", TransientError),  # all of the bytes, and "426 transfer aborted"
        ("longer", ObjectError),
    ],
)
def test_f1_a_transfer_that_is_not_whole_is_an_error(
    tmp_path: Path, fate: str, error: type[PenstockError]
) -> None:
    held = tree(tmp_path / "held", {"x": content("x", 3_000_000)})
    with Pyftpd(held, fates={"x": (fate, 1)}) as server:
        files = source(server.url)
        entry = entry_of(listing(files)["x"])
        reader = files.reader()
        with pytest.raises(error):
            read(reader, entry)
        assert read(reader, entry) == content("x", 3_000_000)
        assert read(reader, entry, 1_000_000, 5) == content("x", 3_000_000)[1_000_000:1_000_005]
        reader.close()


def test_an_empty_file_that_sends_bytes_is_refused_by_name(tmp_path: Path) -> None:
    held = tree(tmp_path / "held", {"empty": b"", "right": b"right"})
    with (
        Pyftpd(held, fates={"empty": ("longer", 99)}) as server,
        staging(tmp_path, server.url) as context,
        pytest.raises(PenstockError, match='"empty": the object is longer than its source states'),
    ):
        go(context)


def test_f1_a_staging_goes_on_after_transfers_that_were_cut(held: Path, tmp_path: Path) -> None:
    with Pyftpd(held, fates={"deep/er/f": ("cut", 2), "f": ("cut", 2), "giant": ("unsaid", 1)}) as server:
        published, _ = staged(tmp_path, server.url)
        assert server.fates["f"] == ("cut", 0)
    assert published == content_of(held)


def test_f1_a_connection_that_the_server_ended_meanwhile_is_made_anew(held: Path) -> None:
    with Pyftpd(held) as server:
        files = source(server.url)
        found = listing(files)
        reader = files.reader()
        assert read(reader, entry_of(found["a b"])) == b"blank"
        for connection in server.connections:
            connection.timeout = 0.01  # seconds, for the next answer on
        assert read(reader, entry_of(found["-a"])) == b"an option?"
        reader.close()


def test_f1_a_server_with_too_many_connections_is_waited_for(held: Path) -> None:
    with Pyftpd(held) as server:
        files = source(server.url)
        entry = entry_of(listing(files)["a b"])
        reader = files.reader()
        server.allow(1)
        with pytest.raises(CrowdedError, match="takes no further connection"):
            read(reader, entry)
        server.allow(99)
        assert read(reader, entry) == b"blank"
        reader.close()


@pytest.mark.parametrize("vsftpd", [{"max_per_ip": "2"}, {"max_clients": "1"}], indirect=True, ids=str)
def test_a_server_that_takes_few_connections_fails_no_file(vsftpd: Vsftpd, tmp_path: Path) -> None:
    """Two workers of four streams each; what waits for a connection gets those that are not needed."""
    tree(vsftpd.folder, {f"{number:03d}": content(str(number), 100_000) for number in range(24)})
    with staging(tmp_path, vsftpd.url, plan=PlanConfig()) as context:
        context.config = replace(context.config, engine=EngineConfig(workers=2, streams=8))
        go(context)
        assert content_of(context.layout("data").current / "data") == content_of(vsftpd.folder)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("421 Too many connections (2) from this IP", CrowdedError),
        ("421 Timeout.", CrowdedError),
        ("530 Sorry, the maximum number of clients (2) for this user already connected.", CrowdedError),
        ("530-Welcome\n530 Too many users logged in", CrowdedError),
        ("530 Login limit exceeded", CrowdedError),
        ("530 Login incorrect.", ObjectError),
        ("550 Too many links", ObjectError),
    ],
)
def test_what_a_server_says_that_takes_no_further_connection(said: str, kind: type[PenstockError]) -> None:
    raised = failure((ftplib.error_temp if said[0] == "4" else ftplib.error_perm)(said), "x")
    assert type(raised) is kind


def test_f1_tls_proves_the_server_and_continues_its_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key, authority = make_certificates(tmp_path)
    settings = {"rsa_cert_file": str(certificate), "rsa_private_key_file": str(key), "ssl_ciphers": "HIGH"}
    demands = (
        "ssl_enable",
        "allow_anon_ssl",
        "force_anon_data_ssl",
        "force_anon_logins_ssl",
        "require_ssl_reuse",
    )
    try:
        server = Vsftpd(**settings, **dict.fromkeys(demands, "YES"))
    except UnavailableError as error:
        pytest.skip(f"no vsftpd: {error}")
    with server:
        data = content("x", 3_000_000)
        tree(server.folder, {"x": data})
        with pytest.raises(PreflightError, match="must use encryption"):
            source(server.url).check()
        with pytest.raises(PreflightError, match="certificate verify failed") as caught:
            source(server.url, tls=True).check()
        assert "SSL" not in caught.value.why
        assert "_ssl" not in caught.value.why
        files = source(server.url, tls=True, ca_bundle=str(authority))
        entry = entry_of(listing(files)["x"])
        reader = files.reader()
        assert read(reader, entry, 1000, 5) == data[1000:1005]
        assert read(reader, entry) == data
        reader.close()


def test_f1_a_file_that_may_not_be_read_is_refused_by_name(vsftpd: Vsftpd) -> None:
    tree(vsftpd.folder, {"shut": b"x"})
    (vsftpd.folder / "shut").chmod(0o600)
    files = source(vsftpd.url)
    entry = entry_of(listing(files)["shut"])
    reader = files.reader()
    with pytest.raises(ObjectError, match="cannot be read"):
        read(reader, entry)
    reader.close()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"tls": "tlsv1"}, "tls"),
        ({"encoding": "klingon"}, "encoding"),
        ({"prt": 1}, "port"),
        ({"proxy": "p:1"}, "`proxy`"),
    ],
)
def test_f1_options_that_cannot_be_are_named(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        source("ftp://127.0.0.1:1/x", **options).check()


def test_f1_lines_of_list() -> None:
    for line, entry in {
        "-rw-r--r--    1 0        0               5 Nov 26 12:05  lead": FtpEntry(" lead", FILE, 5),
        "-rw-r--r--   1 Domain Users  some group  5 Nov  6  2025 a b ": FtpEntry("a b ", FILE, 5),
        "-rwsr-Sr-T+  1 o g 12345678901 Nov 26 12:05 x -> y": FtpEntry("x -> y", FILE, 12345678901),
        "-rw-r--r-- 1 o g 5 2026-11-26 12:05 iso": FtpEntry("iso", FILE, 5),
        "-rw-r--r--    5 Nov 26 12:05 1 Nov 26 12:05 x": FtpEntry("1 Nov 26 12:05 x", FILE, 5),
        "drwxr-xr-x 2 o g 4096 Nov 26 12:05 .": FtpEntry(".", FOLDER, 4096),
        "lrwxrwxrwx 1 o g 4 Nov 26 12:05 x -> /a b": FtpEntry("x", LINK),
        "crw-rw-rw- 1 root root 1,   3 Nov 26 12:05 null": FtpEntry("null", "device", 3),
        "02-10-2026  13:45                    5 a b": FtpEntry("a b", FILE, 5),
        "02-10-26  01:45PM       <DIR>           lead": FtpEntry(" lead", FOLDER),
        "02-10-26  01:45PM <DIR> near": FtpEntry("near", FOLDER),
    }.items():
        assert listed_entry(line) == entry, line


def test_f1_facts_of_mlsd() -> None:
    for line, entry in {
        "type=file;size=5;modify=20261126120501; a b": FtpEntry("a b", FILE, 5, "20261126120501"),
        "Type=dir;Perm=el;Unique=1g2;  lead": FtpEntry(" lead", FOLDER, None, "", "1g2"),
        "type=cdir; /pub": FtpEntry(".", FOLDER),
        "type=OS.unix=slink:/a;size=4; l": FtpEntry("l", LINK),
        "type=OS.unix=chr-1/3; null": FtpEntry("null", "os.unix=chr-1/3"),
    }.items():
        assert stated_entry(line) == entry, line
    for line in (
        "type=OS.unix=slink:/a b;size=4; l",  # cut at the blank it would be the name "b;size=4; l"
        "size=5; no type",
        "type=file;size=-5; x",
        "type=file;type=dir; x",
        "type=file;size=5 x",
        "type=file; /pub/x",
        "type=file; ",
        "x",
        "",
    ):
        assert stated_entry(line) is None, line
