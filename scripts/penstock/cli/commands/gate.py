"""`penstock gate`: whether a published release is there; with `--mend`, after a repair where needed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.cli import (
    dataset_choice,
    flags,
    output,
    submission,
)
from penstock.cli.command_table import CommandFunctions
from penstock.config.quantities import read_duration
from penstock.core import human
from penstock.core.errors import ConfigError
from penstock.core.findings import AuditSelection, parse_fraction

if TYPE_CHECKING:
    import argparse

    from penstock.cli.dataset_choice import Reading
    from penstock.cli.session import Session
    from penstock.config.settings import Config
    from penstock.core.step_results import MendResult

EXAMPLES = (
    "penstock gate imagenet && sbatch train.sh",
    "penstock gate imagenet --audited-within 30d --mend",
)


def arguments(parser: argparse.ArgumentParser) -> None:
    flags.dataset(parser)
    flags.root(parser)
    parser.add_argument(
        "--audited-within", type=flags.value(read_duration), metavar="TIME",
        help="and only when all of it was read back within this time, such as 30d",
    )  # fmt: skip
    parser.add_argument(
        "--mend", action="store_true",
        help="before that, look at names, sizes and times of all files and at a sample of the bytes, and "
        "fetch what is missing or damaged; elements run here, those of a large repair by cluster.backend",
    )  # fmt: skip
    parser.add_argument(
        "--sample", type=flags.value(parse_fraction, flags.FRACTION), metavar="SHARE",
        help="with --mend: the share of the files that is read (default: what takes some seconds)",
    )  # fmt: skip
    flags.json_lines(parser)
    flags.submit(parser, "with --mend: as a SLURM job of one core; training jobs wait for it by afterok")


def run(parsed: argparse.Namespace, session: Session) -> int:
    """Return 0 where a sealed release without findings is published; else raise FindingsError (4)."""
    if parsed.mend and parsed.root is not None:
        raise ConfigError(
            "the source stands in the configuration",
            where="--root",
            hint="use --config instead of --root, or leave --mend out",
        )
    reading = dataset_choice.chosen_reading(parsed, session, parsed.dataset)
    if parsed.parsable and not parsed.submit:
        submission.refuse_parsable()
    reading.warn_of_hold()
    if parsed.mend:
        config = session.config()
        if parsed.submit:
            return submission.mend(parsed, session, config, reading.dataset)
        return _mended(parsed, session, config, reading)
    if parsed.sample is not None:
        raise ConfigError("--sample is about --mend", hint="give it with --mend")
    if parsed.submit:
        raise ConfigError("the gate alone needs no job: it takes less than a second", hint="give --mend, too")
    with reading.reported(session) as answer:
        published = reading.judged(within=parsed.audited_within)
        answer |= {"release": published.release, "path": str(published.data)}
    if not parsed.json:
        output.show(f"{reading.dataset}: {published.release} is published, in {published.data}")
    return 0


def _mended(parsed: argparse.Namespace, session: Session, config: Config, reading: Reading) -> int:
    from penstock.cluster.registry import open_cluster
    from penstock.keep import gate_repair

    local = replace(config.cluster, backend="local")
    with session.context(config) as context:
        wish = gate_repair.Wish(
            choice=None if parsed.sample is None else AuditSelection("sample", parsed.sample),
            within=parsed.audited_within,
            local=open_cluster(local, config.target.root, changed=context.stop.stir, warn=output.say),
            repair_there=parsed.backend is not None,
        )
        result = gate_repair.run(context, reading.dataset, wish)
    # Print the release that was checked, since `current` may lead elsewhere by now.
    reading.judged(result["release"], parsed.audited_within)
    _show(result)
    session.receipt(result)
    return 0


def _show(result: MendResult) -> None:
    from penstock.core.findings import also_in, also_repaired

    name = result["dataset"]
    output.show(f"{name}: {result['release']} is published, in {result['path']}")
    output.show(
        f"  names, sizes and times of {human.counted(result['files'], 'file')} were compared, and "
        f"{human.counted(result['read'], 'file')} ({human.size(result['read_bytes'])}) read, in "
        f"{human.duration(result['look_seconds'])}: {result['promise']}"
    )
    if result["touched"]:
        output.show(f"  {human.counted(result['touched'], 'file')} of another time were read, too")
    if result["status"] == "REPAIRED":
        output.show(
            f"  repaired: {human.counted(result['repaired'], 'file')}, {human.size(result['fetched_bytes'])} "
            f"fetched, in {human.duration(result['repair_seconds'])}"
        )
    for release, count in sorted(result["also_repaired"].items()):
        output.show(f"  {also_repaired(release, count)}")
    for release, count in sorted(result["also_in"].items()):
        output.show(f"  {also_in(release, count)}: `penstock audit {name} --release {release}`")


GATE = CommandFunctions(arguments, run, EXAMPLES)
