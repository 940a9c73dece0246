"""`penstock preflight`: checks what would stop a run before it begins, and prints a table of all checks.

`doctor.preflight_step` uses the network, runs commands of vendors, SLURM and ssh-keygen, and submits
one-second SLURM jobs to up to four nodes. Nothing is staged. It removes what it makes: a trial lock, a mark
in `bandwidth.folder`, answers of nodes in the target, files in TMPDIR.

With --site (the site's file), --sysctl or --kernel-cmdline (this host's settings beside vendors' tables) it
looks at this machine alone, and changes nothing.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli import flags, output, step_runner
from penstock.cli.command_table import CommandFunctions
from penstock.config import command_options
from penstock.core.errors import ConfigError
from penstock.core.human import in_quotes
from penstock.workflow.workflow_receipts import RESULTS, published_before

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.cli.session import Session
    from penstock.core.run_steps import CheckResult
    from penstock.core.step_results import PreflightResult

EXAMPLES = ("penstock preflight", "penstock preflight --sysctl netapp-100g")


def arguments(parser: argparse.ArgumentParser) -> None:
    flags.datasets(parser)
    parser.add_argument(
        "--json", action="store_true", help="print all that was looked at as JSON, a line a dataset"
    )
    parser.add_argument(
        "--site", type=Path, nargs="?", const=command_options.SITE, metavar="FILE",
        help=f"look at the site's file alone, or at a draft of it (default: {command_options.SITE}), and "
        "print what it binds; needs no configuration",
    )  # fmt: skip
    parser.add_argument(
        "--sysctl", type=_sysctl_profile, metavar="PROFILE",
        help="look at this host alone: compare its kernel parameters with a vendor's table (netapp-100g, "
        "netapp-xcp-docs) and print a drop-in for /etc/sysctl.d; writes nothing",
    )  # fmt: skip
    parser.add_argument(
        "--kernel-cmdline", action="store_true",
        help="look at this host alone: what is recommended for hosts with WEKA's client",
    )  # fmt: skip


def _sysctl_profile(text: str) -> str:
    from penstock.host.machine_settings import PROFILES

    if text not in PROFILES:
        raise argparse.ArgumentTypeError(f"{in_quotes(text)} is none of {', '.join(PROFILES)}")
    return text


def run(parsed: argparse.Namespace, session: Session) -> int:
    """Check each dataset, then print a table or lines of JSON. The result goes to --receipt where nothing
    stops the run; it is then printed with --json only. Returns the first failure's exit status; an only
    dataset's error is raised after its table."""
    if parsed.site is not None:
        return _site(parsed, session)
    if parsed.sysctl is not None or parsed.kernel_cmdline:
        return _host(parsed, session)
    from penstock.doctor import preflight_step

    config = session.config()
    names = session.names(config, parsed.dataset)
    step_runner.one_receipt(parsed, names)
    with session.context(config) as context:
        # `before` is an earlier receipt of publish; if there is one, an empty target counts as not mounted.
        looked = {
            name: preflight_step.look(context, name, before=published_before(RESULTS, context.layout(name)))
            for name in names
        }
    code = 0
    # The display is closed, so results can be printed.
    for name, (result, error) in looked.items():
        if error is None:
            session.receipt(result)
        if parsed.receipt is None or parsed.json:
            _show(session, result)
        if error is not None:
            if len(names) == 1:
                step_runner.add_name(error, name, config)
                raise error
            output.say(f"{name}: {error}")
            code = code or error.exit_code
    return code


def _site(parsed: argparse.Namespace, session: Session) -> int:
    """Print what the site's file binds. Needs no configuration. Raises ConfigError with the line of each
    mistake, and for a missing file."""
    from penstock.config import loader
    from penstock.config.site import FILE
    from penstock.doctor import preflight_requirements

    if parsed.dataset:
        raise ConfigError("--site is about the site's file, not a dataset", hint="leave the dataset out")
    draft = None if parsed.site == command_options.SITE else parsed.site.absolute()
    site, path = loader.site_file(draft), draft or FILE
    if site is None and draft is not None:
        raise ConfigError("there is no such file", where=str(path), hint="correct the path after --site")
    rows = [] if site is None else list(preflight_requirements.site_rows(site))
    document = {"file": str(path), "results": rows}
    session.receipt(document)
    if parsed.json:
        output.show_json(document)
    elif rows:
        output.show_checks(str(path), rows)
    else:
        output.show(f"{path}: {'not there' if site is None else 'empty'}: it binds nothing")
    return 0


def _host(parsed: argparse.Namespace, session: Session) -> int:
    """Compare this host's settings with the requested tables; return 0 also where they differ. Needs no
    configuration."""
    from penstock.host import machine_settings

    if parsed.dataset:
        raise ConfigError(
            "--sysctl and --kernel-cmdline look at this host, not at a dataset", hint="leave the dataset out"
        )
    host = os.uname().nodename
    document: dict[str, object] = {"host": host}
    if parsed.sysctl is not None:
        profile = machine_settings.PROFILES[parsed.sysctl]
        results = machine_settings.sysctl_results(profile)
        text, place = machine_settings.drop_in(profile, results), machine_settings.drop_in_path(profile)
        document["sysctl"] = {
            "profile": profile.name,
            "source": profile.source,
            "results": results,
            "drop_in": text,
            "path": place,
        }
        if not parsed.json:
            _show_profile(f"{host}, {profile.name}: {profile.source}", results)
            if text:
                output.show(f"\n# {place} (to apply it: sysctl --system)\n{text}\n")
    if parsed.kernel_cmdline:
        rows = machine_settings.kernel_results()
        document["kernel"] = {"results": rows}
        if not parsed.json:
            output.show_checks(f"{host}: the kernel's command line, for WEKA's client", rows)
    session.receipt(document)
    if parsed.json:
        output.show_json(document)
    return 0


def _show_profile(title: str, results: Sequence[CheckResult]) -> None:
    """Print values that differ from the profile, and count the others."""
    wrong = [check for check in results if check.verdict != "ok"]
    if wrong:
        output.show_checks(title, wrong)
    else:
        output.show(title)
    output.show(f"  {len(results) - len(wrong)} of {len(results)} values are as wanted")


def _show(session: Session, result: PreflightResult) -> None:
    if session.as_json:
        output.show_json(result)
    else:
        output.show_checks(result["dataset"], result["results"])


PREFLIGHT = CommandFunctions(arguments, run, EXAMPLES)
