"""For all tests: a skip is a failure where everything must run; no test leans on the surroundings."""

from __future__ import annotations

import gc
import os
import signal
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.support import pure, warm
from tests.support.requirements import pytest_report_header, pytest_terminal_summary

from penstock.fs import probe
from penstock.host import kernel_facts

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["pytest_report_header", "pytest_terminal_summary"]
# Many tests run as root, and so does what they start: as `--as-root` of the command line.
os.environ["PENSTOCK_AS_ROOT"] = "1"
ALL = os.environ.get("PENSTOCK_TEST_ALL") == "1"


def pytest_configure(config: pytest.Config) -> None:
    """Processes that run tests, not xdist's controller, start penstock's processes warm. What a shell starts
    in the background ignores SIGINT, and SIGHUP what nohup starts, as would all that tests start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    controls = config.getoption("numprocesses", None) and not hasattr(config, "workerinput")
    starts_none = config.pluginmanager.has_plugin("tests.support.pure")
    if not controls and not config.getoption("collectonly") and not starts_none:
        warm.enter()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays until the end: the garbage collector need not search it, now or later (a sixth
    of the collection's CPU, and of each full search afterwards 0.4 s)."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with few tests come first: their tests are the long ones, and a worker that begins such a file
    last keeps all others waiting. The last are pure ones, which take a second."""
    tests = Counter(item.path for item in items)
    last = {path: pure.pure(path) for path in tests}
    items.sort(key=lambda item: (last[item.path], tests[item.path]))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With PENSTOCK_TEST_ALL=1 a test that cannot run fails and says why."""
    report = yield
    if ALL and report.skipped and not hasattr(report, "wasxfail"):
        reason = call.excinfo.value if call.excinfo else "skipped"
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid}: cannot run here, and PENSTOCK_TEST_ALL=1: {reason}"
    # Names that are not UTF-8 are this project's daily bread; the channel between pytest's workers
    # takes no lone surrogates and would die of a log line.
    report.sections = [(name, _encodable(text)) for name, text in report.sections]
    if report.failed and _encodable(text := str(report.longrepr)) != text:
        report.longrepr = _encodable(text)
    return report


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


@pytest.fixture(autouse=True)
def _cold_start(request: pytest.FixtureRequest) -> Generator[None]:
    cold = request.node.get_closest_marker("cold_start") is not None
    if cold:
        warm.leave()
    yield
    if cold:
        warm.resume()


@pytest.fixture(autouse=True, scope="session")
def _own_state(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What an account keeps of datasets without a state (`dataset.staging_notice`) is not this person's."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("own-state"))


@pytest.fixture(autouse=True)
def _own_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the person at the terminal has set must not reach the tests, nor what the test before entered."""
    kernel_facts.enter_job(kernel_facts.JobEnvironment())
    for name in list(os.environ):
        if name.startswith(("AWS_", "PENSTOCK_", "SNAKEMAKE_", "SLURM_", "SBATCH_")) and name not in _KEPT:
            monkeypatch.delenv(name)
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture(autouse=True)
def _short_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """What plan makes in this process to measure the target's rates is one file and one link: half of the
    probe's CPU."""
    monkeypatch.setattr(probe, "SECONDS", 0.0)


_KEPT = {"PENSTOCK_AS_ROOT", "PENSTOCK_TEST_ALL", "PENSTOCK_TEST_CACHE"}
