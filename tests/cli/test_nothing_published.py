"""Each command about releases, of a dataset of which nothing is staged yet: a status, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.commands import penstock
from tests.support.staging_runs import tree

if TYPE_CHECKING:
    from pathlib import Path

RUN = "penstock --config c.yaml run d` stages"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("audit", "d"), 3, RUN),
        (("repair", "d"), 3, RUN),
        (("describe", "d"), 3, RUN),
        (("gate", "d"), 4, "run `penstock --config c.yaml run d`"),
        (("path", "d"), 4, "run `penstock --config c.yaml run d`"),
        (("rollback", "d"), 4, RUN),
        (("remove", "d", "x"), 2, "there is no release x"),
        (("gc", "d", "--unpin", "x"), 3, "there is no pin x"),
        (("diff", "d"), 2, "there is no dataset d"),
        (("show", "d"), 2, "there is no dataset d"),
        (("gc",), 0, "d: removed 0 of 0 releases"),
        (("history", "d"), 0, "no history"),
        (("du", "d"), 0, "nothing is published or staged here yet"),
        (("releases",), 0, "nothing is published or staged here yet"),
        (("status", "d"), 0, "run `penstock --config c.yaml run d`"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_it_says_so(tmp_path: Path, words: tuple[str, ...], code: int, told: str) -> None:
    source = tree(tmp_path / "source", {"a": b"1"})
    (tmp_path / "c.yaml").write_text(
        f"target: {{root: {tmp_path}/target, keep_free: 0}}\ndatasets: {{d: {{source: {source}}}}}\n"
    )
    done = penstock("--config", "c.yaml", *words, cwd=tmp_path)
    said = done.stdout + done.stderr
    assert done.returncode == code, said
    assert told in said
    assert "Traceback" not in said
    assert "another account" not in said
