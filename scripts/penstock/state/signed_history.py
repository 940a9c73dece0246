"""Whether the history is the one that holders of a key wrote, where `target.signers` is configured.

The problem: who may write below the root but has no key can forge a seal, and a line of the history that
names the forged seal. The seal is signed by itself (`release_signature`); the history as a whole, with each
line that is added, in `history-signed.json`. A line also names the digest of all bytes before it (`before`),
so that what was changed can be named.

| history.jsonl                                                | is                                     |
|--------------------------------------------------------------|----------------------------------------|
| the bytes that were signed                                   | signed                                 |
| those without the line that was about to be added, or with a | signed: the command was killed         |
| part of it                                                   |                                        |
| the bytes that were signed, and further lines                | forged: nobody with a key wrote them   |
| anything else                                                | forged                                 |

A line is signed twice: before it is added, and, alone with what stands before it, once it is there. So no
signature that is left says that the last line may be missing, but after a kill between the two.

What was taken back to an older state together with its signature is found by the release that the history
then lacks (`release_signature`). The account that cannot read the state looks at none of this.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.core.documents import history_line, signed_history
from penstock.core.documents.signed_history import Extent, SignedHistory, statement
from penstock.core.layout import SIGNATURE
from penstock.errors import FindingsError, PreflightError
from penstock.filesystem import plain_files
from penstock.signing import ssh_keygen
from penstock.storage import durable

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.layout import DatasetLayout


def problems(layout: DatasetLayout) -> list[str]:
    """What does not hold, in words; empty where all does, and where nothing is to be verified here. Raises
    PreflightError where it cannot be verified, NewerFormatError."""
    if layout.signing.signers is None or not layout.signing.of_owner:
        return []
    try:
        content = _content(layout)
        signed = _signed(layout)
    except PermissionError:
        # The state is its owner's alone.
        return []
    if signed is None:
        return [unsigned(layout)]
    if isinstance(signed, str):
        return [signed]
    why = _by_whom(layout.signing.signers, layout, signed)
    return [why] if why else _compared(content, signed)


def unsigned(layout: DatasetLayout) -> str:
    """The words of a history that nobody signed."""
    return f"it is not signed ({layout.signed_history.name} is missing)"


def extend(layout: DatasetLayout, content: bytes, longer: bytes, release: str) -> None:
    """Sign the history as it will be, `longer`, where this account signs; `content` is as it is now, and
    `release` what the new line is about. What is there is verified before: a forged line is not signed.
    Durable on return. Raises FindingsError, PreflightError."""
    key = layout.signing.key
    if key is None:
        return
    check(layout, release)
    write(layout, key, content, longer)


def settle(layout: DatasetLayout) -> None:
    """Where this account signs: after the line was added, a signature by which it cannot be missing. Where
    none can be made, that of `extend` stands, and covers the line as well."""
    if layout.signing.key is not None:
        content = _content(layout)
        with contextlib.suppress(PreflightError):
            write(layout, layout.signing.key, content, content)


def check(layout: DatasetLayout, release: str = "") -> None:
    """Raises FindingsError for a history that must not be extended: one that is not the signed one, but for a
    dataset of which nothing was signed yet, but perhaps `release`, which is being published."""
    found = problems(layout)
    if found and not layout.signed_history.exists():
        new = "" if _names(_content(layout), release) else release
        found = found if _signed_releases(layout, new) else []
    if not found:
        return
    raise FindingsError(
        "the dataset's history is not the one that was signed",
        where=str(layout.history),
        why="; ".join(found),
        hint="find out who wrote there, and put back what was; `penstock sign "
        f"{layout.dataset} --accept REASON` signs it as it stands",
    )


def trusted(layout: DatasetLayout) -> str:
    """Where the next signature is the first one over a history that is there: a sentence that says what
    nothing proves. Else ""."""
    count = len(_content(layout).splitlines())
    if layout.signing.key is None or layout.signed_history.exists() or not count:
        return ""
    lines = "line that nobody" if count == 1 else "lines that nobody"
    return (
        f"history.jsonl has {count} {lines} signed; the history of before is trusted as it stands now, and "
        "its first signature covers it: compare it with a backup where others can write below the root"
    )


def write(layout: DatasetLayout, key: Path, content: bytes, longer: bytes) -> None:
    """Sign `longer` whatever stands there. Durable on return."""
    signed = SignedHistory(
        layout.dataset,
        datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        _extent(longer),
        _extent(content),
    )
    signers = layout.signing.signers
    made = ssh_keygen.sign_verified(key, signers, ssh_keygen.HISTORY, statement(signed), signed.at)
    written = signed_history.to_json(signed._replace(signature=made.decode()))
    durable.write_json(layout.signed_history, written)


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _content(layout: DatasetLayout) -> bytes:
    try:
        return plain_files.read(layout.history)
    except FileNotFoundError:
        return b""


def _signed(layout: DatasetLayout) -> SignedHistory | str | None:
    """None: there is none; a text: why it cannot be read."""
    path = layout.signed_history
    try:
        return signed_history.from_json(plain_files.read(path), path)
    except FileNotFoundError:
        return None
    except ValueError as error:
        return f"its signature ({path.name}) is damaged: {error}"


def _by_whom(signers: Path, layout: DatasetLayout, signed: SignedHistory) -> str:
    """Why the signature does not hold; "" where it does."""
    if signed.dataset != layout.dataset:
        return f"its signature is of another dataset, {signed.dataset!r}"
    try:
        ssh_keygen.signer(
            signers, ssh_keygen.HISTORY, statement(signed), signed.signature.encode(), signed.at
        )
    except ssh_keygen.SignatureError as error:
        return f"its signature does not hold: {error}"
    return ""


def _compared(content: bytes, signed: SignedHistory) -> list[str]:
    whole, before = signed.whole, signed.before
    if _extent(content) in (whole, before):
        return []
    if before.bytes < len(content) < whole.bytes and _extent(content[: before.bytes]) == before:
        torn = content[before.bytes :].lstrip(b"\n")
        if b"\n" not in torn and not _is_line(content.rpartition(b"\n")[2]):
            return []
    if len(content) > whole.bytes and _extent(content[: whole.bytes]) == whole:
        count = len(content[whole.bytes :].splitlines())
        return [f"{'its last line is' if count == 1 else f'its last {count} lines are'} not signed"]
    if before.bytes and _extent(content[: before.bytes]) == before:
        return ["its last line is not the one that was signed"]
    return [_first_broken(content) or "it is not the one that was signed"]


def _first_broken(content: bytes) -> str:
    """The first line that does not follow from what stands before it."""
    seen = hashlib.sha256()
    for number, raw in enumerate(content.splitlines(keepends=True), start=1):
        try:
            named = history_line.from_json(raw, "").before
        except ValueError:
            named = ""
        if named and named != f"sha256:{seen.hexdigest()}":
            return f"what stands before its line {number} is not what stood there when that was written"
        seen.update(raw)
    return ""


def _names(content: bytes, release: str) -> bool:
    """Whether a line is about this release."""
    for raw in content.splitlines():
        try:
            if history_line.from_json(raw, "").release == release:
                return True
        except ValueError:
            continue
    return False


def _is_line(raw: bytes) -> bool:
    try:
        history_line.from_json(raw, "")
    except ValueError:
        return False
    return True


def _extent(content: bytes) -> Extent:
    return Extent(len(content), digest(content))


def _signed_releases(layout: DatasetLayout, but: str) -> bool:
    """Whether a release is signed: its history was, too, when that was done."""
    try:
        names = os.listdir(layout.releases)
    except FileNotFoundError:
        return False
    return any(os.path.lexists(layout.release(name) / SIGNATURE) for name in names if name != but)
