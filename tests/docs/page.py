"""Runs the commands of a Markdown page, and compares what they print with what the page shows.

    python -m tests.docs.page docs/tutorial.md            # ends with 1 where the page shows something else
    python -m tests.docs.page docs/tutorial.md --write    # writes what was printed into the page

Blocks of `sh` are one session of `bash -e` in the order of the page, by an ordinary account, in an empty
folder below a HOME of its own. The next block of `text`, where no other of `sh` comes first, is what they
print, standard error included, with /home/you in place of HOME. A line that ends with `# ends with 4` has
that exit status, all others have 0. The section on SLURM needs a cluster that SLURM_CONF names
(`make cluster-up`).
"""

from __future__ import annotations

import argparse
import difflib
import os
import pwd
import re
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.cluster.machine import remove
from tests.cluster.place import job_user

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BIN = Path(sys.executable).parent
SECONDS = 500.0
"""That a page may take on a loaded machine."""
VARIES = (
    (r"^(/\S+) +\w{3} \d\d \w{3} \d\d:\d\dZ +[\d.]+ [KMGTP]iB free$", r"\1 MOMENT SIZE free"),
    (r"^\d\d:\d\d:\d\d \S+ \w+: (?!started|done).*\n", ""),
    (r"^  Queue wait .*\n", ""),
    (r"^  (Resumed|Speed|Steps took|Resources|Run time|How)\b.*", r"  \1"),
    (r"\d{8}-[0-9a-f]{8}\b", "RELEASE"),
    (r"\d{8}T\d{6}\.\d+Z-RELEASE-[0-9a-f]{6}", "AUDIT"),
    (r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d:\d\dZ)?|\b\d\d:\d\d:\d\d\b", "TIME"),
    (r"\b[0-9a-f]{16,}\b", "DIGEST"),
    (r"\bowner \w+", "owner USER"),
    (r"\bpin [\w-]+: \w+, process \d+ \(bash\) on [\w.-]+", "pin PIN: USER, process ID (bash) on HOST"),
    (r"\bpin [\w-]+: \w+, job \d+ of cluster \w+", "pin PIN: USER, job ID of cluster NAME"),
    (r"\bjob \d+", "job ID"),
    (r"[\d.]+ ([KMG]i)?B/s", "RATE"),
    (r"\b(\d+ d )?(\d+ h )?(\d+ min )?\d+(\.\d+)? (ms|s|min|h|d)\b", "DURATION"),
    (r"\bof them [\d.]+ [KMG]iB", "of them SIZE"),
    (r"copying [\d.]+ %", "copying N %"),
    (r"^  readers .*\n( {12}.*\n)?", "  readers\n"),
    (r"\b\w+ on /\S*, [\d.]+ [KMGTP]iB free", "FILE SYSTEM, SIZE free"),
    (r"\b(cold|reread)\b", "GRADE"),
    (r"\((direct|cached)\)", "(READ)"),
    (r" {2,}", "  "),
)
"""What differs from run to run and machine to machine (tmpfs reads nothing `cold`), and what stands for it
on both sides. The first are progress of what takes long, and what is shown where a queue was waited for."""
_PART = re.compile(
    r"^```(?P<kind>\w*)\n(?P<body>.*?)^```$|^#+ (?P<heading>[^\n]+)$", re.MULTILINE | re.DOTALL
)
_ENDS_WITH = re.compile(r"^(.*\S) +# ends with (\d+)$", re.MULTILINE)


@dataclass
class Block:
    """Commands of a page, below the heading `section`; or what another fence of the page holds."""

    section: str
    line: int
    commands: str
    kind: str = "sh"
    """The word behind the fence."""
    shown: tuple[int, int] | None = None
    """Where in the page stands what they print."""


def blocks(text: str, kinds: Sequence[str] = ("sh",)) -> list[Block]:
    """The blocks of these kinds, in their order."""
    section, listed = "", list[Block]()
    for part in _PART.finditer(text):
        section = part["heading"] or section
        if part["kind"] in kinds:
            line = text.count("\n", 0, part.start()) + 2
            listed.append(Block(section, line, part["body"], part["kind"]))
        elif part["kind"] == "text" and listed and not listed[-1].shown:
            listed[-1].shown = part.span("body")
    return listed


def normal(printed: str) -> str:
    for pattern, word in VARIES:
        printed = re.sub(pattern, word, printed, flags=re.MULTILINE)
    return "\n".join(line.rstrip() for line in printed.rstrip().splitlines())


def run(
    session: Sequence[Block], name: str, *, path: str = f"{BIN}:/usr/bin:/bin",
    instead: Mapping[str, str] | None = None, env: Mapping[str, str] | None = None, folder: str = "/tmp",
) -> list[str]:  # fmt: skip
    """What each block prints. Text of `instead` is run as what stands beside it: it must occur. Raises
    AssertionError at the first command that does not end as the page says."""
    account = pwd.getpwnam(job_user())
    switched = account.pw_uid != os.geteuid()
    switch: dict[str, Any] = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    home = Path(tempfile.mkdtemp(prefix="page-", dir=folder))
    try:
        work, outputs = home / name, home / ".outputs"
        for made in (home, work, outputs):
            made.mkdir(exist_ok=True)
            made.chmod(0o755)
            os.chown(made, account.pw_uid, account.pw_gid)
        given = {"PATH": path, "HOME": str(home), "USER": account.pw_name, "LANG": "C.UTF-8", "COLUMNS": "80"}
        given |= {} if account.pw_uid else {"PENSTOCK_AS_ROOT": "1"}
        files = [outputs / str(number) for number in range(len(session))]
        script = home / ".script"
        script.write_text(_script(session, files, instead or {}))
        process = subprocess.Popen(
            ["bash", "-e", str(script)], cwd=work, env={**given, **(env or {})}, stdin=subprocess.DEVNULL,
            start_new_session=True, **(switch if switched else {}),
        )  # fmt: skip
        try:
            status = process.wait(SECONDS)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        printed = [file.read_text().replace(str(home), "/home/you") for file in files if file.exists()]
        last = session[len(printed) - 1]
        assert not status, f"{name}, line {last.line}, ended with {status}:\n{last.commands}{printed[-1]}"
        return printed
    finally:
        remove(home)


def _script(session: Sequence[Block], files: Sequence[Path], instead: Mapping[str, str]) -> str:
    text = 'ends_with() { [ "$2" -eq "$1" ] || { echo "it ended with $2, not with $1"; exit 1; }; }\n'
    for block, file in zip(session, files, strict=True):
        text += f"exec >{file} 2>&1\n"
        text += _ENDS_WITH.sub(r"status=0; { \1; } || status=$?; ends_with \2 $status", block.commands)
    for shown, ran in instead.items():
        assert shown in text, f"no block of the page has {shown}"
        text = text.replace(shown, ran)
    return text


def differences(text: str, session: Sequence[Block], printed: Sequence[str]) -> str:
    """What the page shows otherwise than it was printed, as a difference; "" where nothing is."""
    lines = list[str]()
    for block, output in zip(session, printed, strict=True):
        if block.shown:
            page, real = normal(text[slice(*block.shown)]), normal(output)
            lines += difflib.unified_diff(
                page.splitlines(), real.splitlines(), f"page, line {block.line}", "printed", lineterm=""
            )
    return "\n".join(lines)


def written(text: str, session: Sequence[Block], printed: Sequence[str]) -> str:
    """The page with what was printed, where that is not what it shows."""
    for block, output in reversed([*zip(session, printed, strict=True)]):
        if block.shown and normal(text[slice(*block.shown)]) != normal(output):
            begin, end = block.shown
            text = text[:begin] + output.rstrip() + "\n" + text[end:]
    return text


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.docs.page", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("page", type=Path)
    parser.add_argument("--write", action="store_true", help="write what was printed into the page")
    options = parser.parse_args()
    text = options.page.read_text()
    env = {name: value for name, value in os.environ.items() if name == "SLURM_CONF"}
    session = [block for block in blocks(text) if env or "SLURM" not in block.section]
    if len(session) < len(blocks(text)):
        print("without the section on SLURM, since SLURM_CONF names no cluster", file=sys.stderr)
    printed = run(session, options.page.stem, env=env)
    if options.write:
        options.page.write_text(written(text, session, printed))
        return 0
    if different := differences(text, session, printed):
        print(different)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
