"""Which files `make quick` takes."""

from __future__ import annotations

from tests.support import pure

TESTS = pure.ROOT / "tests"


def test_files_that_are_left_out_by_name_are_there() -> None:
    for name in pure.STARTS | pure.LONG:
        assert (TESTS / name).is_file(), name


def test_a_file_is_pure_by_all_that_it_imports() -> None:
    assert pure.pure(TESTS / "core/test_seal.py")
    assert not pure.pure(TESTS / "support/test_warm.py")  # subprocess
    assert not pure.pure(TESTS / "run/conftest.py")  # staging_runs, through whole_way
    assert not pure.pure(TESTS / "engine/test_shared_memory.py")  # os.fork
    assert not pure.pure(TESTS / "target/test_permissions.py")  # forked


def test_files_that_are_left_out_by_name_are_pure_otherwise() -> None:
    assert [name for name in pure.STARTS | pure.LONG if not pure.pure(TESTS / name)] == []
