"""Commands about the staging of datasets: `penstock plan` and `rehearse` say how long it will take, `status`
and `metrics` show it, `cancel` ends it, and `limit` caps the link or the elements that run at once.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cli import dataset_choice, flags, output
from penstock.cli.command_table import CommandFunctions
from penstock.cli.dataset_choice import TargetDatasets
from penstock.config import quantities
from penstock.core import human
from penstock.core.errors import (
    ConfigError,
    FailedError,
    FindingsError,
    InterruptedRunError,
    NoSpaceError,
    PenstockError,
    PreflightError,
)
from penstock.core.human import in_quotes, printable
from penstock.fs import small_files, watched_facts
from penstock.fs.safe_open import NO_SPACE
from penstock.host import kernel_facts, waits

if TYPE_CHECKING:
    from penstock.cli.session import Session
    from penstock.config.settings import BandwidthConfig, Config
    from penstock.core.step_results import StatusResult
    from penstock.dataset.context import Context
    from penstock.jobs.bandwidth import Cap, Overview
    from penstock.look.views.text_layout import Line


EXPLAIN_EXAMPLES = ("penstock plan imagenet", 'penstock plan --assume "20PB, 200M files, link=70Gbit/s"')


def explain_arguments(parser: argparse.ArgumentParser) -> None:
    flags.datasets(parser)
    parser.add_argument("--explain", action="store_true", help="what it does in any case")
    parser.add_argument(
        "--assume", type=flags.value(quantities.read_assumption), metavar="TEXT",
        default=quantities.Assumption(),
        help="rates, nodes and prices that nothing else says; with a size, of no dataset: "
        "no source is looked at",
    )  # fmt: skip
    flags.json_lines(parser)


def run_explain(parsed: argparse.Namespace, session: Session) -> int:
    from penstock.core import typed_json
    from penstock.core.errors import ConfigError
    from penstock.look import explanation

    assumed = parsed.assume
    sized = (assumed.bytes, assumed.files) != (None, None)
    if sized and parsed.dataset:
        raise ConfigError(
            "a size is given, and a dataset is named that has its own",
            where="--assume",
            hint="leave out one of them; rates, nodes and prices may be given for a dataset",
        )
    if sized:
        plans = [explanation.assumed(assumed)]
    else:
        config = session.config()
        names = session.names(config, parsed.dataset)
        with session.context(config) as context:
            plans = [explanation.of_dataset(context, name, assumed) for name in names]
    for plan in plans:
        session.show_rows([typed_json.plain(plan)], partial(explanation.render_plan, plan))
    return 0


EXPLAIN = CommandFunctions(explain_arguments, run_explain, EXPLAIN_EXAMPLES)


# `penstock rehearse`: copies a sample of a dataset, reads it back, and removes it. Writes measurements into
# the dataset's state.

REHEARSE_EXAMPLES = (
    "penstock rehearse imagenet",
    "penstock rehearse imagenet --time 5min --sweep 8,16,32,64",
)
MOST = 4096  # number of streams, at most, as for `engine.streams`
STREAMS = f"numbers of streams from 1 to {MOST}, such as 8,16,32"


def rehearse_arguments(parser: argparse.ArgumentParser) -> None:
    flags.dataset(parser)
    parser.add_argument(
        "--time", type=flags.value(quantities.read_duration), default=60.0, metavar="DURATION",
        help="how long it copies in all (default: 1min)",
    )  # fmt: skip
    parser.add_argument(
        "--sweep", type=flags.value(_streams, STREAMS), default=(), metavar="N,N,...",
        help="try these numbers of streams, each for its part of the time, and say which is enough",
    )  # fmt: skip
    parser.add_argument(
        "--csv", type=flags.written("RATES"), metavar="FILE",
        help="with --sweep: where the table goes, and beside it a plot, as .svg "
        "(default: results/rehearsal-DATASET.csv)",
    )  # fmt: skip
    parser.add_argument(
        "--fio",
        type=flags.written("FIO_JOB"),
        metavar="FILE",
        help="write a job for fio with files of the same sizes",
    )
    flags.json_lines(parser)


def run_rehearse(parsed: argparse.Namespace, session: Session) -> int:
    from penstock.core import run_documents
    from penstock.look import explanation
    from penstock.run import rehearsal

    if parsed.csv and (not parsed.sweep or parsed.csv.suffix == ".svg"):
        raise ConfigError(
            "--csv names the table of --sweep", hint="a file such as rates.csv; the plot is rates.svg"
        )
    config = session.config()
    name = session.only(config, parsed.dataset)
    with session.context(config) as context:
        done, sizes = rehearsal.rehearse(context, name, parsed.time, parsed.sweep)
    session.show_rows([done], partial(explanation.render_rehearsal, done))
    if parsed.sweep:
        csv = parsed.csv or Path("results") / f"rehearsal-{name}.csv"
        _write_result(csv, explanation.csv(done), "RATES")
        _write_result(csv.with_suffix(".svg"), explanation.svg(done), "RATES")
    if parsed.fio:
        _write_result(
            parsed.fio, run_documents.fio_job(name, sizes, done.leg.streams, done.durability), "FIO_JOB"
        )
    return 0


def _write_result(path: Path, text: str, own: str) -> None:
    """Write whole; to a device as it is. `own` as of `flags.written`."""
    from penstock.fs import small_files
    from penstock.fs.safe_open import storage_error

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with small_files.output(path, getattr(small_files, own)) as file:
            file.stream.write(text.encode())
            file.close()
    except OSError as error:
        raise storage_error(error, "a result cannot be written", str(path)) from error


def _streams(text: str) -> tuple[int, ...]:
    numbers = sorted({int(word) for word in text.split(",")})
    if not 1 <= numbers[0] <= numbers[-1] <= MOST:
        raise ValueError
    return tuple(numbers)


REHEARSE = CommandFunctions(rehearse_arguments, run_rehearse, REHEARSE_EXAMPLES)


STATUS_EXAMPLES = ("penstock status", "penstock status --root /beegfs/datasets --watch")
WATCHED, LONGEST_WATCHED = 30.0, 120.0  # seconds between two looks: at first, and at most
SLOWER = 1.25  # factor from one pause to the next


def status_arguments(parser: argparse.ArgumentParser) -> None:
    flags.json_document(parser)
    flags.root(parser)
    parser.add_argument(
        "--watch", action="store_true", help="again each 30 s, later each 2 minutes, until Ctrl-C"
    )
    flags.datasets(parser)


def run_status(parsed: argparse.Namespace, session: Session) -> int:
    """Show what is published and under way. Returns 4 where a dataset is damaged, as `gate` would; else 3
    where nothing of one can be seen. With --watch, look again until a signal; errors are shown."""
    pause = WATCHED
    code = _status(parsed, session)
    while parsed.watch:
        try:
            waits.pause(pause)
            output.clear()
            code = _status(parsed, session)
        except InterruptedRunError:
            break
        except PenstockError as error:
            output.say(str(error))
        pause = min(LONGEST_WATCHED, pause * SLOWER)
    return code


def _status(parsed: argparse.Namespace, session: Session) -> int:
    if parsed.root is not None:
        from penstock.look import releases, status_report

        below = dataset_choice.chosen_datasets(parsed, session)
        root, names = below.target.root, list(dict.fromkeys(parsed.dataset or ()))
        rows = status_report.below(root, time.time(), names)
        if missing := [name for name in names if not any(row["dataset"] == name for row in rows)]:
            raise dataset_choice.not_known(missing, releases.datasets(root), root)
        return _shown(rows, session, lambda columns: _table(rows, root, columns))
    return _status_of_owner(parsed, session)


def _status_of_owner(parsed: argparse.Namespace, session: Session) -> int:
    from penstock.look import status_report as step

    config = session.config()
    names = session.names(config, parsed.dataset)
    with session.context(config) as context:
        jobs = _submitted(context, session.file)

        def state(name: str) -> StatusResult:
            return step.run(context, name, None if jobs is None else jobs.get(name, ""))

        results, code = session.apart(names, state)

    def lines(columns: int) -> list[Line]:
        return render_status(results) if parsed.dataset else _table(results, config.target.root, columns)

    return _shown(results, session, lines, code)


def _shown(
    results: Sequence[StatusResult], session: Session, lines: Callable[[int], list[Line]], code: int = 0
) -> int:
    """Print the rows, and return the exit status that they mean. `code`: that of datasets which failed."""
    from penstock.dataset import gate

    session.receipt(
        results[0] if len(results) == 1 else {"datasets": {result["dataset"]: result for result in results}}
    )
    session.show_rows(results, lines, hints=True)
    if any(
        {result["state"], result.get("work", {}).get("state")}.intersection(gate.BAD) for result in results
    ):
        return FindingsError.exit_code
    unseen = any(result["state"] == gate.UNREADABLE and "current" not in result for result in results)
    return code or (PreflightError.exit_code if unseen else 0)


def _table(results: Sequence[StatusResult], root: Path, columns: int) -> list[Line]:
    from penstock.fs import capabilities
    from penstock.look import status_report

    free = None
    with contextlib.suppress(OSError):
        free = capabilities.facts(root).free_bytes
    return status_report.render_table(results, str(root), free, time.time(), columns)


def _submitted(context: Context, file: Path) -> dict[str, str] | None:
    """Map datasets to the job and reason of a controller that SLURM has not begun; None: not known."""
    from penstock.core.errors import PenstockError
    from penstock.workflow import controller_job

    try:
        waiting = controller_job.waiting(context.cluster, file)
    except PenstockError as error:
        output.say(f"whether a submitted controller waits is not known: {error}")
        return None
    return {
        name: f"{job} ({reason})" if reason else job
        for job, (names, reason) in waiting.items()
        for name in names
    }


_SAID = ("dataset", "state", "why", "to_do", "work", "pinned")


def render_status(results: Sequence[StatusResult]) -> list[Line]:
    from penstock.core.findings import AuditShown
    from penstock.core.human import TEXT, brief
    from penstock.jobs.dataset_state import ENDED
    from penstock.look.views import text_layout
    from penstock.look.views.text_layout import Line

    lines = []
    for result in results:
        work = result.get("work") or {}
        lines.append(result["dataset"])
        own = bool(work) and work.get("state") == result["state"]
        to_do = result.get("to_do") or work.get("to_do")
        fields: dict[str, object] = {"state": _state(work if own else result), "to do": to_do}
        if work and not own:
            fields["last run"] = _state(work)
        fields |= {"step": work.get("step"), "copy": work.get("copy"), "verify": work.get("verify")}
        fields |= {key: value for key, value in result.items() if key not in _SAID}
        if (release := result.get("release")) and release not in result.get("releases", ()):
            ended = work.get("state") in ENDED
            fields["release"] = f"{release}, {'not published' if ended else 'being made'}"
        for key, value in fields.items():
            if value not in (None, "", [], {}):
                if isinstance(value, AuditShown):
                    text = text_layout.last(value)
                elif key == "findings" and isinstance(value, Mapping):
                    text = ", ".join(f"{human.count(count)} {kind}" for kind, count in sorted(value.items()))
                elif key == "bytes" and isinstance(value, int):
                    key, text = "size", human.size(value)
                else:
                    text = human.count(value) if isinstance(value, int) else _text(value)
                lines += text_layout.field(key.replace("_", " "), brief(text, TEXT))
    return [Line(text) for text in lines]


def _state(work: Mapping[str, Any]) -> str:
    """Render a state: `published`, `damaged: manifest.parquet is missing`, `copying 42.1 %, 341 MiB read
    back`, `stopped by SIGINT in copy, 42.1 % done, at 2026-11-26T02:14:00Z`, `failed at 2026-11-26T02:14:00Z:
    copy: no space is left (exit 6)`."""
    from penstock.jobs.dataset_state import ENDED

    state, why = str(work["state"]), work.get("why", "")
    state = "HELD" if state == "held" else state
    step, percent = str(work.get("step", "")), work.get("percent")
    at = f" at {work['at']}" if "at" in work else ""
    if "signal" in work:
        within = f" in {step}" if step else ""
        return (
            f"{state} by {work['signal']}{within}{f', {percent} % done' if percent is not None else ''},{at}"
        )
    text = f"{state}{at}" if state in ENDED else state
    if percent is not None and state in ("copying", "verifying"):
        text += f" {percent} %"
    if state == "copying" and (verify := work.get("verify")) and verify["bytes"]:
        text += f", {human.size(verify['bytes'])} read back"
    text += f": {why}" if why else ""
    return f"{text} (exit {work['exit']})" if state == "failed" else text


def _text(value: object) -> str:
    """Render as a line: a step's shards in words, lists by commas, other mappings as JSON."""
    if isinstance(value, (list, tuple)) and all(isinstance(item, (str, int)) for item in value):
        return ", ".join(map(str, value))
    if not isinstance(value, Mapping):
        return value if isinstance(value, str) else str(value)
    if value.keys() >= {"elements", "done", "of_bytes"}:
        phrases = [f"{value['done']} of {human.counted(value['elements'], 'shard')} done"]
        phrases.append(human.counted(value["files"], "file"))
        phrases.append(human.size_of(value["bytes"], value["of_bytes"]))
        return ", ".join([*phrases, f"{value['failed']} failed"] if value.get("failed") else phrases)
    return json.dumps(value, default=str)


STATUS = CommandFunctions(status_arguments, run_status, STATUS_EXAMPLES)


CANCEL_EXAMPLES = ("penstock cancel imagenet", "penstock cancel imagenet --root /beegfs/datasets")


def cancel_arguments(parser: argparse.ArgumentParser) -> None:
    flags.json_document(parser)
    flags.datasets(parser)
    flags.root(parser)


def run_cancel(parsed: argparse.Namespace, session: Session) -> int:
    """End the arrays of unfinished runs; what was copied stays and is resumed. A submitted controller that
    has not begun is ended where all its datasets are cancelled, else named; with --root none is known."""
    from penstock.config.settings import Config, DatasetConfig
    from penstock.jobs import array_orders
    from penstock.workflow import controller_job

    if parsed.root is None:
        config = session.config()
        names = session.names(config, parsed.dataset)
    elif parsed.dataset:
        below = dataset_choice.chosen_datasets(parsed, session)
        names = [layout.dataset for layout in below.layouts(parsed.dataset)]
        config = Config(below.target, {name: DatasetConfig(name, ()) for name in names})
    else:
        raise ConfigError("which dataset?", where="--root", hint="name those whose work is to end")
    ended: dict[str, list[str]] = {}
    with session.context(config) as context:

        def cancel(name: str) -> None:
            ended[name] = array_orders.cancel(context, name)
            output.show(f"{name}: {_sentence(name, ended[name])}")

        _, code = session.apart(names, cancel)
        jobs = {} if parsed.root else controller_job.waiting(context.cluster, session.file)
        for job, (datasets, _) in jobs.items():
            end = f"scancel {job} ends it, for {', '.join(datasets) or 'whatever it was submitted for'}"
            if datasets and {*datasets} <= {*ended}:
                context.cluster.cancel(job)
                end = "ended"
            output.show(f"the submitted controller, job {job}, had not begun: {end}")
    session.receipt({"datasets": ended})
    return code


def _sentence(name: str, lines: Sequence[str]) -> str:
    """`lines`: of `array_orders.cancel`; those that begin with NOT name what this command could not end."""
    done = [line for line in lines if not line.startswith("NOT ")]
    left = [line for line in lines if line.startswith("NOT ")]
    if not lines:
        return "nothing is running to cancel"
    done = [f"cancelled {' and '.join(done)}"] if done else []
    return "; ".join([*done, *left, f"`penstock run {name}` continues"])


CANCEL = CommandFunctions(cancel_arguments, run_cancel, CANCEL_EXAMPLES)


LIMIT_EXAMPLES = ("penstock limit 40Gbit/s", "penstock limit imagenet --nodes 2")


def limit_arguments(parser: argparse.ArgumentParser) -> None:
    flags.json_document(parser)
    parser.add_argument(
        "what", nargs="?", metavar="RATE",
        help="such as 40Gbit/s or 5GB/s; none: what the configurations say; default: print what is set. "
        "With --nodes a dataset",
    )  # fmt: skip
    parser.add_argument(
        "--nodes", type=_elements, metavar="N",
        help="of a dataset: elements of a step that may run at once from now on, each on a node, or "
        "`auto`: as cluster.max_elements says",
    )  # fmt: skip


def _elements(text: str) -> int:
    if text == "auto":
        return 0
    if not re.fullmatch("[0-9]{1,7}", text) or int(text) < 1:
        raise argparse.ArgumentTypeError(
            f"{in_quotes(text)} is not a number of elements at once: 1 or more, or auto"
        )
    return int(text)


def run_limit(parsed: argparse.Namespace, session: Session) -> int:
    """Set the elements at once with --nodes; else set a given cap, and print it with its holders."""
    if parsed.nodes is not None:
        return _nodes(parsed, session)
    if parsed.what is not None and (wrong := _wrong_rate(parsed.what)) is not None:
        raise ConfigError(
            f"{in_quotes(parsed.what)} is no cap of the link: it {wrong}",
            hint=f"the elements of a dataset are limited by `penstock limit {parsed.what} --nodes N`",
        )
    return _limit_bandwidth(parsed, session)


def _nodes(parsed: argparse.Namespace, session: Session) -> int:
    from penstock.jobs import array_orders

    config = session.config()
    if parsed.what is not None and parsed.what not in config.datasets and _wrong_rate(parsed.what) is None:
        raise ConfigError(
            f"{parsed.what} is a cap of the link, and --nodes is of a dataset",
            hint="`penstock limit DATASET --nodes N`; the cap is set by `penstock limit RATE` alone",
        )
    name = session.only(config, parsed.what)
    with session.context(config) as context:
        sentences = array_orders.throttle(context, name, parsed.nodes)
    wanted = parsed.nodes or "as many as cluster.max_elements says"
    output.show(f"{name}: elements of a step at once, from now on: {wanted}")
    for line in sentences:
        output.show(f"  {line}")
    session.receipt({"dataset": name, "at_once": parsed.nodes, "told": sentences})
    return 0


def _wrong_rate(text: str) -> str | None:
    from penstock.config.quantities import read_rate

    try:
        if text != "none":
            read_rate(text)
    except ValueError as error:
        return str(error)
    return None


def _bandwidth_config(parsed: argparse.Namespace, session: Session) -> BandwidthConfig:
    """Return the configuration's settings of the link, or without one the site file's."""
    from penstock.config import command_options, loader
    from penstock.config.settings import BandwidthConfig

    site = None if command_options.chosen(parsed.config) else loader.site_file()
    if site is None or site.bounds.bandwidth.folder is None:
        return session.config().bandwidth
    own = site.bounds.bandwidth
    return BandwidthConfig(own.folder, link=own.link, requests=own.requests)


def _limit_bandwidth(parsed: argparse.Namespace, session: Session) -> int:
    from penstock.jobs.bandwidth import Cap, overview, set_cap

    config = _bandwidth_config(parsed, session)
    if config.folder is None:
        raise ConfigError(
            "no cap is shared",
            where=f"{session.file}: bandwidth.folder",
            hint="name a folder there that all who use the link can write, from each node",
        )
    if parsed.what is not None:
        set_cap(config.folder, parsed.what)
    cap_state, own = overview(config.folder), Cap.configured(config)
    holds = own.lower(cap_state.said)
    output.show(render_limit(cap_state, own, holds))
    session.receipt(
        {
            "folder": str(config.folder),
            "rate": holds.rate,
            "requests": holds.requests,
            "wrong": cap_state.wrong,
            "held": [holder._asdict() for holder in cap_state.held],
        }
    )
    # The cap file does not count, so new elements read nothing.
    return PreflightError.exit_code if cap_state.wrong else 0


def render_limit(cap_state: Overview, own: Cap, holds: Cap) -> str:
    """Render the cap, its origin, and a line for each holder."""
    from penstock.core import human

    def rate(value: int | None) -> str:
        return "no cap" if value is None else f"{human.rate(value)} ({value * 8 / 1e9:.6g} Gbit/s)"

    def requests(value: int | None) -> str:
        return "no cap" if value is None else f"{value:,} a second"

    lines = [
        f"bytes     {rate(holds.rate)}",
        f"            by the cap file: {rate(cap_state.said.rate)}; by the configuration: {rate(own.rate)}",
        f"requests  {requests(holds.requests)}",
    ]
    if cap_state.wrong:
        lines += [f"the cap file does not count: {cap_state.wrong}", f"  {cap_state.mend}"]
    for holder in cap_state.held:
        rate_text = "" if holds.rate is None else f", {human.rate(int(holds.rate * holder.part))}"
        lines.append(f"{holder.part:>5.1%}{rate_text}: {holder.who}")
    if not cap_state.held:
        lines.append("no run has a part of it")
    return "\n".join(lines)


LIMIT = CommandFunctions(limit_arguments, run_limit, LIMIT_EXAMPLES)


METRICS_EXAMPLES = (
    "penstock metrics --root /beegfs/datasets",
    "penstock metrics --root /beegfs/datasets --out /var/lib/prometheus/node-exporter/penstock.prom",
)


def metrics_arguments(parser: argparse.ArgumentParser) -> None:
    flags.datasets(parser)
    flags.root(parser)
    what = "write this file anew, whole, for everybody to read (default: standard output)"
    parser.add_argument("--out", type=flags.written("METRICS"), metavar="FILE", help=what)


def run_metrics(parsed: argparse.Namespace, session: Session) -> int:
    """Write the series of all or the named datasets. Raises FailedError or NoSpaceError where the file cannot
    be written, which stays as it was."""
    _write_metrics(dataset_choice.chosen_datasets(parsed, session), parsed.dataset, parsed.out)
    return 0


def refuse_another(config: Config) -> None:
    """Raise ConfigError where the configured `metrics` is a file of another kind."""
    if config.metrics is not None:
        small_files.refuse_another(config.metrics, small_files.METRICS)


def at_end_of_run(config: Config) -> str:
    """Write the configured `metrics` file of the whole root; return why that failed, or "". Not in a SLURM
    job: on its node the file would grow old."""
    try:
        if config.metrics is not None and not kernel_facts.current_job().proven:
            watched_facts.require_answer(config.target.root)
            _write_metrics(TargetDatasets(config.target, list(config.datasets)), [], config.metrics)
    except (PenstockError, OSError, ImportError) as error:
        return str(error)
    return ""


def _write_metrics(datasets: TargetDatasets, names: Sequence[str], path: Path | None) -> None:
    from penstock.look import metrics

    content = metrics.text(datasets.target, datasets.layouts(names), datasets.owners)
    if path is None:
        return output.show(content.decode())
    try:
        with small_files.output(path, small_files.METRICS) as file:
            file.stream.write(content)
            file.close()
    except OSError as error:
        raise (NoSpaceError if error.errno in NO_SPACE else FailedError)(
            "the metrics cannot be written",
            where=printable(str(path)),
            why=error.strerror or str(error),
            hint="name a file in a folder that is there, has room, and that this account may write",
        ) from error


METRICS = CommandFunctions(metrics_arguments, run_metrics, METRICS_EXAMPLES)
