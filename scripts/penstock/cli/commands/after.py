"""`penstock after`: the option of sbatch by which a job waits until its datasets are published.

Standard output becomes words of sbatch's command line, even where the shell loses the exit status: `sbatch
$(penstock after imagenet) train.sh`. So it consists of fixed words, digits and the dataset's name. Where a
job cannot wait, sbatch refuses the option; an empty answer would start the job.

| the gate          | a job of its owner  | --new | the option                  | status  |
|                   | stages it (`_job`)  |       |                             |         |
|-------------------|---------------------|-------|-----------------------------|---------|
| open              | any                 | no    | none                        | 0       |
| open              | yes                 | yes   | --dependency=afterok:N      | 0       |
| open              | it has ended        | yes   | none                        | 0       |
| open              | none that SLURM can | yes   | --NAME-is-not-staged        | 4       |
|                   | wait for does       |       |                             |         |
| nothing published | yes                 | any   | --dependency=afterok:N      | 0       |
| nothing published | no                  | any   | --NAME-is-not-staged        | 4       |
| held, damaged     | any                 | any   | --NAME-is-held, -is-damaged | 4       |
| any other         | any                 | any   | --NAME-is-not-known         | its own |
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from penstock.cli import dataset_choice, flags, output
from penstock.cli.command_table import CommandFunctions
from penstock.core import human
from penstock.core.errors import FindingsError, PenstockError
from penstock.core.human import brief, in_quotes
from penstock.core.layout import DATASET_NAME

if TYPE_CHECKING:
    from penstock.cli.dataset_choice import Reading
    from penstock.cli.session import Session
    from penstock.cluster.port import Cluster
    from penstock.dataset.staging_notice import StagingNotice

EXAMPLES = (
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


def arguments(parser: argparse.ArgumentParser) -> None:
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


def run(parsed: argparse.Namespace, session: Session) -> int:
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


AFTER = CommandFunctions(arguments, run, EXAMPLES)
