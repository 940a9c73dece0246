"""Signs bytes, and verifies signatures, by `ssh-keygen -Y`: for a release's seal and for preflight.

`target.sign_with` is the path of the signing key, and `target.signers` OpenSSH's file of allowed signers. The
secret stays in the key's file, or in the agent if the path is that of a public key. A passphrase is never
requested: a key with a passphrase signs through the agent, or not at all. Only UTF-8 text is signed.
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
from penstock.core.human import printable
from penstock.host import command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROGRAM = "ssh-keygen"
# namespace of the seals' signatures; `namespaces=` in the file of signers may restrict a line to it
NAMESPACE = "penstock-release"
DEADLINE = 60.0  # seconds: an agent may wait for a person
LARGEST = 1 << 16  # most bytes of a signature; one by an RSA key of 16384 bits has 3,000
_MISSING_HINT = "install OpenSSH's client (Debian: openssh-client), 8.9 or later"
_NO_ACCOUNT = "No user exists for uid"
_NAMED_ACCOUNTS_HINT = "ssh-keygen works for accounts alone that this machine knows by name (getent passwd)"
_ARMORED = re.compile(rb"-----BEGIN SSH SIGNATURE-----\n[A-Za-z0-9+/=\n]+-----END SSH SIGNATURE-----\n?")


class SignatureError(Exception):
    """A signature is not valid. The message says why."""


def check_key(path: Path) -> None:
    """Raise PreflightError if the key is unreadable, is another account's, or is open to other accounts."""
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
    """Raise PreflightError if the file of signers is unreadable, or others may change it."""
    status = _readable_file(path, "target.signers")
    if stat.S_IMODE(status.st_mode) & 0o022:
        raise PreflightError(
            "others may change who signs",
            where=f"target.signers: {path}",
            why=f"its mode is {stat.S_IMODE(status.st_mode):04o}",
            hint=f"chmod go-w {path}",
        )


def sign(path: Path, content: bytes) -> bytes:
    """Return the armored signature. Raises PreflightError, and ValueError for bytes that are no text."""
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
    """Return a signature. If there is a file of signers, also verify it, since readers would refuse an
    invalid signature. Raises PreflightError, ValueError."""
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
    """Verify a signature and return its signer's name in the file of signers.

    `at`: the signature's time, UTC in ISO 8601, compared with `valid-after` and `valid-before` in that file.
    Raises SignatureError for an invalid signature, and PreflightError if it cannot be verified here.
    """
    check_signers(signers)
    if len(signature) > LARGEST or not _ARMORED.fullmatch(signature):
        raise SignatureError("it is no signature of OpenSSH")
    try:
        text, when = content.decode(), _local(at)
    except ValueError:
        raise SignatureError("what is signed is no text of penstock") from None
    with _in_memory(signature) as fd:
        # /proc/self is that of ssh-keygen, which may not be allowed to read this process's (hidepid, ptrace).
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
    """Raise PreflightError if ssh-keygen does not work here, so that the signature was not judged."""
    if not answer.there:
        raise _no_ssh_keygen(answer)
    if _NO_ACCOUNT in answer.words:
        raise _cannot_verify(answer.words, _NAMED_ACCOUNTS_HINT)


def _cannot_verify(why: str, hint: str) -> PreflightError:
    return PreflightError("a signature cannot be verified here", where=PROGRAM, why=why, hint=hint)


def _names(principals: str) -> Iterator[str]:
    """Return the name with which to verify for each line of principals: the first that is not excluded.
    Principals are patterns separated by commas, and `!` excludes."""
    for line in principals.splitlines():
        patterns = [text for text in line.strip().split(",") if text and not text.startswith("!")]
        yield from patterns[:1]


def _readable_file(path: Path, key: str) -> os.stat_result:
    """Return the status of a readable plain file, through links. Raises PreflightError with `key`."""
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
    """Return whether the file contains a public key, whose secret key is in the agent."""
    with path.open("rb") as file:
        return not file.read(64).startswith(b"-----BEGIN")


def _environment() -> dict[str, str]:
    """Return environment variables that lead to the agent and prevent any request for a passphrase."""
    socket = os.environ.get("SSH_AUTH_SOCK")
    never = {"SSH_ASKPASS_REQUIRE": "never"}
    return {**never, "SSH_AUTH_SOCK": socket} if socket else never


def _local(at: str) -> str:
    """Format the time for `verify-time`, in the process's time zone. Raises ValueError."""
    return datetime.fromisoformat(at).astimezone().strftime("%Y%m%d%H%M%S")


@contextlib.contextmanager
def _in_memory(content: bytes) -> Iterator[int]:
    """Provide the content as a file in memory."""
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
