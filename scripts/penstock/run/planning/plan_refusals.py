"""Files that plan refuses before a byte moves: unprovable ones, and unwanted copies on the target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.source_kinds import of_url
from penstock.core import human
from penstock.core.errors import NAMED_FILES, PreflightError
from penstock.fs.errno_map import printable
from penstock.listing.evidence import unprovable
from penstock.run.planning.reuse_choice import REFUSED
from penstock.sources.port import REQUEST
from penstock.sources.registry import may_be_split
from penstock.tables.listing_file import read_listing

if TYPE_CHECKING:
    from penstock.dataset.context import Context
    from penstock.dataset.run import Run
    from penstock.jobs.forecast import Totals
    from penstock.run.planning.previous_release import BaseRelease


def check(context: Context, run: Run) -> None:
    _refuse_unprovable(context, run)
    _refuse_unpinned(context, run)


def refuse_doubling(context: Context, run: Run, base: BaseRelease, totals: Totals) -> None:
    """Raise PreflightError where unchanged files cannot be linked and nobody asked for copies."""
    if base.way != REFUSED or not totals.unchanged:
        return
    files = f"{human.counted(totals.unchanged, 'file')}, {human.size(totals.unchanged_bytes)}"
    again = f"`{context.program} run --copy-unchanged {run.dataset}` copies them on the target, which takes "
    again += f"{human.size(totals.unchanged_bytes)} ({totals.unchanged_bytes:,} bytes) more"
    if not base.differing:
        raise PreflightError(
            "the target's file system has no reflinks, and `plan.reuse: reflink` asks for them",
            where=run.dataset,
            why=f"{files}, are unchanged since release {base.release}",
            hint=f"{again}; `plan.reuse: link` or `auto` links them",
        )
    raise PreflightError(
        f"release {base.release} has other {', '.join(base.differing)} than this run asks for",
        where=run.dataset,
        why=f"{files}, are unchanged since then and would be linked, and a linked file has one mode, group, "
        "ACL and time in both releases",
        hint=f"{again}; `plan.reuse: none` fetches them from the source again; or leave `permissions` as "
        "they were",
    )


def _refuse_unprovable(context: Context, run: Run) -> None:
    """Raise PreflightError with the files that no checksum can ever prove, where one is required."""
    verify = run.config.verify
    if verify.source_checksum != "require":
        return
    plan, info = run.config.plan, run.info
    stated = [of_url(url).states_checksums for url in info.sources]
    later = verify.digests if verify.whole_giants else ()
    named: list[str] = []
    count = 0
    for batch in read_listing(run.folder.listing):
        context.stop.check()
        for entry in batch:
            giant = entry.size >= plan.giant_bytes and entry.size > plan.part_bytes
            giant = giant and may_be_split(info.sources[entry.source], entry.token)
            why = unprovable(entry, stated=stated[entry.source], giant=giant, later=later)
            if why:
                count += 1
                if len(named) < NAMED_FILES:
                    named.append(f"{printable(entry.path)}: {why}")
    if count:
        more = [f"and {count - NAMED_FILES} more"] if count > NAMED_FILES else []
        raise PreflightError(
            f"{human.counted(count, 'file')} can never be proven as `verify.source_checksum: require` asks",
            where=run.dataset,
            why="\n  ".join(["", *named, *more]),
            hint="have the checksum files beside the data name them, leave them out by `exclude`, or set "
            "`verify.source_checksum: auto`",
        )


def _refuse_unpinned(context: Context, run: Run) -> None:
    """Raise PreflightError with the files that several requests read but no version pins. Bytes of two
    versions could be mixed in them unnoticed."""
    blocks = [of_url(url).blocks for url in run.info.sources]
    if not any(blocks):
        return
    named: list[str] = []
    count = 0
    for batch in read_listing(run.folder.listing):
        context.stop.check()
        for entry in batch:
            if blocks[entry.source] and not entry.token and entry.size > REQUEST:
                count += 1
                if len(named) < NAMED_FILES:
                    named.append(f"{printable(entry.path)}: {human.size(entry.size)}")
    if count:
        named += [f"and {count - NAMED_FILES} more"] if count > NAMED_FILES else []
        summary = (
            f"the source states neither version nor time, and a request gives {human.size(REQUEST)} at most:"
        )
        raise PreflightError(
            f"{human.counted(count, 'file')} cannot be pinned to one version while they are read",
            where=run.dataset,
            why="\n  ".join([summary, *named]),
            hint="leave them out by `exclude`, or reach the source by a protocol that states versions",
        )
