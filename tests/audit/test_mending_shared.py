"""`gate --mend` of a release that shares its files with others: all of them are made good, but for those that
somebody reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.published import data_of, flip, pinned_by_another, publish, published
from tests.support.staging_runs import tree

from penstock.core.findings import AuditSelection
from penstock.dataset import gate
from penstock.keep import audit_step, gate_repair
from penstock.target import notices

if TYPE_CHECKING:
    from pathlib import Path

WHOLE = gate_repair.Wish(choice=AuditSelection())
FILES = {"same": b"s" * 5000, "too": b"t" * 5000}


def test_a_file_that_a_pinned_release_shares_is_not_replaced_under_its_readers(tmp_path: Path) -> None:
    source = tree(tmp_path / "source", FILES)
    with published(tmp_path, source) as context:
        layout = context.layout("data")
        kept = [data_of(context)]
        for name in ("b", "c"):
            tree(source, {name: name.encode()})
            publish(context)
            kept.append(data_of(context))
        read, free, current = kept
        look = lambda: gate.passed(layout, release=read.parent.name)  # noqa: E731
        pin = pinned_by_another(context, look)
        flip(current / "same", 100)
        rotten = (read / "same").stat().st_ino
        result = gate_repair.run(context, "data", WHOLE)
        assert (result["status"], result["repaired"]) == ("REPAIRED", 1)
        assert result["also_repaired"] == {free.parent.name: 1}
        assert result["also_in"] == {read.parent.name: 1}
        assert (current / "same").read_bytes() == FILES["same"]
        assert (current / "same").samefile(free / "same")
        assert (read / "same").stat().st_ino == rotten
        warned = [str(event) for event in getattr(context.sink, "__self__") if "others read it" in str(event)]  # noqa: B009
        assert warned
        notices.withdraw(layout.pins, pin.name)
        flip(current / "too", 100)
        assert gate_repair.run(context, "data", WHOLE)["also_repaired"] == {
            free.parent.name: 1, read.parent.name: 1
        }  # fmt: skip
        assert audit_step.run(context, "data", audit_step.AuditRequest(read.parent.name))["counts"] == {
            "changed": 1
        }
