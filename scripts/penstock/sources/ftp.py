"""A connection to an FTP server, with the methods of fsspec's file systems that this package calls; and a
parser of lines of FTP listings: the facts of MLSD and MLST (RFC 3659, section 7), `ls -l` and DOS.
"""

from __future__ import annotations

import codecs
import ftplib
import re
import socket
import ssl
import time
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

from penstock.config.settings import Reach
from penstock.sources.http_endpoint import PacedSocket, ca_bundle, tls_context

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    # A protocol's description of one name, from `info` or `ls`. The fields vary by protocol.
    Info = Mapping[str, Any]


# Parses lines of FTP listings: the facts of MLSD and MLST (RFC 3659, 7), and LIST like `ls -l` or DOS.
#
# RFC 959 leaves the form of LIST to the server. If any field of a line cannot be understood, the line gives
# no entry, and the caller reports it, since it may hide a file.

FILE, FOLDER, LINK = "file", "directory", "link"
ITSELF = (".", "..")  # names by which a folder lists itself and its parent


class FtpEntry(NamedTuple):
    """One entry of a folder. `kind` is FILE, FOLDER, LINK, or the server's word for anything else."""

    name: str
    kind: str
    # bytes; None if not stated. None also for a link, since the line states the link's own length.
    size: int | None = None
    # The modification time as MLSD and MDTM write it, in UTC; "" if not stated. LIST's dates are not used,
    # since their time zone is unnamed, and they often lack the year or the seconds.
    modify: str = ""
    # MLSD's fact `unique`, which is equal for all names of one file or folder; "" if not stated
    unique: str = ""


_UNIX = re.compile(
    r"(?P<kind>[-a-zA-Z])[-rwxsStTlL]{9}[.+@]?\s+(?:\S.*?\s)??"  # links, owner and group, as far as stated
    r"(?:\d+,\s*)?(?P<size>\d+)\s+"  # a device has two numbers
    r"(?:[A-Z][a-z]{2}\s+\d{1,2}\s+(?:\d{4}|\d{1,2}:\d\d)|\d{4}-\d\d-\d\d\s+\d\d:\d\d(?::\d\d)?)"
    r" (?P<name>.+)",
    re.ASCII | re.DOTALL,
)
_DOS = re.compile(
    r"\d\d-\d\d-(?:\d{4}|\d\d)\s+\d\d:\d\d(?:[AP]M)?\s+"
    r"(?:<DIR>(?: {10}| {1,9}(?! ))|(?P<size>\d+) )(?P<name>.+)",
    re.ASCII | re.DOTALL,
)
_KINDS = {"-": FILE, "d": FOLDER, "l": LINK, "b": "device", "c": "device", "p": "FIFO", "s": "socket"}
_FACT_KINDS = {"file": FILE, "dir": FOLDER, "cdir": FOLDER, "pdir": FOLDER}
ARROW = " -> "


def listed_entry(line: str) -> FtpEntry | None:
    """Parse a line of LIST. Return None if the line cannot be understood.

    | line                                               | entry                              |
    |----------------------------------------------------|------------------------------------|
    | `-rw-r--r-- 1 owner group 5 Nov 26 12:05 a b`      | the file `a b` of 5 bytes          |
    | `drwxr-xr-x 2 owner group 4096 2026-11-26 12:05 d` | the folder `d`                     |
    | `lrwxrwxrwx 1 owner group 4 Nov 26 2025 x -> y`    | the link `x`                       |
    | a link's line with two arrows                      | None: the name's end is unclear    |
    | `crw-rw-rw- 1 root root 1, 3 Nov 26 12:05 null`    | a device                           |
    | `02-10-26  01:45PM       <DIR>          d`         | the folder `d`                     |
    | `02-10-2026  13:45                 5 a b`          | the file `a b` of 5 bytes          |
    | `Access denied.`, VMS, NetWare, other languages    | None                               |
    """
    if dos := _DOS.fullmatch(line):
        size = dos["size"]
        return _entry(
            FtpEntry(dos["name"], FOLDER) if size is None else FtpEntry(dos["name"], FILE, int(size))
        )
    unix = _UNIX.fullmatch(line)
    if unix is None or unix["kind"] not in _KINDS:
        return None
    kind, name = _KINDS[unix["kind"]], unix["name"]
    if kind == LINK:
        if name.count(ARROW) != 1:
            return None
        return _entry(FtpEntry(name.partition(ARROW)[0], LINK))
    return _entry(FtpEntry(name, kind, int(unix["size"])))


def is_total(line: str) -> bool:
    """Return whether a line is the first of `ls -l`, the count of blocks."""
    return re.fullmatch(r"total \d+", line, re.ASCII) is not None


def stated_cut(said: str) -> str:
    """Return the line of a listing's final answer that reports missing names, or "".

    | the answer                                                        | reports |
    |-------------------------------------------------------------------|---------|
    | `226 Output truncated to 100 matches` (Pure-FTPd)                 | yes     |
    | `226 Anzeige auf 100 Einträge beschränkt.` (Pure-FTPd)            | yes     |
    | `226 Transfer done (but failed to open directory).` (vsftpd)      | yes     |
    | `226 Successfully transferred "/truncated"` (FileZilla Server)    | no      |
    | `226-Maximum disk quota limited to 100 kBytes` (Serv-U)           | no      |
    """
    return next((line for line in said.split("\n") if _CUT.search(_PATHS.sub("", line))), "")


_PATHS = re.compile(r'"[^"]*"|\S*/\S*')
_CUT = re.compile(
    r"trunc|incomplete|abridged|\bfailed\b|\bnot all\b|\btoo many\b|\bmore than\b|\bcut (?:off|short)\b"
    r"|\bfirst \d|\blimit (?:was |is )?(?:reached|exceeded)|\bmax(?:imum)? (?:\S+ )?(?:\S+ )?reached"
    # Pure-FTPd in its other languages
    r"|tronq|tronc|trunk|beschr|afrundet|afgekort|avkort|csonk|obci|skrat|zkr.cen|shkurt|k.saltmas",
    re.ASCII | re.IGNORECASE,
)


def stated_entry(line: str) -> FtpEntry | None:
    """Parse `fact=value;fact=value; name` of MLSD or MLST; None for another form, or if no type is stated."""
    facts, blank, name = line.partition(" ")
    if not blank or not facts.endswith(";"):
        return None
    values: dict[str, str] = {}
    for fact in facts[:-1].split(";"):
        word, equals, value = fact.partition("=")
        if not equals or word.lower() in values:
            return None
        values[word.lower()] = value
    kind, size = values.get("type", "").lower(), values.get("size", "")
    if not kind or (size and not re.fullmatch(r"\d+", size, re.ASCII)):
        return None
    if kind in ("cdir", "pdir"):
        return FtpEntry(".", FOLDER)
    if kind.startswith(("os.unix=slink", "os.unix=symlink")):
        return _entry(FtpEntry(name, LINK))
    kind = _FACT_KINDS.get(kind, kind)
    modify, unique = values.get("modify", ""), values.get("unique", "")
    return _entry(FtpEntry(name, kind, int(size) if size else None, modify, unique))


def _entry(entry: FtpEntry) -> FtpEntry | None:
    """Return the entry, or None if no command can send its name, or no folder can contain it."""
    return None if not entry.name or any(char in entry.name for char in "/\0\r\n") else entry


# A connection to an FTP server, with the methods of fsspec's file systems that this package calls.
#
# fsspec's own class skips short lines of listings, takes links for files, and lists a whole folder to open
# one file. With it, 200 small files among 2,000 names took 18 s from pyftpdlib on loopback. With this class
# they take 0.3 s (`tests/sources/test_ftp.py` counts the listings). All commands only read.
#
# | fact             | commands                                                                   |
# | ---------------- | -------------------------------------------------------------------------- |
# | a folder's names | MLSD; LIST if the server lacks MLSD                                        |
# | a file's size    | MLSD, MLST; SIZE in TYPE I; LIST if the server refuses SIZE                |
# | a file's time    | MLSD, MLST; MDTM, in UTC (RFC 3659); no time if the server refuses MDTM    |
# | a file's bytes   | one RETR, after REST with an offset; complete if the server confirms (226) |

_UNKNOWN = frozenset({"500", "502", "504"})  # codes of answers to an unsupported command (RFC 959, 4.2)
_MISSING = "550"
_CLOSING = "421"
# Codes of answers that do not concern the name or command: a missing or broken data connection, or an error
# within the server.
_CONNECTION = frozenset({_CLOSING, "425", "426", "451"})
_WIRE = "latin-1"  # ftplib's encoding of names, which passes every byte
_PIECE = 1 << 18  # bytes that one call receives, at most
ANSWER_LIMIT = 1 << 16  # bytes of one answer, at most; the whole answer must come within the timeout
LISTING_LIMIT = 64 << 20  # bytes of a folder's listing, at most: some 650,000 names
LIST_ALL = "LIST -a"  # command that also lists names with a leading dot, if the server understands `-a`


class FtpConnection:
    """One connection, for one thread, made on first use and again after a failure.

    Methods raise OSError, EOFError and ftplib.Error. The OSError is FileNotFoundError for a name that the
    server does not find, PermissionError for a folder that it does not list.
    """

    async_impl = False

    def __init__(
        self,
        host: str,
        port: int = 21,
        username: str = "",
        password: str = "",
        acct: str = "",
        encoding: str = "utf-8",
        tls: bool = False,
        *,
        reach: Reach = Reach(),  # noqa: B008
    ) -> None:
        """With `tls`, AUTH TLS protects commands and data. Raises ValueError."""
        if not host:
            raise ValueError("the URL names no host")
        if not isinstance(tls, bool):
            raise TypeError("`tls` is true or false")
        try:
            codecs.lookup(encoding)
        except LookupError:
            raise ValueError(f"`encoding` has no encoding that there is: {encoding}") from None
        self._address, self._reach = (host, int(port)), reach
        self._encoding, self._tls = encoding, tls
        self._login = [str(value).encode().decode(_WIRE) for value in (username, password, acct)]
        self._control: ftplib.FTP | None = None
        # a weak reference to the open file, so that nothing delays the end of a dropped connection
        self._file: Callable[[], FtpFile | None] = lambda: None
        self._lacks: set[str] = set()  # commands that the server lacks
        self._unique: dict[str, str] = {}  # from path to identity, for folders listed by MLSD
        self._list = ""  # the form of LIST that shows all names on this server; "" until known

    @classmethod
    def to(cls, url: str, **options: object) -> tuple[FtpConnection, str]:
        """Return the connection for a URL, and the URL's percent-decoded path with a leading slash. Raises
        ValueError, TypeError."""
        place, _, path = url.partition("://")[2].partition("/")
        stated = urlsplit(f"//{place}")
        named: dict[str, object] = {"host": stated.hostname or ""}
        if stated.port:
            named["port"] = stated.port
        if stated.username:
            named["username"] = unquote(stated.username)
        return cls(**(named | options)), "/" + unquote(path, errors="surrogateescape")  # type: ignore[arg-type]

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        control, self._control = getattr(self, "_control", None), None
        if control is not None:
            control.close()

    def invalidate_cache(self) -> None:
        """Do nothing: no cache depends on the files."""

    def isfile(self, path: str) -> bool:
        """Return whether the server finds the name, and it is a file or a link to a file."""
        if self._enters(path):
            return False
        try:
            return bool(self.info(path)["type"] == FILE)
        except FileNotFoundError:
            return False

    def info(self, path: str) -> Info:
        """Return the kind, size and time of a name; for a link, those of its destination. Raises
        FileNotFoundError."""
        if not path.strip("/"):
            return _info(path, FtpEntry("", FOLDER))
        lines = (self._ask("MLST", path) or "").split("\n")
        facts = lines[1].removeprefix(" ").partition(" ")[0] if len(lines) > 2 else ""
        stated = stated_entry(f"{facts} name")
        whole = stated is not None and (stated.kind == FOLDER or _is_complete(stated))
        return _info(path, stated if stated is not None and whole else self._looked_at(path))

    def ls(self, path: str, detail: bool = True) -> Sequence[Info]:  # noqa: ARG002 (fsspec's shape)
        """List a folder's names, without following links. A folder listed within itself counts as a link,
        since some servers show a link to a folder above in this way.

        An unreadable line of the listing is a result with the field `line`. If that line reports that the
        list stops short, `cut` is not "", and `names` counts the names before that line. Raises
        PermissionError if the server does not list the folder.
        """
        if not self._enters(path or "/"):
            raise PermissionError(f"the server does not enter the folder {path or '/'}")
        infos: list[Info] = []
        names: set[str] = set()
        words = path.split("/")
        above = {self._unique.get("/".join(words[:count])) for count in range(2, len(words) + 1)}
        for line, entry in self._entries(path or "/"):
            if entry is None or entry.name in names:
                cut = stated_cut(line) if entry is None else ""
                infos.append({"line": self._name(line), "cut": cut, "names": len(names)})
            elif entry.name not in ITSELF:
                names.add(entry.name)
                below = f"{path.rstrip('/')}/{self._name(entry.name)}"
                if entry.kind == FOLDER and entry.unique:
                    entry = entry._replace(kind=LINK if entry.unique in above else FOLDER)
                    self._unique[below] = entry.unique
                infos.append(_info(below, self._completed(below, entry)))
        return infos

    def open(self, path: str, mode: str = "rb") -> FtpFile:  # noqa: ARG002 (fsspec's shape)
        """Open a file. Only one file is open at a time, so a file opened earlier is dropped."""
        self._close_file()
        file = FtpFile(self, path)
        self._file = weakref.ref(file)
        return file

    def transfer(self, command: str, path: str = "", offset: int = 0) -> socket.socket:
        """Send a command; return the socket that receives its data, from `offset` on. The caller then calls
        `ended` or `dropped`."""
        control = self._connected()
        line = f"{command} {self._wire(path)}" if path else command
        try:
            return control.transfercmd(line, offset or None)
        except (OSError, EOFError, ftplib.Error) as error:
            # After a refused RETR, the offset of its REST may remain in force.
            if offset or not isinstance(error, ftplib.error_perm):
                self.close()
            raise

    def paced(self, data: socket.socket) -> PacedSocket:
        """Wrap a transfer's socket, so that a stall or a trickle of bytes raises TimeoutError."""
        return PacedSocket(data, self._reach.timeout, kernel=False)

    def ended(self, data: socket.socket) -> str:
        """End a transfer after its last byte; return the server's answer. Raises ftplib.Error unless the
        server reports that the transfer is complete."""
        try:
            with data:
                if isinstance(data, ssl.SSLSocket):
                    data.unwrap()
            if self._control is None:
                raise EOFError("the connection was lost")
            return self._control.voidresp()
        except (OSError, EOFError, ftplib.Error):
            self.close()
            raise

    def dropped(self, data: socket.socket) -> None:
        """End a transfer early, and read the server's answer, which confirms the abort."""
        data.close()
        try:
            if self._control is not None:
                self._control.getmultiline()
        except (OSError, EOFError, ftplib.Error):
            self.close()

    def _close_file(self) -> None:
        if (file := self._file()) is not None:
            file.close()

    def _connected(self) -> ftplib.FTP:
        if self._control is not None:
            return self._control
        # Plain FTP is the user's choice; received bytes are compared with the server's sizes.
        timeout = self._reach.timeout
        if self._tls:
            tls = tls_context(ca_bundle(self._reach), None)
            control: ftplib.FTP = _ProtectedFtp(context=tls, timeout=timeout, encoding=_WIRE)
        else:
            control = _Control(timeout=timeout, encoding=_WIRE)
        try:
            control.connect(*self._address)
            if control.sock is not None:  # the control connection is idle during a long transfer
                control.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            control.login(*self._login)
            if isinstance(control, ftplib.FTP_TLS):
                control.prot_p()
            self._learn(control)
            control.voidcmd("TYPE I")
        except BaseException:
            control.close()
            raise
        self._control = control
        return control

    def _learn(self, control: ftplib.FTP) -> None:
        """Learn the server's features (RFC 2389); MLST implies MLSD."""
        try:
            answer = control.sendcmd("FEAT")
        except ftplib.error_perm:
            return
        features = {words[0].upper() for line in answer.split("\n")[1:-1] if (words := line.split())}
        if not features & {"MLST", "MLSD"}:
            self._lacks |= {"MLST", "MLSD"}
        if "UTF8" in features and codecs.lookup(self._encoding).name == "utf-8":
            try:
                control.sendcmd("OPTS UTF8 ON")  # without OPTS UTF8, IIS sends question marks
            except ftplib.error_perm:
                return

    def _ask(self, command: str, path: str) -> str | None:
        """Return the answer to a command; None if the server lacks the command. Raises FileNotFoundError if
        the server does not find the name."""
        if command in self._lacks:
            return None
        self._close_file()
        line = f"{command} {self._wire(path)}"
        kept = self._control is not None
        while True:
            control = self._connected()
            if command in self._lacks:
                return None
            try:
                return control.sendcmd(line)
            except ftplib.error_perm as error:
                if str(error)[:3] == _MISSING:
                    raise FileNotFoundError(str(error)) from None
                if str(error)[:3] in _UNKNOWN:
                    self._lacks.add(command)
                    return None
                raise
            except (OSError, EOFError, ftplib.Error) as error:
                self.close()
                if not kept or not _hung_up(error):
                    raise
                kept = False  # servers close idle connections, often after five minutes

    def _answer(self, command: str, path: str) -> str:
        """Return the answer to SIZE or MDTM, or "" if the server gives none."""
        try:
            answer = self._ask(command, path) or ""
        except FileNotFoundError:
            return ""
        return answer[4:].strip() if answer[:3] == "213" else ""

    def _enters(self, path: str) -> bool:
        try:
            return self._ask("CWD", path) is not None
        except FileNotFoundError:
            return False

    def _entries(self, path: str) -> Sequence[tuple[str, FtpEntry | None]]:
        """Return the entered folder's lines, each with its parsed entry (None if unreadable)."""
        if "MLSD" not in self._lacks:
            try:
                return [(line, stated_entry(line)) for line in self._lines("MLSD")]
            except ftplib.error_perm as error:
                if str(error)[:3] not in _UNKNOWN:
                    raise PermissionError(f"{error} ({path})") from None
                self._lacks.add("MLSD")
        try:
            return self._listed()
        except ftplib.error_perm as error:
            raise PermissionError(f"{error} ({path})") from None

    def _listed(self) -> Sequence[tuple[str, FtpEntry | None]]:
        """List by LIST. Without `-a`, many servers hide names with a leading dot; other servers take `-a` for
        a file's name. If a server understood `-a`, its answer contains the folder itself, `.`."""
        plain = self._parsed("LIST") if self._list != LIST_ALL else None
        if plain is not None and (self._list or _names_itself(plain)):
            self._list = "LIST"
            return plain
        try:
            every = self._parsed(LIST_ALL)
        except (ftplib.error_perm, ftplib.error_temp) as error:
            if str(error)[:3] in _CONNECTION:
                raise
            every = []
        if _names_itself(every):
            self._list = LIST_ALL
            return every
        self._list = self._list or "LIST"
        return self._parsed("LIST") if plain is None else plain

    def _parsed(self, command: str, path: str = "") -> Sequence[tuple[str, FtpEntry | None]]:
        lines = self._lines(command, path)
        return [(line, listed_entry(line)) for line in lines[bool(lines and is_total(lines[0])) :]]

    def _lines(self, command: str, path: str = "") -> Sequence[str]:
        if self._control is None and not path:  # a new connection has not entered the folder
            raise EOFError("the connection was lost")
        data = self.transfer(command, path)
        paced, block, received = self.paced(data), memoryview(bytearray(_PIECE)), bytearray()
        try:
            while count := paced.recv_into(block):
                received += block[:count]
                if len(received) > LISTING_LIMIT:
                    data.close()
                    self.close()
                    return [f"it has more than {LISTING_LIMIT >> 20} MiB"]
        except BaseException:
            data.close()
            self.close()
            raise
        said = self.ended(data)
        if received and not received.endswith(b"\n"):
            raise EOFError("the server's listing ends within a line")
        lines = [line.removesuffix("\r") for line in bytes(received).decode(_WIRE).split("\n")[:-1]]
        return [*lines, cut] if (cut := stated_cut(said)) else lines

    def _completed(self, path: str, entry: FtpEntry) -> FtpEntry:
        """Add a file's missing size and time to its entry: those that `info` states."""
        if entry.kind != FILE or _is_complete(entry):
            return entry
        try:
            stated = self.info(path) if "MLST" not in self._lacks else None
        except FileNotFoundError:
            stated = None
        if stated is not None and stated["type"] == FILE:
            return entry._replace(size=stated["size"], modify=stated["modify"])
        size = self._answer("SIZE", path) if entry.size is None else ""
        return entry._replace(
            size=int(size) if size.isdecimal() else entry.size, modify=self._answer("MDTM", path)
        )

    def _looked_at(self, path: str) -> FtpEntry:
        """Look a name up by SIZE and MDTM, or by LIST if the server refuses SIZE. Raises
        FileNotFoundError."""
        size = self._answer("SIZE", path)
        if size.isdecimal():
            return FtpEntry("", FILE, int(size), self._answer("MDTM", path))
        if self._enters(path):
            return FtpEntry("", FOLDER)
        entry = self._listed_alone(path)
        if entry is None or entry.kind == LINK:
            raise FileNotFoundError(f"the server does not find {path}")
        return entry._replace(modify=self._answer("MDTM", path))

    def _listed_alone(self, path: str) -> FtpEntry | None:
        """Return a name's entry from a listing of that name alone or, if that has none, of its folder."""
        folder, _, name = path.rpartition("/")
        wanted = self._wire(name)
        try:
            entries = self._parsed("LIST", path)
        except ftplib.error_perm:
            entries = []
        if [entry and entry.name for _, entry in entries] != [wanted]:
            entries = self._listed() if self._enters(folder or "/") else []
        return next((entry for _, entry in entries if entry is not None and entry.name == wanted), None)

    def _name(self, text: str) -> str:
        return text.encode(_WIRE).decode(self._encoding, "surrogateescape")

    def _wire(self, path: str) -> str:
        """Encode a path for ftplib. Raises PermissionError for a path that no command can carry."""
        try:
            raw = path.encode(self._encoding, "surrogateescape")
        except UnicodeEncodeError:
            raise PermissionError(f"the name has no form in the encoding {self._encoding}") from None
        if any(byte in raw for byte in b"\r\n\0"):
            raise PermissionError("FTP's commands cannot carry a name with a line break")
        return raw.decode(_WIRE)


class _Control(ftplib.FTP):
    """A control connection that limits each answer to ANSWER_LIMIT bytes and the timeout. ftplib itself reads
    as long as a server sends."""

    _until = 0.0
    _ahead = b""
    _room = 0

    def getmultiline(self) -> str:
        self._until = time.monotonic() + float(self.timeout or 0)
        self._room = ANSWER_LIMIT
        return super().getmultiline()

    def getline(self) -> str:
        sock = self.sock
        assert sock is not None
        while (end := self._ahead.find(b"\n")) < 0:
            left = self._until - time.monotonic()
            if left <= 0 or len(self._ahead) > self._room:
                raise TimeoutError("the server's answer has no end")
            sock.settimeout(left)
            try:
                piece = sock.recv(ANSWER_LIMIT)
            except TimeoutError:
                begun = self._ahead or self._room < ANSWER_LIMIT
                why = "the server's answer has no end" if begun else "no byte came within the timeout"
                raise TimeoutError(why) from None
            sock.settimeout(self.timeout)
            if not piece:
                raise EOFError("the server closed the connection")
            self._ahead += piece
        line, self._ahead = self._ahead[:end], self._ahead[end + 1 :]
        self._room -= end
        if self._room < 0:
            raise TimeoutError("the server's answer has no end")
        return line.removesuffix(b"\r").decode(_WIRE)


class _ProtectedFtp(_Control, ftplib.FTP_TLS):
    """Data connections continue the control connection's TLS session, as vsftpd and ProFTPD demand."""

    def auth(self) -> str:
        answer = super().auth()
        self._ahead = b""  # discard bytes that came before TLS
        return answer

    def ntransfercmd(self, cmd: str, rest: int | str | None = None) -> tuple[socket.socket, int | None]:
        # the data connection, still without TLS
        data, size = super(ftplib.FTP_TLS, self).ntransfercmd(cmd, rest)
        assert isinstance(self.sock, ssl.SSLSocket)
        try:
            protected = self.context.wrap_socket(data, server_hostname=self.host, session=self.sock.session)
        except BaseException:
            data.close()
            raise
        return protected, size


class FtpFile:
    """One file's bytes, read in order from the offset of `seek`, by one request."""

    def __init__(self, connection: FtpConnection, path: str) -> None:
        self._connection, self._path = connection, path
        self._offset = 0
        self._data: socket.socket | None = None
        self._paced: PacedSocket | None = None
        self._ended = False

    def seek(self, offset: int) -> None:
        self._offset = offset

    def read(self, size: int) -> bytes:
        """Read `size` bytes; fewer only at the end, after the server confirmed that it sent all."""
        buffer = bytearray(size)
        got = 0
        if not self._ended and self._data is None:
            self._data = self._connection.transfer("RETR", self._path, self._offset)
            self._paced = self._connection.paced(self._data)
        while self._data is not None and self._paced is not None and got < size:
            try:
                count = self._paced.recv_into(memoryview(buffer)[got : got + _PIECE])
            except BaseException:
                self._connection.close()
                raise
            if not count:
                data, self._data, self._ended = self._data, None, True
                self._connection.ended(data)
            got += count
        return bytes(memoryview(buffer)[:got])

    def close(self) -> None:
        """Close; never raises."""
        data, self._data, self._ended = self._data, None, True
        if data is not None:
            self._connection.dropped(data)


def _hung_up(error: Exception) -> bool:
    """Return whether the server had ended the connection before the request."""
    closing = isinstance(error, ftplib.error_temp) and str(error).startswith(_CLOSING)
    return closing or isinstance(error, (EOFError, ConnectionError))


def _is_complete(entry: FtpEntry) -> bool:
    return entry.kind == FILE and entry.size is not None and bool(entry.modify)


def _names_itself(entries: Sequence[tuple[str, FtpEntry | None]]) -> bool:
    return any(entry is not None and entry.name == "." for _, entry in entries)


def _info(path: str, entry: FtpEntry) -> Info:
    return {"name": path, "type": entry.kind, "size": entry.size, "modify": entry.modify}
