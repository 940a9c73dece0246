"""Commands for a new site or machine: `penstock init` writes a configuration, `preflight` checks what would
stop a run before it begins, and `selftest` tries what a folder's file system does.
"""

from __future__ import annotations

import argparse
import os
import select
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli import flags, output, step_runner
from penstock.cli.command_table import CommandFunctions
from penstock.config import command_options, validation
from penstock.config.source_kinds import kind, no_path, scheme
from penstock.core.errors import ConfigError
from penstock.core.human import in_quotes, printable
from penstock.workflow.workflow_receipts import RESULTS, published_before

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence

    from penstock.cli.session import Session
    from penstock.config.settings import ClusterConfig
    from penstock.core.run_steps import CheckResult
    from penstock.core.step_results import PreflightResult
    from penstock.doctor.new_configuration import Asked, Proposed


# `penstock init` asks on a terminal for what it cannot find out.

INIT_EXAMPLES = (
    "penstock init /nfs/imagenet /beegfs/datasets",
    "penstock init s3://bucket/imagenet/ /beegfs/datasets --profile staging",
)
SUCH_AS = {"SOURCE": "s3://bucket/imagenet/", "TARGET": "/beegfs/datasets"}
ALL = 0o666
# {key of `storage_options`: option of this command}
OPTIONS = {"endpoint_url": "--endpoint", "anon": "--anon", "profile": "--profile"}


def init_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", nargs="?", metavar="SOURCE", help="what is staged: a folder or a URL (default: asked for)"
    )
    parser.add_argument(
        "target", nargs="?", metavar="TARGET",
        help="the folder below which datasets are published (default: asked for)",
    )  # fmt: skip
    parser.add_argument(
        "--name", metavar="NAME", help="the dataset's name (default: made of SOURCE's last folder)"
    )
    parser.add_argument("--endpoint", metavar="URL", help="of an object store: its server")
    keys = parser.add_mutually_exclusive_group()
    keys.add_argument("--anon", action="store_true", help="of a public bucket: requests are not signed")
    keys.add_argument("--profile", metavar="NAME", help="of S3: the profile of ~/.aws that has the keys")


def run_init(parsed: argparse.Namespace, session: Session) -> int:
    """Write the configuration where it will be read, whole, with the umask's mode. Raises ConfigError where a
    file exists already, and for what cannot be configured; then nothing is written."""
    path = command_options.to_write(parsed.config)
    _refuse_present(path)
    before = command_options.chosen(parsed.config)
    asked = _asked(parsed, session)
    output.without_input()
    proposed = _proposed(asked, path)
    _write_configuration(path, proposed.text)
    file, notes = proposed.file, list(proposed.notes)
    if before is not None and before != path:
        notes.append(f"{before} counts no more in this folder: {path} goes before it")
    result = {
        "file": str(path.absolute()),
        "dataset": file.dataset,
        "source": file.source,
        "target": file.root,
        "readers": proposed.readers.found,
        "cluster": {line.key: line.value for line in file.cluster},
        "notes": notes,
    }
    session.receipt(result)
    if session.as_json:
        output.show_json(result)
    else:
        parsed.backend = None  # the file names the backend now, so the next commands need no option
        _show_proposed(proposed, notes, path, session.program)
    return 0


def _refuse_present(path: Path) -> None:
    if os.path.lexists(path):
        raise ConfigError(
            "there is a configuration already, and it stays as it is",
            where=str(path.absolute()),
            hint="change that file, move it away, or name another one by --config FILE",
        )


def _asked(parsed: argparse.Namespace, session: Session) -> Asked:
    """Return what was asked for. Raises ConfigError for missing values and secrets."""
    from penstock.doctor.new_configuration import Asked

    answers = {"SOURCE": parsed.source, "TARGET": parsed.target}
    missing = [name for name, value in answers.items() if not value]
    if missing and sys.stdin.isatty() and sys.stderr.isatty():
        answers |= {name: _answer(name, session) for name in missing}
        missing = [name for name in missing if not answers[name]]
    if missing:
        raise ConfigError(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing",
            hint=f"`penstock init SOURCE TARGET`, such as `penstock init {' '.join(SUCH_AS.values())}`",
        )
    for what, text in answers.items():
        _require(what, text)
    if why := validation.in_url(parsed.endpoint or ""):
        raise ConfigError(f"--endpoint {why}", hint=validation.HINT)
    source, target = answers["SOURCE"], answers["TARGET"]
    given_options = {"endpoint_url": parsed.endpoint, "anon": parsed.anon, "profile": parsed.profile}
    options = {key: value for key, value in given_options.items() if value}
    if unfit := [OPTIONS[key] for key in options if _is_unknown(key, source)]:
        raise ConfigError(
            f"{' and '.join(unfit)} {'says' if len(unfit) == 1 else 'say'} nothing of {in_quotes(source)}",
            hint="leave that out, or correct SOURCE; `penstock init --help` says of which stores it is",
        )
    return Asked(_whole(source), _absolute(target), options, parsed.name or "", parsed.backend or "")


def _require(what: str, text: str) -> None:
    """Raise ConfigError for an impossible SOURCE or TARGET, a missing source, and secrets."""
    from penstock.doctor import new_configuration

    source = what == "SOURCE"
    if why := validation.in_url(text):
        raise ConfigError(f"{what} {why}", hint=validation.HINT)
    if why := no_path(text, source=source):
        raise ConfigError(f"{what} {in_quotes(text)} {why}", hint="write that in its place")
    if source:
        new_configuration.require_source(_whole(text))
    elif scheme(text):
        raise ConfigError(
            f"TARGET {in_quotes(text)} is no folder",
            hint=f"name the folder below which datasets are published, such as {SUCH_AS['TARGET']}",
        )


def _is_unknown(key: str, source: str) -> bool:
    """Return whether sources of this kind have no such option. fsspec's may have any."""
    of = kind(source, {})
    return of.options is not None and key not in validation.known(of)


def _whole(source: str) -> str:
    """Keep a URL as it is; make a path absolute."""
    return source if scheme(source) else str(_absolute(source))


def _absolute(folder: str) -> Path:
    """Make a folder absolute without its leading `..`; later ones may follow links."""
    # The path stays unchanged if there is no such home.
    place, below = Path.cwd(), Path(os.path.expanduser(folder))
    while below.parts[:1] == ("..",):
        place, below = place.parent, below.relative_to("..")
    return place / below


def _answer(what: str, session: Session) -> str:
    """Ask until the answer can be used; "" for none. Raises KeyboardInterrupt by Ctrl-C."""
    while text := _typed(what, session):
        try:
            _require(what, text)
        except ConfigError as error:
            output.say(str(error))
        else:
            break
    return text


def _typed(what: str, session: Session) -> str:
    """Read a line of the terminal, "" at its end. Raises KeyboardInterrupt by Ctrl-C."""

    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    session.on_stop = interrupted
    try:
        sys.stderr.write(f"{what}, such as {SUCH_AS[what]}: ")
        sys.stderr.flush()
        # A signal right before a read begins does not interrupt it.
        while not select.select([sys.stdin], [], [], 0.5)[0]:
            pass
        return sys.stdin.readline().strip()
    finally:
        session.on_stop = None


def _proposed(asked: Asked, path: Path) -> Proposed:
    from penstock.doctor import new_configuration

    try:
        return new_configuration.propose(asked, path)
    except ConfigError as error:
        raise ConfigError(
            "nothing was written: this makes no configuration that can be used",
            why=f"\n  {error.what}",
            hint=error.hint or "correct SOURCE, TARGET or the option that is named",
        ) from None


def _write_configuration(path: Path, text: str) -> None:
    from penstock.config import loader
    from penstock.fs import small_files
    from penstock.host import kernel_facts

    umask = kernel_facts.umask() or 0
    try:
        made = small_files.create_file(path, text.encode(), mode=ALL & ~umask)
    except FileNotFoundError:
        raise ConfigError(
            "the folder of the configuration is not there",
            where=str(path.absolute().parent),
            hint="make it, or name another file by --config FILE",
        ) from None
    if not made:
        _refuse_present(path)
    loader.load(path)


def _show_proposed(proposed: Proposed, notes: Sequence[str], path: Path, program: str) -> None:
    file = proposed.file
    cluster = ", ".join(f"{line.key} {line.value}" for line in file.cluster)
    output.show(f"wrote {printable(str(path.absolute()))}")
    output.show(f"  dataset   {file.dataset}, from {printable(file.source)}")
    output.show(f"  target    {printable(file.root)}: {file.target_is}")
    output.show(f"  readers   {proposed.readers.found}")
    if proposed.readers.mend:
        output.show(f"            {proposed.readers.mend}")
    output.show(f"  cluster   {cluster.removeprefix('backend ')}")
    for note in notes:
        output.show(f"  note      {printable(note)}")
    output.show(f"next: {program} preflight    tries all of it, and changes nothing")
    output.show(f"      {program} run")


INIT = CommandFunctions(init_arguments, run_init, INIT_EXAMPLES)


# `penstock preflight`: checks what would stop a run before it begins, and prints a table of all checks.
#
# `doctor.preflight_step` uses the network, runs commands of vendors, SLURM and ssh-keygen, and submits
# one-second SLURM jobs to up to four nodes. Nothing is staged. It removes what it makes: a trial lock, a mark
# in `bandwidth.folder`, answers of nodes in the target, files in TMPDIR.

PREFLIGHT_EXAMPLES = ("penstock preflight", "penstock preflight --sysctl netapp-100g")


def preflight_arguments(parser: argparse.ArgumentParser) -> None:
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


def run_preflight(parsed: argparse.Namespace, session: Session) -> int:
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
            _show_preflight(session, result)
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


def _show_preflight(session: Session, result: PreflightResult) -> None:
    if session.as_json:
        output.show_json(result)
    else:
        output.show_checks(result["dataset"], result["results"])


PREFLIGHT = CommandFunctions(preflight_arguments, run_preflight, PREFLIGHT_EXAMPLES)


# `penstock selftest`: tries what a folder's file system does, and prints a table for its administrator.
#
# `doctor.selftest` works in a hidden folder of that folder and one in TMPDIR, both removed at the end.
# It takes at most 1 GiB and ten minutes; with SLURM, two nodes take part.

# Exit status if a check's result is not as wanted by the file system's row in `fs.kinds`, or by penstock.
CONTRADICTED = 4

SELFTEST_EXAMPLES = ("penstock selftest /beegfs/datasets", "penstock selftest --json")


def selftest_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", type=Path, nargs="?", metavar="FOLDER", help="default: target.root of the configuration"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON, not as a table")
    parser.add_argument(
        "--fill-quota", action="store_true",
        help="fill the folder's own quota for a moment: no one else can write there meanwhile",
    )  # fmt: skip


def run_selftest(parsed: argparse.Namespace, session: Session) -> int:
    """Return 0 or CONTRADICTED. Raises as `_folder`, where nothing can be made in the folder, or where
    `--fill-quota` finds no own quota."""
    from penstock.cluster.registry import start_together
    from penstock.core import human
    from penstock.doctor import selftest, selftest_two_nodes

    folder, cluster = _folder(parsed, session), _cluster(parsed, session)

    def report(stage: str) -> None:
        if parsed.progress != "off" and sys.stderr.isatty():
            output.say(f"selftest: {stage} ...")

    def start_peers(place: Path) -> Sequence[subprocess.Popen[bytes]]:
        peers = start_together(
            cluster, ["selftest-peer", str(place)], selftest_two_nodes.NODES, selftest_two_nodes.SECONDS
        )
        return [] if peers is None else [peers]

    result = selftest.run(folder, session.stop.wait, report, start_peers, fill_quota=parsed.fill_quota)
    session.receipt(result)
    if session.as_json:
        output.show_json(result)
    else:
        output.show_checks(str(folder), result["results"])
        mount = f"{result['kind']} ({result['mount_options']}) on {result['host']}"
        versions = f"penstock {result['penstock']}, Linux {result['probe']['kernel']}"
        output.show(f"  {mount}; {versions}; {human.duration(result['seconds'])}")
        if result["contradicts"]:
            output.show(f"  {human.counted(result['contradicts'], 'row')} not as it should be")
    return CONTRADICTED if result["contradicts"] else 0


def _folder(parsed: argparse.Namespace, session: Session) -> Path:
    """Return the folder of the command line, else `target.root`. Raises ConfigError for a wrong
    configuration, even an unneeded one. It refuses folders below none of the site's roots, since a selftest
    writes. Raises PreflightError for what is no folder, and where a server is away."""
    from penstock.config import loader
    from penstock.core.errors import PreflightError
    from penstock.fs import watched_facts

    folder: Path = parsed.folder
    if folder is None or command_options.chosen(parsed.config) is not None:
        root = session.config().target.root
        folder = root if folder is None else folder
    # before any call on the folder, which would wait for a server that is away
    watched_facts.require_answer(folder)
    loader.check_place(folder)
    if not folder.is_dir():
        raise PreflightError(
            "there is no such folder", where=str(folder), hint="make it, or name another one"
        )
    return folder.absolute()


def _cluster(parsed: argparse.Namespace, session: Session) -> ClusterConfig:
    """Return the configuration's cluster, or without one the given backend with defaults."""
    from penstock.config.settings import ClusterConfig

    if command_options.chosen(parsed.config) is not None:
        return session.config().cluster
    return ClusterConfig(backend=parsed.backend or ClusterConfig.backend)


SELFTEST = CommandFunctions(selftest_arguments, run_selftest, SELFTEST_EXAMPLES)
