"""Root gives a dataset to another account, by the lines of docs/site.md."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path

import pytest
from tests.support.commands import ROOT
from tests.support.forked import forked
from tests.support.published import data_of, published
from tests.support.staging_runs import tree
from tests.support.whole_way import FILES

from penstock.config.settings import PermissionsConfig
from penstock.core.errors import FindingsError, PreflightError
from penstock.core.layout import DatasetLayout
from penstock.dataset import gate, seals
from penstock.keep import audit_tree
from penstock.target import tree_removal

NEW, READER = 4321, 4322
OPEN = PermissionsConfig(file_mode=0o444, dir_mode=0o555)


def lines_of_the_page(place: Path) -> str:
    text = (ROOT / "docs/site.md").read_text(encoding="utf-8")
    lines = re.search(r"### Another owner.*?```sh\n(.*?)```", text, re.DOTALL)
    assert lines is not None
    shell = lines[1].replace("/beegfs/datasets", str(place / "target")).replace("imagenet", "data")
    shell = re.sub(r"^.*state_root alone\n", "", shell, flags=re.MULTILINE)
    return shell.replace("$(id -u alice)", str(READER)).replace("$(id -u svc-new)", str(NEW))


@pytest.mark.skipif(os.geteuid() != 0, reason="runs the lines: only as root")
def test_the_new_owner_stages_and_gates_on() -> None:
    """By three real accounts: the old owner, root with the page's lines, the new owner."""
    place = Path(tempfile.mkdtemp(prefix="penstock-owner-"))
    try:
        place.chmod(0o755)
        (place / "target").mkdir()
        (place / "target").chmod(0o1777)
        source = tree(place / "source", FILES)
        layout = DatasetLayout(place / "target", "data")

        def stages() -> str:
            with published(place, source, permissions=OPEN) as context:
                return data_of(context).parent.name

        def gates() -> str:
            return gate.passed(layout).release

        def audits() -> list[str]:
            release = layout.current.resolve().name
            seal = seals.load(layout, release).seal
            return [row.path for row in audit_tree.tree_findings(layout, release, seal, lambda: None)]

        def shell() -> None:
            subprocess.run(["bash", "-euc", lines_of_the_page(place)], check=True, timeout=60)

        first = forked(stages, uid=READER)
        with pytest.raises(PreflightError, match=f"it belongs to uid {READER}, and this is uid {NEW}"):
            forked(stages, uid=NEW)
        with pytest.raises(FindingsError, match=f"it belongs to uid {READER}"):
            forked(gates, uid=NEW)
        layout.pins.mkdir(exist_ok=True)
        layout.pins.chmod(0o1777)
        pin = layout.pins / "of a third account"
        pin.touch()
        os.chown(pin, READER + 1, -1)
        shell()
        shell()
        assert {path.lstat().st_uid for path in layout.folder.rglob("*") if path != pin} == {NEW}
        assert pin.stat().st_uid == READER + 1
        assert forked(gates, uid=NEW) == first
        # What the account of before published is the new owner's, and no finding; what is a third one's is.
        assert audits() == []
        os.chown(place / "target/data/current/data" / next(iter(FILES)), READER, -1)
        assert audits() == []
        os.chown(place / "target/data/current/data" / next(iter(FILES)), READER + 1, -1)
        assert audits() == [next(iter(FILES))]
        os.chown(place / "target/data/current/data" / next(iter(FILES)), NEW, -1)
        (source / "more").write_bytes(b"later")
        second = forked(stages, uid=NEW)
        assert second != first
        assert forked(gates, uid=NEW) == second
        dataset = place / "target/data"
        assert (dataset / "current/data/more").read_bytes() == b"later"
        for name in FILES:
            assert (dataset / "current/data" / name).stat().st_uid == NEW
        with pytest.raises(PreflightError, match=f"it belongs to uid {NEW}, and this is uid {READER}"):
            forked(stages, uid=READER)
    finally:
        tree_removal.remove_tree(place)
