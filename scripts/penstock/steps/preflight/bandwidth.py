"""The folder of the link that all runs share: whether elements can use it, and whose its cap is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.bandwidth.cap_file import Cap
from penstock.bandwidth.folder import looked_at
from penstock.bandwidth.overview import overview
from penstock.core.checks import CheckResult
from penstock.core.text import printable
from penstock.views import human

if TYPE_CHECKING:
    from penstock.bandwidth.overview import Overview
    from penstock.config.settings import BandwidthConfig
    from penstock.state.context import Context
    from penstock.steps.preflight.answers import Answers
    from penstock.steps.preflight.looks import Looks


def check(context: Context, answers: Answers, looks: Looks) -> None:
    """Raises PreflightError for a folder that cannot be read or written."""
    config = context.config.bandwidth
    if config.folder is None:
        return
    answers.require(config.folder, "the bandwidth folder")
    looked_at(config.folder)
    looks.saw(
        *judged(config, overview(config.folder)),
        what="the bandwidth cap is not in order",
        where=printable(str(config.folder)),
    )


def judged(config: BandwidthConfig, seen: Overview) -> list[CheckResult]:
    """
    | the cap file                     | `bandwidth.link` | result                          |
    |----------------------------------|------------------|---------------------------------|
    | is not the administrator's alone,|                  | stop, with what to do           |
    | or makes no sense                |                  |                                 |
    | says a rate, or there is none    | given            | ok, with the lower one          |
    | says a rate                      | not given        | ok                              |
    | says none, or there is none      | not given        | warning: nothing bounds the link|
    """
    if seen.wrong:
        mend = "have its owner correct it: penstock limit RATE"
        return [CheckResult("bandwidth cap", seen.wrong, "stop", "a cap of the administrator's alone", mend)]
    cap = Cap(config.rate, config.requests).lower(seen.said)
    if cap.rate is None and cap.requests is None:
        found = "neither `bandwidth.link` nor the cap file sets one: elements read as fast as they can"
        return [
            CheckResult("bandwidth cap", found, "warning", mend="penstock limit RATE, or `bandwidth.link`")
        ]
    rate = "no cap" if cap.rate is None else human.rate(cap.rate)
    requests = "" if cap.requests is None else f", {human.counted(cap.requests, 'request')} a second"
    holders = sum(not one.ended for one in seen.held)
    found = f"{rate}{requests}, {human.counted(holders, 'element')} with a part of it now"
    return [CheckResult("bandwidth cap", found)]
