"""Builds the documentation as a site: `python docs/website.py [FOLDER]` (`make docs`; by default dist/site).

The pages are those of docs/, a few others of the checkout, and a page of all options made from the parser. A
link to a page or heading that does not exist fails the build. The site needs no web server and loads nothing
from another machine.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli import argument_parser
from penstock.cli.command_table import COMMANDS, GROUPS, STEP, Command

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

HERE = Path(__file__).parent
CHECKOUT = HERE.parent
SOURCES = HERE / "website"
# pages outside docs/, and their names on the site
OTHERS = {
    "benchmarks/README.md": "benchmarks.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "config/README.md": "workflow-config.md",
    "tests/beegfs_bed/README.md": "beegfs-bed.md",
}
COPIED = (".md", ".svg", ".yaml", ".json")
UNSEARCHED = (
    "benchmarks.md",
    "changelog.md",
    "contributing.md",
    "beegfs-bed.md",
    "decisions",
)  # history, development
# sections of the navigation, each with its pages in order; a page is a glob below docs/
SECTIONS = {
    "Start": ("README.md", "tutorial.md", "install.md"),
    "How to": ("how-to/*.md", "training-jobs.md", "adopt.md", "snakemake.md"),
    "Operate": ("runbook.md", "troubleshooting*.md", "monitoring.md", "selftest.md", "host-tuning.md"),
    "Reference": (
        "commands.md",
        "options.md",
        "configuration*.md",
        "environment*.md",
        "sources*.md",
        "slurm*.md",
        "filesystems*.md",
        "bandwidth.md",
        "planning.md",
        "releases.md",
        "retention.md",
        "signatures.md",
        "descriptions.md",
        "site*.md",
        "workflow-config.md",
        "formats.md",
        "glossary.md",
        "changelog.md",
    ),
    "Explanation": (
        "runs.md",
        "audit*.md",
        "design.md",
        "architecture.md",
        "speed.md",
        "benchmarks.md",
        "scale.md",
        "decisions/README.md",
        "decisions/*.md",
        "contributing.md",
        "beegfs-bed.md",
    ),
}
SHIM = "iframe-worker.js"  # a worker for pages that are opened as files; the search runs in it
SHIM_ADDRESS = "https://unpkg.com/iframe-worker/shim"


def build(site: Path) -> None:
    """Write the site to `site`, which is replaced. Raises SystemExit with what is wrong with a page."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        pages = folder / "pages"
        collect(pages)
        settings = (SOURCES / "zensical.toml").read_text(encoding="utf-8")
        nav = f"[project]\nnav = {_toml(navigation(pages))}\n"
        (folder / "zensical.toml").write_text(settings.replace("[project]\n", nav, 1), encoding="utf-8")
        command = [Path(sys.executable).with_name("zensical"), "build", "--strict"]
        built = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if built.returncode:
            text = re.sub("\x1b\\[[0-9;]*m", "", built.stdout)
            raise SystemExit(f"docs: the site is not built\n{text}")
        _load_nothing_from_elsewhere(folder / "site")
        shutil.rmtree(site, ignore_errors=True)
        shutil.copytree(folder / "site", site)


def collect(pages: Path) -> None:
    """Write all pages below `pages`, with links that lead from page to page there."""
    for file in HERE.rglob("*"):
        if file.suffix in COPIED and SOURCES not in file.parents:
            _copy(file, pages / file.relative_to(HERE))
    for source, name in OTHERS.items():
        _copy(CHECKOUT / source, pages / name)
    for name in ("extra.css", "extra.js"):
        shutil.copyfile(SOURCES / name, pages / name)
    (pages / "options.md").write_text("".join(f"{line}\n" for line in _options()), encoding="utf-8")


def navigation(pages: Path) -> list[tuple[str, list[str]]]:
    """Return sections with the names of their pages. Raises SystemExit for a page that is in no section."""
    order: list[tuple[str, list[str]]] = []
    placed: set[str] = set()
    for section, globs in SECTIONS.items():
        names = [
            str(page.relative_to(pages))
            for glob in globs
            for page in sorted(pages.glob(glob), key=lambda page: (page.stem.count("-"), page.name))
        ]
        names = [name for name in dict.fromkeys(names) if name not in placed]
        placed.update(names)
        order.append((section, names))
    missing = {str(page.relative_to(pages)) for page in pages.rglob("*.md")} - placed
    if missing:
        raise SystemExit(
            f"docs: in no section of the navigation (docs/website.py): {', '.join(sorted(missing))}"
        )
    return order


def _copy(file: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix != ".md":
        shutil.copyfile(file, target)
        return
    text = file.read_text(encoding="utf-8")
    depth = len(target.relative_to(_pages(target)).parts) - 1
    text = re.sub(r"(\]\(|src=\")([^)\"#\s]+)", lambda link: link[1] + _moved(file, link[2], depth), text)
    if target.relative_to(_pages(target)).parts[0] in UNSEARCHED:
        text = f"---\nsearch:\n  exclude: true\n---\n{text}"
    target.write_text(text, encoding="utf-8")


def _pages(target: Path) -> Path:
    return next(parent for parent in target.parents if parent.name == "pages")


def _moved(file: Path, link: str, depth: int) -> str:
    """Return the link as it is on the site. Links to files of the checkout lead to the developers' page."""
    if re.match(r"[a-z]+:", link):
        return link
    path = (file.parent / link).resolve()
    up = "../" * depth
    if path.is_relative_to(HERE):
        return up + str(path.relative_to(HERE))
    name = str(path.relative_to(CHECKOUT))
    return up + ("README.md" if name == "README.md" else OTHERS.get(name, "contributing.md"))


def _options() -> Iterator[str]:
    """The page of all commands with their options, as `--help` shows them."""
    parser = argument_parser.build()
    yield "# All options"
    yield ""
    yield "Each command with its arguments, options and examples, as `penstock COMMAND --help` prints them."
    yield ""
    yield "## Options of all commands"
    yield ""
    yield from _table(argument_parser.actions(parser))
    shared = set(argument_parser.options(parser))
    for group in (*GROUPS, STEP):
        for command in COMMANDS:
            if command.group == group and command.of_people:
                yield from _command(command, argument_parser.of_command(parser, command), shared)


def _command(command: Command, parser: argparse.ArgumentParser, shared: set[str]) -> Iterator[str]:
    yield ""
    yield f"## penstock {command.typed}"
    yield ""
    yield f"{command.summary[0].upper()}{command.summary[1:]}."
    yield ""
    own = [
        action for action in argument_parser.actions(parser) if not shared.intersection(action.option_strings)
    ]
    yield from _table(
        [*argument_parser.arguments(parser), *(action for action in own if action.option_strings)]
    )
    yield "```"
    yield from command.examples
    yield "```"


def _table(actions: list[argparse.Action]) -> Iterator[str]:
    if not actions:
        return
    yield "| option | meaning |"
    yield "|---|---|"
    for action in actions:
        names = ", ".join(f"`{name}`" for name in action.option_strings)
        if not names or argument_parser.takes_value(action):
            names = f"{names} `{argument_parser.value_name(action)}`".strip()
        meaning = (action.help or "").replace("%%", "%").replace("|", "\\|").replace("\n", " ")
        yield f"| {names} | {meaning} |"
    yield ""


def _toml(sections: list[tuple[str, list[str]]]) -> str:
    return "[" + ", ".join(f'{{"{title}" = {names!r}}}' for title, names in sections) + "]"


def _load_nothing_from_elsewhere(site: Path) -> None:
    """The search loads a worker from another machine for pages opened as files: the site has its own copy."""
    shutil.copyfile(SOURCES / SHIM, site / "assets/javascripts" / SHIM)
    for page in site.rglob("*.html"):
        up = "../" * (len(page.relative_to(site).parts) - 1)
        text = page.read_text(encoding="utf-8").replace(SHIM_ADDRESS, f"{up}assets/javascripts/{SHIM}")
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else CHECKOUT / "dist/site"
    build(target)
    print(f"{target}/index.html")
