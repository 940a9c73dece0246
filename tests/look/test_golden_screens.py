"""What commands print for people and for programs, word by word, of the fixed results in `golden_values`: a
change of the code leaves `golden_screens.txt` as it is. A line that has a style begins with it.

`python -m tests.look.test_golden_screens` writes `golden_screens.txt` anew.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import tempfile
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.look import golden_values as values

from penstock.cli import output
from penstock.cli.commands import (
    audits,
    comparisons,
    releases,
    single_steps,
    stagings,
)
from penstock.cli.commands import single_steps as listing
from penstock.cli.session import Session
from penstock.core import findings
from penstock.core.run_steps import Ended
from penstock.jobs.bandwidth import Cap, Overview
from penstock.jobs.shares import HolderShare
from penstock.look import explanation, status_report
from penstock.look.views import html_report, run_summary, text_layout
from penstock.look.views.line_view import JsonLines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from penstock.look.views.text_layout import Line

GOLDEN = Path(__file__).with_name("golden_screens.txt")
TITLE = "=== "
RUN_ROWS = [
    run_summary.Row(
        "a", run_summary.READY, "published", "", 310 << 30, 1229 << 30, 840, "cold; carried: oldest 19 d"
    ),
    run_summary.Row("a-longer-name", run_summary.FAILED, "FAILED", values.WORDS, seconds=2.0),
    *(run_summary.Row(f"b{number}", run_summary.FAILED, "FAILED", "busy") for number in range(7)),
    run_summary.Row("c", run_summary.DAMAGED, "DAMAGED", "a file is missing", proof="of 14 Nov"),
    run_summary.Row("d", run_summary.STOPPED, "stopped"),
]


def shown(lines: Iterable[Line]) -> str:
    return "".join(f"{f'<{line.style}> ' if line.style else ''}{line.text}\n" for line in lines)


def differences(result: Any, rows: Iterable[Any] = ()) -> str:
    lines = [*comparisons.summary(result), *map(comparisons.row, rows)]
    return shown([*lines, comparisons.more("unproven", 1234)] if rows else lines)


def styled(render: Callable[..., Iterable[Line]], value: Any, **more: int) -> str:
    return shown(render(value, **more))


def usage(told: Any) -> str:
    shown = [*run_summary.rows(told), *run_summary.worst(told), *run_summary.sources(told)]
    return "".join(f"{row}\n" for row in [*shown, *run_summary.summary_lines(told)])


def check_rows(title: str, rows: Sequence[Any]) -> str:
    """As a command shows them: with commands that can be pasted."""
    output.called_as("penstock")
    return printed(partial(output.show_checks, title, rows))


def printed(write: Callable[[], None]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as stream:
        write()
    return stream.getvalue()


def line_of_json(result: Any) -> str:
    """What `--json` prints, and `--receipt` writes."""
    line = printed(partial(output.show_json, result))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "receipt.json")
        Session.receipt(SimpleNamespace(parsed=SimpleNamespace(receipt=path)), result)  # type: ignore[arg-type]
        assert json.loads(path.read_bytes()) == json.loads(line)
    return line


def event(result: Any) -> str:
    """What `--progress json` prints of a step that ended."""
    stream = io.StringIO()
    view = JsonLines(stream)
    view(Ended("imagenet", "preflight", result))
    view.close()
    return json.dumps(json.loads(stream.getvalue())["data"], sort_keys=True) + "\n"


def in_page(result: Any) -> str:
    """The JSON in the report."""
    page = re.search(
        r"<script type=\"application/json\"[^>]*>(.*?)</script>", html_report.render(result), re.DOTALL
    )
    assert page is not None
    return json.dumps(json.loads(page[1]), sort_keys=True) + "\n"


def screens() -> Mapping[str, Callable[[], str]]:
    """By title what prints each."""
    cap = Cap(125_000_000, None)
    held = Overview(
        cap,
        "it is torn",
        "write it anew",
        [HolderShare(0.75, "ann on n1"), HolderShare(0.25, "ben")],
    )
    texts: dict[str, Callable[[], str]] = {
        f"plan, {name}": partial(styled, explanation.render_plan, value)
        for name, value in values.EXPLANATIONS.items()
    }
    for title, render, rich, poor in (
        ("status", stagings.render_status, values.STATUS, values.NO_STATUS),
        ("releases", releases.render_releases, values.DATASETS, []),
        ("show", releases.render_release, values.SHOWN, values.BARELY_SHOWN),
        ("history", releases.render_history, values.HISTORIES, values.NO_HISTORY),
        ("history, cut", partial(releases.render_history, limit=3), values.HISTORIES, values.NO_HISTORY),
        ("du", releases.render_use, values.USES, values.NO_USES),
    ):
        texts |= {
            f"{title}, rich": partial(styled, render, rich),
            f"{title}, poor": partial(styled, render, poor),
        }
        if render is not stagings.render_status:
            texts[f"{title}, rich and wide"] = partial(styled, render, rich, columns=120)
    for title, render, rich, poor in (
        ("audit", audits.render_audit, values.AUDITED, values.CLEAN),
        ("repair", audits.render_repair, values.REPAIRED, values.NOT_REPAIRED),
        ("overruling", audits.overruled, values.OVERRULED, {**values.OVERRULED, "counts": {}}),
        ("gc in a pipe", text_layout.collected, values.COLLECTED, values.NOT_COLLECTED),
        (
            "gc on a terminal",
            partial(text_layout.collected, columns=80),
            values.COLLECTED,
            values.NOT_COLLECTED,
        ),
        ("adopt", comparisons.comparison, values.ADOPTED, values.NOT_ADOPTED),
        ("adopt --seal", comparisons.sealed, values.SEALED, values.BARELY_SEALED),
        ("list", listing.render_listing, values.LISTED, values.LISTED_BEFORE),
        ("plan", single_steps.render_plan, values.PLANNED, values.PLANNED_BEFORE),
        ("dry run", text_layout.preview, values.PREVIEWS, {"datasets": {}}),
        ("usage", usage, values.USAGE, values.NO_USAGE),
        ("summary", run_summary.render, values.RESULT, values.NO_RESULT),
        ("last audit", lambda audit: text_layout.last(audit) + "\n", values.CLOSED, values.OPEN),
    ):
        texts |= {f"{title}, rich": partial(render, rich), f"{title}, poor": partial(render, poor)}
    for title, columns, rows in (
        ("rich", 80, values.STATUS),
        ("rich and wide", 140, values.STATUS),
        ("poor", 80, values.NO_STATUS),
    ):
        texts[f"status of all, {title}"] = lambda columns=columns, rows=rows: shown(
            status_report.render_table(rows, "/t", 3 << 40, values.NOW, columns)
        )
    texts |= {
        "diff, rich": partial(differences, values.DIFF, values.DIFF_ROWS),
        "diff, poor": partial(differences, values.SAME),
        "checks, rich": partial(text_layout.plain_checks, "imagenet", values.CHECKS),
        "checks, rich and wide": partial(text_layout.plain_checks, "imagenet", values.CHECKS, 120),
        "checks, poor": partial(text_layout.plain_checks, "imagenet", []),
        "checks, as printed": partial(check_rows, "imagenet", values.CHECKS),
        "run table, rich": lambda: shown(
            run_summary.ending(RUN_ROWS, 3, again="penstock run b", report="r.html")
        ),
        "run table, poor": lambda: shown(run_summary.ending(RUN_ROWS[:1], 0, again="", report="")),
        "limit, rich": lambda: stagings.render_limit(held, Cap(None, 7), Cap(125_000_000, 7)) + "\n",
        "limit, poor": lambda: stagings.render_limit(Overview(Cap(), "", "", []), Cap(), Cap()) + "\n",
        "carried, rich": lambda: text_layout.carried(values.SHOWN["seal"]["carried"]) + "\n",
        "carried, poor": lambda: text_layout.carried({}) + "\n",
        "repair of others": lambda: "".join(
            f"{words('r2', count)}\n"
            for words in (findings.also_repaired, findings.also_in)
            for count in (1, 1234)
        ),
    }
    for title, rich, poor in (
        ("status", values.STATUS[0], values.NO_STATUS[0]),
        ("releases", values.DATASETS[0], values.DATASETS[1]),
        ("show", values.SHOWN, values.BARELY_SHOWN),
        ("du", values.USES[0], values.NO_USES[0]),
        ("diff", values.DIFF, values.SAME),
        ("preflight", values.PREFLIGHT, values.NO_CHECKS),
        ("audit", values.AUDITED, values.CLEAN),
        ("repair", values.REPAIRED, values.NOT_REPAIRED),
        ("gc", values.COLLECTED, values.NOT_COLLECTED),
        ("adopt", values.ADOPTED, values.NOT_ADOPTED),
        ("adopt --seal", values.SEALED, values.BARELY_SEALED),
        ("list", values.LISTED, values.LISTED_BEFORE),
        ("plan", values.PLANNED, values.PLANNED_BEFORE),
        ("dry run", values.PREVIEWS, {"datasets": {}}),
        ("report", values.RESULT, values.NO_RESULT),
    ):
        texts |= {
            f"{title} --json, rich": partial(line_of_json, rich),
            f"{title} --json, poor": partial(line_of_json, poor),
        }
    texts["a difference of adopt --json"] = partial(line_of_json, values.ADOPTED["differences"][2])
    texts["an event of --progress json"] = partial(event, values.PREFLIGHT)
    texts["the JSON in a report, rich"] = partial(in_page, values.RESULT)
    texts["the JSON in a report, poor"] = partial(in_page, values.NO_RESULT)
    return texts


SCREENS = screens()


def golden() -> dict[str, str]:
    parts = re.split(rf"^{TITLE}(.*)\n", GOLDEN.read_text(), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


@pytest.mark.parametrize("title", SCREENS)
def test_a_screen_has_the_words_that_it_had(title: str) -> None:
    assert SCREENS[title]() == golden()[title]


def test_each_screen_that_was_is_one_still() -> None:
    assert list(SCREENS) == list(golden())


if __name__ == "__main__":
    GOLDEN.write_text("".join(f"{TITLE}{title}\n{text()}" for title, text in SCREENS.items()))
