"""The known ceilings of a dataset's copies, the time a copy takes by them, and how many shards its rows get.

They come from the configuration, the newest release's copy or rehearsal, the link's cap file, and this
machine.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from penstock.core.balance import Decision, Load, decide
from penstock.core.estimates import (
    ASSUMED,
    Known,
    Rate,
    Work,
    forecast,
    sentence,
)
from penstock.core.step_table import BY_NAME
from penstock.dataset.context import operations
from penstock.host import machine_settings
from penstock.jobs.bandwidth.folder import cap_now
from penstock.jobs.forecast import cost_rate, element_rate, element_rates

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.config.run_config import RunConfig
    from penstock.config.settings import Config
    from penstock.core.estimates import Rates
    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context
    from penstock.jobs.forecast import Totals

LOCAL = "local"  # the backend whose elements all run on this machine
MEASURED_HERE = "the target just now"
NO_RATES: Mapping[str, float] = MappingProxyType({})
OF_ELEMENTS = ("bytes", "files")  # ceilings that an earlier copy showed, or that are assumed


def known(config: Config, layout: DatasetLayout, tried: Mapping[str, float] = NO_RATES) -> dict[str, Known]:
    """Return the ceilings by short names (those of `--assume`); unreadable ones are left out. `tried`: rates
    that plan's probe measured on the target."""
    return _ceilings(config, element_rates(layout, tried))


def _ceilings(config: Config, rates: Rates) -> dict[str, Known]:
    ceilings = {}
    cap = cap_now(config.bandwidth)
    if cap.rate:
        ceilings["link"] = Known("network link", "all", Rate(cap.rate, "bandwidth cap"))
    if cap.requests:
        ceilings["requests"] = Known(
            "requests to sources", "all", Rate(cap.requests, "bandwidth cap"), "files"
        )
    if limit := config.engine.limit:
        ceilings["limit"] = Known("engine.limit", "node", Rate(limit, "configured"))
    if ops := operations(config.target):
        ceilings["metadata"] = Known("target's metadata", "all", Rate(ops, "target.ops"), "operations")
    if speed := machine_settings.network_speed():
        # Compute nodes are assumed to have this machine's network devices.
        local = config.cluster.backend == LOCAL
        ceilings["nic"] = Known("nodes' networks", "all" if local else "node", Rate(speed, "this machine"))
    origin = rates.origin or ASSUMED
    ceilings["bytes"] = Known("elements (bytes)", "node", Rate(rates.bytes_per_second, origin))
    if not rates.measured and rates.tried:
        origin = MEASURED_HERE
    ceilings["files"] = Known("elements (files)", "node", Rate(rates.files_per_second, origin), "files")
    return ceilings


def copy_time(
    config: Config,
    layout: DatasetLayout,
    totals: Totals,
    at_once: int,
    tried: Mapping[str, float] = NO_RATES,
) -> str:
    """Describe how long the copy of these files will take with so many elements at once, and what binds it.
    `tried` as in `known`. Each element makes its links before it copies."""
    rates = element_rates(layout, tried)
    files, size = totals.to_copy
    work = Work(files + totals.own_files, size + totals.own_bytes)
    outlook = forecast(work, at_once, _ceilings(config, rates).values())
    links = totals.unchanged - totals.own_files
    return sentence(outlook, at_once, links / rates.links_per_second / max(1, at_once) if links else 0.0)


def shards(
    context: Context, layout: DatasetLayout, settings: Config | RunConfig, load: Load, *steps: str
) -> Decision:
    """Decide how many shards these rows get, and why. All `steps` share them, in this order."""
    slots, limit = context.cluster.slots(steps[0]), None
    if BY_NAME[steps[0]].copies:
        limit = element_rate(settings.engine.limit, cap_now(context.config.bandwidth).rate, slots)
    return decide(
        load,
        shard_bytes=settings.plan.shard_bytes,
        shard_files=settings.plan.shard_files,
        slots=max(map(context.cluster.slots, steps)),
        rate=cost_rate(layout, load, limit),
    )
