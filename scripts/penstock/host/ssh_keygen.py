"""Signs bytes, and verifies signatures, by `ssh-keygen -Y`. No other module runs it.

For `dataset.release_signature`, which signs and verifies a release's seal (`release.json`), and for
preflight, which tries the key. The files are those of `target.sign_with` (the key that signs) and of
`target.signers` (OpenSSH's file of allowed signers). Runs ssh-keygen, reads these two files and their modes,
reaches the agent of SSH_AUTH_SOCK; writes nothing.

A key is named by its path alone. Its secret stays in its file, or in the agent: `path` then is that of the
public key. No passphrase is asked for: a key that has one signs through the agent, or not at all. What is
signed is UTF-8 text.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from penstock.core.errors import PreflightError
from penstock.core.text import printable
from penstock.host import command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROGRAM = "ssh-keygen"
NAMESPACE = "penstock-release"
"""In which seals are signed; a line of the file of signers may be bound to it by `namespaces=`."""
DEADLINE = 60.0
"""Seconds: an agent may ask a person."""
LARGEST = 1 << 16
"""Bytes of a signature; those of RSA keys with 16384 bits have 3,000."""
_MISSING_HINT = "install OpenSSH's client (Debian: openssh-client), 8.9 or later"
_NO_ACCOUNT = "No user exists for uid"
_NAMED_ACCOUNTS_HINT = "ssh-keygen works for accounts alone that this machine knows by name (getent passwd)"
_ARMORED = re.compile(rb"-----BEGIN SSH SIGNATURE-----\n[A-Za-z0-9+/=\n]+-----END SSH SIGNATURE-----\n?")


class SignatureError(Exception):
    """A signature that does not hold; the message says why."""


def check_key(path: Path) -> None:
    """Raises PreflightError for a key that cannot be read, that is another account's, or that others could
    read or replace."""
    status = _readable_file(path, "target.sign_with")
    if status.st_uid not in (0, os.geteuid()):
        raise PreflightError(
            "the key that signs belongs to another account",
            where=f"target.sign_with: {path}",
            why=f"uid {status.st_uid}",
            hint="name a key of this account, or run as that account",
        )
    others = 0o022 if _is_public(path) else 0o077
    if stat.S_IMODE(status.st_mode) & others:
        raise PreflightError(
            "others may read or replace the key that signs",
            where=f"target.sign_with: {path}",
            why=f"its mode is {stat.S_IMODE(status.st_mode):04o}",
            hint=f"chmod {'go-w' if others == 0o022 else 'go='} {path}",
        )


def check_signers(path: Path) -> None:
    """Raises PreflightError for a file of signers that cannot be read, or that others may change."""
    status = _readable_file(path, "target.signers")
    if stat.S_IMODE(status.st_mode) & 0o022:
        raise PreflightError(
            "others may change who signs",
            where=f"target.signers: {path}",
            why=f"its mode is {stat.S_IMODE(status.st_mode):04o}",
            hint=f"chmod go-w {path}",
        )


def sign(path: Path, content: bytes) -> bytes:
    """The armored signature of these bytes. Raises PreflightError for a key that cannot sign, ValueError for
    bytes that are no text."""
    check_key(path)
    argv = (PROGRAM, "-Y", "sign", "-q", "-n", NAMESPACE, "-f", str(path))
    answer = command.run(argv, deadline=DEADLINE, more=_environment(), given=content.decode())
    if not answer.there:
        raise _no_ssh_keygen(answer)
    made = answer.out.encode()
    if not answer.ok or not _ARMORED.fullmatch(made):
        raise PreflightError(
            "the key cannot sign",
            where=f"target.sign_with: {path}",
            why=answer.words,
            hint=_NAMED_ACCOUNTS_HINT
            if _NO_ACCOUNT in answer.words
            else "a key with a passphrase signs through an agent: `ssh-add`, and see that SSH_AUTH_SOCK is "
            "set; no passphrase is asked for",
        )
    return made


def sign_verified(key: Path, signers: Path | None, content: bytes, at: str) -> bytes:
    """`sign`, and `verified_signer` of the result where there is a file of signers: a signature that readers
    would refuse is not handed out. Raises PreflightError, ValueError."""
    made = sign(key, content)
    try:
        if signers is not None:
            verified_signer(signers, content, made, at)
    except SignatureError as error:
        raise PreflightError(
            "the key's signatures are not those that `target.signers` asks for",
            where=f"target.sign_with: {key}",
            why=str(error),
            hint=f"add its public key to {signers}, with the namespace where the line names any: "
            f'namespaces="{NAMESPACE}"',
        ) from None
    return made


def verified_signer(signers: Path, content: bytes, signature: bytes, at: str) -> str:
    """Verify the signature of these bytes, and return its signer's name in the file of signers. `at`: when it
    was made, UTC in ISO 8601, which `valid-after` and `valid-before` of that file are compared with. Raises
    SignatureError for a signature that does not hold, PreflightError where it cannot be verified here."""
    check_signers(signers)
    if len(signature) > LARGEST or not _ARMORED.fullmatch(signature):
        raise SignatureError("it is no signature of OpenSSH")
    try:
        text, when = content.decode(), _local(at)
    except ValueError:
        raise SignatureError("what is signed is no text of penstock") from None
    with _in_memory(signature) as fd:
        # /proc/self is ssh-keygen's own: /proc/<pid> of this process may be closed to it (hidepid, ptrace).
        options = ("-O", f"verify-time={when}", "-f", str(signers), "-s", f"/proc/self/fd/{fd}")
        run = partial(command.run, deadline=DEADLINE, inherited=(fd,))
        answer = principals = run((PROGRAM, "-Y", "find-principals", *options))
        _refuse_unable(principals)
        for name in _names(principals.out) if principals.ok else ():
            argv = (PROGRAM, "-Y", "verify", "-n", NAMESPACE, "-I", name, *options)
            answer = run(argv, given=text)
            if answer.ok:
                return name
    if answer.code is None:
        raise _cannot_verify(answer.why, "install OpenSSH 8.2 or later here (ssh-keygen)")
    raise SignatureError("it is by none of `target.signers`" if answer is principals else answer.words)


def _refuse_unable(answer: command.Answer) -> None:
    """Raises PreflightError where ssh-keygen says nothing of a signature, since it cannot work here."""
    if not answer.there:
        raise _no_ssh_keygen(answer)
    if _NO_ACCOUNT in answer.words:
        raise _cannot_verify(answer.words, _NAMED_ACCOUNTS_HINT)


def _cannot_verify(why: str, hint: str) -> PreflightError:
    return PreflightError("a signature cannot be verified here", where=PROGRAM, why=why, hint=hint)


def _names(principals: str) -> Iterator[str]:
    """Of each line of principals (patterns with commas between them, `!` before one that is excluded) the
    first that is not excluded: the name to verify by."""
    for line in principals.splitlines():
        patterns = [text for text in line.strip().split(",") if text and not text.startswith("!")]
        yield from patterns[:1]


def _readable_file(path: Path, key: str) -> os.stat_result:
    """The status of a plain file that this account can read; links are followed. Raises PreflightError, which
    names this key of the configuration."""
    try:
        status = path.stat()
        with path.open("rb"):
            pass
    except OSError as error:
        raise PreflightError(
            "a file that signatures need cannot be read",
            where=f"{key}: {path}",
            why=str(error.strerror),
            hint="correct the path, or let this account read the file",
        ) from None
    if not stat.S_ISREG(status.st_mode):
        raise PreflightError(
            "a file that signatures need is no file", where=f"{key}: {path}", hint="name the key's file there"
        )
    return status


def _is_public(path: Path) -> bool:
    """Whether the file holds a public key, whose secret is the agent's."""
    with path.open("rb") as file:
        return not file.read(64).startswith(b"-----BEGIN")


def _environment() -> dict[str, str]:
    """Reaches the agent, and never asks a person for a passphrase."""
    socket = os.environ.get("SSH_AUTH_SOCK")
    never = {"SSH_ASKPASS_REQUIRE": "never"}
    return {**never, "SSH_AUTH_SOCK": socket} if socket else never


def _local(at: str) -> str:
    """As `verify-time` takes it: in the time zone of this process. Raises ValueError."""
    return datetime.fromisoformat(at).astimezone().strftime("%Y%m%d%H%M%S")


@contextlib.contextmanager
def _in_memory(content: bytes) -> Iterator[int]:
    """A file in memory that holds this."""
    fd = os.memfd_create("signature")
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        yield fd
    finally:
        os.close(fd)


def _no_ssh_keygen(answer: command.Answer) -> PreflightError:
    return PreflightError(
        "signatures need ssh-keygen, which is not there",
        where=PROGRAM,
        why=printable(answer.why),
        hint=_MISSING_HINT,
    )
