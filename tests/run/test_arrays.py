from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

import pytest
from tests.support.scripted_cluster import DONE, FAILED, LOST, Stage, staged
from tests.support.staging_runs import events_of

from penstock.core.errors import (
    FailedError,
    InterruptedRunError,
    LockedError,
    NoSpaceError,
    SourceChangedError,
)
from penstock.dataset.submission_log import ArrayBook
from penstock.host import interpreter
from penstock.jobs.arrays.array_runner import still_alive

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.cluster.port import ArraySpec, State


def test_only_elements_without_a_receipt_are_submitted(tmp_path: Path) -> None:
    stage = staged(tmp_path)
    stage.receipt(1)
    stage.go([0, 1, 2])
    assert [list(spec.indices) for spec in stage.cluster.arrays.values()] == [[0, 2]]
    stage.go([0, 1, 2])
    assert len(stage.cluster.arrays) == 1
    assert ArrayBook(stage.run.arrays).open() == []


def test_an_elements_command_names_the_runs_folder_and_the_configured_root(tmp_path: Path) -> None:
    stage = staged(tmp_path)
    stage.go([0])
    command = list(stage.cluster.arrays["1"].command)
    assert command[0].startswith("/")
    assert command[: command.index("element")] == interpreter.command("penstock")
    assert command[command.index("element") :] == [
        "element", "--run", str(stage.run.folder),
        "--root", str(stage.context.config.target.root), "--step", "copy", "--attempt", "auto",
    ]  # fmt: skip


def test_failed_elements_alone_are_submitted_again(tmp_path: Path) -> None:
    box: list[Stage] = []

    def how(index: int, tries: int) -> State:
        if index == 1 and tries < 3:
            return FAILED
        box[0].receipt(index)
        return DONE

    box.append(Stage(tmp_path, how))
    box[0].go([0, 1, 2])
    assert [list(spec.indices) for spec in box[0].cluster.arrays.values()] == [[0, 1, 2], [1], [1]]
    assert len({spec.name for spec in box[0].cluster.arrays.values()}) == 3


def test_when_tries_are_used_up_everything_that_failed_is_named(tmp_path: Path) -> None:
    box: list[Stage] = []

    def how(index: int, _: int) -> State:
        if index == 0:
            box[0].receipt(0)
            return DONE
        failures = [["a/b", "404"], ["odd\nname", "404"]]
        box[0].outcome(index, exit_code=1, retry=True, failed=30, failures=failures)
        return FAILED

    box.append(Stage(tmp_path, how))
    box[0].retries(1)
    with pytest.raises(FailedError) as failed:
        box[0].go([0, 1])
    text = str(failed.value)
    assert failed.value.exit_code == 1
    assert text.startswith("copy: 1 element did not finish [data]\n")
    assert "element 1 on n1: so" in text
    assert '"odd\\nname": 404' in text
    assert "and 28 more" in text
    assert len(box[0].cluster.arrays) == 2


@pytest.mark.parametrize(
    ("codes", "kind"),
    [((5, 5), SourceChangedError), ((5, 1), FailedError), ((6, 1), NoSpaceError), ((1, 1), FailedError)],
)
def test_the_exit_status_follows_from_all_failures(
    tmp_path: Path, codes: tuple[int, int], kind: type[Exception]
) -> None:
    box: list[Stage] = []

    def how(index: int, _: int) -> State:
        box[0].outcome(index, exit_code=codes[index], retry=False, error="why")
        return FAILED

    box.append(Stage(tmp_path, how))
    with pytest.raises(kind) as failed:
        box[0].go([0, 1])
    assert type(failed.value) is kind
    assert len(box[0].cluster.arrays) == 1, "what cannot help is not tried again"


def test_a_target_too_full_for_an_outcome_is_told_by_the_exit_status(tmp_path: Path) -> None:
    stage = Stage(tmp_path, lambda _i, _t: FAILED, reason="exit 6", exit_code=6)
    with pytest.raises(NoSpaceError, match="copy: 2 elements did not finish") as failed:
        stage.go([0, 1])
    text = str(failed.value)
    assert "element 0 on n0: exit 6: the target has no space, inodes or quota left" in text
    assert "free now" in text
    assert len(stage.cluster.arrays) == 1, "what cannot help is not tried again"


def test_of_many_elements_that_failed_some_are_named(tmp_path: Path) -> None:
    stage = Stage(tmp_path, lambda _i, _t: FAILED)
    stage.retries(0)
    with pytest.raises(FailedError, match="copy: 80 elements did not finish") as failed:
        stage.go(range(80))
    lines = str(failed.value).splitlines()
    assert sum("element 4" in line for line in lines) == 11
    assert not any("element 50" in line for line in lines)
    assert any("and 30 elements more" in line for line in lines)


def test_a_reason_is_for_people_and_is_not_read(tmp_path: Path) -> None:
    stage = Stage(tmp_path, lambda _i, _t: FAILED, reason="exit 6")
    with pytest.raises(FailedError) as failed:
        stage.go([0])
    assert type(failed.value) is FailedError
    assert len(stage.cluster.arrays) == 3, "it may have been killed: that is tried again"


def test_done_without_a_receipt_is_not_done(tmp_path: Path) -> None:
    stage = Stage(tmp_path, lambda _i, _t: DONE, kind="local")
    with pytest.raises(FailedError, match="did not finish"):
        stage.go([0])
    assert len(stage.cluster.arrays) == 3


def test_a_receipt_counts_when_the_cluster_has_forgotten_the_element(tmp_path: Path) -> None:
    box: list[Stage] = []

    def how(index: int, _: int) -> State:
        box[0].receipt(index)
        return LOST

    box.append(Stage(tmp_path, how))
    assert box[0].go([0])[0].state is LOST


def test_a_late_receipt_is_waited_for(tmp_path: Path) -> None:
    stage = Stage(tmp_path, lambda _i, _t: DONE)
    threading.Timer(0.3, stage.receipt, [0]).start()
    stage.go([0])
    assert len(stage.cluster.arrays) == 1


def test_a_live_array_is_met_again_by_its_id(tmp_path: Path) -> None:
    stage = staged(tmp_path, queries_until_end=4)
    stage.context.stop.set(15)
    stage.cluster.on_query = lambda: stage.context.stop.set(15)
    stage.context.stop.event.clear()
    with pytest.raises(InterruptedRunError):
        stage.go([0, 1])
    assert stage.cluster.cancelled == []
    assert "penstock cancel data" in stage.texts("warning")[0]
    stage.context.stop.event.clear()
    stage.cluster.on_query = lambda: None
    assert still_alive(stage.context, "data", stage.run, "copy") == ["1"]
    stage.go([0, 1])
    assert list(stage.cluster.arrays) == ["1"]


def test_an_array_whose_id_was_lost_is_found_by_its_name(tmp_path: Path) -> None:
    stage = staged(tmp_path, queries_until_end=3)
    submit = stage.cluster.submit

    def die_before_it_is_written_down(spec: ArraySpec) -> str:
        submit(spec)
        raise KeyboardInterrupt

    stage.cluster.submit = die_before_it_is_written_down  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        stage.go([0, 1])
    stage.cluster.submit = submit  # type: ignore[method-assign]
    stage.go([0, 1])
    assert list(stage.cluster.arrays) == ["1"]


def test_an_intent_that_was_never_carried_out_is_submitted_anew(tmp_path: Path) -> None:
    stage = staged(tmp_path)
    ArrayBook(stage.run.arrays).intend("penstock-x", "copy", "slurm", [0])
    stage.go([0])
    assert list(stage.cluster.arrays) == ["1"]


def test_arrays_of_a_local_controller_that_died_are_forgotten(tmp_path: Path) -> None:
    stage = staged(tmp_path)
    book = ArrayBook(stage.run.arrays)
    book.intend("penstock-x", "copy", "local", [0])
    book.submitted("penstock-x", "local-1-1")
    stage.go([0])
    assert list(stage.cluster.arrays) == ["1"]


def test_arrays_on_slurm_are_not_doubled_by_a_local_run(tmp_path: Path) -> None:
    stage = staged(tmp_path, kind="local")
    book = ArrayBook(stage.run.arrays)
    book.intend("penstock-x", "copy", "slurm", [0])
    book.submitted("penstock-x", "77")
    with pytest.raises(LockedError, match="array 77"):
        stage.go([0])


def test_a_silent_controller_is_told_of_once_and_ends_nothing(tmp_path: Path) -> None:
    stage = staged(tmp_path, silent=5)
    stage.go([0])
    assert len(stage.texts("warning")) == 1
    assert "does not answer" in stage.texts("warning")[0]
    assert stage.texts("note") == ["the cluster answers again"]
    assert len(stage.cluster.arrays) == 1


def test_large_arrays_are_split_by_number_and_by_span(tmp_path: Path) -> None:
    stage = staged(tmp_path, most=3)
    stage.go([0, 1, 2, 3, 9, 10, 14])
    assert [(list(s.indices), s.base) for s in stage.cluster.arrays.values()] == [
        ([0, 1, 2], 0), ([0], 3), ([0, 1], 9), ([0], 14),
    ]  # fmt: skip


def test_an_array_of_indices_beyond_the_first_is_met_again(tmp_path: Path) -> None:
    stage = staged(tmp_path, most=3, queries_until_end=4)
    for index in (0, 1, 2):
        stage.receipt(index)
    stage.cluster.on_query = lambda: stage.context.stop.set(15)
    with pytest.raises(InterruptedRunError):
        stage.go(range(5))
    stage.context.stop.event.clear()
    stage.cluster.on_query = lambda: None
    (noted,) = [json.loads(line) for line in stage.run.arrays.read_text().splitlines() if "intent" in line]
    assert (noted["indices"], noted["base"], noted["format"]) == ([3, 4], 3, 1)
    (left,) = ArrayBook(stage.run.arrays).open("copy")
    assert (left.indices, left.numbers) == ((3, 4), [0, 1])
    assert {index: status.state for index, status in stage.go(range(5)).items()} == {3: DONE, 4: DONE}
    assert list(stage.cluster.arrays) == ["1"]


def test_all_arrays_of_a_step_are_asked_of_in_one_query(tmp_path: Path) -> None:
    """S26."""
    box: list[Stage] = []

    def how(index: int, tries: int) -> State:
        if index == 0 and tries == 1:
            return FAILED
        box[0].receipt(index)
        return DONE

    lasts = lambda index, tries: 2 if index == 0 and tries == 1 else 9  # noqa: E731
    box.append(Stage(tmp_path, how, lasts=lasts, slot_count=8))
    box[0].go(range(4))
    cluster = box[0].cluster
    assert len(cluster.arrays) == 2
    assert cluster.asked == {"1": 9, "2": 9}
    assert cluster.queries == 11, "while both lived, one query asked of both"


def test_what_waits_for_an_array_of_its_own_costs_one_read(tmp_path: Path) -> None:
    stage = staged(tmp_path, most=2, queries_until_end=10)
    reads: dict[int, int] = {}
    had = stage.has

    def has(index: int) -> bool:
        reads[index] = reads.get(index, 0) + 1
        return had(index)

    stage.has = has  # type: ignore[method-assign]
    stage.go(range(6))
    assert max(reads.values()) <= 4, reads


def test_a_stop_ends_local_elements(tmp_path: Path) -> None:
    stage = staged(tmp_path, kind="local", queries_until_end=100)
    stage.cluster.on_query = lambda: stage.context.stop.set(2)
    with pytest.raises(InterruptedRunError) as stopped:
        stage.go([0])
    assert stopped.value.exit_code == 130
    assert stage.cluster.cancelled == ["1"]


def test_progress_is_monotonic_and_ends_with_the_receipts(tmp_path: Path) -> None:
    stage = staged(tmp_path, queries_until_end=5)
    seen = 0

    def running() -> None:
        nonlocal seen
        seen += 1
        path = stage.run.progress("copy", 0)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"files": 0, "bytes": 9 - 3 * (seen % 2), "failed": 0}))

    stage.cluster.on_query = running
    stage.go([0, 1])
    counts = [e.data["bytes"] for e in events_of(stage.context) if e.kind == "progress"]
    assert counts == sorted(counts)
    assert counts[-1] == 20
    states = [(e.data["index"], e.data["state"]) for e in events_of(stage.context) if e.kind == "element"]
    assert states == [(0, "running"), (1, "running"), (0, "done"), (1, "done")]


def test_the_book_survives_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "arrays.jsonl"
    book = ArrayBook(path)
    book.intend("a", "copy", "slurm", [0, 1])
    book.submitted("a", "7")
    with path.open("ab") as stream:
        stream.write(b'{"intent": "b", "st')
    book.intend("c", "verify", "slurm", [2])
    assert [(s.name, s.array, list(s.indices)) for s in book.open()] == [("a", "7", [0, 1]), ("c", "", [2])]
    assert [s.name for s in book.open("verify")] == ["c"]
    book.ended("a")
    assert [s.name for s in book.open()] == ["c"]
