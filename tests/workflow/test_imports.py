"""What the workflow imports of the package is there: neither mypy nor the linters read rule files."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
RULES = [
    CHECKOUT / "Snakefile",
    CHECKOUT / "workflow/Snakefile",
    *sorted((CHECKOUT / "workflow").rglob("*.smk")),
]
IMPORT = re.compile(r"^\s*from (penstock[\w.]*) import ([\w, ]+)$", re.MULTILINE)


@pytest.mark.parametrize("rules", RULES, ids=lambda path: path.name)
def test_names_that_rules_import_exist(rules: Path) -> None:
    for module, names in IMPORT.findall(rules.read_text()):
        for name in names.replace(" ", "").split(","):
            held = importlib.import_module(module)
            assert hasattr(held, name) or importlib.import_module(f"{module}.{name}"), f"{module}.{name}"
