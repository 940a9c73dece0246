"""Runs the scenarios on BeeGFS, in a guest for each version: `python -m tests.beegfs_bed --help`."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.beegfs_bed import disks
from tests.beegfs_bed.guest import CHECKOUT, SHARED, Guest, why_not
from tests.beegfs_bed.inside import TIMED_OUT
from tests.beegfs_bed.scenarios import NOTE, SCENARIOS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

VERSIONS = ("7", "8")
README = "tests/beegfs_bed/README.md"
STARTS_WITHIN = 900.0
RECORDS_WITHIN = 600.0
OK, FAILED, HANGS = "ok", "FAILED", "HANGS"


class Row(NamedTuple):
    """What became of a scenario on a version."""

    scenario: str
    outcome: str  # OK, FAILED, HANGS, or why it was not run
    seconds: float
    note: str = ""  # what the scenario counted


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 when every scenario that ran is ok, 1 when one failed, 2 when nothing can be run."""
    options = _options(arguments)
    # A guest ends with this process, also where that is told to end.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    chosen = [version for version in VERSIONS if version in (options.version or VERSIONS)]
    present = [
        version for version in chosen if options.beegfs and (options.beegfs / version / "version").is_file()
    ]
    reason = why_not() or _missing(options.beegfs, present)
    if reason:
        sys.stderr.write(f"the test bed of BeeGFS cannot run: {reason}\n")
        return 2
    for version in chosen:
        if version not in present:
            print(
                f"BeeGFS {version} is not run: {options.beegfs / version / 'version'} is not there ({README})"
            )
    failed = False
    for version in present:
        programs = options.beegfs / version
        title = f"BeeGFS {(programs / 'version').read_text().strip()}, penstock of {options.checkout}"
        print(f"\n{title}", flush=True)
        rows = []
        for row in _rows(version, programs, options):
            print(f"  {row.scenario:<20} {row.outcome:<8} {row.seconds:5.0f} s", flush=True)
            rows.append(row)
        print(f"\n{title}\n{_table(rows)}", flush=True)
        failed |= any(row.outcome in (FAILED, HANGS) for row in rows)
    return int(failed)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tests.beegfs_bed", description=(__doc__ or "").split("\n", maxsplit=1)[0]
    )
    parser.add_argument("beegfs", nargs="?", type=Path, help=f"the folder of built programs: {README}")
    parser.add_argument("--checkout", type=Path, default=CHECKOUT, help="the checkout whose penstock is run")
    parser.add_argument("--version", action="append", choices=VERSIONS, help="default: each that is there")
    parser.add_argument("--only", action="append", choices=list(SCENARIOS), help="default: all scenarios")
    parser.add_argument("--minutes", type=float, default=2.0, help="how long jobs read beside an audit")
    parser.add_argument("--record", type=Path, help="run no scenario, but write what commands and /proc say")
    options = parser.parse_args(arguments)
    for name in ("beegfs", "checkout", "record"):
        path = getattr(options, name)
        setattr(options, name, path and path.resolve())
    return options


def _missing(beegfs: Path | None, present: Sequence[str]) -> str:
    if beegfs is None:
        return f"no folder of built programs is given: make test-beegfs BEEGFS=FOLDER ({README})"
    if not present:
        return f"{beegfs} has neither 7/version nor 8/version ({README})"
    return ""


def _rows(version: str, programs: Path, options: argparse.Namespace) -> Iterator[Row]:
    """Run the scenarios in order. Where one hangs beyond signals, the next begins in another guest."""
    variables = {
        "BED_VERSION": version,
        "BED_PROGRAMS": str(programs),
        "BED_CHECKOUT": str(options.checkout),
        "BED_MINUTES": str(options.minutes),
    }
    # In the order of the table: what changes a pool comes last.
    chosen = options.only or SCENARIOS
    waiting = [] if options.record else [name for name in SCENARIOS if name in chosen]
    first = True
    while waiting or first:
        first = False
        with tempfile.TemporaryDirectory(prefix=f"penstock-b{version}-") as name:
            folder = Path(name)
            began = time.monotonic()
            with Guest(folder, disks.make_images(folder), [options.checkout, programs], variables) as guest:
                up = guest.run(sys.executable, "-m", "tests.beegfs_bed.servers", within=STARTS_WITHIN)
                yield Row("servers, mount", _outcome(up.status), time.monotonic() - began)
                if up.status:
                    print(up.printed, guest.console())
                    return
                if options.record:
                    yield _record(guest, folder, options.record / version)
                while waiting:
                    row = _play(guest, version, waiting.pop(0), options.minutes)
                    yield row
                    if row.outcome == HANGS:
                        break


def _play(guest: Guest, version: str, name: str, minutes: float) -> Row:
    scenario = SCENARIOS[name]
    if version not in scenario.versions:
        return Row(name, "not for this version", 0.0)
    began = time.monotonic()
    within = (scenario.minutes + minutes) * 60
    done = guest.run(sys.executable, "-m", "tests.beegfs_bed.scenarios", name, within=within)
    if done.status:
        print(f"\n--- {name}: {scenario.play.__doc__}\n{done.printed}\n---", flush=True)
    notes = [line.removeprefix(NOTE) for line in done.printed.splitlines() if line.startswith(NOTE)]
    return Row(name, _outcome(done.status), time.monotonic() - began, "; ".join(notes))


def _record(guest: Guest, folder: Path, to: Path) -> Row:
    """Have the guest write its records into the shared folder, and copy them to where they are wanted."""
    began = time.monotonic()
    words = (sys.executable, "-m", "tests.beegfs_bed.record", SHARED / "record")
    done = guest.run(*words, within=RECORDS_WITHIN)
    if done.status:
        print(done.printed)
    to.mkdir(parents=True, exist_ok=True)
    for path in (folder / "record").iterdir():
        (to / path.name).write_bytes(path.read_bytes())
    return Row("record", _outcome(done.status), time.monotonic() - began)


def _outcome(status: int) -> str:
    return {0: OK, TIMED_OUT: HANGS}.get(status, FAILED)


def _table(rows: Sequence[Row]) -> str:
    """The scenarios as a table of Markdown."""
    lines = ["| scenario | what it shows | outcome | s | counted |", "|---|---|---|---|---|"]
    for row in rows:
        what = SCENARIOS[row.scenario].play.__doc__ if row.scenario in SCENARIOS else ""
        lines.append(f"| {row.scenario} | {what} | {row.outcome} | {row.seconds:.0f} | {row.note} |")
    count = sum(row.outcome == OK for row in rows)
    return "\n".join(
        [*lines, "", f"{count} ok of {len(rows)}, {sum(row.seconds for row in rows) / 60:.0f} min"]
    )


if __name__ == "__main__":
    sys.exit(main())
