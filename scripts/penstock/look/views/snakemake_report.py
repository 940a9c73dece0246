"""What `snakemake --report` shows of a run beside its files: the figures of the closing summary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core import human
from penstock.look.views import summary

if TYPE_CHECKING:
    from penstock.look.views.keys import Result


def labels(result: Result, file: str) -> dict[str, str]:
    """Return a row of the report's table, by column. `file`: the file of the run that the row leads to."""
    return {
        "Dataset": human.printable(str(result.get("dataset", ""))),
        "Release": human.printable(str(result.get("release", ""))),
        "Status": str(result.get("status") or "FAILED"),
        "Unchanged": summary.amount(result.get("unchanged")),
        "Copied": summary.amount(result.get("copied")),
        "Verified": summary.amount(result.get("verified")),
        "File": file,
    }
