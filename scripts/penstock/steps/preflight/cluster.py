"""The cluster: what it allows, and by a job on a node what a node sees."""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING

from penstock.arrays.live_arrays import live_arrays
from penstock.cluster.port import Visit
from penstock.config.serialization import to_json
from penstock.core import events
from penstock.core.checks import CheckResult, told
from penstock.core.step_table import RUN_IN_ELEMENTS
from penstock.core.text import printable
from penstock.errors import TransientError
from penstock.steps.preflight import mounts
from penstock.steps.preflight.answers import roots
from penstock.views import human

if TYPE_CHECKING:
    from penstock.config.settings import DatasetConfig
    from penstock.core.layout import DatasetLayout
    from penstock.state.context import Context
    from penstock.steps.preflight.answers import Answers
    from penstock.steps.preflight.looks import Looks

STEP = "preflight"
VISIT_TIMEOUT = 15.0
"""Seconds without a byte after which a source counts as unreachable from a node. The probe job has a minute
for all."""
OF_THE_SHELL = frozenset(
    {
        "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE", "AWS_CA_BUNDLE", "AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "AWS_ENDPOINT_URL",
        "AZURE_STORAGE_KEY", "AZURE_STORAGE_CONNECTION_STRING", "GOOGLE_APPLICATION_CREDENTIALS",
        "KRB5CCNAME",
    }
)  # fmt: skip
"""Environment variables that let this shell open a source, and that do not reach a node."""


def check(context: Context, dataset: str, answers: Answers, looks: Looks) -> None:
    """Raises PreflightError or ConfigError for what the cluster, or a node of it, does not allow."""
    config, layout = context.dataset(dataset), context.layout(dataset)
    if answers.silent(*roots(layout)):
        # Arrays are noted on the target, and a node writes its answer there.
        looks.saw(CheckResult("cluster", "not looked at, since the target does not answer", "note"))
        return
    steps = [*RUN_IN_ELEMENTS, *context.config.cluster.on_nodes]
    met: list[str] = []
    if not context.cluster.abilities.elements_end_with_controller:
        # Where the cluster does not answer, `cluster.check` below reports that, in the words of preflight.
        with contextlib.suppress(TransientError):
            met = [one.array for one in live_arrays(context, dataset) if not one.elsewhere]
    if met:
        context.emit(events.Noted(dataset, STEP, f"array {', '.join(met)} lives: no probe is sent to a node"))
    warnings = context.cluster.check(steps, _visit(context, config, layout, answers), met=bool(met))
    at_once = human.counted(context.cluster.slots("copy"), "element")
    looks.saw(CheckResult("cluster", f"{context.cluster.kind}, {at_once} at once"))
    looks.saw(*(CheckResult("cluster", printable(text), "warning") for text in warnings))


def _visit(context: Context, config: DatasetConfig, layout: DatasetLayout, answers: Answers) -> Visit:
    """The command that opens the dataset's sources on a node, and judges its mounts: profiles, routes and
    mounts may differ from this machine's."""
    target = context.config.target
    given = {
        "dataset": to_json(config),
        "timeout": min(context.config.engine.timeout, VISIT_TIMEOUT),
        "target": to_json(target),
        "kind": mounts.kind(target, answers),
        "known": [told(one) for one in mounts.found(target, config, answers)],
    }
    unknown = sorted(name for name in os.environ if name.upper() in OF_THE_SHELL)
    hint = (
        "profiles, credential files, mounts and routes must be on the nodes as here; "
        "or name a partition whose nodes have them"
    )
    if unknown:
        hint += f" (nothing of this shell reaches a node, also not {', '.join(unknown)})"
    folder = layout.root if layout.root.is_dir() else layout.root.parent
    return Visit(("visit",), json.dumps(given, ensure_ascii=True), folder, hint)
