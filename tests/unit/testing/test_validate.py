"""The contract without pytest: what is checked, what is skipped and why, and how it is reported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from branchpoint.errors import InvalidCallError
from branchpoint.storage import FileCheckpointStorage, MemoryCheckpointStorage
from branchpoint.testing import CheckpointStorageContract, Place, Process, clauses, validate
from branchpoint.testing.mutants import MUTANTS, VaultPlace


class MemoryPlace(Place):
    def __init__(self) -> None:
        super().__init__()
        self.kept = MemoryCheckpointStorage()
        self.ended = 0

    def open(self) -> MemoryCheckpointStorage:
        return self.kept

    async def discard(self) -> None:
        self.ended += 1


def test_a_report_can_be_printed() -> None:
    report = validate(MemoryPlace, only=["isolation", "leftovers.a_delete_leaves_nothing"])
    assert str(report).splitlines() == [
        "MemoryCheckpointStorage: 3 passed, 0 failed, 1 skipped",
        "capabilities: lease, list_checkpoints, load_head, load_parts, prune",
        "ok   isolation.nothing_a_caller_holds_reaches_the_store",
        "ok   isolation.every_load_is_a_checkpoint_of_its_own",
        "ok   isolation.checkpoints_do_not_hinder_each_other",
        "skip leftovers.a_delete_leaves_nothing: the place has no peek()",
    ]
    assert report.ok
    assert report.failed == ()
    with pytest.raises(KeyError):
        report.outcome("keeping")


def test_what_is_lacking_is_named() -> None:
    report = validate(lambda: VaultPlace(), only=["lazy", "listing", "processes"])
    assert not report.ok  # nothing was checked
    reasons = {one.clause.partition(".")[0]: one.why for one in report.outcomes}
    assert reasons == {
        "lazy": "the storage does not declare 'load_parts'; Place.open() takes no 'lazy_over'",
        "listing": "the storage does not declare 'list_checkpoints'",
        "processes": "the place has no process",
    }
    assert {one.result for one in report.outcomes} == {"skipped"}


def test_each_clause_has_a_place_of_its_own_that_is_discarded() -> None:
    places: list[MemoryPlace] = []

    def make() -> MemoryPlace:
        places.append(MemoryPlace())
        return places[-1]

    validate(make, only=["isolation"])
    assert [place.ended for place in places] == [1] * 4  # and one to see what the storage is


def test_open_may_be_a_coroutine_function(tmp_path: Path) -> None:
    class FilePlace(Place):
        async def open(self, **options: Any) -> FileCheckpointStorage:
            return FileCheckpointStorage(tmp_path, **options)

    place = FilePlace()
    assert place.takes("lazy_over")
    assert not Place().takes("lazy_over")
    assert not place.has("peek")
    report = validate(lambda: place, only=["keeping.a_commit_stores_snapshot_lineage_and_head_as_one"])
    assert report.ok, str(report)


def test_only_names_clauses_or_groups() -> None:
    with pytest.raises(InvalidCallError, match="nonsense"):
        validate(MemoryPlace, only=["isolation", "nonsense"])
    with pytest.raises(InvalidCallError, match="isolation"):
        validate(MemoryPlace, only="isolation")


async def test_inside_a_loop_it_says_how_to_call_it() -> None:
    with pytest.raises(InvalidCallError, match=r"asyncio\.to_thread"):
        validate(MemoryPlace)


def test_a_place_that_cannot_be_opened_says_so() -> None:
    with pytest.raises(NotImplementedError, match=r"Place says by open\(\)"):
        validate(Place)


def test_a_storage_that_raises_what_nobody_expects_fails_with_the_line_that_met_it() -> None:
    class Broken(MemoryCheckpointStorage):
        async def delete(self, checkpoint_id: str) -> None:
            raise OSError("the disk is gone")

    class BrokenPlace(MemoryPlace):
        def __init__(self) -> None:
            super().__init__()
            self.kept = Broken()

    (outcome,) = validate(BrokenPlace, only=["deleting.an_id_can_be_used_again"]).outcomes
    assert outcome.result == "failed"
    assert outcome.why.startswith("OSError: the disk is gone (at `await (await place.storage()).delete(")


def test_a_process_that_cannot_open_the_place_is_a_failure_that_says_so(tmp_path: Path) -> None:
    class Alone(Place):
        process = Process("tests.storages:nobody", {"folder": str(tmp_path)})

        def open(self) -> FileCheckpointStorage:
            return FileCheckpointStorage(tmp_path)

    (outcome,) = validate(Alone, only=["processes.of_racing_processes_exactly_one_wins_every_round"]).outcomes
    assert outcome.result == "failed"
    assert outcome.why.startswith("a process of the kit ended with 1")


def test_every_clause_says_what_it_promises_and_is_a_test_of_the_class() -> None:
    for one in clauses():
        group, _, name = one.name.partition(".")
        assert one.promise != one.name and one.promise.endswith("."), one.name
        test = getattr(CheckpointStorageContract, f"test_{group}_{name}")
        assert test.__doc__ == one.promise


_BARE = """
import sys
from branchpoint.testing import validate
from branchpoint.testing.mutants import MUTANTS, VaultPlace
for mutant in MUTANTS:
    report = validate(lambda: VaultPlace(mutant.storage), only=[mutant.killed_by])
    print(mutant.name, "killed" if report.failed else "ALIVE")
print(sorted({"pytest", "hypothesis"} & set(sys.modules)))
"""


def test_without_pytest_and_without_assertions_every_mutant_is_killed() -> None:
    done = subprocess.run([sys.executable, "-O", "-c", _BARE], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [*(f"{one.name} killed" for one in MUTANTS), "[]"], done.stderr


def test_the_lineage_law_refuses_to_be_checked_without_assertions() -> None:
    code = "from branchpoint.testing import LineageLaw; LineageLaw()"
    done = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True, check=False)
    assert "run Python without -O" in done.stderr
