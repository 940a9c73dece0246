"""Commands that read the state of datasets: status, path, gate; and cancel, which changes it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from penstock.cli import output, submission
from penstock.core import human
from penstock.core.text import did_you_mean, in_quotes
from penstock.errors import ConfigError, FindingsError, NoSpaceError, PreflightError

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from penstock.cli.session import Session
    from penstock.config.settings import Config, TargetConfig
    from penstock.core.documents.step_results import RunState, StatusResult
    from penstock.core.layout import DatasetLayout
    from penstock.state.context import Context
    from penstock.state.gate import Published
    from penstock.views.styled_lines import Line


def status(parsed: argparse.Namespace, session: Session) -> int:
    """What is published and what is under way, for each dataset. Returns 4 where one is damaged, as `gate`
    would; else 3 where nothing at all can be seen of one."""
    from penstock.state import gate
    from penstock.steps import status_report as step

    config = session.config()
    names = session.names(config, parsed.dataset)
    with session.context(config) as context:
        found = [step.run(context, name) for name in names]
        _submitted(context, session.file, found)
    session.receipt(found[0] if len(found) == 1 else {"datasets": {one["dataset"]: one for one in found}})
    if parsed.progress == "json":
        for one in found:
            output.show_json(one)
    else:
        output.show_lines(render(found), hints=True)
    if any({one["state"], one.get("work", {}).get("state")}.intersection(gate.BAD) for one in found):
        return FindingsError.exit_code
    unseen = any(one["state"] == gate.UNREADABLE and "current" not in one for one in found)
    return PreflightError.exit_code if unseen else 0


def _submitted(context: Context, file: Path, found: Sequence[StatusResult]) -> None:
    """What waits for a controller that was submitted, and that SLURM has not begun."""
    from penstock.errors import PenstockError
    from penstock.state import gate
    from penstock.steps import controller_job

    try:
        jobs = controller_job.waiting(context.cluster, file)
    except PenstockError as error:
        output.say(f"whether a submitted controller waits is not known: {error}")
        return
    for job, datasets in jobs.items():
        for one in found:
            if one["dataset"] in datasets and "lock" not in one:
                why = f"for SLURM: the submitted controller, job {job}, has not begun"
                work: RunState = {"state": "waiting", "why": why}
                own = one.get("work", {}).get("state", gate.PUBLISHED)
                if one["state"] in (own, gate.PUBLISHED, gate.NOTHING):
                    one |= {"state": "waiting", "why": why, "to_do": ""}
                one["work"] = work


_SAID = ("dataset", "state", "why", "to_do", "work")


def render(found: Sequence[StatusResult]) -> list[Line]:
    """One block a dataset, each line escaped."""
    from penstock.core.documents.verdict import AuditShown
    from penstock.core.text import TEXT, brief
    from penstock.views import findings_text, text_block
    from penstock.views.styled_lines import Line

    lines = []
    for one in found:
        work = one.get("work") or {}
        lines.append(one["dataset"])
        own = bool(work) and work.get("state") == one["state"]
        to_do = one.get("to_do") or work.get("to_do")
        told: dict[str, object] = {"state": _state(work if own else one), "to do": to_do}
        if work and not own:
            told["last run"] = _state(work)
        told |= {"step": work.get("step"), "copy": work.get("copy"), "verify": work.get("verify")}
        told |= {key: value for key, value in one.items() if key not in _SAID}
        if (release := one.get("release")) and release not in one.get("releases", ()):
            ended = work.get("state") in ("failed", "stopped")
            told["release"] = f"{release}, {'not published' if ended else 'being made'}"
        for key, value in told.items():
            if value not in (None, "", [], {}):
                if isinstance(value, AuditShown):
                    text = findings_text.last(value)
                elif key == "findings" and isinstance(value, Mapping):
                    text = ", ".join(f"{human.count(count)} {kind}" for kind, count in sorted(value.items()))
                elif key == "bytes" and isinstance(value, int):
                    key, text = "size", human.size(value)
                else:
                    text = human.count(value) if isinstance(value, int) else _text(value)
                lines += text_block.field(key.replace("_", " "), brief(text, TEXT))
    return [Line(text) for text in lines]


def _state(told: Mapping[str, object]) -> str:
    """`published`, `damaged: manifest.parquet is missing`, `copying 42.1 %`, `stopped by SIGINT in copy,
    42.1 % done, at 2026-11-26T02:14:00Z`, `failed at 2026-11-26T02:14:00Z: copy: no space is left
    (exit 6)`."""
    state, why = str(told["state"]), told.get("why", "")
    state = "HELD" if state == "held" else state
    step, percent = str(told.get("step", "")), told.get("percent")
    at = f" at {told['at']}" if "at" in told else ""
    if "signal" in told:
        within = f" in {step}" if step else ""
        return (
            f"{state} by {told['signal']}{within}{f', {percent} % done' if percent is not None else ''},{at}"
        )
    text = f"{state}{at}" if state in ("failed", "stopped") else state
    if percent is not None and state in ("copying", "verifying"):
        text += f" {percent} %"
    text += f": {why}" if why else ""
    return f"{text} (exit {told['exit']})" if state == "failed" else text


def _text(value: object) -> str:
    """One line: a step's elements in words, lists by commas, other mappings as JSON."""
    if isinstance(value, (list, tuple)) and all(isinstance(one, (str, int)) for one in value):
        return ", ".join(map(str, value))
    if not isinstance(value, Mapping):
        return value if isinstance(value, str) else str(value)
    if value.keys() >= {"elements", "done", "files", "bytes"}:
        parts = [f"{value['done']} of {human.counted(value['elements'], 'element')} done"]
        parts += [human.counted(value["files"], "file"), human.size(value["bytes"])]
        return ", ".join([*parts, f"{value['failed']} failed"] if value.get("failed") else parts)
    return json.dumps(value, default=str)


def path(parsed: argparse.Namespace, session: Session) -> int:
    """Print the data folder of the release that `current` names now, where the gate is open (else as `gate`).
    A job resolves it once, and then reads one release, whatever is published later; with --job it is pinned,
    and the same one also when the job is started again."""
    reading = _reading(parsed, session)
    _warn_of_hold(reading.target)
    found, pin = _given(reading) if parsed.job else (_judged(reading), "")
    name = reading.dataset
    output.show_path(found.data)
    if pin:
        output.say(f"{name}: {pin}")
    session.receipt({"dataset": name, "release": found.release, "path": str(found.data), "pin": pin})
    return 0


def gate(parsed: argparse.Namespace, session: Session) -> int:
    """Exit 0 when a published, sealed release is there and no findings stand; FindingsError (4) when not."""
    if parsed.mend and parsed.root is not None:
        raise ConfigError(
            "the source stands in the configuration",
            where="--root",
            hint="use --config instead of --root, or leave --mend out",
        )
    reading = _reading(parsed, session)
    if parsed.parsable and not parsed.submit:
        submission.refuse_parsable()
    _warn_of_hold(reading.target)
    if parsed.mend:
        config = session.config()
        if parsed.submit:
            return submission.mend(parsed, session, config, reading.dataset)
        return _mended(parsed, session, config, reading)
    if parsed.sample is not None:
        raise ConfigError("--sample is about --mend", hint="give it with --mend")
    if parsed.submit:
        raise ConfigError("the gate alone needs no job: it takes less than a second", hint="give --mend, too")
    found = _judged(reading, within=parsed.audited_within)
    output.show(f"{reading.dataset}: {found.release} is published, in {found.data}")
    session.receipt({"dataset": reading.dataset, "release": found.release, "path": str(found.data)})
    return 0


def _mended(parsed: argparse.Namespace, session: Session, config: Config, reading: _Reading) -> int:
    from penstock.cluster.registry import open_cluster
    from penstock.core.audit_selection import Choice
    from penstock.steps import mending
    from penstock.views import findings_text

    name = reading.dataset
    local = replace(config.cluster, backend="local")
    with session.context(config) as context:
        wish = mending.Wish(
            choice=None if parsed.sample is None else Choice("sample", parsed.sample),
            within=parsed.audited_within,
            here=open_cluster(local, config.target.root, changed=context.stop.stir, warn=output.say),
            repair_there=parsed.backend is not None,
        )
        result = mending.run(context, name, wish)
    # Of what was looked at: `current` may lead elsewhere by now.
    _judged(reading, result["release"], parsed.audited_within)
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
        output.show(f"  {findings_text.also_repaired(release, count)}")
    for release, count in sorted(result["also_in"].items()):
        output.show(f"  {findings_text.also_in(release, count)}: `penstock audit {name} --release {release}`")
    session.receipt(result)
    return 0


class _Reading(NamedTuple):
    """The dataset that a reader asks for."""

    target: TargetConfig
    dataset: str
    grace: float
    """`gc.grace`; with --root its default."""

    @property
    def layout(self) -> DatasetLayout:
        from penstock.state.context import layout_of

        return layout_of(self.target, self.dataset)


def _reading(parsed: argparse.Namespace, session: Session) -> _Reading:
    """By the configuration, or with --root by what lies there. Raises ConfigError for a dataset that is not
    known."""
    if parsed.root is None:
        config = session.config()
        return _Reading(config.target, session.only(config, parsed.dataset), config.gc.grace)
    from penstock.catalogue import places
    from penstock.config.loader import target_at
    from penstock.config.settings import GcConfig
    from penstock.core.layout import DATASET_NAME

    target, name = target_at(parsed.root), parsed.dataset
    # Readers may enter some roots that they may not list: a name that is there is enough.
    there = name and DATASET_NAME.fullmatch(name) and os.path.lexists(target.root / name)
    known = [name] if there else places.datasets(target.root)
    if name and not there:
        raise ConfigError(
            f"no dataset is named {in_quotes(name)}{did_you_mean([name], known)}",
            where=str(target.root),
            hint=f"there are: {', '.join(known)}" if known else "there is none at all",
        )
    if len(known) != 1:
        raise ConfigError("which dataset?", hint=f"there are: {', '.join(known)}" if known else "none")
    return _Reading(target, known[0], GcConfig.grace)


def _warn_of_hold(target: TargetConfig) -> None:
    """Say what stands in `<root>/HOLD` and holds nobody."""
    from penstock.policy import hold

    if said := hold.warning(target.root):
        output.say(f"warning: {target.root / hold.NAME}: {said}")


def _judged(reading: _Reading, release: str | None = None, within: float | None = None) -> Published:
    """`release`, or the one that `current` names, where nothing stands against it. Raises as
    `gate.passed`."""
    from penstock.state.gate import passed

    return passed(reading.layout, release=release, within=within, owners=reading.target.owners)


def _given(reading: _Reading) -> tuple[Published, str]:
    """The release that this job was given first, else the one that `current` names; and its pin in words, ""
    where no space is left for one."""
    from penstock.retention import pins

    layout, judge = reading.layout, partial(_judged, reading)
    try:
        found, pin = pins.of_reader(layout, judge)
    except NoSpaceError as error:
        output.say(
            f"warning: {reading.dataset}: the release is not pinned: {error}\n"
            "  the command goes on without: the release stays while `current` names it, and for gc.grace "
            f"after that ({human.duration(reading.grace)}, or the longest time of a job), unless its owner "
            "removes it with --now; a job that is started again may be given a newer one"
        )
        given = pins.first(layout)
        return judge(given.release if given is not None else None), ""
    return found, pin.words()


def cancel(parsed: argparse.Namespace, session: Session) -> int:
    """End the arrays of the datasets' unfinished runs; what was copied stays and is resumed. A submitted
    controller that has not begun is ended where all of its datasets are cancelled; else it is named. With
    --root no configuration is needed, and no such controller is known."""
    from penstock.cli import catalogue_commands
    from penstock.config.settings import Config, DatasetConfig, TargetConfig
    from penstock.steps import cancellation, controller_job

    if parsed.root is None:
        config = session.config()
        names = session.names(config, parsed.dataset)
    elif parsed.dataset:
        names = [one.dataset for one in catalogue_commands.layouts(parsed, session, parsed.dataset)]
        config = Config(
            TargetConfig(parsed.root.absolute()), {name: DatasetConfig(name, ()) for name in names}
        )
    else:
        raise ConfigError("which dataset?", where="--root", hint="name those whose work is to end")
    ended: dict[str, list[str]] = {}
    with session.context(config) as context:
        for name in names:
            ended[name] = cancellation.run(context, name)
            output.show(f"{name}: {'; '.join(ended[name]) or 'nothing runs'}")
        jobs = {} if parsed.root else controller_job.waiting(context.cluster, session.file)
        for job, datasets in jobs.items():
            told = f"scancel {job} ends it, for {', '.join(datasets) or 'whatever it was submitted for'}"
            if datasets and {*datasets} <= {*names}:
                context.cluster.cancel(job)
                told = "ended"
            output.show(f"the submitted controller, job {job}, had not begun: {told}")
    session.receipt({"datasets": ended})
    return 0
