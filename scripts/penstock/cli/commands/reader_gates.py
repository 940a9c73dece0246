"""Commands of those who read a dataset: `penstock path` prints the folder that a training job reads, `gate`
says whether a published release is there (with `--mend`, after a repair where needed), and `after` prints the
option of sbatch by which a job waits until its datasets are published.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from penstock.cli import dataset_choice, flags, output, submission
from penstock.cli.command_table import CommandFunctions
from penstock.config.quantities import read_duration
from penstock.core import human
from penstock.core.errors import ConfigError, FindingsError, NoSpaceError, PenstockError
from penstock.core.findings import AuditSelection, parse_fraction
from penstock.core.human import brief, in_quotes
from penstock.core.layout import DATASET_NAME

if TYPE_CHECKING:
    from penstock.cli.dataset_choice import Reading
    from penstock.cli.session import Session
    from penstock.cluster.port import Cluster
    from penstock.config.settings import Config
    from penstock.core.step_results import MendResult
    from penstock.dataset.gate import Published
    from penstock.dataset.staging_notice import StagingNotice


PATH_EXAMPLES = (
    "data=$(penstock path imagenet --job) || exit 1",
    "data=$(penstock path imagenet --root /beegfs/datasets --job) || exit 1",
)


def path_arguments(parser: argparse.ArgumentParser) -> None:
    flags.dataset(parser)
    flags.root(parser)
    flags.json_lines(parser)
    parser.add_argument(
        "--job", action="store_true",
        help="keep the release from being removed while this job runs, and give the job the same one "
        "also when it is started again; outside of a job, of the script or shell that calls this",
    )  # fmt: skip


def run_path(parsed: argparse.Namespace, session: Session) -> int:
    """Print the data folder of the current release, where the gate is open. A job resolves it once, and reads
    one release whatever is published later. --job pins it, also for a restarted job."""
    reading = dataset_choice.chosen_reading(parsed, session, parsed.dataset)
    reading.warn_of_hold()
    with reading.reported(session) as answer:
        judgement, pin = _given(reading) if parsed.job else (reading.judged(), "")
        answer |= {"release": judgement.release, "path": str(judgement.data), "pin": pin}
    if not parsed.json:
        output.show_path(judgement.data)
    if pin:
        output.say(f"{reading.dataset}: {pin}")
    return 0


def _given(reading: Reading) -> tuple[Published, str]:
    """Return the release that this job got first, else the current one, and its pin in words ("" where no
    space is left)."""
    from penstock.dataset import pins

    layout, judge = reading.layout, reading.judged
    try:
        judgement, pin = pins.of_reader(layout, judge)
    except NoSpaceError as error:
        output.say(
            f"warning: {reading.dataset}: the release is not pinned: {error}\n"
            "  the command goes on without: the release stays while `current` names it, and for gc.grace "
            f"after that ({human.duration(reading.grace)}, or the longest time of a job), unless its owner "
            "removes it with --now; a job that is started again may be given a newer one"
        )
        first_pin = pins.first(layout)
        return judge(first_pin.release if first_pin is not None else None), ""
    return judgement, pin.words()


PATH = CommandFunctions(path_arguments, run_path, PATH_EXAMPLES)


GATE_EXAMPLES = (
    "penstock gate imagenet && sbatch train.sh",
    "penstock gate imagenet --audited-within 30d --mend",
)


def gate_arguments(parser: argparse.ArgumentParser) -> None:
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


def run_gate(parsed: argparse.Namespace, session: Session) -> int:
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


GATE = CommandFunctions(gate_arguments, run_gate, GATE_EXAMPLES)


# `penstock after`: the option of sbatch by which a job waits until its datasets are published.
#
# Standard output becomes words of sbatch's command line, even where the shell loses the exit status: `sbatch
# $(penstock after imagenet) train.sh`. So it consists of fixed words, digits and the dataset's name. Where a
# job cannot wait, sbatch refuses the option; an empty answer would start the job.
#
# | the gate          | a job of its owner  | --new | the option                  | status  |
# |                   | stages it (`_job`)  |       |                             |         |
# |-------------------|---------------------|-------|-----------------------------|---------|
# | open              | any                 | no    | none                        | 0       |
# | open              | yes                 | yes   | --dependency=afterok:N      | 0       |
# | open              | it has ended        | yes   | none                        | 0       |
# | open              | none that SLURM can | yes   | --NAME-is-not-staged        | 4       |
# |                   | wait for does       |       |                             |         |
# | nothing published | yes                 | any   | --dependency=afterok:N      | 0       |
# | nothing published | no                  | any   | --NAME-is-not-staged        | 4       |
# | held, damaged     | any                 | any   | --NAME-is-held, -is-damaged | 4       |
# | any other         | any                 | any   | --NAME-is-not-known         | its own |

AFTER_EXAMPLES = (
    "w=$(penstock after imagenet coco) && sbatch $w train.sh",
    "w=$(penstock after imagenet --new --and afterok:4711) && sbatch $w train.sh",
)
_DEPENDENCIES = re.compile(
    r"(?:(?:singleton|after[a-z]{0,12}(?::[0-9]{1,20}(?:_[0-9]{1,9})?(?:\+[0-9]{1,9})?)+)(?:,|$))+"
)
_KILL = "--kill-on-invalid-dep=yes"
_KNOWS_KILL = {"sbatch": True, "salloc": False, "srun": False}


class Answer(NamedTuple):
    text: str
    job: str = ""  # id of the controller's job, to wait for; "" if there is nothing to wait for
    refusal: str = ""  # end of the option with which sbatch refuses the job; "" if a job may be submitted
    code: int = 0
    over: bool = False  # whether nothing is under way, since the notice's job or process has ended


def after_arguments(parser: argparse.ArgumentParser) -> None:
    flags.json_document(parser)
    parser.add_argument(
        "dataset", nargs="*", metavar="DATASET", help="what the job reads (default: the only one)"
    )
    flags.root(parser)
    parser.add_argument("--new", action="store_true", help="wait for the release that is staged now, too")
    parser.add_argument(
        "--and", dest="also", type=_dependencies, metavar="DEPENDENCY",
        help="what else the job waits for, such as afterok:4711: sbatch takes one --dependency",
    )  # fmt: skip
    parser.add_argument(
        "--for", dest="caller", choices=_KNOWS_KILL, default="sbatch",
        help="the command that gets the option (default: sbatch)",
    )  # fmt: skip


def _dependencies(text: str) -> str:
    if not _DEPENDENCIES.fullmatch(text) or text.endswith(","):
        raise argparse.ArgumentTypeError(
            f"{in_quotes(text)} is no dependency: afterok:4711, with commas between several"
        )
    return text


def run_after(parsed: argparse.Namespace, session: Session) -> int:
    """Print the option by the table above, and what the job waits for on standard error. Returns 0 where it
    may be submitted."""
    answers = dict(_answer(parsed, session, name) for name in parsed.dataset or [None])
    if option := _option(parsed, answers):
        output.show(option)
    lines = [f"{name}: {answer.text}" for name, answer in answers.items()]
    if not any(answer.refusal for answer in answers.values()):
        words = session.program + f" path {next(iter(answers))} --job"
        words += f" --root {shlex.quote(str(parsed.root))}" if parsed.root is not None else ""
        lines.append(f"the job's script begins with: data=$({words}) || exit")
    output.say("\n  ".join(lines))
    session.receipt({"option": option, "datasets": {name: each._asdict() for name, each in answers.items()}})
    return next((answer.code for answer in answers.values() if answer.code), 0)


def _option(parsed: argparse.Namespace, answers: dict[str, Answer]) -> str:
    if refused := [f"--{name}-{answer.refusal}" for name, answer in answers.items() if answer.refusal]:
        return " ".join(refused)
    jobs = list(dict.fromkeys(answer.job for answer in answers.values() if answer.job))
    waits = ",".join(filter(None, (parsed.also, f"afterok:{':'.join(jobs)}" if jobs else "")))
    kill = _KILL if jobs and _KNOWS_KILL[parsed.caller] else ""
    return " ".join(filter(None, (waits and f"--dependency={waits}", kill)))


def _answer(parsed: argparse.Namespace, session: Session, name: str | None) -> tuple[str, Answer]:
    from penstock.cluster.registry import open_cluster
    from penstock.config.settings import ClusterConfig

    try:
        reading = dataset_choice.chosen_reading(parsed, session, name)
        cluster = open_cluster(ClusterConfig(backend="slurm"))
        return reading.dataset, _of_dataset(reading, cluster, new=parsed.new)
    except PenstockError as error:
        if name is None or not DATASET_NAME.fullmatch(name):  # an unsafe name is never printed
            raise
        return name, Answer(str(error), refusal="is-not-known", code=error.exit_code)


def _of_dataset(reading: Reading, cluster: Cluster, *, new: bool) -> Answer:
    from penstock.dataset import gate, staging_notice

    def published_meanwhile(before: str) -> bool:
        now = gate.judged(reading.layout, reading.target.owners)
        return now.error is None and now.release != before

    staging = staging_notice.find(reading.layout)
    try:
        published = reading.judged()
    except gate.NothingPublishedError:
        answer = _job(reading, staging, cluster)
        if answer.refusal and published_meanwhile(""):
            return Answer("published just now: nothing to wait for")
        return answer
    except PenstockError as error:
        words = {gate.HELD: "is-held", gate.DAMAGED: "is-damaged"}
        word = words.get(gate.Judgement(reading.layout, error=error).state, "is-not-known")
        return Answer(str(error), refusal=word, code=error.exit_code)
    if new and staging:
        answer = _job(reading, staging, cluster)
        if not answer.over and not (answer.refusal and published_meanwhile(published.release)):
            return answer
    sealed = datetime.fromisoformat(published.seal.sealed)
    age = human.age((datetime.now(UTC) - sealed).total_seconds())
    more = "; a new release is under way, --new waits" if staging and staging.alive and not new else ""
    return Answer(f"published {age} ago: nothing to wait for{more}")


def _job(reading: Reading, staging: StagingNotice | None, cluster: Cluster) -> Answer:
    """Answer whether SLURM can wait for a job that stages the dataset.

    | the notice names            | squeue                              | answer       |
    |-----------------------------|-------------------------------------|--------------|
    | no job, or there is none    |                                     | refused      |
    | an account that is not of   |                                     | refused      |
    | `target.owners`             |                                     |              |
    | a job of another cluster    |                                     | refused      |
    | a job                       | shows it, of the dataset's owner    | wait         |
    | a job                       | shows it, of another account        | refused      |
    | another account's job, and  | shows nothing: PrivateData hides    | wait, unseen |
    | is not older than `UNSEEN`  | jobs                                |              |
    | a job                       | shows nothing                       | refused      |
    """
    from penstock.dataset import staging_notice
    from penstock.fs import capabilities
    from penstock.target import access

    contact = reading.target.contact
    nobody = (
        f"nobody stages it: {f'ask {contact}' if contact else staging_notice.advice(reading.layout, None)}"
    )
    if staging is None or not (staging.notice.job or staging.alive):
        return _refused(f"{staging}; {nobody}" if staging else nobody, over=True)
    notice, who = staging.notice, access.in_words([str(staging.uid)])
    if not access.is_listed(staging.uid, access.owners_told(reading.layout.root, reading.target.owners)):
        return _refused(f"{who} stages it, whose releases do not count here: {access.naming(staging.uid)}")
    if not notice.job:
        where = f"{who} stages it on {brief(notice.host)}, in no job"
        return _refused(f"{where}: wait, or ask for `penstock run --submit`")
    if notice.cluster != (own := cluster.name()):
        of = f"job {notice.job} is of cluster {brief(notice.cluster)}, this is {own}"
        return _refused(f"{of}: SLURM cannot wait for it")
    live, age = cluster.live_job(notice.job), capabilities.now(reading.layout.pins) - staging.touched
    hidden = live is not None and live.uid is None
    if hidden and staging.uid != os.geteuid() and abs(age) <= staging_notice.UNSEEN:
        sign = f"last sign of life {human.age(max(0.0, age))} ago"
        return Answer(f"job {notice.job} is hidden (PrivateData): {sign}; waits for it unseen", notice.job)
    if live is None or hidden:
        submitted = notice.step == staging_notice.SUBMITTED
        end = "its staging did not begin" if submitted else "it ended before the release was published"
        return _refused(f"job {notice.job} is not in SLURM any more: {end}; {nobody}", over=True)
    if live.uid != staging.uid:
        return _refused(f"job {notice.job} is not of {who}, who stages it; {nobody}")
    state = f": step {notice.step}"
    if live.waits_for:
        state = f", which waits in SLURM: {brief(live.waits_for)}"
    elif notice.writes.bytes:
        state += f", {human.size(notice.writes.bytes)} still to be written"
    return Answer(f"{who} stages it in job {notice.job}{state}", notice.job)


def _refused(text: str, *, over: bool = False) -> Answer:
    return Answer(text, refusal="is-not-staged", code=FindingsError.exit_code, over=over)


AFTER = CommandFunctions(after_arguments, run_after, AFTER_EXAMPLES)
