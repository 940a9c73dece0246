"""The release whose unchanged files a run can reuse: finds the rows (files) of a listing that it already has,
even under another name. Also decides how such files come into the new release, and whether verify carries
linked files over without reading them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from penstock.config.settings import PermissionsConfig
from penstock.core import human
from penstock.core.errors import FailedError, NewerFormatError
from penstock.core.grades import SIZE_ONLY
from penstock.core.layout import MANIFEST
from penstock.core.model import PLAIN, STRONG_CHECKSUM, Reuse
from penstock.dataset import (
    receipts,
    release_records,
    run_store,
    seals,
)
from penstock.dataset.documents import load_run
from penstock.tables.manifest import read_columns as manifest_columns
from penstock.tables.row_streams import RowCursor
from penstock.tables.run_tables import SHARD_FORM, read_listing_columns, whole_files
from penstock.tables.tables import strings
from penstock.target import dataset_folders, notices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from penstock.dataset.documents import Run
    from penstock.jobs.forecast import Totals
    from penstock.run.adopted_tree import AdoptedRows
    from penstock.run.target_findings import TakeOver, TargetProbe


LINK = "link"  # a hard link: one inode, so one mode, group and ACL, in both releases
REFLINK = "reflink"  # a new inode that shares the blocks
COPY = "copy"  # a copy made on the target
NONE = "none"  # fetched from the source, like new files
REFUSED = "refused"  # none of the above, since no copy was requested: plan stops if files are unchanged


def choose(reuse: str, *, reflinks: bool, links: bool, other_policy: bool, copy_unchanged: bool) -> str:
    """Choose how unchanged files come into the new release.

    `other_policy` means that the current release has other permissions than the new release will have.

    | plan.reuse         | reflinks | links | permissions | --copy-unchanged | files are |
    |--------------------|----------|-------|-------------|------------------|-----------|
    | none               | any      | any   | any         | any              | none      |
    | copy               | any      | any   | any         | any              | copy      |
    | auto, reflink      | yes      | any   | any         | any              | reflink   |
    | link               | yes      | any   | any         | yes              | reflink   |
    | any other          | no       | any   | any         | yes              | copy      |
    | reflink            | no       | any   | any         | no               | refused   |
    | link               | any      | any   | other       | no               | refused   |
    | auto               | no       | any   | other       | no               | refused   |
    | link               | any      | yes   | same        | no               | link      |
    | auto               | no       | yes   | same        | no               | link      |
    | auto, link         | no       | no    | same        | no               | none      |
    """
    if reuse in (NONE, COPY):
        return reuse
    if reflinks and (reuse != LINK or copy_unchanged):
        return REFLINK
    if copy_unchanged:
        return COPY
    if reuse == REFLINK or other_policy:
        return REFUSED
    return LINK if links else NONE


# Which rows of a listing the current release has already: a merge of listing and manifest, by columns.
#
# Both have up to 10^8 rows in the order of the paths' bytes, nearly all unchanged. Row by row, the plan of a
# million files took 28.9 CPU seconds. By columns it takes 4.3 seconds, twice the time of a first plan, since
# unchanged rows do not become Python objects (`tests/planning/test_unchanged_rows.py`). Memory contains one
# batch of the listing, and the records up to its last path.

ALIKE = ("token", "size", "key", "version")  # columns whose values are equal if a row is unchanged
# Columns of a manifest from which a `Reuse` is made.
BROUGHT = tuple(name for name in Reuse._fields if name != "staging")
COLUMNS = ("path", *ALIKE, "source", "modified_ns", *BROUGHT)  # the columns that are read of a manifest
_PLACE = SHARD_FORM.schema.get_field_index("reuse")
_REUSE = SHARD_FORM.schema.field(_PLACE)


class ReuseRules(NamedTuple):
    """Decides whether the release's file at a path is the listed object.

    | token     | size | key, source, version | time, if kept    | size below giants | unchanged |
    |-----------|------|----------------------|------------------|-------------------|-----------|
    | same      | same | same                 | same             | yes               | yes       |
    | none      |      |                      |                  |                   | no        |
    | different |      |                      |                  |                   | no        |
    | anything else differs                                                       || no        |

    If a source does not state an object's size (`SourceChecksum` of the kind `read`), the object is unchanged
    only if the same bytes came again. Equal size and time never suffice. A giant's digest is over its parts,
    so giants are always copied.
    """

    sources: Mapping[int, int]  # maps the release's source indices to the present indices
    giant_bytes: int  # bytes; objects of at least this size (giants) are split into parts over several shards
    keep_mtime: bool  # whether files get their objects' times, so that times must be equal, too
    proven: bool  # whether only empty files, and files that a source checksum proved, count as unchanged


def with_reuse(
    rows: Iterator[pa.RecordBatch],
    records: Iterator[pa.RecordBatch],
    rules: ReuseRules,
    free: Callable[[pa.RecordBatch], None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield rows of shards, all of them whole files, with `reuse` set if `records` have the same file.

    `records` have the columns COLUMNS of a manifest. Rows and records are sorted by the bytes of the path.
    `free` gets the records that no row reuses.
    """
    held = RowCursor(records)
    for batch in rows:
        matching = held.take_to(batch["path"][-1].as_py())
        reuse = _reuse(batch, matching, rules)
        if free and matching is not None:
            free(_left(batch, reuse, matching))
        yield batch if reuse is None else batch.set_column(_PLACE, _REUSE, reuse)
    if free:
        for rest in held.rest():
            free(rest)


def _reuse(listed: pa.RecordBatch, held: pa.RecordBatch | None, rules: ReuseRules) -> pa.Array | None:
    """Return the column `reuse`; None if no row is unchanged."""
    if held is None:
        return None
    # Loading pyarrow.compute takes 70 ms. A plan without a release to link from does not need it.
    import pyarrow.compute as pc

    if not held["path"].equals(listed["path"]):
        held = held.take(pc.index_in(listed["path"], held["path"]))
    same = pc.greater(pc.binary_length(listed["token"]), 0)
    for name in ALIKE:
        same = pc.and_(same, pc.equal(listed[name], held[name]))
    theirs = pa.array(rules.sources.keys(), held["source"].type)
    mine = pa.array(rules.sources.values(), listed["source"].type)
    same = pc.and_(same, pc.equal(listed["source"], mine.take(pc.index_in(held["source"], theirs))))
    if pc.any(read := pc.match_substring(listed["checksum"], ":read:")).as_py():
        proof = pc.cast(held["source_proof"], listed["checksum"].type)
        same = pc.and_(same, pc.or_(pc.invert(read), pc.equal(listed["checksum"], proof)))
    if rules.keep_mtime:
        same = pc.and_(same, pc.equal(listed["modified_ns"], held["modified_ns"]))
    same = pc.and_(same, pc.less(listed["size"], rules.giant_bytes))
    same = pc.and_(same, pc.starts_with(held["digest"], PLAIN))
    if rules.proven:
        weak = pc.is_in(held["source_grade"], pa.array([SIZE_ONLY, ""]))
        same = pc.and_(same, pc.or_(pc.invert(weak), pc.equal(listed["size"], 0)))
    same = pc.fill_null(same, False)
    if not pc.any(same).as_py():
        return None
    return brought(held, same)


def _left(listed: pa.RecordBatch, reuse: pa.Array | None, held: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow.compute as pc

    if reuse is None:
        return held
    taken = listed["path"].filter(pc.is_valid(reuse))
    if len(taken) == held.num_rows:
        return held.slice(0, 0)
    return held.filter(pc.invert(pc.is_in(held["path"], taken)))


def brought(held: pa.RecordBatch, same: pa.Array, timed: pa.Array | None = None) -> pa.StructArray:
    """Return the column `reuse` from these records. It is null where `same` is false, and has no time where
    `timed` is false."""
    import pyarrow.compute as pc

    columns = {name: held[name] for name in BROUGHT}
    columns["staging"] = pa.repeat("", held.num_rows)
    if timed is not None:
        columns["mtime_ns"] = pc.if_else(timed, columns["mtime_ns"], None)
    return pa.StructArray.from_arrays(
        [columns[name] for name in Reuse._fields], fields=list(_REUSE.type), mask=pc.invert(same)
    )


# New rows of a listing whose bytes the current release has under another name, found by their checksums.
#
# A store has no rename: a moved object is a new key. If the source states the object's checksum, it may equal
# the checksum of a file in the release that no unchanged row reuses. Then the object is not fetched again.
#
# | the source states of the new row     | the release's file was proven by  | same size | reused           |
# |--------------------------------------|-----------------------------------|-----------|------------------|
# | a strong checksum of all its bytes   | the same checksum                 | yes       | yes              |
# | xxh3_128 of all its bytes            | any; the file's digest is equal   | yes       | yes              |
# | an etag of 32 hexadecimal digits     | an MD5 of this value, by reading  | yes       | yes              |
# | an etag of 32 hexadecimal digits     | another checksum, and had the     | yes       | if its MD5 is    |
# |                                      | same etag                         |           | this value       |
# | size and time, a CRC, a sum of parts | any                               | yes       | no               |
#
# The fourth row is usual at stores that state a CRC of each object. The CRC proved the file when it was
# fetched, so its MD5 was not computed. Computing the MD5 now, from the file on the target, costs less than
# fetching the object.
#
# Each file of the release is reused once, so no two names of a release share an inode. Empty files and giants
# are left out. At most MOST new rows and MOST unused files are kept in memory; a larger change is not
# searched.

MOST = 1_000_000  # number of new rows, and of unused files, in memory, at most; some 200 bytes each
_MD5 = "^[0-9a-f]{32}$"
_NEW = ("path", "size", "modified_ns", "checksum", "token")


class RenamedRows:
    """The renamed files of one plan.

    First pass the rows and the release's records through `gather`. If `match` then finds renamed files, use
    `mark` in each further pass.
    """

    def __init__(self, rules: ReuseRules) -> None:
        self._rules = rules
        self._new: list[pa.RecordBatch] = []
        self._free: list[pa.RecordBatch] = []
        self._counts = [0, 0]
        self._matched: pa.RecordBatch | None = None
        self.gathering = True
        self.files = self.bytes = 0  # number of renamed files, and the sum of their bytes
        # Sizes of renamed files that get new inodes, since times are kept and the release's file has another
        # time.
        self.own_sizes: list[int] = []

    @property
    def too_many(self) -> bool:
        """Whether there are more new or unused rows than may be kept. Renamed files are then not searched."""
        return max(self._counts) > MOST

    def free(self, records: pa.RecordBatch) -> None:
        import pyarrow.compute as pc

        plain = pc.and_(pc.greater(records["size"], 0), pc.less(records["size"], self._rules.giant_bytes))
        self._keep(self._free, 1, records.filter(pc.and_(plain, pc.starts_with(records["digest"], PLAIN))))

    def gather(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield all rows as they are, and keep a copy of the new ones."""
        import pyarrow.compute as pc

        for batch in rows:
            new = pc.and_(pc.is_null(batch["reuse"]), pc.greater(batch["size"], 0))
            new = pc.and_(new, pc.less(batch["size"], self._rules.giant_bytes))
            self._keep(self._new, 0, batch.filter(new).select(_NEW))
            yield batch

    def match(self, md5_of: Callable[[bytes, int], str]) -> bool:
        """Return whether any gathered row is a file of the release; gather no more. `md5_of` gets path and
        size of a release's file, and returns the file's MD5, or "" if it does not read the file."""
        self.gathering = False
        new, free = self._new, self._free
        self._new, self._free = [], []
        if self.too_many or not new or not free:
            return False
        self._match(_joined(new), _joined(free), md5_of)
        return self.files > 0

    def mark(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow.compute as pc

        matched = RowCursor([] if self._matched is None else [self._matched])
        places = {name: SHARD_FORM.schema.get_field_index(name) for name in ("reuse", "held_as")}
        for batch in rows:
            some = matched.take_to(batch["path"][-1].as_py())
            if some is not None:
                index = pc.index_in(batch["path"], some["path"])
                renamed = pc.is_valid(index)
                for name, place in places.items():
                    column = pc.if_else(renamed, some[name].take(index), batch[name])
                    batch = batch.set_column(place, SHARD_FORM.schema.field(place), column)
            yield batch

    def _keep(self, kept: list[pa.RecordBatch], which: int, rows: pa.RecordBatch) -> None:
        self._counts[which] += rows.num_rows
        if rows.num_rows and not self.too_many:
            kept.append(rows)

    def _match(self, new: pa.RecordBatch, free: pa.RecordBatch, md5_of: Callable[[bytes, int], str]) -> None:
        sizes, held = new["size"], free["size"]
        taken = _paired(_stated(new), sizes, _proven(free, whole=not self._rules.proven), held)
        mine, theirs = (
            _but(rows.num_rows, [pair[side] for pair in taken]) for side, rows in enumerate((new, free))
        )
        paths, etags = free["path"], _etags(new)
        taken += [
            (mine_at, theirs_at)
            for mine_at, theirs_at in _paired(_only(etags, mine), sizes, _only(_etags(free), theirs), held)
            if md5_of(paths[theirs_at].as_py(), held[theirs_at].as_py()) == etags[mine_at].as_py()
        ]
        if not taken:
            return
        taken.sort()
        new, free = (
            new.take([mine_at for mine_at, _ in taken]),
            free.take([theirs_at for _, theirs_at in taken]),
        )
        reuse = brought(free, pa.repeat(True, free.num_rows), self._timed(new, free))
        self._matched = pa.record_batch({"path": new["path"], "reuse": reuse, "held_as": free["path"]})
        sizes = new["size"].to_pylist()
        self.files, self.bytes = len(sizes), sum(sizes)

    def _timed(self, new: pa.RecordBatch, free: pa.RecordBatch) -> pa.Array:
        """Return for each row whether it may share the release's inode, judging by its time."""
        import pyarrow.compute as pc

        if not self._rules.keep_mtime:
            return pa.repeat(pa.scalar(True), new.num_rows)
        same = pc.equal(new["modified_ns"], free["modified_ns"])
        self.own_sizes = new["size"].filter(pc.invert(same)).to_pylist()
        return same


def _paired(stated: pa.Array, sizes: pa.Array, proven: pa.Array, held: pa.Array) -> list[tuple[int, int]]:
    """Pair each index of `stated` with an index of `proven` that has the same value and size. Nulls have no
    pair. No index is in two pairs."""
    import pyarrow.compute as pc

    common = pc.drop_null(proven)
    shared = pc.indices_nonzero(pc.and_(pc.is_valid(stated), pc.is_in(stated, common)))
    if not len(shared):
        return []
    by_checksum: dict[tuple[str, int], list[int]] = {}
    theirs = pc.indices_nonzero(pc.and_(pc.is_valid(proven), pc.is_in(proven, pc.drop_null(stated))))
    for index in reversed(theirs.to_pylist()):
        by_checksum.setdefault((proven[index].as_py(), held[index].as_py()), []).append(index)
    return [
        (index, same.pop())
        for index in shared.to_pylist()
        if (same := by_checksum.get((stated[index].as_py(), sizes[index].as_py())))
    ]


def _but(count: int, indices: list[int]) -> pa.Array:
    kept = bytearray(b"\1") * count
    for index in indices:
        kept[index] = 0
    return pa.array(map(bool, kept), pa.bool_())


def _only(values: pa.Array, kept: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    return pc.if_else(kept, values, None)


def _etags(rows: pa.RecordBatch) -> pa.Array:
    import pyarrow.compute as pc

    token = pa.array(strings(rows["token"]), pa.string())
    return pc.if_else(pc.match_substring_regex(token, _MD5), token, None)


def _stated(new: pa.RecordBatch) -> pa.Array:
    """Return the checksum of each new row; null if its source states no strong checksum."""
    import pyarrow.compute as pc

    checksum = pa.array(strings(new["checksum"]), pa.string())
    etag = pc.binary_join_element_wise("md5:full:", _etags(new), "")
    return pc.if_else(pc.match_substring_regex(checksum, STRONG_CHECKSUM), checksum, etag)


def _proven(free: pa.RecordBatch, *, whole: bool) -> pa.Array:
    """Return the strong checksum that proved each file. With `whole`, a file without one has its own
    digest."""
    import pyarrow.compute as pc

    own = pc.replace_substring(free["digest"], PLAIN, f"{PLAIN}full:")
    none = own if whole else pa.nulls(free.num_rows, pa.string())
    return pc.if_else(
        pc.match_substring_regex(free["source_proof"], STRONG_CHECKSUM), free["source_proof"], none
    )


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    (joined,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined


class UnreadableError(FailedError):
    """The release's manifest cannot be read, so everything is copied."""


@dataclass(frozen=True)
class BaseRelease:
    release: str | None  # name of the release to reuse; None if everything is fetched
    why: str  # the reason why everything is fetched; "" if it is not
    manifest: Path | None = None
    sources: dict[int, int] | None = None  # maps the release's source indices to this run's
    way: str = LINK  # how the release's files come into the new release (`choose`)
    differing: Sequence[str] = ()  # the keys of `permissions` that have other values in the release

    def files(
        self, listing: Path, over: TakeOver | AdoptedRows, rules: ReuseRules, renamed: RenamedRows
    ) -> Iterator[pa.RecordBatch]:
        """Yield the listing as rows of shards, with `reuse` set if a copy of the file exists.

        The copy may be in this release, under the same or (`renamed`) another name, or in another run's
        staging (`over`). Raises UnreadableError.
        """
        rows: Iterator[pa.RecordBatch] = map(whole_files, read_listing_columns(listing))
        if self.manifest is not None and self.sources is not None:
            free = renamed.free if renamed.gathering else None
            rows = with_reuse(rows, _records(self.manifest), rules, free)
            rows = over.over(rows) if over else rows
            return renamed.gather(rows) if renamed.gathering else renamed.mark(rows)
        return over.over(rows) if over else rows


def none(why: str) -> BaseRelease:
    return BaseRelease(None, why)


def find(run: Run, tried: TargetProbe, *, copy_unchanged: bool) -> BaseRelease:
    """Return the release that `current` points to, if its files need not be fetched again.

    | the release                                    | its files                          |
    |------------------------------------------------|------------------------------------|
    | does not exist, or plan.reuse is none          | are fetched                        |
    | lacks its run's description, or its manifest   | are fetched                        |
    | has other digests than those required now      | are fetched                        |
    | is not signed as `target.signers` requires     | are fetched                        |
    | has no source in common with the run           | are fetched                        |
    | is replaced by `--new-release`                 | are fetched                        |
    | is any other                                   | are reused as `choose` decides     |
    """
    if run.config.plan.reuse == NONE:
        return none("plan.reuse is none")
    layout = run.layout
    current = dataset_folders.current(layout)
    if current is None:
        return none("there is no release yet")
    manifest = layout.release(current) / "manifest.parquet"
    sealed = run_store.sealed_run(layout, current)
    if not sealed or not manifest.is_file():
        return none(f"release {current} has no seal or manifest that can be read")
    try:
        theirs = load_run(layout, layout.run(sealed))
        differing = _other_policy(theirs, run)
        other_digests = theirs.config.verify.digests != run.config.verify.digests
    except FailedError:
        return none(f"the run of release {current} has no description that can be read")
    if sealed in run_store.replaced(layout):
        return none(f"`--new-release` replaces release {current}, and trusts nothing of it")
    stored = seals.find(layout, current)
    if stored is None or seals.problem(layout, current, stored):
        return none(f"release {current} is not signed as target.signers asks")
    if other_digests:
        twice = f"up to {human.size(run.info.bytes)} are stored a second time"
        return none(f"release {current} has other verify.digests: {twice}")
    now = {url: index for index, url in enumerate(run.info.sources)}
    sources = {index: now[url] for index, url in enumerate(theirs.info.sources) if url in now}
    if not sources:
        return none(f"release {current} came from other sources")
    way = choose(
        run.config.plan.reuse,
        reflinks=tried.reflinks,
        links=tried.links,
        other_policy=bool(differing),
        copy_unchanged=copy_unchanged,
    )
    if way == NONE:
        return none("this file system refuses hard links between folders")
    return BaseRelease(current, "", manifest, sources, way, differing)


def _other_policy(theirs: Run, run: Run) -> list[str]:
    """Return the keys of `permissions` with different values in two runs. A change to a linked file would
    also change the other release."""
    before, now = theirs.config.dataset.permissions, run.config.dataset.permissions
    keys = (field.name for field in fields(PermissionsConfig))
    return [f"permissions.{key}" for key in keys if getattr(before, key) != getattr(now, key)]


def _records(manifest: Path) -> Iterator[pa.RecordBatch]:
    try:
        yield from manifest_columns(manifest, COLUMNS)
    except FailedError as error:
        raise UnreadableError("a manifest cannot be read", where=str(manifest), why=error.why) from error


def decide(run: Run, base: BaseRelease, totals: Totals, *, stable: bool) -> tuple[bool, str]:
    """Return whether verify may carry files over, and a sentence about it ("" if nothing is linked).

    `stable` says whether the file system always shows a file under the same inode number. The base is the
    release whose files are linked.

    | case                                                      | linked files that are read |
    |-----------------------------------------------------------|----------------------------|
    | files are reflinked or copied: inodes of their own        | all                        |
    | inode numbers change                                      | all                        |
    | the base's manifest is not that stated in its seal        | all                        |
    | an audit found other bytes in the base                    | all                        |
    | an administrator holds the base (`target.notices`)     | all                        |
    | any other                                                 | as `verify.linked` says    |
    """
    release = base.release
    if release is None or base.manifest is None or not totals.unchanged:
        return False, ""
    if base.way != LINK:
        return False, f"all unchanged files are read back: they are new inodes ({base.way})"
    if not stable:
        return False, "all linked files are read back: the inode numbers here change"
    try:
        stored = seals.find(run.layout, release)
        verdict = release_records.read_verdict(run.layout, release)
        held = notices.standing_holds(run.layout, release)
        whole = stored is not None and stored.seal.manifests[MANIFEST].sha256 == receipts.file_digest(
            base.manifest
        )
    except (FailedError, NewerFormatError, KeyError, OSError):
        whole, verdict, held = False, None, None
    if not whole:
        return False, f"all linked files are read back: the manifest of release {release} is damaged"
    if release_records.BYTES & release_records.standing_findings(verdict).keys():
        return False, f"all linked files are read back: an audit found other bytes in release {release}"
    if held is not None:
        return False, f"all linked files are read back: release {release} is held: {held}"
    verify = run.config.verify
    if verify.carries_for is not None:
        return (
            True,
            f"linked files that were read back within {human.duration(verify.carries_for)} are carried over",
        )
    key = "minimum_grade" if verify.linked is not None else "linked"
    value = verify.minimum_grade if verify.linked is not None else "all"
    return True, f"all linked files are read back: `verify.{key}` is {value}"
