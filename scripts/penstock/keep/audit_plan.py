"""Makes the shards of an audit from a release's manifest, and checks that manifest and seal are as published.
It also remakes text manifests that a purge deleted or that rotted.
"""

from __future__ import annotations

import math
import os
from dataclasses import replace
from functools import partial
from os import fsdecode
from typing import TYPE_CHECKING

from penstock.config.serialization import to_json
from penstock.core import run_documents
from penstock.core.errors import FailedError, FindingsError, PreflightError
from penstock.core.findings import WHOLE, AuditSelection
from penstock.core.grades import is_soon
from penstock.core.layout import EMPTY_FOLDERS, MANIFEST, MANIFEST_SHA256, MANIFEST_XXH, SEAL, SIGNATURE
from penstock.core.model import XXH3, Digest, Expected, Record, of_hex, part_of
from penstock.core.run_documents import Load
from penstock.core.seal import Tree, leaves
from penstock.dataset import (
    documents,
    receipts,
    release_records,
    seals,
)
from penstock.fs import small_files
from penstock.jobs import array_job
from penstock.jobs.audits_and_adoptions import drawn, takes
from penstock.tables.manifest import ChecksumFile, checksums, read_files
from penstock.tables.run_tables import EXPECTED
from penstock.target import reveal

if TYPE_CHECKING:
    from collections.abc import Container, Iterator
    from pathlib import Path

    from penstock.core.findings import Audit
    from penstock.core.layout import DatasetLayout
    from penstock.core.run_documents import PlanInfo
    from penstock.core.seal import Seal, SealedManifest
    from penstock.dataset.context import Context
    from penstock.dataset.documents import Run
    from penstock.tables.manifest import Files
    from penstock.tables.run_tables import ShardsWriter


# Remakes the text manifests of a release from `manifest.parquet`.
#
# The Parquet file has all the content of the text manifests, and the seal's digests prove each remade file.

ALGORITHMS = {MANIFEST_XXH: XXH3, MANIFEST_SHA256: "sha256"}  # {text manifest: its checksum algorithm}


def remake_manifests(layout: DatasetLayout, release: str, seal: Seal) -> list[str]:
    """Remake missing or damaged text manifests; return the names of the restored files. Raises FailedError.
    Does nothing if `manifest.parquet` itself differs from its digest in the seal."""
    folder = layout.release(release)
    wrong = [name for name in ALGORITHMS if name in seal.manifests and not _holds(folder, name, seal)]
    if not wrong or not _holds(folder, MANIFEST, seal):
        return []
    for name in wrong:
        reveal.put_beside(layout, release, name, partial(_write_manifest, folder, ALGORITHMS[name]))
    return [name for name in wrong if _holds(folder, name, seal)]


def _holds(folder: Path, name: str, seal: Seal) -> bool:
    try:
        return receipts.is_sealed(folder / name, seal.manifests.get(name))
    except OSError:
        return False


def _write_manifest(folder: Path, algorithm: str, path: Path) -> None:
    with ChecksumFile(path, algorithm=algorithm) as file:
        for files in read_files(folder / MANIFEST, columns=("path", "digest", "digests")):
            file.add(checksums(files, algorithm))
        file.close()


# The cost of opening one more cold file: the bytes that could be read in that time. A node that reads 1 to 2
# GB/s opens and reads some thousand files per second.
READ_COST = 256 << 10


def read_seal(layout: DatasetLayout, release: str) -> seals.Stored:
    """Read the seal and compute its `sha256:<hex>`. Raises FindingsError if it is missing or damaged,
    PreflightError if this account may not read it."""
    path = layout.release(release) / SEAL
    try:
        return seals.load(layout, release)
    except PermissionError as error:
        raise PreflightError(
            "the release cannot be read by this account",
            where=str(path),
            why=str(error.strerror),
            hint="ask the dataset's owner for the group that may read it",
        ) from None
    except (OSError, ValueError) as error:
        raise FindingsError(
            "the release's seal cannot be read",
            where=str(path),
            why=str(error),
            hint="without its seal nothing about the release can be shown: stage the same content anew by "
            f"`penstock run --new-release {layout.dataset}`",
        ) from error


def unsound(layout: DatasetLayout, release: str, seal: Seal, digest: str) -> list[str]:
    """Return the reasons why manifest or seal are not as published; empty if both are.

    | check                          | compared with                                    |
    |--------------------------------|--------------------------------------------------|
    | the seal's bytes               | its digest in history.jsonl, outside the release |
    | the seal's signature           | `target.signers`, if configured                  |
    | each manifest's bytes          | their digests in the seal                        |
    | the records, one by one        | the seal's root of a hash tree, if the history   |
    |                                | lacks the seal's digest                          |
    """
    why = []
    published_digest = release_records.published_seal(layout, release)
    if published_digest is not None and published_digest != digest:
        why.append(f"{SEAL}: it is not the one that was published ({published_digest} in the history)")
    stored = seals.Stored(seal, digest)
    if unsigned := seals.problem(layout, release, stored):
        why.append(f"{SIGNATURE}: {unsigned}")
    folder = layout.release(release)
    for name in (MANIFEST, MANIFEST_XXH, MANIFEST_SHA256, EMPTY_FOLDERS):
        sealed = seal.manifests.get(name)
        if sealed is None:
            continue
        try:
            whole = _is_stored(folder / name, sealed)
        except OSError as error:
            why.append(f"{name}: {error.strerror}")
            continue
        if not whole:
            why.append(f"{name}: its bytes are not those that were sealed")
    if published_digest == digest or any(line.startswith(MANIFEST) for line in why):
        # If the sealed bytes are intact, the sealed records are too.
        return why
    tree = Tree()
    fields = seal.records.fields
    if unknown := set(fields) - set(Record._fields):
        return [*why, f"{SEAL}: it seals fields that no record has: {', '.join(sorted(unknown))}"]
    try:
        for files in read_files(folder / MANIFEST):
            tree.extend(leaves(files, fields))
    except FailedError as error:
        return [*why, f"{MANIFEST}: {error.why or error.what}"]
    if (tree.root(), tree.count) != (seal.records.root, seal.records.count):
        why.append(f"{MANIFEST}: its records are not those that were sealed")
    return why


def _is_stored(path: Path, sealed: SealedManifest) -> bool:
    """Check by `receipts.is_sealed` the file's bytes in storage, bypassing this machine's page cache."""
    fd = small_files.descriptor(path)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)
    return receipts.is_sealed(path, sealed)


_COLUMNS = ("path", "size", "digest", "parts")
# columns of the manifest that show whether a file was read back soon after it was written
_READING = ("size", "ctime_ns", "read_at", "shared")
# If fewer than one row in FEW is chosen, only the values of chosen rows become Python objects; if more are
# chosen, whole columns do.
FEW = 8


def rows(choice: AuditSelection, files: Files, also: Container[bytes] = ()) -> Iterator[list[Expected]]:
    """Yield the rows that an audit reads, as a list for each file: one row, or a row per chosen part of a
    giant. `also`: further paths, whose files are read completely."""
    parts = files["parts"]
    names = files.stored("path").to_pylist()
    soon = [False] * len(names)
    if choice.soon_first.share:
        soon = list(map(is_soon, *(files[name] for name in _READING)))
    taken = drawn(choice, names, soon)
    if also:
        taken = sorted({*taken, *(i for i, name in enumerate(names) if name in also)})
    if len(taken) * FEW < len(files):
        path, size, digest = (files.stored(name) for name in ("path", "size", "digest"))
        chosen = {i: (fsdecode(path[i].as_py()), size[i].as_py(), fsdecode(digest[i].as_py())) for i in taken}
    else:
        columns = files["path"], files["size"], files["digest"]
        chosen = {i: (columns[0][i], columns[1][i], columns[2][i]) for i in taken}
    # Each part of a giant is chosen separately, whether or not its path is chosen.
    giants = [i for i, of in enumerate(parts) if of] if parts.count(b"") < len(parts) else []
    if giants:
        for i in giants:
            chosen[i] = files["path"][i], files["size"][i], files["digest"][i]
        chosen = dict(sorted(chosen.items()))
    for i, record in chosen.items():
        if not parts[i]:
            name, length, digest = record
            yield [Expected(name, length, length=length, digest=digest)]
        elif of := list(_parts(WHOLE if names[i] in also else choice, *record, parts[i], soon=soon[i])):
            yield of


def _parts(
    choice: AuditSelection, path: str, size: int, digest: str, parts: bytes, *, soon: bool
) -> Iterator[Expected]:
    """Yield the chosen parts of a giant."""
    step = Digest.parse(digest).part_bytes
    for number, offset in enumerate(range(0, size, step)):
        if takes(choice, path, number, soon=soon):
            own = of_hex(part_of(parts, number).hex())
            yield Expected(path, size, number, offset, min(step, size - offset), own)


def load(seal: Seal, choice: AuditSelection) -> Load:
    """Estimate from the seal's counts how much an audit reads. The estimate serves to balance its shards."""
    files, size = seal.files, seal.bytes
    if seal.giants and seal.part_bytes:
        files += size // seal.part_bytes
    fraction = choice.detects(1)
    entries, read = math.ceil(files * fraction), math.ceil(size * fraction)
    return Load(entries * READ_COST + read, read, entries)


def plan(
    context: Context, layout: DatasetLayout, audit: Audit, seal: Seal, also: Container[bytes] = ()
) -> Run:
    """Write the audit's shards, `plan.json` and `run.json`. A continued audit keeps `plan.json`. `also`: see
    `rows`."""
    folder = audit.layout(layout)
    if folder.plan.exists():
        made = documents.load(run_documents.PLAN, folder.plan)
    else:
        made = array_job.cut(
            context,
            layout,
            folder,
            "audit",
            load(seal, audit.choice),
            partial(_write, context, layout.release(audit.release) / MANIFEST, audit.choice, also),
            job=audit.id,
            release=audit.release,
            giants=seal.giants,
            part_bytes=seal.part_bytes or context.config.plan.part_bytes,
            form=EXPECTED,
        )
        documents.write(run_documents.PLAN, folder.plan, made)
    return _describe(context, layout, audit, seal, made)


def _write(
    context: Context, manifest: Path, choice: AuditSelection, also: Container[bytes], shards: ShardsWriter
) -> None:
    columns = (*_COLUMNS, *_READING[1:]) if choice.soon_first.share else _COLUMNS
    for files in read_files(manifest, columns=columns):
        context.stop.check()
        chosen = list(rows(choice, files, also))
        flat = [row for file in chosen for row in file]
        first = [row is file[0] for file in chosen for row in file]
        for shard, start, end in shards.runs([READ_COST + row.length for row in flat]):
            # A giant counts as a file of the shard that has its first chosen part.
            shard.add(flat[start:end], files=sum(first[start:end]))


def _describe(context: Context, layout: DatasetLayout, audit: Audit, seal: Seal, made: PlanInfo) -> Run:
    """Write `run.json` with the present engine settings. `audit.limit` (bytes per second) is divided by the
    elements that can run at once."""
    engine = context.config.engine
    if audit.limit:
        at_once = max(1, min(len(made.shards), context.cluster.slots("audit")))
        engine = replace(engine, limit=max(1, audit.limit // at_once))
    return array_job.describe(
        layout,
        audit.layout(layout),
        audit.id,
        audit.release,
        created=audit.created,
        listing=seal.listing,
        counts=(seal.files, seal.bytes, seal.scanned),
        config={"engine": to_json(engine)},
        probed=layout.run(seal.run),
    )
