"""`penstock status`: a table of all datasets, or details of some."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.cli import flags, output
from penstock.cli.command_table import CommandFunctions
from penstock.core import human
from penstock.core.errors import FindingsError, PreflightError

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from penstock.cli.session import Session
    from penstock.core.step_results import StatusResult
    from penstock.dataset.context import Context
    from penstock.look.views.text_layout import Line

EXAMPLES = ("penstock status", "penstock status imagenet --progress json")


def arguments(parser: argparse.ArgumentParser) -> None:
    flags.datasets(parser)


def run(parsed: argparse.Namespace, session: Session) -> int:
    """Show what is published and under way. Returns 4 where a dataset is damaged, as `gate` would; else 3
    where nothing of one can be seen."""
    from penstock.dataset import gate
    from penstock.look import status_report as step

    config = session.config()
    names = session.names(config, parsed.dataset)
    with session.context(config) as context:
        jobs = _submitted(context, session.file)

        def state(name: str) -> StatusResult:
            return step.run(context, name, None if jobs is None else jobs.get(name, ""))

        results, code = session.apart(names, state)
    session.receipt(
        results[0] if len(results) == 1 else {"datasets": {result["dataset"]: result for result in results}}
    )

    def lines(columns: int) -> list[Line]:
        return render(results) if parsed.dataset else _table(results, config.target.root, columns)

    session.show_rows(results, lines, hints=True)
    if any(
        {result["state"], result.get("work", {}).get("state")}.intersection(gate.BAD) for result in results
    ):
        return FindingsError.exit_code
    unseen = any(result["state"] == gate.UNREADABLE and "current" not in result for result in results)
    return code or (PreflightError.exit_code if unseen else 0)


def _table(results: Sequence[StatusResult], root: Path, columns: int) -> list[Line]:
    from penstock.fs import capabilities
    from penstock.look.views import status_table

    free = None
    with contextlib.suppress(OSError):
        free = capabilities.facts(root).free_bytes
    return status_table.render(results, str(root), free, time.time(), columns)


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


def render(results: Sequence[StatusResult]) -> list[Line]:
    from penstock.core.findings import AuditShown
    from penstock.core.human import TEXT, brief
    from penstock.jobs.dataset_state import ENDED
    from penstock.look.views import result_texts, text_layout
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
                    text = result_texts.last(value)
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


STATUS = CommandFunctions(arguments, run, EXAMPLES)
